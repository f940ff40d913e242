"""Megatron's log and those of its kin: Megatron-LM, Megatron-Bridge, Megatron-DeepSpeed, GPT-NeoX, Primus.

A step line is 'name: value |' over and over. Which names stand there and in which order changes from version to
version and fork to fork, so a line is read by its names. The rates of a line are means over the iterations since the
line before; since Megatron-LM 0.16 the first iteration of a launch has a line of its own, and is in the next mean too.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

from falloff.ingest.logtext import Line, moment_of, number_of
from falloff.ingest.megatron_facts import read_facts
from falloff.ingest.megatron_rates import (
    ENERGY_IS_ZERO,
    FLOPS_NAME,
    FLOPS_OF_2021,
    FLOPS_OF_BRIDGE,
    FLOPS_OF_MEGATRON,
    FLOPS_OF_NEOX,
    FLOPS_OF_PRIMUS,
    NUM_RANKS,
    REMARKS,
    SKIPPED,
    settle,
)
from falloff.ingest.training_log import LoggedStep, System
from falloff.units import GIB, TERA

# Larger numbers are none that a training run has; they are what is left of a garbled line.
LARGEST_COUNT = 1 << 53
_ITERATION = re.compile(r"iteration(?<!\witeration)(?:[:=]\s*|\s+)(\d{1,15})\s*/\s*(\d{1,15})\s*(?=\||$)")
_STAMPS = (
    re.compile(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{6})?)\]"),
    re.compile(r"\[(\d{8} \d\d:\d\d:\d\d)\]"),
)
_ELAPSED = "elapsed time per iteration (ms)"
_ELAPSED_S = "elapsed time per iteration (s)"  # BLOOM's fork of Megatron-DeepSpeed
# Argonne's fork of Megatron-DeepSpeed prints 'name_of_a_field=value'
_ELAPSED_OF_ARGONNE = "elapsed time per iteration ms"
_NANS = "number of nan iterations"
_ENERGY, _POWER = "energy per gpu (j/iter/gpu)", "power per gpu (w/gpu)"
# Kin of Megatron's call the same thing by other names; the first that a line has counts.
_LOSSES = ("lm loss", "lm_loss", "reduced_train_loss", "loss")
_FLOPS = (FLOPS_OF_MEGATRON, FLOPS_OF_2021, FLOPS_OF_NEOX, FLOPS_OF_PRIMUS, FLOPS_OF_BRIDGE)
_TOKENS_PER_GPU = (
    "tokens per gpu per second (tgs)",
    "tokens per gpu per second(tgs)",
    "tgs (tokens/gpu/second)",
    "tokens per gpu (tokens/s/gpu)",
    "tokens/sec/gpu",
    "tokens per second per gpu",
    "tokens-per-second-per-gpu",
    "tokens per gpu per second tgs",
    "tokens/s/gpu inst/harmonic mean",
)
_TOKENS_PER_S = ("rate (tokens/sec)", "tokens per second", "tokens/sec")
_SAMPLES_PER_S = ("samples per second", "samples/sec")
_SEQ = ("actual seqlen", "curriculum seqlen")
# Primus: 'hip mem usage/free/total/usage_ratio: 153.81GB/102.17GB/255.98GB/60.09%', in units of 2^30 bytes by the total
_MEMORY = "hip mem usage/free/total/usage_ratio"
_MEMORY_USED = re.compile(r"(\d{1,6}(?:\.\d+)?) ?Gi?B/")
# '[rank-7/8]' before each line of Primus: a rank and how many there are
_NUM_RANKS = re.compile(r"\[rank-\d{1,6}/(\d{1,6})\]")
_PLACED = frozenset(
    {
        _ELAPSED,
        _ELAPSED_S,
        _ELAPSED_OF_ARGONNE,
        "grad norm",
        "consumed tokens",
        "consumed samples",
        "global batch size",
        _POWER,
        _ENERGY,
    }
).union(_LOSSES, _FLOPS, _TOKENS_PER_GPU, _TOKENS_PER_S, _SAMPLES_PER_S, _SEQ)
# Every line of a log has these where one has them. The loss is none of them: it is left out where it is no number.
_STEADY_NAMES = frozenset(
    {"consumed samples", "learning rate", "global batch size", "loss scale", SKIPPED, _NANS, "consumed tokens"}
)
_SURE = (*(f"{name}:" for name in (_ELAPSED, _ELAPSED_S, _NANS)), "elapsed_time_per_iteration_ms=")
# What stands at the end of every version's line; before version 2 it was the loss scale.
_ENDS = frozenset({SKIPPED, _NANS, "loss scale"})
# Megatron-Bridge prints its rate on a line of its own before the iteration's, of the same seconds to two digits:
# 'Step Time : 9.09s GPU utilization: 663.5MODEL_TFLOP/s/GPU', of the model's FLOPs before it was called so, too.
_BRIDGE = re.compile(
    r"\bStep Time ?: ?(\d{1,6}\.\d\d)s\b.{0,60}\bGPU utilization: ?(\d{1,6}(?:\.\d+)?) ?(?:MODEL_)?TFLOP/s/GPU"
)
_LARGEST_BRIDGE_DIFFERENCE_S = 0.0051
# Megatron-LM's timers are announced on the line itself where a fork lets them follow without a break.
_TIMERS = "time (ms)"
# Two ranks write to one terminal: what the first says without its newline has another's words behind it. A field of its
# own begins with a blank.
_NEXT_WORDS = re.compile(
    rf"({_NANS}: *\d+ \|.{{0,4000}}?)(?=(?<=\|)[^\s|]|\[\d{{4}}-|\[[Rr]ank ?\d|\(min, max\) time|WARNING:).*"
)
SKIPPED_ALL = "its iterations were skipped: the loss scale overflowed"
_NUMBER_FIRST = re.compile(r"[-+]?(?:nan|inf|[\d.,]+(?:[eE][-+]?\d+)?)(?=$|/| +[^\d\s]|TFLOPS$)", re.IGNORECASE)


_HEAD = re.compile(
    r"\belapsed time per iteration \(m?s\): *\d|\belapsed_time_per_iteration_ms= *\d"
    r"|^(?:\S+ +)?(?:using world size: \d+, data-parallel|-{10,} arguments -{10,}$)",
    re.MULTILINE,
)


def is_megatron_log(text: str) -> bool:
    """Return whether the text is of Megatron or its kin: a step line, or how it reports its processes and arguments."""
    return _HEAD.search(text) is not None


def _join(lines: Iterable[Line]) -> Iterator[Line]:
    """Yield the lines, Megatron-Bridge's rate of an iteration as a field of the iteration's line."""
    seconds, flops = math.nan, ""
    for line in lines:
        bridge = _BRIDGE.search(line.text)
        if bridge:
            seconds, flops = float(bridge[1]), bridge[2]
        fields = _fields(line.text) if flops and _ITERATION.search(line.text) and line.text.endswith("|") else None
        if not fields or any(name in fields for name in _FLOPS):
            yield line
            continue
        is_its = abs(_elapsed_s(fields) - seconds) <= _LARGEST_BRIDGE_DIFFERENCE_S
        yield line._replace(text=f"{line.text} {FLOPS_OF_BRIDGE}: {flops} |") if is_its else line
        flops = ""


def _elapsed_s(fields: Mapping[str, str]) -> float:
    try:
        return _seconds(fields)
    except ValueError:
        return math.nan


def _is_step_line(text: str) -> bool:
    return any(name in text for name in _SURE) or ("|" in text and _ITERATION.search(text) is not None)


def _parse_step(line: Line) -> tuple[LoggedStep, frozenset[str]] | None:
    text = _NEXT_WORDS.sub(r"\1", line.text).rstrip()
    found, fields = _ITERATION.findall(text), _fields(text)
    is_whole = text.endswith(("|", _TIMERS))
    if len(found) != 1 or fields is None or not is_whole or not fields.keys() & _ENDS:
        return None
    try:
        return _step(int(found[0][0]), int(found[0][1]), fields, text), _STEADY_NAMES.intersection(fields)
    except ValueError:
        return None


def _fields(text: str) -> dict[str, str] | None:
    """Return a line's values by name, None where one stands there twice: two lines ran into each other."""
    fields: dict[str, str] = {}
    for piece in text.split("|"):
        if "/" in piece and _ITERATION.search(piece):
            continue
        name, colon, value = piece.partition(":")
        if not colon and "=" in piece:
            name, _, value = piece.replace("_", " ").partition("=")
        elif not colon:
            name, _, value = piece.strip().rpartition(" ")  # before version 2: 'learning rate 1.495E-04'
        name = name.strip().lower()
        if not name:
            continue
        if name in fields:
            return None
        fields[name] = value.strip()
    return fields


