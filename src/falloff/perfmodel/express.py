"""A row of a table as a training step to predict, or one sentence why it cannot be expressed as one."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from falloff.perfmodel.cell_shapes import shape_of_cell
from falloff.perfmodel.cells import Cell
from falloff.perfmodel.frameworks import Habits, compiles_loss, habits_of, subtracts_in_place
from falloff.perfmodel.jobs import Job, Jobs, Precision, Recompute, Sharding, stack
from falloff.perfmodel.machines import machine_of

_PRECISIONS: dict[str, Precision] = {
    "bf16": "bfloat16",
    "bfloat16": "bfloat16",
    "fp16": "float16",
    "float16": "float16",
    "fp32": "float32",
    "float32": "float32",
    "fp8": "float8",
    "float8": "float8",
    "mxfp8": "float8",
    "nvfp4": "float4",
    "mxfp4": "float4",
    "float4": "float4",
}
_SHARDINGS: dict[str, Sharding] = {
    "ddp": "none",
    "none": "none",
    "zero1": "zero1",
    "zero2": "zero2",
    "shard_grad_op": "zero2",
    "zero3": "zero3",
    "fsdp": "zero3",
    "fsdp2": "zero3",
    "full_shard": "zero3",
    "hsdp": "zero3",
}
_RECOMPUTES = ("none", "selective", "full")
_OFFLOAD = re.compile(r"(?:cpu (?:optimizer )?|full )offload(?!\s*=\s*false)")
# FlashAttention was published in May of that year (arXiv 2205.14135)
_FIRST_FLASH_YEAR = 2022
_UNFUSED = ("unfused", "fused softmax", "no flash", "eager", "math")
# Weights of these are gathered in 8 bits by programs that can. mxfp8's two copies, by rows and by columns, are made of
# the gathered bf16 (frameworks.py), and 4-bit ones were too (FP8_PARAM_GATHER=False of MLPerf v5.1's fp4 runs).
_GATHERED_IN_8_BITS = ("fp8", "float8")
# With frozen weights backward passes the error on (one product a layer) and forms no weight gradients (the other).
_FROZEN_BACKWARD = 0.5
_MOST_TOKENS = 1e10  # of a rank's microbatch: beyond, a column holds something else


@dataclass(frozen=True)
class Expressed:
    """A row's step, or the note why there is none; what was assumed for it, and whether that moves its rate much."""

    job: Job | None
    note: str = ""
    assumed: tuple[str, ...] = ()
    batch_is_stated: bool = True
    layout_is_stated: bool = True


def express(cell: Cell) -> Expressed:
    """Return a row as a step, or with the reason why it is none. No row, however strange, raises."""
    try:
        return _express(cell)
    except (ValueError, OverflowError, ZeroDivisionError) as error:
        return Expressed(None, note=" ".join(str(error).split()))


def jobs_of(cells: Sequence[Cell]) -> tuple[list[Expressed], Jobs, npt.NDArray[np.intp]]:
    """Return every row as expressed, the jobs of those that are, and at which rows these stand, in order."""
    expressed = [express(cell) for cell in cells]
    places = [place for place, one in enumerate(expressed) if one.job is not None]
    return expressed, stack([cast(Job, expressed[place].job) for place in places]), np.array(places, dtype=np.intp)


def _express(cell: Cell) -> Expressed:
    habits = habits_of(cell.text("framework"), cell.count("year"))
    read = shape_of_cell(cell)
    machine = machine_of(cell)
    gpus = cell.count("gpus")
    if gpus is None:
        raise ValueError("gpus are not stated")
    seq = cell.count("seq")
    if seq is None:
        raise ValueError("the sequence length is not stated")
    precision = _precision_of(cell)
    machine.cluster.peak_of(precision)
    _refuse_what_is_not_modelled(cell)
    layout = _Layout.of(cell, gpus, read.shape.layers, habits)
    batch = _Batch.of(cell, habits, layout, seq)
    if batch.microbatch * seq > _MOST_TOKENS or read.shape.layers > 10_000 or read.shape.hidden > 1_000_000:
        raise ValueError("the row's sizes are beyond any training step")
    if layout.pp * (layout.vpp or 1) > read.shape.layers + 2:
        raise ValueError(
            f"pp {layout.pp} x vpp {layout.vpp} leaves stages without layers, of which there are {read.shape.layers}"
        )
    sharding = _sharding_of(cell, habits)
    job = Job(
        shape=read.shape,
        cluster=machine.cluster,
        seq=seq,
        microbatch=batch.microbatch,
        num_microbatches=batch.num_microbatches,
        dp_replicate=layout.dp if sharding == "none" else 1,
        dp_shard=1 if sharding == "none" else layout.dp,
        tp=layout.tp,
        pp=layout.pp,
        vpp=layout.vpp,
        cp=layout.cp,
        ep=layout.ep,
        sharding=sharding,
        precision=precision,
        framework=habits.name,
        recompute_stated=bool(cell.text("recompute")) or habits.recompute_is_fixed,
        microbatch_stated=cell.number("micro_batch") is not None,
        layout_stated=not layout.assumed,
        **_habits(cell, habits, layout),
        **_task(cell, habits, precision),
    )
    assumed = (*read.assumed, *filter(None, (machine.assumed,)), *layout.assumed, *batch.assumed)
    return Expressed(job, "", assumed, batch_is_stated=not batch.assumed, layout_is_stated=not layout.assumed)


