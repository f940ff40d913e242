"""Comparability: which fields of two runs differ, agree or are not stated, and which make a ratio unfair."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from falloff.analysis.coverage import differing_fields
from falloff.analysis.efficiency import Row, number, tokens_per_gpu_s

Verdict = Literal["differs", "agrees", "not stated"]

# Per-GPU throughput does not rise with the machine by more than what one reading scatters.
MAX_EFFICIENCY = 1.02

# What a difference does to a comparison; None marks identity that changes no number by itself.
RUN_FIELDS: dict[str, str | None] = {
    "source": "two sources count and steady their numbers in their own ways",
    "provenance": "a reading, a table in print and a prediction are different kinds of evidence",
    "outcome": "a run that failed has at most its first steps",
    "network": "another network is other work per token",
    "params": "another network is other work per token",
    "active_params": "another network is other work per token",
    "layers": "another network is other work per token",
    "hidden": "another network is other work per token",
    "heads": "another network is other work per token",
    "kv_heads": "another network is other work per token",
    "ffn": "another network is other work per token",
    "vocab": "another network is other work per token",
    "task": "fine-tuning leaves out work that pretraining does",
    "seq": "attention costs more per token in a longer sequence",
    "microbatch": "larger kernels run nearer to the peak",
    "global_batch": "a larger batch hides more communication behind more work",
    "tokens_per_step": "a larger batch hides more communication behind more work",
    "dp_replicate": "the layout decides what is communicated",
    "dp_shard": "the layout decides what is communicated",
    "dp": "the layout decides what is communicated",
    "tp": "the layout decides what is communicated",
    "pp": "the layout decides what is communicated",
    "vpp": "the layout decides what is communicated",
    "cp": "the layout decides what is communicated",
    "ep": "the layout decides what is communicated",
    "sharding": "the layout decides what is communicated",
    "sequence_parallel": "the layout decides what is communicated",
    "framework": "another program, other kernels and another overlap",
    "framework_version": "versions of one program differ in speed",
    "commit": "another revision of the program may run or time another step",
    "torch": "versions of one library differ in speed",
    "cuda": "versions of one library differ in speed",
    "nccl": "versions choose other algorithms and protocols",
    "driver": "drivers differ in clocks and in speed",
    "python": None,
    "backend": "gloo and NCCL are not the same collectives",
    "compile": "compiled and eager steps launch other kernels",
    "attention": "attention kernels differ in speed",
    "recompute": "recomputation adds a forward pass to each step",
    "threads_per_process": "threads of a process share its work, and the cores",
    "environment": "settings of NCCL choose algorithms, channels and protocols",
    "seed": None,
    "warmup_steps": "a window that begins earlier holds steps that are not steady yet",
    "param_dtype": "the peak and the bytes moved follow the precision",
    "reduce_dtype": "the bytes of the gradient reduction follow the precision",
    "device": "a CPU is no GPU",
    "hardware": "another GPU has other peaks and memory",
    "gpu_name": "variants of one GPU differ in memory and power limit",
    "board_part_number": "another board may have another memory and power limit",
    "vbios": "the firmware sets clocks and power limits",
    "power_limit_w": "the power limit sets the clock under load",
    "cpu": "a CPU does the work, or launches the kernels that do",
    "cores": "processes wait for cores",
    "num_gpus": "the number of GPUs decides what is communicated",
    "gpus_per_node": "fewer GPUs in a node, more traffic between nodes",
    "nodes": "the network between nodes is slower than the links in one",
    "interconnect": "another network, other collectives",
    "site": "another site, another network and other neighbours",
    "gpu_uuids": None,
    "oversubscribed": "more processes than cores wait for each other",
}
COLLECTIVE_FIELDS: dict[str, str | None] = {
    "source": "two sources count and steady their numbers in their own ways",
    "provenance": "a reading, a table in print and a prediction are different kinds of evidence",
    "outcome": "a sweep that failed has at most its first sizes",
    "collective": "collectives move different amounts of data",
    "message_bytes": "small messages are bound by latency, large ones by bandwidth",
    "num_ranks": "the ring grows with the ranks",
    "nodes": "the network between nodes is slower than the links in one",
    "ranks_per_node": "fewer ranks in a node, more traffic between nodes",
    "dtype": "the bytes of an element change the reduction",
    "algorithm": "algorithms differ in latency and in traffic",
    "hardware": "another GPU has other links",
    "gpu_name": "variants of one GPU differ in their links",
    "device": "a CPU is no GPU",
    "backend": "gloo and NCCL are not the same collectives",
    "interconnect": "another network, other collectives",
    "commit": "another revision of the program may run or time another sweep",
    "nccl": "versions choose other algorithms and protocols",
    "torch": "versions of one library differ in speed",
    "driver": "drivers differ in speed",
    "environment": "settings of NCCL choose algorithms, channels and protocols",
    "cpu": "a CPU does the work of gloo, and launches the kernels of NCCL",
    "cores": "ranks wait for cores",
    "threads_per_process": "threads of a process share its work, and the cores",
    "warmup_iterations": "the first iterations open connections and buffers",
    "oversubscribed": "more processes than cores wait for each other",
}

# What has to change with the number of GPUs when the rest is held: not a second difference.
_FOLLOWS_GPUS = ("nodes", "dp", "dp_replicate", "dp_shard", "gpu_uuids")
_BATCH = ("global_batch", "tokens_per_step")
# fields of a cell that records hold under another name
_CELL_FIELDS_OF_RECORDS = ("network.name", "num_processes", "collectives", "message_bytes")


@dataclass(frozen=True, kw_only=True)
class FieldComparison:
    """One field of two records. matters: the difference makes a ratio of the two unfair, and why says how."""

    field: str
    a: Any
    b: Any
    verdict: Verdict
    matters: bool
    why: str


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two records, field by field. ratio is b over a in tokens/s per GPU (None: not both known)."""

    a: str
    b: str
    fields: tuple[FieldComparison, ...]
    ratio: float | None
    flags: tuple[str, ...]
    sentence: str

    def names(self, verdict: Verdict) -> tuple[str, ...]:
        """Return the fields of one verdict, in the order in which they are compared."""
        return tuple(field.field for field in self.fields if field.verdict == verdict)

    @property
    def unfair(self) -> tuple[str, ...]:
        """Return the fields that differ and matter."""
        return tuple(field.field for field in self.fields if field.matters)


