"""From the lines of a training log to its runs: which line belongs to which, and all ranks' lines as one step."""

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from operator import attrgetter
from pathlib import Path
from typing import Any

from falloff.ingest.logtext import Line, read_lines
from falloff.ingest.training_log import LoggedStep, System, TrainingLog
from falloff.ingest.training_outcome import EndSigns, outcome_of

# Ranks of one run print a step within this time of each other.
LARGEST_SKEW_S = 10.0
# The longest runs take some million steps; a larger number is garbled, and would not fit a record's whole numbers.
LARGEST_STEP = 10**12
# A clock goes back by an hour where summer ends; by more in a file where two logs stand one after the other.
LARGEST_STEP_BACK = timedelta(hours=2)
STARTED_AGAIN = "the run was started again"
# Configurations and the printed network come to some thousand lines.
MOST_HEADER_LINES = 20_000
# Of a trainer's own remarks these many are enough to tell what it counts.
MOST_REMARKS = 1_000

# Lines that hold a value are below 20 KiB. A file may be made of longer ones, in which a dozen patterns are sought.
LONGEST_CHARS = 1 << 17

_quantities = attrgetter(
    *(
        field.name
        for field in fields(LoggedStep)
        if field.type in (float | None, int | None) and field.name not in ("loss", "grad_norm", "rank")
    )
)


def read_training_log(path: Path, system: System) -> list[TrainingLog]:
    """Return the runs of a log, in order: a step that does not go on from the one before begins another run.

    ValueError, one sentence, for a file that cannot be read, and one that has neither a whole step line nor a
    failure.
    """
    lines: Iterable[Line] = map(_shortened, read_lines(path))
    runs = _split(system.join(lines) if system.join else lines, system)
    logs: list[TrainingLog] = []
    stated: Mapping[str, Any] = {}
    try:
        for run in runs:
            stated = dict(system.read_facts(_lowest_ranks_texts(run.header))) or stated
            logs.append(_finish(run, system, stated))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    if not any(log.steps or log.outcome != "killed" for log in logs):
        needs = f" ({system.needs})" if system.needs else ""
        raise ValueError(f"{path}: holds no whole step line of {system.name}{needs}, and no failure")
    return [log for log in logs if log.steps or log.outcome != "killed"]


def _shortened(line: Line) -> Line:
    return line if len(line.text) <= LONGEST_CHARS else Line(line.rank, line.text[:LONGEST_CHARS], is_ended=False)


@dataclass(kw_only=True)
class _Run:
    """The lines of one run, gathered one after another."""

    header: list[Line] = field(default_factory=list)
    rows: list[tuple[LoggedStep, frozenset[str]]] = field(default_factory=list)
    last_of_rank: dict[int | None, LoggedStep] = field(default_factory=dict)
    num_cut: int = 0
    event: str | None = None
    begins: bool = False
    signs: EndSigns = field(default_factory=EndSigns)
    remarks: list[str] = field(default_factory=list)


def _split(lines: Iterable[Line], system: System) -> list[_Run]:
    runs = [_Run()]
    run_of: dict[Hashable, _Run] = {}
    names_known: dict[frozenset[str], frozenset[str]] = {}  # each kept once: nearly all lines have the same
    between: list[Line] = []  # lines since the last step, the header of a run that may begin
    for line in lines:
        run = runs[-1]
        if not system.is_step(line.text):
            if len(between) < MOST_HEADER_LINES:
                between.append(line)
            _note(run, line.text, system)
            continue
        parsed = _parse(line, system)
        if parsed is None:
            _note_cut(run, line.text, system)
            continue
        step, names = parsed[0], names_known.setdefault(parsed[1], parsed[1])
        stream = system.stream(line.text) if system.stream else None
        run = run_of.get(stream) or (run if not run.rows else _begin_again(runs, [], system))
        before = run.last_of_rank.get(line.rank)
        if before is not None and _is_another_run(before, step, line.rank, between, system):
            run = _begin_again(runs, between, system)
        elif before is not None and line.rank is None and system.ranks_repeat and _begins(between, system):
            run.event = run.event or STARTED_AGAIN
        run_of[stream] = run
        if not run.rows:
            run.header += between
        between = []
        _add(run, step if step.rank == line.rank else replace(step, rank=line.rank), names)
    if not runs[-1].rows:
        runs[-1].header += between  # a run that failed before its first step
    return runs


def _note_cut(run: _Run, text: str, system: System) -> None:
    run.num_cut += 1
    if system.lost_loss and run.signs.lost_loss is None:
        run.signs.lost_loss = system.lost_loss(text)


def _parse(line: Line, system: System) -> tuple[LoggedStep, frozenset[str]] | None:
    try:
        parsed = system.parse(line)
    except (ValueError, OverflowError):  # a field that holds no number, or none of this world
        return None
    return parsed if parsed is not None and _is_possible(parsed[0]) else None


def _is_possible(step: LoggedStep) -> bool:
    """Return whether quantities are none or more; a loss or a gradient may be anything."""
    quantities = _quantities(step)
    return 0 <= step.step <= LARGEST_STEP and all(value is None or 0 <= value < math.inf for value in quantities)


