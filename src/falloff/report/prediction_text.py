"""A prediction as text for people: where the step goes, each collective, memory with its margin, rates, watts."""

import math
from collections.abc import Iterator, Sequence

from falloff.perfmodel.breakdown import PART_WORDS, CollectiveSeconds, collectives_of, largest_parts
from falloff.perfmodel.jobs import Job
from falloff.perfmodel.memory import Memory
from falloff.perfmodel.parameters import Values
from falloff.perfmodel.power import label_of
from falloff.perfmodel.prediction import Prediction
from falloff.report.text import aligned
from falloff.units import GIB, MIB, MILLI, TERA

_AXES = {"shard": "dp_shard", "replicate": "dp_replicate", "tp": "tp", "cp": "cp", "ep": "ep", "pp": "pp"}
_COMPUTE = ("products", "attention", "memory_bound", "launch", "recompute", "optimizer", "copies")


def prediction_lines(job: Job, made: Prediction, values: Values, place: int = 0) -> Iterator[str]:
    """Yield the lines of one job's prediction."""
    yield from _head(job)
    yield ""
    yield _parts_table(made, place)
    yield ""
    collectives = collectives_of(made.jobs, values, place)
    yield _collectives_table(collectives) if collectives else "  One GPU communicates nothing."
    yield ""
    yield _memory_table(made.memory, place)
    yield ""
    yield _totals_table(job, made, place)


def layout_words(job: Job) -> str:
    """Return the axes of a job's layout that are in use."""
    axes = ("dp_replicate", "dp_shard", "tp", "cp", "pp", "vpp", "ep")
    return " x ".join(f"{axis} {getattr(job, axis)}" for axis in axes if getattr(job, axis) > 1) or "one rank"


def _head(job: Job) -> Iterator[str]:
    local = job.microbatch * job.num_microbatches
    dp = job.dp_replicate * job.dp_shard
    yield f"{job.gpus:,} GPUs of {job.cluster.name} ({job.cluster.gpu.name}): {layout_words(job)}"
    yield (
        f"{local} sequences of {job.seq:,} tokens a data-parallel rank, as {job.num_microbatches} x {job.microbatch}; "
        f"{local * dp:,} a step, {local * dp * job.seq:,} tokens"
    )
    choices = (
        f"{job.framework}'s habits",
        job.precision,
        {"none": "DDP", "zero1": "ZeRO-1", "zero2": "ZeRO-2", "zero3": "FSDP"}[job.sharding],
        f"recompute {job.recompute}",
        "compiled" if job.compiled else "eager",
        "fused attention" if job.flash_attention else "unfused attention",
        f"gradients reduced in {job.reduce_bytes * 8:.0f} bits",
    )
    yield "; ".join(choices)
    if job.cluster.node.assumption:
        yield f"assumed of {job.cluster.name}: {' '.join(job.cluster.node.assumption.split())}"


def _parts_table(made: Prediction, place: int) -> str:
    step_s = float(made.steps.step_s[place])
    parts = largest_parts(made.steps, place)
    rows = [(PART_WORDS[name], f"{seconds / MILLI:,.1f}", f"{100 * seconds / step_s:.1f}%") for name, seconds in parts]
    sums = (
        ("compute", sum(seconds for name, seconds in parts if name in _COMPUTE)),
        ("exposed communication", float(made.steps.exposed_s[place])),
        ("all communication, hidden or not", float(made.steps.transfer_s[place])),
        ("step", step_s),
    )
    told = [(f"= {name}", f"{seconds / MILLI:,.1f}", f"{100 * seconds / step_s:.1f}%") for name, seconds in sums]
    return aligned(("part of the step", "ms", "share"), [*rows, *told])


def _collectives_table(collectives: Sequence[CollectiveSeconds]) -> str:
    rows = [
        (
            row.kind,
            _AXES[row.axis],
            row.when,
            f"{row.ranks:,}",
            f"{row.ranks_per_node}",
            f"{row.calls:,}",
            f"{row.message_bytes / MIB:,.1f}",
            f"{row.call_s / MILLI:,.3f}",
            f"{row.step_s / MILLI:,.1f}",
        )
        for row in collectives
    ]
    header = ("collective", "axis", "in", "ranks", "a node", "calls", "largest MiB", "ms each", "ms a step")
    return aligned(header, rows)


def _memory_table(memory: Memory, place: int) -> str:
    names = (
        ("parameters", memory.parameter_bytes),
        ("gradients", memory.gradient_bytes),
        ("optimizer states and master weights", memory.state_bytes),
        ("activations", memory.activation_bytes),
        ("gathered buffers", memory.gathered_bytes),
        ("logits", memory.logit_bytes),
        ("= allocated at the peak (not all of them at once)", memory.allocated_bytes),
        ("= reserved by the allocator", memory.reserved_bytes),
        ("= of the device, with context and NCCL", memory.device_bytes),
    )
    rows = [(name, f"{values[place] / GIB:,.2f}") for name, values in names]
    rows.append(_verdict(memory, place))
    return aligned(("memory of the fullest GPU", "GiB"), rows)


def _verdict(memory: Memory, place: int) -> tuple[str, str]:
    margin, spare = (float(values[place]) / GIB for values in (memory.margin_bytes, memory.spare_bytes))
    if spare < 0:
        return "DOES NOT FIT, by", f"{-spare:,.2f}"
    if margin < 0:
        return "fits tightly: the allocator must do with less, by", f"{-margin:,.2f}"
    return "fits, and leaves", f"{margin:,.2f}"


def _totals_table(job: Job, made: Prediction, place: int) -> str:
    tokens, low, high = (float(values[place]) for values in (made.tokens_per_gpu_s, made.low, made.high))
    power = made.power
    peak = job.cluster.peak_of(job.precision)
    sure = "" if math.isnan(low) else f"90 %: {low:,.0f} to {high:,.0f}"
    step = "" if math.isnan(low) else f"90 %: {_step(made, place, high):.4g} to {_step(made, place, low):.4g}"
    rows = [
        ("s/step", f"{made.steps.step_s[place]:.4g}", step),
        ("tokens/s per GPU", f"{tokens:,.0f}", sure),
        ("tokens/s", f"{tokens * job.gpus:,.0f}", ""),
        ("MFU", f"{100 * made.mfu[place]:.1f}%", f"6 (N - N_embedding) + 12 L h s over {peak / TERA:,.1f} TFLOP/s"),
        ("W per GPU", f"{power.draw_w[place]:,.0f}", label_of(job.cluster.gpu.name)),
        ("J per token", f"{power.energy_per_token_j[place]:.3g}", "GPU boards alone"),
        ("tokens per J", f"{1 / power.energy_per_token_j[place]:.3g}", ""),
    ]
    return aligned(("result", "value", ""), rows)


def _step(made: Prediction, place: int, tokens_per_gpu_s: float) -> float:
    return float(made.jobs.tokens[place] / made.jobs.gpus[place] / tokens_per_gpu_s)
