"""What Megatron's lines mean together: by which convention its TFLOP/s count, and whether its energy is one."""

import math
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from falloff.ingest.training_log import LoggedStep, Settled
from falloff.spec.network import model_flops_per_token
from falloff.units import GIGA, MIB, TERA

# names of the field that holds TFLOP/s: Megatron-LM's, that of Megatron-DeepSpeed and older forks, GPT-NeoX's
FLOPS_OF_MEGATRON, FLOPS_OF_2021 = "throughput per gpu (tflop/s/gpu)", "tflops"
FLOPS_OF_NEOX = "approx flops per gpu"
FLOPS_OF_PRIMUS = "compute per gpu (tflop/s/gpu)"
FLOPS_OF_BRIDGE = "gpu utilization (model_tflop/s/gpu)"
# names in LoggedStep.more: iterations of the line's that were skipped, as printed; how many ranks there are
SKIPPED, NUM_RANKS = "number of skipped iterations", "ranks that its prefix tells"
# An iteration that is skipped has no optimizer step, some percent of its time: a tenth of a window is below 1 % of it.
LARGEST_SKIPPED_SHARE = 0.1
# names in LoggedStep.more: which of these a line has, and that it prints 0.0 J
FLOPS_NAME, ENERGY_IS_ZERO = "its TFLOP/s are called", "energy printed as none"
# Commit 8873b55 halves attention for causality; logs from before cannot have it.
HALVED_ON = datetime(2025, 3, 6)
WHOLE = "Megatron-LM before 0.12: attention over the full square; recomputation not counted"
HALF = "Megatron-LM since 0.12: the causal half of attention; recomputation not counted"
EITHER = (
    "Megatron-LM: the log does not tell whether attention counts in full (before 0.12) or its causal half (since); "
    "recomputation not counted"
)
# 'TFLOPs' of Megatron-DeepSpeed and of forks of 2021 to 2023: arXiv 2104.04473, equation 3
OF_2021 = "Megatron's formula of 2021: attention over the full square; "
COUNTS_RECOMPUTE = OF_2021 + "recomputation counted: hardware FLOPs"
RECOMPUTES_NONE = OF_2021 + "nothing is recomputed: model and hardware FLOPs are the same"
MAY_COUNT = OF_2021 + "whether recomputation is counted (hardware FLOPs) the log does not tell"
# attn_layer_flops() and transformer_flops() in src/megatron/bridge/training/utils/flop_utils.py at 0494433
OF_BRIDGE = "Megatron-Bridge: the causal half of attention; recomputation not counted"
OF_NEOX = "GPT-NeoX: approximate; whether recomputation is counted the log does not tell"
# It prints one decimal at some hundred TFLOP/s, and the two conventions lie 5 to 30 % apart.
LARGEST_FORMULA_DIFFERENCE = 0.02
# '[Rank 0] (after 10 iterations) memory (MB) | allocated: .. | max reserved: 8266.0', in units of 2^20 bytes;
# Megatron-Bridge's '.. memory (GB) | mem-allocated-gigabytes: .. | mem-max-reserved-gigabytes: 216.89 |' in 1e9 bytes
MEMORY = re.compile(
    r"\bmemory \((?P<unit>[MG])B\) \|.*\b(?:max reserved|mem-max-reserved-gigabytes): "
    r"(?P<size>\d{1,9}(?:\.\d+)?)(?= |$)"
)
_MEMORY_UNITS = {"M": MIB, "G": GIGA}
MEMORY_IN_USE = "in use on the GPU, by all there"
MEMORY_KIND = "cuda peak reserved after the first iterations, of the ranks that report it"
LARGEST_SEQ = 1 << 30
POWER_SOURCE = "Megatron's NVML energy counter, by the index that CUDA gives"
OTHER_GPUS = "its energy may be other GPUs': it counts by CUDA's index, which is NVML's only where no device is masked"
_VISIBLE = re.compile(r"\bCUDA_VISIBLE_DEVICES\W{1,4}(\d{1,3}(?:,\d{1,3})*)")
REMARKS = re.compile(f"{MEMORY.pattern}|{_VISIBLE.pattern}")
NO_ENERGY = "energy is printed as 0.0, as it is where NVML fails or is not there: it is missing, not none"


