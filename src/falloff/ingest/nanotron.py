"""Nanotron's log: one rank's line a logged step, numbers to three significant digits with K, M, G or B.

A line is one step's own, not a mean since the line before. From March 2025 on the time is called
time_per_iteration_ms and global_batch_size counts tokens; before that it is elapsed_time_per_iteration_ms and samples.
"""

import math
import re
from collections.abc import Mapping
from datetime import datetime

from falloff.ingest.logtext import Line, number_of
from falloff.ingest.nanotron_facts import read_facts
from falloff.ingest.nanotron_rates import BATCH, HARDWARE, PER_GPU, PER_S, TIME, TIME_UNTIL_2025, settle
from falloff.ingest.training_log import LoggedStep, System
from falloff.units import TERA

_ITERATION = re.compile(r"\biteration: (\d{1,15}) / (\d{1,15})(?= \|)")
# '01/17/2024 13:47:27 [INFO|DP=0|PP=0|TP=0|node]: '; since March 2025 no year and only ranks of which there are several
_PREFIX = re.compile(r"(?P<time>\d\d/\d\d(?:/\d{4})? \d\d:\d\d:\d\d) \[[A-Z]+(?P<ranks>(?:\|[^\]|]{0,100}){0,12})\]: ")
_NAMES = frozenset({"consumed_tokens", PER_S, PER_GPU, BATCH, "lm_loss", "lr", "model_tflops_per_gpu"})
_STEP_NAMES = (f"{TIME}:", f"{PER_S}:", f"{PER_GPU}:", "model_tflops_per_gpu:", f"{HARDWARE}:")
_HEAD = re.compile(rf"\b(?:{TIME}|{TIME_UNTIL_2025}): \S+ \| {PER_S}: ")
# Both are printed to three digits. Where they are the same, the hardware figure is the model's own: a stand-in.
SAME_FIGURE = 0.005


def is_nanotron_log(text: str) -> bool:
    """Return whether the text is Nanotron's: a step line, by its names."""
    return _HEAD.search(text) is not None


def _is_step_line(text: str) -> bool:
    is_part = " | " in text and any(name in text for name in _STEP_NAMES)
    return is_part or bool(re.search(r"\]: iteration:(?: |$)", text)) or _ITERATION.search(text) is not None


def _parse_step(line: Line) -> tuple[LoggedStep, frozenset[str]] | None:
    found = _ITERATION.findall(line.text)
    pieces = [piece.partition(": ") for piece in line.text.split(" | ")[1:]]
    fields = {name.strip(): value.strip() for name, _, value in pieces}
    times = fields.keys() & {TIME, TIME_UNTIL_2025}
    if len(found) != 1 or len(fields) != len(pieces) or len(times) != 1 or not fields.keys() >= _NAMES:
        return None
    if not line.is_ended:
        last = pieces[-1][0].strip()
        if last in _NAMES:
            return None  # the number may go on
        del fields[last]
    try:
        return _step(int(found[0][0]), int(found[0][1]), fields, line.text), _NAMES
    except ValueError:
        return None


def _step(step: int, total_steps: int, fields: Mapping[str, str], text: str) -> LoggedStep:
    """Return the step; ValueError where a field that it takes is no number."""
    numbers = {name: number_of(value) for name, value in fields.items() if name in _NUMBERS}
    elapsed_ms, tokens_per_s = numbers.get(TIME) or numbers.get(TIME_UNTIL_2025), numbers[PER_S]
    if not elapsed_ms or not tokens_per_s or not 0 < elapsed_ms < math.inf or not 0 < tokens_per_s < math.inf:
        raise ValueError("no seconds or no tokens")
    flops, hardware = numbers["model_tflops_per_gpu"], numbers.get(HARDWARE)
    is_stand_in = flops is None or hardware is None or abs(hardware - flops) <= SAME_FIGURE * abs(flops)
    return LoggedStep(
        step=step,
        total_steps=total_steps,
        num_steps=1,
        time=_time(text),
        loss=numbers["lm_loss"],
        grad_norm=numbers.get("grad_norm"),
        memory_bytes=numbers.get("cuda_max_memory_reserved"),
        step_s=elapsed_ms / 1e3,
        tokens_per_s=tokens_per_s,
        tokens_per_gpu_s=numbers[PER_GPU] or None,
        flops_per_gpu_s=None if flops is None else flops * TERA,
        hardware_flops_per_gpu_s=None if is_stand_in or hardware is None else hardware * TERA,
        global_batch=_samples(fields),
        tokens_seen=numbers["consumed_tokens"],
        more={
            name: value
            for name, value in fields.items()
            if name not in _PLACED and not (name == HARDWARE and not is_stand_in)
        },
    )


_NUMBERS = _NAMES | {TIME, TIME_UNTIL_2025, HARDWARE, "grad_norm", "cuda_max_memory_reserved"}
# The texts of the others are kept: the digits that they print tell how exact they are.
_PLACED = frozenset({"lm_loss", "model_tflops_per_gpu", "grad_norm"})


def _samples(fields: Mapping[str, str]) -> int | None:
    """Return the batch where the line counts samples and prints all its digits: 64, and not 1.02K."""
    text = fields[BATCH]
    return int(text) or None if TIME_UNTIL_2025 in fields and text.isdecimal() and len(text) <= 3 else None


def _time(text: str) -> datetime | None:
    """Return the moment, None where the stamp has no year: it is then no moment."""
    stamp = _PREFIX.search(text)
    try:
        return datetime.strptime(stamp["time"], "%m/%d/%Y %H:%M:%S") if stamp else None
    except ValueError:
        return None


def _ranks_of(text: str) -> str:
    """Return the ranks in a line's tag. One rank of a run prints its steps, so another rank's are another run's."""
    stamp = _PREFIX.search(text)
    return stamp["ranks"] if stamp else ""


NANOTRON = System(
    name="nanotron",
    is_step=_is_step_line,
    parse=_parse_step,
    read_facts=read_facts,
    events=(
        ("a checkpoint was written", re.compile(r"Saving checkpoint at")),
        ("a profiler ran", re.compile(r"[Pp]rofil(?:er|ing) (?:step|trace)|Saving profile")),
        ("the data stage changed", re.compile(r"\[Training Stage: [^\]]*\] Clearing the previous training stage")),
        ("a validation ran", re.compile(r"\[Validation\]|validation_loss:")),
    ),
    begins=re.compile(r"\]: (?:\[Start training\]|Start training$)"),
    remarks=re.compile(r"Peak reserved: [\d.]+MiB"),
    ranks_repeat=False,
    stream=_ranks_of,
    settle=settle,
)