def _note(run: _Run, text: str, system: System) -> None:
    """Keep what a line that is no step says of the run: an event, an end, a failure."""
    run.event = next((words for words, pattern in system.events if pattern.search(text)), run.event)
    # after a step it is the next run that begins
    run.begins = run.begins or bool(not run.rows and system.begins and system.begins.search(text))
    run.signs.note(text, system.ended)
    if system.remarks and len(run.remarks) < MOST_REMARKS and system.remarks.search(text):
        run.remarks.append(text)


def _begin_again(runs: list[_Run], between: Sequence[Line], system: System) -> _Run:
    """Return the run after those in a file. What was said since the last step belongs to its start."""
    before = runs[-1]
    run = _Run(begins=_begins(between, system), event=before.event)
    before.event = None
    runs.append(run)
    return run


def _begins(between: Sequence[Line], system: System) -> bool:
    return system.begins is not None and any(system.begins.search(line.text) for line in between)


def _add(run: _Run, step: LoggedStep, names: frozenset[str]) -> None:
    # asked only where there is an event: a thousand ranks print each step
    if run.event is not None and all(step.step != other.step for other in run.last_of_rank.values()):
        step, run.event = replace(step, event=step.event or run.event), None
    run.last_of_rank[step.rank] = step
    run.rows.append((step, names))


def _is_another_run(
    before: LoggedStep, step: LoggedStep, rank: int | None, between: Sequence[Line], system: System
) -> bool:
    """Return whether a rank's step cannot follow the one before; without prefixes all ranks may print the same step."""
    if step.step < before.step:
        return True
    if step.time is not None and before.time is not None and before.time - step.time > LARGEST_STEP_BACK:
        return True
    if step.step == before.step and _is_same_line(before, step):
        return False  # written twice, by a logger and by tee
    is_told_apart = not system.ranks_repeat or rank is not None
    # where one rank alone prints steps, another prints what a launch begins with
    own = [line for line in between if line.rank in (None, rank)] if system.ranks_repeat else between
    if is_told_apart and _begins(own, system):
        return True  # a restart that goes on from the step at which the run before it stopped
    if step.step > before.step:
        return False
    if rank is not None or not system.ranks_repeat:
        return True
    known = before.time is not None and step.time is not None
    return known and abs((step.time - before.time).total_seconds()) > LARGEST_SKEW_S  # type: ignore[operator]


def _is_same_line(before: LoggedStep, step: LoggedStep) -> bool:
    """Return whether two steps are one line's; by what they print, since a loss of nan is not equal to itself."""
    return repr(replace(step, rank=before.rank, event=before.event)) == repr(before)


def _finish(run: _Run, system: System, facts: Mapping[str, Any]) -> TrainingLog:
    usual = Counter(names for _, names in run.rows).most_common(1)
    whole = [step for step, names in run.rows if not names < usual[0][0]]
    by_step: dict[int, list[LoggedStep]] = {}
    for step in whole:
        by_step.setdefault(step.step, []).append(step)
    steps = tuple(merge_ranks(by_step[number]) for number in sorted(by_step))
    settled: Sequence[LoggedStep] = steps
    if system.settle and steps:
        facts, settled = system.settle(facts, steps, run.remarks)
    outcome, reason = outcome_of(run.signs, settled)
    return TrainingLog(
        framework=system.name,
        steps=tuple(settled),
        num_rows=len(whole),
        num_cut_lines=run.num_cut + len(run.rows) - len(whole),
        facts=facts,
        starts=run.begins or bool(steps and steps[0].step <= 1 and steps[0].is_numbered),
        outcome=outcome,
        outcome_reason=reason,
    )


def _lowest_ranks_texts(lines: Sequence[Line]) -> list[str]:
    """Return the lines of the lowest rank and those of no rank: a block must not mix two ranks."""
    lowest = min((line.rank for line in lines if line.rank is not None), default=None)
    return [line.text for line in lines if line.rank in (None, lowest)]


def merge_ranks(steps: Sequence[LoggedStep]) -> LoggedStep:
    """Return one step of all ranks' lines: the slowest one's times and rates, the most memory, a loss that is known."""
    if len(steps) == 1:
        return steps[0]
    slowest = max(steps, key=_slowness)
    losses = [step.loss for step in steps if step.loss is not None]
    peaks = [step.memory_bytes for step in steps if step.memory_bytes is not None]
    events = [step.event for step in steps if step.event is not None]
    return replace(
        slowest,
        loss=losses[-1] if losses else None,
        memory_bytes=max(peaks) if peaks else None,
        event=events[0] if events else None,
    )


def _slowness(step: LoggedStep) -> float:
    """Return what is larger for a slower step."""
    if step.step_s is not None:
        return step.step_s
    rates = (step.tokens_per_gpu_s, step.tokens_per_s, step.samples_per_s)
    return next((-rate for rate in rates if rate is not None), -math.inf)
