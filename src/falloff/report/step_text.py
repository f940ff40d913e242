"""What a run's own log prints, step by step, as aligned text; columns that the log lacks are left out."""

from collections.abc import Callable, Mapping, Sequence

from falloff.analysis.efficiency import Row, mfu
from falloff.ingest.training_log import LoggedStep
from falloff.report.text import DASH, aligned, decimals, percent
from falloff.spec.hardware import Hardware
from falloff.units import GIB, TERA

# Logs of thousands of steps are for a program to read.
MOST_STEPS = 40

Cell = Callable[[LoggedStep], str]


def steps_table(steps: Sequence[LoggedStep], run: Row, known: Mapping[str, Hardware]) -> str:
    """Return one line a logged step of a run, with MFU recomputed in falloff's convention beside the log's own.

    Of more than MOST_STEPS steps the first and the last are shown.
    """
    shown, left = _ends(steps)
    columns: list[tuple[str, Cell]] = [
        ("step", lambda step: str(step.step)),
        ("loss", lambda step: decimals(step.loss, 4)),
        ("GiB", lambda step: decimals(_in(step.memory_bytes, GIB), 2)),
        ("s/step", lambda step: decimals(step.step_s, 4)),
        ("tokens/s per GPU", lambda step: decimals(step.tokens_per_gpu_s, 0)),
        ("tokens/s", lambda step: decimals(step.tokens_per_s, 0)),
        ("samples/s", lambda step: decimals(step.samples_per_s, 3)),
        ("TFLOP/s", lambda step: decimals(_in(step.flops_per_gpu_s, TERA), 1)),
        ("W", lambda step: decimals(step.draw_w, 0)),
        ("MFU", lambda step: percent(step_mfu(step, run, known))),
        ("its own MFU", lambda step: percent(step.peak_flops_share)),
        ("remark", lambda step: "; ".join(words for words in (step.event, step.unusable) if words)),
    ]
    filled = [(name, cell) for name, cell in columns if any(cell(step) not in (DASH, "") for step in shown)]
    table = aligned([name for name, _ in filled], [[cell(step) for _, cell in filled] for step in shown])
    return f"{table}\n  and {left:,} more between; --json has all" if left else table


def step_mfu(step: LoggedStep, run: Row, known: Mapping[str, Hardware]) -> float:
    """Return a logged step's MFU in falloff's convention as a fraction; NaN where the run's own cannot be told."""
    return mfu({**run, "window_tokens": None, "reported_tokens_per_gpu_s": step.tokens_per_gpu_s}, known)


def _ends(steps: Sequence[LoggedStep]) -> tuple[Sequence[LoggedStep], int]:
    if len(steps) <= MOST_STEPS:
        return steps, 0
    half = MOST_STEPS // 2
    return [*steps[:half], *steps[-half:]], len(steps) - 2 * half


def _in(value: float | None, unit: float) -> float | None:
    return None if value is None else value / unit