def compare_records(a: Row, b: Row, axes: Sequence[str] = ()) -> Comparison:
    """Return how two records (rows of either kind of records file) compare; a is the base of the ratio.

    `axes` are the fields whose difference is the question, such as num_gpus: they are listed as differing and
    do not count as unfair, nor does what must follow from them.
    """
    compared = tuple(compare(a, b, axes))
    ratio = _ratio(a, b)
    flags = []
    grows = number(b, "num_gpus") > number(a, "num_gpus")
    if ratio is not None and grows and ratio > MAX_EFFICIENCY:
        flags.append(f"efficiency {ratio:.1%} is above {MAX_EFFICIENCY:.0%}: more per GPU on more GPUs")
    return Comparison(
        a=str(a.get("record_id")),
        b=str(b.get("record_id")),
        fields=compared,
        ratio=ratio,
        flags=tuple(flags),
        sentence=_sentence(compared, axes),
    )


def compare(a: Row, b: Row, axes: Sequence[str] = ()) -> list[FieldComparison]:
    """Return each field of two records with its verdict. What either leaves blank is not stated, never equal."""
    reasons = COLLECTIVE_FIELDS if "message_bytes" in a else RUN_FIELDS
    fields = [_compare_field(name, why, a, b, axes) for name, why in reasons.items()]
    return [*fields, *_compare_cells(a, b, reasons)]


def _compare_cells(a: Row, b: Row, reasons: Mapping[str, str | None]) -> Iterator[FieldComparison]:
    """Yield what the cells of two of our own runs state differently and no field of a record holds."""
    left, right = stated(a.get("cell_json")), stated(b.get("cell_json"))
    if left is None or right is None:
        return
    for name, values in differing_fields(left, right).items():
        if name.rpartition(".")[2] not in reasons and name not in _CELL_FIELDS_OF_RECORDS:
            why = "the cell states it; it changes no number by itself"
            yield FieldComparison(
                field=f"cell.{name}", a=values[0], b=values[1], verdict="differs", matters=False, why=why
            )


def stated(value: Any) -> Any:
    """Return a record's value with every spelling of a blank (NaN, empty text, empty list) as None."""
    if isinstance(value, np.ndarray | list | tuple):
        return tuple(value) or None
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    if isinstance(value, float) and math.isnan(value):
        return None
    return None if value is pd.NA else value


def _compare_field(name: str, why: str | None, a: Row, b: Row, axes: Sequence[str]) -> FieldComparison:
    left, right = stated(a.get(name)), stated(b.get(name))
    if left is None or right is None:
        return FieldComparison(field=name, a=left, b=right, verdict="not stated", matters=False, why="")
    if left == right:
        return FieldComparison(field=name, a=left, b=right, verdict="agrees", matters=False, why="")
    reason, matters = _weigh(name, why, a, b, axes)
    return FieldComparison(field=name, a=left, b=right, verdict="differs", matters=matters, why=reason)


def _weigh(name: str, why: str | None, a: Row, b: Row, axes: Sequence[str]) -> tuple[str, bool]:
    """Return what a difference means and whether it makes a comparison along `axes` unfair."""
    if name in axes:
        return "the axis of the comparison", False
    if why is None:
        return "changes no number by itself", False
    if "num_gpus" in axes and name in _FOLLOWS_GPUS:
        return "follows from the number of GPUs", False
    if "num_gpus" in axes and name in _BATCH and _same_per_gpu(name, a, b):
        return "the same per GPU: the batch grows with the machine (weak scaling)", False
    return why, True


def _same_per_gpu(name: str, a: Row, b: Row) -> bool:
    return math.isclose(number(a, name) / number(a, "num_gpus"), number(b, name) / number(b, "num_gpus"))


def _ratio(a: Row, b: Row) -> float | None:
    if "message_bytes" in a or "message_bytes" in b:
        return None
    ratio = tokens_per_gpu_s(b) / tokens_per_gpu_s(a)
    return ratio if math.isfinite(ratio) else None


def _sentence(compared: Sequence[FieldComparison], axes: Sequence[str]) -> str:
    """Return the verdict on the whole comparison."""
    unfair = [field.field for field in compared if field.matters]
    blank = [field.field for field in compared if field.verdict == "not stated"]
    beside = f" beside {', '.join(axes)}" if axes else ""
    if unfair:
        verb = "differs" if len(unfair) == 1 else "differ"
        return f"Not comparable in silence: {', '.join(unfair)} {verb}{beside}; {len(blank)} fields are not stated."
    if blank:
        return f"Nothing stated by both makes the comparison unfair{beside}, but {len(blank)} fields are not stated."
    return f"Comparable: every field is stated and nothing that matters differs{beside}."