def settle(facts: Mapping[str, Any], steps: Sequence[LoggedStep], remarks: Sequence[str]) -> Settled:
    """Return the facts with what the step lines tell, and the steps with the memory that the ranks report."""
    found = dict(facts)
    flops_name = next((step.more[FLOPS_NAME] for step in steps if FLOPS_NAME in step.more), None)
    # forks of Megatron-LM print the same TFLOPs, but neither samples/s nor tokens so far; those since 2025 print tokens
    # beside Megatron-LM's own name for TFLOP/s
    has_samples = flops_name == FLOPS_OF_2021 and any(step.samples_per_s is not None for step in steps)
    has_tokens = flops_name != FLOPS_OF_MEGATRON and any(step.tokens_seen is not None for step in steps)
    if has_samples or has_tokens:
        found["framework"] = "megatron-deepspeed"
    elif flops_name == FLOPS_OF_NEOX:
        found["framework"] = "gpt-neox"
    elif flops_name == FLOPS_OF_BRIDGE:
        found["framework"] = "megatron-bridge"
    seq = found.get("seq") or _seq(steps)
    if seq is not None:
        found["seq"] = seq
    num_gpus = found.get("num_gpus") or _num_ranks(steps) or _num_gpus(found, steps)
    if num_gpus is not None:
        found["num_gpus"] = num_gpus
    if flops_name is not None:
        found["reported_convention"] = _convention(flops_name, found, steps)
    flags = (*(found.get("flags") or ()), *_flags(steps, remarks))
    if flags:
        found["flags"] = flags
    if any(step.energy_j is not None or step.draw_w is not None for step in steps):
        found["power_source"] = POWER_SOURCE
    marked = _with_skipped(steps)
    found_sizes = (match for text in remarks if (match := MEMORY.search(text)))
    peaks = [float(match["size"]) * _MEMORY_UNITS[match["unit"]] for match in found_sizes]
    if peaks:
        return {**found, "memory_kind": MEMORY_KIND}, [replace(marked[0], memory_bytes=max(peaks)), *marked[1:]]
    has_memory = any(step.memory_bytes is not None for step in steps)
    return found | ({"memory_kind": MEMORY_IN_USE} if has_memory else {}), marked


def _with_skipped(steps: Sequence[LoggedStep]) -> list[LoggedStep]:
    """Return the steps, with an event where many of a window's iterations were skipped: those are faster."""
    marked = []
    for before, step in zip([None, *steps], steps, strict=False):
        skipped = step.number_in_more(SKIPPED) or 0
        length = step.step - before.step if before is not None else step.step
        if skipped > LARGEST_SKIPPED_SHARE * length and step.unusable is None and step.event is None:
            words = f"{skipped:g} of its iterations were skipped: the loss scale overflowed"
            marked.append(replace(step, event=words))
        else:
            marked.append(step)
    return marked


def _num_ranks(steps: Sequence[LoggedStep]) -> int | None:
    """Return how many ranks the prefixes of the lines tell, None where they tell nothing or not one number."""
    counts = {step.more.get(NUM_RANKS) for step in steps}
    count = counts.pop() if len(counts) == 1 else None
    return int(count) if count else None


def _flags(steps: Sequence[LoggedStep], remarks: Sequence[str]) -> list[str]:
    visible = next((match[1] for text in remarks if (match := _VISIBLE.search(text))), "")
    is_unmasked = visible.split(",") == [str(device) for device in range(visible.count(",") + 1)]
    has_energy = any(step.energy_j is not None or step.draw_w is not None for step in steps)
    found = (
        NO_ENERGY if any(ENERGY_IS_ZERO in step.more for step in steps) else None,
        OTHER_GPUS if has_energy and not is_unmasked else None,
        _wrong_rate(steps),
    )
    return [flag for flag in found if flag]