def _refuse_what_is_not_modelled(cell: Cell) -> None:
    note = cell.text("note").casefold()
    if _OFFLOAD.search(note):
        raise ValueError("states that are kept on the host's memory (CPU offload) are not modelled")
    if "tf32" in f"{note} {cell.text('precision').casefold()}":
        raise ValueError("products in TF32 are not modelled")


def _habits(cell: Cell, habits: Habits, layout: "_Layout") -> dict[str, Any]:
    recompute = cell.text("recompute").casefold() or habits.recompute
    if recompute not in _RECOMPUTES:
        raise ValueError(f"recompute is {recompute!r}; allowed: {', '.join(_RECOMPUTES)}")
    parallel = cell.flag("sequence_parallel")
    compiled = cell.flag("compile")
    flash = _flash_of(cell, habits)
    note = cell.text("note").casefold()
    return {
        "recompute": cast(Recompute, recompute),
        "sequence_parallel": (habits.sequence_parallel if parallel is None else parallel) and layout.tp > 1,
        "replays_graphs": habits.replays_graphs,
        "stages_within": habits.stages_within,
        "accumulates_in_product": habits.accumulates_in_product,
        "compiled": habits.compiled if compiled is None else compiled,
        "loss_compiled": compiles_loss(habits, cell.text("framework_version"), cell.count("year")),
        "loss_in_place": subtracts_in_place(cell.count("year")),
        "flash_attention": flash,
        "causal": flash,  # fused softmax kernels mask the upper half but their products compute it
        "reshard_after_forward": habits.reshards(layout.pp),
        "distributed_overlap": habits.overlaps and "overlap off" not in note and "does not overlap" not in note,
    }


def _task(cell: Cell, habits: Habits, precision: Precision) -> dict[str, Any]:
    """Return dtypes, and what frozen weights change: half a backward pass, no gradients, no optimizer states."""
    task = cell.text("task").casefold() or "pretrain"
    if task not in ("pretrain", "sft", "lora"):
        raise ValueError(f"task is {task!r}; allowed: pretrain, sft, lora")
    whole = 4.0 if precision == "float32" else habits.param_bytes
    gradient = habits.float16_gradient_bytes if precision == "float16" else habits.gradient_bytes
    reduced = habits.reduce_bytes
    if habits.low_precision_halves and precision in ("float8", "float4"):
        gradient, reduced = 2.0, 2.0
    tiny = 0.01 if task == "lora" else 1.0  # of a per cent of the parameters or so: adapters of rank 16
    return {
        "task_factor": _FROZEN_BACKWARD if task == "lora" else 1.0,
        "param_bytes": whole,
        "reduce_bytes": reduced * tiny,
        "state_bytes": habits.state_bytes * tiny,
        "gradient_bytes": gradient * tiny,
        "float8_gather": habits.float8_gather and cell.text("precision").casefold() in _GATHERED_IN_8_BITS,
        "bucket_params": habits.bucket_params,
        "bucket_params_per_rank": habits.bucket_params_per_rank,
    }


def _precision_of(cell: Cell) -> Precision:
    text = cell.text("precision").casefold()
    if not text:
        return "float16" if "v100" in cell.text("gpu").casefold() else "bfloat16"
    if text not in _PRECISIONS:
        raise ValueError(f"precision is {text!r}; allowed: {', '.join(_PRECISIONS)}")
    return _PRECISIONS[text]


