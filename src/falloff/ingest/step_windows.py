"""Which steps one logged line covers, how long they took and how many tokens they trained."""

import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from falloff.ingest.training_log import LoggedStep, TrainingLog

# A time that is printed to its digit_s is taken before a rate where it is this many digits long: rates of the
# frameworks that print such times are means over other steps than the line's own.
LEAST_DIGITS = 50
MOST_GPUS = 1_000_000  # the largest training runs had some hundred thousand


@dataclass(frozen=True, kw_only=True)
class SteadyWindow:
    """One logged line: steps first to last, their count, mean seconds of a step, and where the clock stood.

    step_s is None where neither the line nor the log's facts tell it. tokens are of all steps and all GPUs.
    """

    line: LoggedStep
    first: int
    begin: datetime | None
    step_s: float | None
    tokens: float | None

    @property
    def num_steps(self) -> int:
        """Return how many steps the window holds."""
        return self.line.step - self.first + 1

    @property
    def tokens_per_s(self) -> float | None:
        """Return the tokens of all GPUs over the seconds of the window; None where either is not told."""
        return self.tokens / (self.step_s * self.num_steps) if self.tokens and self.step_s else None


def windows_of(log: TrainingLog) -> list[SteadyWindow]:
    """Return the window of each logged line, steady or not: its steps are those since the line before.

    Where lines are missing, a rate that a line prints is of as many steps as those of the other lines.
    """
    usual = _usual_length(log.steps)
    return [_window(log, position, usual) for position in range(len(log.steps))]


def _usual_length(steps: Sequence[LoggedStep]) -> int | None:
    """Return the steps from line to line where at least half of them, and two, are that far apart; else None."""
    gaps = Counter(after.step - before.step for before, after in itertools.pairwise(steps))
    gap, count = gaps.most_common(1)[0] if gaps else (0, 0)
    return gap if count >= max(2, gaps.total() / 2) else None


def tokens_after(log: TrainingLog) -> float | None:
    """Return the tokens that all GPUs together trained up to the last line: those of a step times the steps.

    None where batch or sequence are not stated. A counter that the log prints is not asked: some count the tokens
    of every rank, also of ranks that work on one sequence together.
    """
    line = log.steps[-1]
    per_step = tokens_per_step_of(log.facts, line)
    return None if per_step is None else per_step * line.step


def tokens_per_step_of(facts: Mapping[str, Any], line: LoggedStep) -> float | None:
    """Return the tokens of a step of all GPUs, None where batch or sequence is not stated."""
    stated = facts.get("tokens_per_step")
    if stated is not None:
        return float(stated)
    batch, seq = line.global_batch or facts.get("global_batch"), line.seq or facts.get("seq")
    return float(batch * seq) if batch is not None and seq is not None else None


def rise_per_step(steps: Sequence[LoggedStep], counter: Callable[[LoggedStep], float | None]) -> float | None:
    """Return by how much a counter rises in a step where that is one number above zero all along, else None."""
    rises = {
        (after - before) / (step.step - previous.step)
        for previous, step in itertools.pairwise(steps)
        if (before := counter(previous)) is not None and (after := counter(step)) is not None
    }
    rise = rises.pop() if len(rises) == 1 else 0.0
    return rise if rise > 0 else None


def gpus_of(windows: Sequence[SteadyWindow]) -> int | None:
    """Return the GPUs that a run's own rates imply: tokens of all of them over those of one; None where unlike."""
    counts = {_gpus(window) for window in windows}
    return counts.pop() if len(counts) == 1 else None


def _gpus(window: SteadyWindow) -> int | None:
    of_one, of_all = window.line.tokens_per_gpu_s, window.line.tokens_per_s or window.tokens_per_s
    if not of_one or of_all is None or of_all > MOST_GPUS * of_one:
        return None
    count = round(of_all / of_one)
    # rates of one GPU are printed as whole numbers, seconds of a step to four digits; by rates of three digits hundreds
    # of GPUs come out anywhere between two whole numbers
    return count if count >= 1 and abs(of_all / of_one - count) < min(0.01 * count, 0.1) else None


def _window(log: TrainingLog, position: int, usual: int | None) -> SteadyWindow:
    line = log.steps[position]
    before = log.steps[position - 1] if position else None
    length = _length(log, position, usual)
    is_next = before is not None and before.step == line.step - length
    since = before if is_next else None
    step_s = _step_seconds(log, line, since, length)
    return SteadyWindow(
        line=line,
        first=line.step - length + 1,
        begin=since.time if since is not None else None,
        step_s=step_s,
        tokens=_tokens(log, line, since, length, step_s),
    )


