"""A cell: everything that one measurement is told to do, complete in itself."""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, Literal

from falloff.spec.collectives_cell import CollectivesCell
from falloff.spec.kernels_cell import KernelsCell
from falloff.spec.layout import Layout
from falloff.spec.network import Network
from falloff.spec.reading import Dtype, ImpossibleLayoutError, build, require_positive

Recompute = Literal["none", "elementwise", "selective", "full"]

MAX_SEED = 2**63 - 1  # what both torch's generator and a record's column hold


@dataclass(frozen=True, kw_only=True)
class TrainCell:
    """A training run of a few steps: network, layout, batch, how it computes and how it is measured.

    global_batch and microbatch count sequences; a rank of the data-parallel axes runs
    global_batch / (dp * microbatch) microbatches a step.
    """

    kind: Literal["train"] = "train"
    network: Network
    layout: Layout
    seq: int
    global_batch: int
    microbatch: int

    # How it computes. Weights and optimizer states are float32; param_dtype is what the forward and backward run in.
    param_dtype: Dtype = "float32"
    reduce_dtype: Dtype = "float32"
    float8: bool = False  # the linears of the blocks, by torchao
    compile: bool = False  # each block, and the loss
    attention: Literal["auto", "cudnn", "flash", "math"] = "auto"
    recompute: Recompute = "none"
    loss_chunk_tokens: int | None = None  # logits of so many tokens at a time; None: all at once
    grad_clip: float | None = None  # the norm to which gradients are cut
    learning_rate: float = 3e-4
    seed: int = 0

    # How the layout works.
    reshard_after_forward: bool = True  # False keeps each layer's parameters until its backward (ZeRO-2)
    reshard_group: int | None = None  # reshards to groups of so many ranks instead of all
    prefetch_forward: int = 1  # layers gathered ahead of the one that computes
    prefetch_backward: int = 1
    async_tp: bool = False
    pp_schedule: Literal["1f1b", "interleaved", "zero_bubble"] = "1f1b"
    vpp: int = 1  # stages a rank holds
    cp_method: Literal["all_gather", "ring"] = "all_gather"
    communication: Literal["real", "none"] = "real"  # none: each collective replaced by a local copy (a control)
    delay_factor: float = 0.0  # each collective lengthened by so many times itself (a control)

    # How it is measured. Warm-up goes on past warmup_steps until step time and clock hold still, for settle_s at most;
    # the window is measured_steps, or more where window_s asks for more.
    threads_per_process: int = 1
    warmup_steps: int = 3
    settle_s: float = 0.0
    measured_steps: int = 10
    window_s: float = 0.0
    profiled_steps: int = 2
    traced_ranks: tuple[int, ...] = (0,)

    def __post_init__(self) -> None:
        require_positive(
            self,
            "seq",
            "global_batch",
            "microbatch",
            "loss_chunk_tokens",
            "grad_clip",
            "learning_rate",
            "reshard_group",
            "vpp",
            "threads_per_process",
            "measured_steps",
            "warmup_steps",
        )
        for name in (
            "profiled_steps", "seed", "prefetch_forward", "prefetch_backward", "delay_factor", "settle_s", "window_s",
        ):  # fmt: skip
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) >= 0):
                raise ValueError(f"{name} must not be negative and be finite, found {getattr(self, name)}")
        if self.seed > MAX_SEED:
            raise ValueError(f"seed must be at most {MAX_SEED}, found {self.seed}")
        for rank in self.traced_ranks:
            if not 0 <= rank < self.layout.ranks:
                raise ValueError(f"traced_ranks names rank {rank}; the ranks are 0 to {self.layout.ranks - 1}")
        reasons = why_it_cannot_run(self)
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


Cell = TrainCell | CollectivesCell | KernelsCell


def why_it_cannot_run(cell: TrainCell) -> list[str]:
    """Return each reason, as a sentence part, why a training cell cannot run; empty where it can."""
    batch = _why_the_batch_does_not_split(cell)
    return [*_why_the_network_does_not_split(cell), *_why_options_do_not_go_together(cell), *batch]


def _why_the_network_does_not_split(cell: TrainCell) -> list[str]:
    layout, network, reasons = cell.layout, cell.network, []
    if network.head_size % 2 and network.style == "llama":
        reasons.append(f"a head of {network.head_size} is odd, and rotary positions turn pairs")
    if network.positions is not None and cell.seq > network.positions:
        reasons.append(f"seq {cell.seq} is longer than the network's {network.positions} positions")
    for what, size in (
        ("heads", network.heads),
        ("kv_heads", network.kv_heads),
        ("ffn", network.ffn),
        ("vocab", network.vocab),
        ("seq", cell.seq),
    ):
        if size % layout.tp:
            reasons.append(f"{what} {size} is not divisible by tp {layout.tp}")
    # Causal attention is shared out evenly by giving each rank a chunk from the front and one from the back.
    if layout.cp > 1 and cell.seq % (2 * layout.cp * layout.tp):
        reasons.append(f"seq {cell.seq} is not divisible by twice cp {layout.cp} times tp {layout.tp}")
    if layout.pp * cell.vpp > network.layers:
        stages = f"pp {layout.pp}" if cell.vpp == 1 else f"pp {layout.pp} times vpp {cell.vpp}"
        reasons.append(f"{stages} has more stages than the network has layers ({network.layers})")
    return reasons