def _sharding_of(cell: Cell, habits: Habits) -> Sharding:
    text = cell.text("zero_stage_or_fsdp").casefold()
    if cell.text("task").casefold() == "lora" and not text:
        return "none"  # with frozen weights there is nothing to shard but them
    if not text:
        return habits.sharding
    # Megatron-Bridge's tables say only that FSDP is off; its recipes shard the optimizer (use_distributed_optimizer)
    if text == "ddp" and "megatron-bridge" in cell.text("framework").casefold():
        return habits.sharding
    if text not in _SHARDINGS:
        raise ValueError(f"zero_stage_or_fsdp is {text!r}; allowed: {', '.join(_SHARDINGS)}")
    return _SHARDINGS[text]


def _flash_of(cell: Cell, habits: Habits) -> bool:
    text = cell.text("attention").casefold()
    if not text:
        return habits.flash_attention and (cell.count("year") or _FIRST_FLASH_YEAR) >= _FIRST_FLASH_YEAR
    return not any(word in text for word in _UNFUSED)


@dataclass(frozen=True)
class _Layout:
    dp: int
    tp: int
    pp: int
    vpp: int
    cp: int
    ep: int
    assumed: tuple[str, ...]

    @classmethod
    def of(cls, cell: Cell, gpus: int, layers: int, habits: Habits) -> "_Layout":
        """Return a row's layout: what is blank is 1, and dp is what is left of the GPUs."""
        degrees = {name: cell.count(name) for name in ("tp", "pp", "cp")}
        model_parallel = math.prod(degree or 1 for degree in degrees.values())
        dp = cell.count("dp")
        blank = [name for name in ("tp", "pp") if degrees[name] is None]
        if dp is None:
            if gpus % model_parallel:
                raise ValueError(f"tp x pp x cp is {model_parallel}, which does not divide the {gpus} GPUs")
            dp = gpus // model_parallel
        if dp * model_parallel != gpus:
            raise ValueError(f"dp x tp x pp x cp is {dp * model_parallel}, the row says {gpus} GPUs")
        assumed = (f"{' and '.join(blank)} of 1",) if blank else ()
        tp, pp, cp = (degrees[name] or 1 for name in ("tp", "pp", "cp"))
        vpp = cell.count("vpp") if pp > 1 else 1
        if vpp is None:
            vpp = max(1, round(layers / pp)) if habits.interleaves else 1
        return cls(dp=dp, tp=tp, pp=pp, vpp=vpp, cp=cp, ep=cell.count("ep") or 1, assumed=assumed)


@dataclass(frozen=True)
class _Batch:
    microbatch: int
    num_microbatches: int
    assumed: tuple[str, ...] = ()

    @classmethod
    def of(cls, cell: Cell, habits: Habits, layout: _Layout, seq: int) -> "_Batch":
        """Return microbatch and how many of them: as stated, else as the program would choose them."""
        micro, whole = cell.count("micro_batch"), _global_batch(cell, seq)
        if whole is None:
            if micro is None:
                return cls(1, layout.pp, ("a microbatch of 1 sequence",))
            return cls(micro, layout.pp, () if layout.pp == 1 else (f"{layout.pp} microbatches, one a stage",))
        local = whole / layout.dp
        if local < 1:
            raise ValueError(f"a global batch of {whole} sequences leaves ranks of dp {layout.dp} without any")
        if micro is None:
            micro = 1 if layout.pp > 1 else _largest_divisor(round(local), habits.microbatch_tokens * layout.cp // seq)
            return cls(micro, max(1, round(local / micro)), (f"a microbatch of {micro}",))
        if habits.name == "torchtitan" and layout.pp > 1 and micro >= local:
            # its local batch is cut into as many microbatches as there are stages (pipeline_parallel_microbatches)
            return cls(max(1, micro // layout.pp), layout.pp, (f"{layout.pp} microbatches, one a stage",))
        count = local / micro
        if count < 1:
            raise ValueError(f"a microbatch of {micro} is more than the {local:g} sequences of a data-parallel rank")
        rounded = () if count.is_integer() else (f"{math.ceil(count)} microbatches",)
        return cls(micro, math.ceil(count), rounded)


def _global_batch(cell: Cell, seq: int) -> int | None:
    whole = cell.number("global_batch")
    if whole is None:
        tokens = cell.number("global_batch_tokens")
        whole = None if tokens is None else tokens / seq
    if whole is None:
        return None
    if whole > _MOST_TOKENS:
        raise ValueError(f"a global batch of {whole:g} sequences is beyond any training step")
    return max(1, round(whole))


def _largest_divisor(number: int, most: int) -> int:
    """Return the largest divisor that is at most `most`, 1 where there is none."""
    return max((divisor for divisor in range(1, min(number, max(most, 1)) + 1) if number % divisor == 0), default=1)
