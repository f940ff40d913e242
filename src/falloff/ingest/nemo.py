"""NeMo's log: the progress bar of PyTorch Lightning with named values, and a line a step of NeMo 2 or Automodel.

A bar is printed again and again, apart by carriage returns; the last one of a step counts. Its it/s is of
micro-batches and of the whole epoch, so no rate is made of it. Steps count from 0. Values behind the bar are of the
step that global_step says, which the bar's own count may be ahead of by one; tqdm prints three digits where that is
shorter (9000 as 9e+3), and then the bar's count tells the step. train_step_timing is of one training step alone,
without evaluations and checkpoints.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from falloff.ingest import nemo_automodel
from falloff.ingest.header_text import first_match
from falloff.ingest.logtext import Line, first_number, number_of
from falloff.ingest.step_windows import rise_per_step
from falloff.ingest.training_log import LoggedStep, Settled, System
from falloff.units import TERA

_BAR = re.compile(
    r"Epoch (?P<epoch>\d+): {0,9}:? {0,9}(?:(?P<percent>\d+)%\|[^|]{0,400}\|)? {0,9}(?P<count>\d+)"
    r"(?:/(?P<total>\d+|\?))?(?:it)? \[(?P<inside>[^\[\]]*)\]"
)
_LINE = re.compile(
    r"(?<![A-Za-z])Training epoch (?P<epoch>\d+), iteration (?P<count>\d+)/(?P<total>\d+) \|(?P<rest>.*)$"
)
_IS_STEP = re.compile(
    r"Epoch \d+: .{0,2000}(?:global_step=\d|reduced_train_loss=[\d.]+(?:,|$)|train_step_timing in s=\d)"
    r"|Training epoch \d+, iteration \d+/\d+ \|"
)
_IS_NEMO = re.compile(
    r"Epoch \d+: [^\[\n]{0,200}\[[^\[\]\n]{0,1000}(?:train_step_timing in s=|reduced_train_loss=|global_step=)"
    r"|Training epoch \d+, iteration \d+/\d+ \| .{0,300}global_step: "
)
_BARS = re.compile(r"(?<=\S)(?=Epoch \d+: *:? *(?:\d+%\|)? *)")
# three digits of tqdm's: half of the last one
_ROUNDING = 0.006

# field: its names
_NAMES: Mapping[str, tuple[str, ...]] = {
    "loss": ("reduced_train_loss", "train_loss", "loss"),
    "grad_norm": ("grad_norm", "gradient_norm"),
    "step_s": ("train_step_timing in s",),
    "tokens_per_gpu_s": ("tps", "tokens_per_sec_per_gpu"),
    "teraflops": ("TFLOPS_per_GPU", "tflops_per_sec_per_gpu"),
    "global_batch": ("global_batch_size",),
    "samples_seen": ("consumed_samples",),
    "memory_bytes": ("peak_memory_usage",),
}
_PLACED = {name for names in _NAMES.values() for name in names} | {"global_step"}

_COUNTS = {
    "global_batch": ("global_batch_size",),
    "microbatch": ("micro_batch_size",),
    "seq": ("encoder_seq_length", "seq_length"),
    "tp": ("tensor_model_parallel_size",),
    "pp": ("pipeline_model_parallel_size",),
    "cp": ("context_parallel_size",),
    "ep": ("expert_model_parallel_size",),
    "layers": ("num_layers",),
    "hidden": ("hidden_size",),
    "ffn": ("ffn_hidden_size",),
    "heads": ("num_attention_heads",),
    "kv_heads": ("num_query_groups",),
}
_MEMBERS = re.compile(r"GLOBAL_RANK: \d+, MEMBER: \d+/(\d{1,9})")


def is_nemo_log(text: str) -> bool:
    """Return whether the text is NeMo's: a bar or a line of an epoch with its names for loss, time and step."""
    return bool(_IS_NEMO.search(text) or nemo_automodel.LINE.search(text))


def _join(lines: Iterable[Line]) -> Iterator[Line]:
    """Yield the last line of each step and rank, and every other line in its place."""
    held: dict[int | None, tuple[str, Line]] = {}
    done: dict[int | None, str] = {}
    for line in lines:
        for text in _BARS.split(line.text):
            piece = line._replace(text=text)
            key = _key(text)
            before = held.get(line.rank)
            if before is not None and before[0] != key:
                yield from _release(held, done, line.rank)
            if key is None:
                yield piece
            else:
                held[line.rank] = (key, piece)
    for rank in tuple(held):
        yield from _release(held, done, rank)


