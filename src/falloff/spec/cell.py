"""A cell: everything that one measurement is told to do, complete in itself."""

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

from falloff.spec.layout import Layout
from falloff.spec.network import Network
from falloff.spec.reading import ImpossibleLayoutError, build, require_positive

MAX_SEED = 2**63 - 1  # what both torch's generator and a record's column hold

Dtype = Literal["float32", "bfloat16"]
Collective = Literal["all_reduce", "all_gather", "reduce_scatter"]


@dataclass(frozen=True, kw_only=True)
class TrainCell:
    """A training run of a few steps: network, layout, batch, and how it is measured.

    global_batch and microbatch count sequences; a rank of the data-parallel axes runs
    global_batch / (dp * microbatch) microbatches a step.
    """

    kind: Literal["train"] = "train"
    network: Network
    layout: Layout
    seq: int
    global_batch: int
    microbatch: int
    param_dtype: Dtype = "float32"
    reduce_dtype: Dtype = "float32"
    recompute: Literal["none", "full"] = "none"
    learning_rate: float = 3e-4
    seed: int = 0
    threads_per_process: int = 1
    warmup_steps: int = 3
    measured_steps: int = 10
    profiled_steps: int = 2

    def __post_init__(self) -> None:
        require_positive(
            self,
            "seq",
            "global_batch",
            "microbatch",
            "learning_rate",
            "threads_per_process",
            "measured_steps",
            "warmup_steps",
        )
        for name in ("profiled_steps", "seed"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative, found {getattr(self, name)}")
        if self.seed > MAX_SEED:
            raise ValueError(f"seed must be at most {MAX_SEED}, found {self.seed}")
        reasons = _why_it_cannot_run(self)
        if reasons:
            raise ImpossibleLayoutError("; ".join(reasons))

    @property
    def num_processes(self) -> int:
        """Return how many processes run the cell."""
        return self.layout.ranks

    @property
    def num_microbatches(self) -> int:
        """Return the microbatches that each data-parallel rank runs in a step."""
        return self.global_batch // (self.layout.dp * self.microbatch)

    @property
    def tokens_per_step(self) -> int:
        """Return the tokens of one step over all ranks."""
        return self.global_batch * self.seq


@dataclass(frozen=True, kw_only=True)
class CollectivesCell:
    """A sweep of collectives over message sizes in one process group.

    message_bytes is nccl-tests' size: the input of AllReduce and ReduceScatter, the output of AllGather.
    """

    kind: Literal["collectives"] = "collectives"
    num_processes: int
    collectives: tuple[Collective, ...]
    message_bytes: tuple[int, ...]
    dtype: Dtype = "float32"
    threads_per_process: int = 1
    warmup_iterations: int = 3
    measured_iterations: int = 10

    def __post_init__(self) -> None:
        require_positive(self, "num_processes", "threads_per_process", "warmup_iterations", "measured_iterations")
        if not self.collectives or not self.message_bytes:
            raise ValueError("collectives and message_bytes must each name at least one")
        for name, values in (("collectives", self.collectives), ("message_bytes", self.message_bytes)):
            for value in values:
                if values.count(value) > 1:
                    raise ValueError(f"{name} names {value} twice")
        element = 4 if self.dtype == "float32" else 2
        for size in self.message_bytes:
            if size <= 0 or size % (element * self.num_processes):
                raise ValueError(
                    f"message_bytes {size} is not a positive multiple of {element} bytes times "
                    f"{self.num_processes} processes"
                )
        if self.num_processes < 2:
            raise ImpossibleLayoutError("num_processes is 1: a collective needs at least 2")


Cell = TrainCell | CollectivesCell


def _why_it_cannot_run(cell: TrainCell) -> list[str]:
    """Return each reason, as a sentence part, why a training cell cannot run; empty where it can."""
    layout, network, reasons = cell.layout, cell.network, []
    if layout.cp > 1:
        reasons.append(f"cp is {layout.cp}, and the benchmark runs no context parallelism")
    if layout.pp > 1 and layout.ranks > layout.pp:
        reasons.append(f"pp {layout.pp} beside another axis ({layout.label}) is not run by the benchmark")
    if layout.tp > 1 and layout.dp_replicate > 1:
        reasons.append(f"tp {layout.tp} beside dp_replicate {layout.dp_replicate} is not run by the benchmark")
    if network.head_size % 2:
        reasons.append(f"a head of {network.head_size} is odd, and rotary positions turn pairs")
    for what, size in (
        ("heads", network.heads),
        ("kv_heads", network.kv_heads),
        ("ffn", network.ffn),
        ("vocab", network.vocab),
        ("seq", cell.seq),
    ):
        if size % layout.tp:
            reasons.append(f"{what} {size} is not divisible by tp {layout.tp}")
    if layout.pp > network.layers:
        reasons.append(f"pp {layout.pp} has more stages than the network has layers ({network.layers})")
    split = layout.dp * cell.microbatch
    if cell.global_batch % split:
        reasons.append(
            f"global_batch {cell.global_batch} is not divisible by dp {layout.dp} times microbatch {cell.microbatch}"
        )
    elif cell.num_microbatches < layout.pp:
        reasons.append(f"{cell.num_microbatches} microbatches are too few for pp {layout.pp} stages")
    return reasons


def cell_from_json(mapping: Any, where: str) -> Cell:
    """Return the cell that a raw log or a launch file carries; ValueError begins with `where`."""
    kind = mapping.get("kind") if isinstance(mapping, dict) else None
    if kind == "train":
        return build(TrainCell, mapping, where)
    if kind == "collectives":
        return build(CollectivesCell, mapping, where)
    raise ValueError(f"{where}: kind is {kind!r}; allowed: train, collectives")


def cell_to_json(cell: Cell) -> dict[str, Any]:
    """Return the cell as plain JSON values, every field stated."""
    return dataclasses.asdict(cell)