def _step(step: int, total_steps: int, fields: Mapping[str, str], text: str) -> LoggedStep:
    """Return the step; ValueError where a field that every line needs is no number."""
    seconds = _seconds(fields)
    # Megatron-Bridge prints 0 for networks whose FLOPs it does not count
    flops, loss = _first(fields, _FLOPS) or None, _first(fields, _LOSSES)
    if loss is None and _first(fields, (_NANS,)):
        loss = math.nan
    return LoggedStep(
        step=step,
        total_steps=total_steps,
        time=_time(text),
        loss=loss,
        grad_norm=_first(fields, ("grad norm",)),
        memory_bytes=_memory(fields),
        step_s=seconds,
        tokens_per_s=_positive(fields, _TOKENS_PER_S),
        tokens_per_gpu_s=_positive(fields, _TOKENS_PER_GPU),
        samples_per_s=_positive(fields, _SAMPLES_PER_S),
        flops_per_gpu_s=None if flops is None else flops * TERA,
        # 0.0 is what it prints where NVML fails or is not there
        draw_w=_positive(fields, (_POWER,)),
        energy_j=_positive(fields, (_ENERGY,)),
        global_batch=_count(fields, ("global batch size",)),
        seq=_count(fields, _SEQ),
        tokens_seen=_first(fields, ("consumed tokens",)),
        samples_seen=_first(fields, ("consumed samples",)),
        # a mean over no loss: where the loss scale overflows, an iteration counts for nothing and is faster too
        unusable=SKIPPED_ALL if loss is None and _first(fields, (SKIPPED,)) else None,
        more=_more(fields, text),
    )