def _why_options_do_not_go_together(cell: TrainCell) -> list[str]:
    layout = cell.layout
    is_control = cell.communication == "none" or cell.delay_factor > 0
    checks = (
        (cell.vpp > 1 and cell.pp_schedule == "1f1b", f"1f1b runs one stage a rank, found vpp {cell.vpp}"),
        (cell.vpp == 1 and cell.pp_schedule != "1f1b", f"{cell.pp_schedule} needs vpp 2 or more, found 1"),
        (layout.pp == 1 and (cell.vpp, cell.pp_schedule) != (1, "1f1b"), "vpp and pp_schedule need pp above 1"),
        *_why_zero_bubble_does_not_go_together(cell),
        (
            layout.cp > 1 and cell.attention == "math",
            f"cp {layout.cp} beside attention math, which gives no log-sum-exp to merge parts of attention by",
        ),
        (layout.cp == 1 and cell.cp_method != "all_gather", f"cp_method {cell.cp_method} needs cp above 1"),
        (cell.loss_chunk_tokens and layout.tp > 1, f"loss_chunk_tokens beside tp {layout.tp}, which cuts the loss"),
        (
            cell.loss_chunk_tokens and layout.pp > 1,
            f"loss_chunk_tokens beside pp {layout.pp}, which takes whole logits",
        ),
        (
            cell.float8 and cell.param_dtype != "bfloat16",
            f"float8 needs param_dtype bfloat16, found {cell.param_dtype}",
        ),
        (cell.float8 and layout.tp > 1, f"float8 beside tp {layout.tp} is not run by the benchmark"),
        (
            cell.attention in ("cudnn", "flash") and cell.param_dtype != "bfloat16",
            f"attention {cell.attention} needs param_dtype bfloat16, found {cell.param_dtype}",
        ),
        (cell.async_tp and not (layout.tp > 1 and cell.compile), "async_tp needs tp above 1 and compile"),
        (cell.reshard_group and not cell.reshard_after_forward, "reshard_group without reshard_after_forward"),
        (
            cell.reshard_group and layout.dp_shard % cell.reshard_group,
            f"dp_shard {layout.dp_shard} is not divisible by reshard_group {cell.reshard_group}",
        ),
        # torch makes the groups of one shard mesh at a time, for which all other ranks wait (2.13: it hangs).
        (
            cell.reshard_group and layout.tp * layout.pp > 1,
            f"reshard_group beside tp {layout.tp} and pp {layout.pp} is not run by the benchmark",
        ),
        (
            cell.communication == "none" and cell.delay_factor > 0,
            "delay_factor lengthens what communication none removes",
        ),
        # FSDP's hooks for float8 agree on the scales of all ranks by collectives that no control can take the place of.
        (is_control and cell.float8, "communication none and delay_factor beside float8"),
        (
            is_control and layout.dp_shard != layout.ranks,
            f"communication none and delay_factor are controls of dp_shard alone, found {layout.label}",
        ),
    )
    return [reason for applies, reason in checks if applies]


def _why_zero_bubble_does_not_go_together(cell: TrainCell) -> list[tuple[bool, str]]:
    """Return what torch's backward pass in two halves, for inputs and for weights, cannot do (torch 2.11 and 2.13)."""
    is_split = cell.pp_schedule == "zero_bubble"
    return [
        (is_split and cell.compile, "zero_bubble beside compile: a compiled backward pass cannot be split"),
        (
            is_split and cell.recompute != "none",
            f"zero_bubble beside recompute {cell.recompute}: both halves of its backward pass would recompute",
        ),
        (
            is_split and cell.reshard_after_forward,
            "zero_bubble needs reshard_after_forward false: the second half of its backward pass gathers nothing",
        ),
    ]


def _why_the_batch_does_not_split(cell: TrainCell) -> list[str]:
    layout = cell.layout
    if cell.global_batch % (layout.dp * cell.microbatch):
        return [
            f"global_batch {cell.global_batch} is not divisible by dp {layout.dp} times microbatch {cell.microbatch}"
        ]
    if cell.num_microbatches < layout.pp:
        return [f"{cell.num_microbatches} microbatches are too few for pp {layout.pp} stages"]
    if cell.pp_schedule != "1f1b" and cell.num_microbatches % layout.pp:
        return [
            f"{cell.num_microbatches} microbatches are not divisible by pp {layout.pp}, as {cell.pp_schedule} needs"
        ]
    return []


def cell_from_json(mapping: Any, where: str) -> Cell:
    """Return the cell that a raw log or a launch file carries; ValueError begins with `where`."""
    kind = mapping.get("kind") if isinstance(mapping, dict) else None
    if kind == "train":
        return build(TrainCell, mapping, where)
    if kind == "collectives":
        return build(CollectivesCell, mapping, where)
    if kind == "kernels":
        return build(KernelsCell, mapping, where)
    raise ValueError(f"{where}: kind is {kind!r}; allowed: train, collectives, kernels")


def cell_to_json(cell: Cell) -> dict[str, Any]:
    """Return the cell as plain JSON values, every field stated."""
    return dataclasses.asdict(cell)