def _length(log: TrainingLog, position: int, usual: int | None) -> int:
    line = log.steps[position]
    if line.num_steps is not None:
        return line.num_steps
    if position:
        gap = line.step - log.steps[position - 1].step
        lacks_lines = usual is not None and gap > usual and gap % usual == 0
        return usual if usual is not None and lacks_lines and _prints_its_own(log, line) else gap
    if line.step > 1 and len(log.steps) > 1:
        # an excerpt: the first line's window is taken to be as long as the next one's
        return min(log.steps[1].step - line.step, line.step)
    return 1


def _step_seconds(log: TrainingLog, line: LoggedStep, since: LoggedStep | None, length: int) -> float | None:
    """Return the mean seconds of a step: as printed, else by the time since the line before or by the rate."""
    if line.step_s is not None:
        return line.step_s
    elapsed_s, by_rate_s = _elapsed(line, since), _step_seconds_by_rate(log, line, since, length)
    is_exact = elapsed_s is not None and elapsed_s >= LEAST_DIGITS * (line.elapsed_digit_s or 0.0)
    if elapsed_s is not None and (is_exact or by_rate_s is None):
        return elapsed_s / length
    return by_rate_s if by_rate_s is not None or _has_rate(line) else _clock_seconds(line, since, length)


def _prints_its_own(log: TrainingLog, line: LoggedStep) -> bool:
    """Return whether a line says its steps' time and tokens itself, so that it holds without the line before."""
    is_timed = line.step_s is not None or (_has_rate(line) and line.elapsed_s is None)
    return is_timed and (line.tokens_seen is None or tokens_per_step_of(log.facts, line) is not None)


def _elapsed(line: LoggedStep, since: LoggedStep | None) -> float | None:
    if since is None or line.elapsed_s is None or since.elapsed_s is None or line.elapsed_s <= since.elapsed_s:
        return None
    return line.elapsed_s - since.elapsed_s


def _step_seconds_by_rate(log: TrainingLog, line: LoggedStep, since: LoggedStep | None, length: int) -> float | None:
    """Return the tokens or samples of a step over their rate."""
    tokens, rate = _counted(log, line, since, length), _rate_of_all(log, line)
    if rate and tokens is not None:
        return tokens / length / rate
    samples = line.global_batch or log.facts.get("global_batch")
    return samples / line.samples_per_s if samples and line.samples_per_s else None


def _has_rate(line: LoggedStep) -> bool:
    return any(rate is not None for rate in (line.tokens_per_s, line.tokens_per_gpu_s, line.samples_per_s))


def _clock_seconds(line: LoggedStep, since: LoggedStep | None, length: int) -> float | None:
    """Return the seconds of a step by time stamps, where they are finer than a second."""
    if since is None or since.time is None or line.time is None or line.time <= since.time:
        return None
    if line.time.microsecond == since.time.microsecond == 0:
        return None
    return (line.time - since.time).total_seconds() / length


def _tokens(
    log: TrainingLog, line: LoggedStep, since: LoggedStep | None, length: int, step_s: float | None
) -> float | None:
    """Return the tokens of a window: as counted, else by the rate over the seconds, where both are printed."""
    counted, rate = _counted(log, line, since, length), _rate_of_all(log, line)
    if counted is not None or rate is None or step_s is None:
        return counted
    return rate * step_s * length


def _counted(log: TrainingLog, line: LoggedStep, since: LoggedStep | None, length: int) -> float | None:
    """Return the tokens of a window by batch and sequence, else by what the log's own counter rose."""
    per_step = tokens_per_step_of(log.facts, line)
    if per_step is not None:
        return per_step * length
    if since is None or line.tokens_seen is None or since.tokens_seen is None:
        return None
    return line.tokens_seen - since.tokens_seen if line.tokens_seen > since.tokens_seen else None


def _rate_of_all(log: TrainingLog, line: LoggedStep) -> float | None:
    num_gpus = log.facts.get("num_gpus")
    if line.tokens_per_s is not None or line.tokens_per_gpu_s is None or num_gpus is None:
        return line.tokens_per_s
    return float(line.tokens_per_gpu_s * num_gpus)