def _seq(steps: Sequence[LoggedStep]) -> int | None:
    """Return the tokens of a sample by the totals of both, None where no one number does, as in a curriculum."""
    ratios = {
        step.tokens_seen / step.samples_seen if step.tokens_seen and step.samples_seen else math.nan for step in steps
    }
    ratio = ratios.pop() if len(ratios) == 1 else math.nan
    return int(ratio) if ratio.is_integer() and ratio < LARGEST_SEQ else None


def _wrong_rate(steps: Sequence[LoggedStep]) -> str | None:
    """Return a sentence where the printed samples/s are not the batch over the seconds: early forks were 1000 off."""
    for step in steps:
        if step.samples_per_s and step.global_batch and step.step_s:
            rate = step.global_batch / step.step_s
            if abs(step.samples_per_s - rate) > LARGEST_FORMULA_DIFFERENCE * rate:
                words = f"samples per second is {step.samples_per_s:g} at iteration {step.step}"
                return f"{words}, where batch over seconds is {rate:.4g}"
    return None


def _num_gpus(facts: Mapping[str, Any], steps: Sequence[LoggedStep]) -> int | None:
    """Return the GPUs over which the tokens of a step give the printed tokens/s of one; None where no number does."""
    found = [
        batch * seq / (step.step_s * step.tokens_per_gpu_s)
        for step in steps
        if step.step_s
        and step.tokens_per_gpu_s
        and (batch := step.global_batch or facts.get("global_batch"))
        and (seq := step.seq or facts.get("seq"))
    ]
    if not found:
        return None
    middle = statistics.median(found)
    return round(middle) if round(middle) and abs(middle - round(middle)) < 0.1 else None


def _convention(flops_name: str, facts: Mapping[str, Any], steps: Sequence[LoggedStep]) -> str:
    if flops_name == FLOPS_OF_NEOX:
        return OF_NEOX
    if flops_name == FLOPS_OF_BRIDGE:
        return OF_BRIDGE
    if flops_name == FLOPS_OF_2021:
        return {"none": RECOMPUTES_NONE, "full": COUNTS_RECOMPUTE}.get(facts.get("recompute", ""), MAY_COUNT)
    last = max((step.time for step in steps if step.time is not None), default=None)
    has_microseconds = any(step.time is not None and step.time.microsecond for step in steps)  # since 0.16
    has_energy = any(step.draw_w is not None or ENERGY_IS_ZERO in step.more for step in steps)  # since 0.14
    if has_microseconds or has_energy:
        return HALF
    if last is None or last < HALVED_ON:  # lines have a date since 0.6
        return WHOLE
    return _recomputed(facts, steps) or EITHER


def _recomputed(facts: Mapping[str, Any], steps: Sequence[LoggedStep]) -> str | None:
    """Return the convention whose FLOPs over the printed seconds give the printed TFLOP/s, None where none does."""
    names = ("params", "embedding_params", "layers", "hidden", "seq", "num_gpus")
    if any(facts.get(name) is None for name in names):
        return None
    shape = {name: facts[name] for name in names[:-1]}
    whole = model_flops_per_token(**shape)
    half = whole - 6 * facts["layers"] * facts["hidden"] * facts["seq"]
    printed = [
        step.flops_per_gpu_s * facts["num_gpus"] * step.step_s / (step.global_batch * facts["seq"])
        for step in steps
        if step.flops_per_gpu_s and step.step_s and step.global_batch and step.flops_per_gpu_s > 10 * TERA
    ]
    if not printed:
        return None
    ratios = {words: statistics.median(printed) / flops for words, flops in ((WHOLE, whole), (HALF, half))}
    near = [words for words, ratio in ratios.items() if abs(ratio - 1) < LARGEST_FORMULA_DIFFERENCE]
    return f"{near[0]} (as its own figures tell)" if len(near) == 1 else None