def _release(held: dict[int | None, tuple[str, Line]], done: dict[int | None, str], rank: int | None) -> Iterator[Line]:
    key, line = held.pop(rank)
    if done.get(rank) != key:
        yield line
    done[rank] = key


def _key(text: str) -> str | None:
    """Return what tells one step's bar from another's, None for a line that is no whole bar with a step."""
    bar = _BAR.search(text) if "global_step=" in text else None
    step = _pairs(bar["inside"]).get("global_step") if bar else None
    if bar is None or not step:
        return None
    return f"{bar['epoch']}/{step}/{bar['count'] if 'e' in step else ''}"


def _pairs(inside: str) -> dict[str, str]:
    halves = (item.partition("=") for item in inside.split(", "))
    return {name.strip(): value.strip() for name, equals, value in halves if equals}


def _parse(line: Line) -> tuple[LoggedStep, frozenset[str]] | None:
    if nemo_automodel.LINE.search(line.text):
        return nemo_automodel.parse(line)
    bar, row = _BAR.search(line.text), _LINE.search(line.text)
    match = row or bar
    if match is None or (row and not line.is_ended):
        return None
    if row:
        halves = (item.partition(": ") for item in row["rest"].split(" | "))
        found = {name.strip(): value.strip() for name, _, value in halves}
    else:
        found = _pairs(match["inside"])
    number = _step_number(found.get("global_step", ""), int(match["count"]), is_bar=row is None)
    if number is None:
        return None
    values = {field: first_number(found, names) for field, names in _NAMES.items()}
    batch = values["global_batch"]
    step = LoggedStep(
        step=number,
        total_steps=_last_step(match, number, is_bar=row is None),
        num_steps=1,
        loss=values["loss"],
        grad_norm=values["grad_norm"],
        step_s=values["step_s"] or None,
        tokens_per_gpu_s=values["tokens_per_gpu_s"] or None,
        flops_per_gpu_s=None if values["teraflops"] is None else values["teraflops"] * TERA,
        global_batch=int(batch) if batch else None,
        memory_bytes=values["memory_bytes"] or None,
        samples_seen=values["samples_seen"],
        more={name: value for name, value in found.items() if name not in _PLACED},
    )
    # consumed_samples is printed from the second step on; an evaluation's loss stays once there has been one
    return step, frozenset(found) & {"reduced_train_loss", "lr"}


def _step_number(text: str, count: int, *, is_bar: bool) -> int | None:
    value = number_of(text)
    if value is None:
        return None
    if is_bar and "e" in text and abs(count - 1 - value) <= _ROUNDING * value:
        return count - 1
    return int(value)


def _last_step(match: re.Match[str], step: int, *, is_bar: bool) -> int | None:
    """Return the last step that there shall be; None where a bar counts micro-batches or does not know."""
    if match["total"] in (None, "?"):
        return None
    total, count = int(match["total"]), int(match["count"])
    if not is_bar:  # 'iteration 9/9' is the last one of an epoch
        return step + total - count
    return total - 1 if abs(count - 1 - step) <= 1 else None


def _facts(texts: Sequence[str]) -> Mapping[str, Any]:
    found: dict[str, Any] = {}
    for field, keys in _COUNTS.items():
        for key in keys:
            pattern = re.compile(rf"\b{key}(?:: |=)(\d{{1,9}})(?=[\s,)]|$)")
            match = first_match(pattern, texts)
            if match and int(match[1]) and field not in found:
                found[field] = int(match[1])
    members = first_match(_MEMBERS, texts)
    if members and int(members[1]):
        found["num_gpus"] = int(members[1])
    return {**found, "memory_kind": "cuda peak"}


def _settle(facts: Mapping[str, Any], steps: Sequence[LoggedStep], _: Sequence[str]) -> Settled:
    """Return the facts with the samples of a step, by how its counter rises where that is printed in full."""
    rise = rise_per_step(steps, lambda step: step.samples_seen)
    return ({"global_batch": int(rise), **facts} if rise is not None and rise.is_integer() else facts), steps


NEMO = System(
    name="nemo",
    is_step=lambda text: bool(_IS_STEP.search(text) or nemo_automodel.LINE.search(text)),
    parse=_parse,
    read_facts=_facts,
    join=_join,
    ended=re.compile(r"`Trainer\.fit` stopped: `max_(?:steps|epochs)=\d+` reached"),
    settle=_settle,
)