def _seconds(fields: Mapping[str, str]) -> float:
    milliseconds, seconds = _first(fields, (_ELAPSED, _ELAPSED_OF_ARGONNE)), _first(fields, (_ELAPSED_S,))
    found = seconds if milliseconds is None else milliseconds / 1e3
    if found is None or not 0 < found < math.inf:
        raise ValueError("no seconds")
    return found


def _memory(fields: Mapping[str, str]) -> float | None:
    match = _MEMORY_USED.match(fields.get(_MEMORY, ""))
    return float(match[1]) * GIB if match else None


def _more(fields: Mapping[str, str], text: str) -> dict[str, str]:
    more = {name: value for name, value in fields.items() if name not in _PLACED}
    if _first(fields, (_ENERGY,)) == 0:
        more[ENERGY_IS_ZERO] = fields[_ENERGY]
    ranks = _NUM_RANKS.search(text[:200])
    if ranks:
        more[NUM_RANKS] = ranks[1]
    flops = next((name for name in _FLOPS if name in fields), None)
    return {**more, FLOPS_NAME: flops} if flops else more


def _first(fields: Mapping[str, str], names: tuple[str, ...]) -> float | None:
    """Return the number of the first of these names that the line has; ValueError where it is none.

    Primus prints 'this step/mean so far', of which the first counts, and units follow some numbers: 112.9TFLOPS.
    """
    name = next((name for name in names if name in fields), None)
    if name is None:
        return None
    try:
        return number_of(fields[name])
    except ValueError:
        match = _NUMBER_FIRST.match(fields[name])
        if match is None:
            raise
        return number_of(match[0])


def _positive(fields: Mapping[str, str], names: tuple[str, ...]) -> float | None:
    number = _first(fields, names)
    return number if number is not None and 0 < number < math.inf else None


def _count(fields: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    number = _first(fields, names)
    if number is None:
        return None
    if not (0 < number < LARGEST_COUNT and number.is_integer()):
        raise ValueError(f"{number} is no count")
    return int(number)


def _time(text: str) -> datetime | None:
    for pattern in _STAMPS:
        stamp = pattern.search(text[:200])
        if stamp:
            return moment_of(stamp[1])
    return None


def _lost_loss(text: str) -> int | None:
    """Return the iteration of a cut line that goes past the loss's place and has none.

    The loss stands between batch size and loss scale; Megatron leaves it out where it is no number.
    """
    found, fields = _ITERATION.findall(text), _fields(text)
    if len(found) != 1 or not fields or "loss scale" not in fields or "global batch size" not in fields:
        return None
    is_skipped = fields.get(SKIPPED, "0").strip() not in ("", "0")
    return None if is_skipped or any(name in fields for name in _LOSSES) else int(found[0][0])


MEGATRON = System(
    name="megatron-lm",
    is_step=_is_step_line,
    parse=_parse_step,
    read_facts=read_facts,
    events=(
        (
            "a checkpoint was written",
            re.compile(r"\bsaving checkpoint at iteration|successfully saved checkpoint|\bsave-checkpoint \.+:"),
        ),
        ("a validation ran", re.compile(r"validation loss at|\bloss at iteration +\d+ \||Evaluating (?:iter|on) \d")),
        (
            "a profiler ran",
            re.compile(
                r"ActivityProfilerController|Flops profiler started|profiler trace"
                r"|Capture range (?:started|ended) in the application|Generating '.{1,400}\.qdstrm'"  # nsys
            ),
        ),
        (
            "an iteration was run again to check it",
            re.compile(r"[Nn]eed to rerun step|Unexpected result .* at iteration #"),
        ),
    ),
    begins=re.compile(
        r"\[before the start of training step\]|^using world size: \d"
        r"|^ *successfully loaded checkpoint\b"
    ),
    ended=re.compile(r"\[after training is done\]|\[exiting program (?:at iteration|after [\d.]+ minutes)"),
    join=_join,
    ranks_repeat=False,
    lost_loss=_lost_loss,
    remarks=REMARKS,
    settle=settle,
)
