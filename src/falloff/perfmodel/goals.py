"""Every score that has a goal, beside it."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from falloff.perfmodel.scoreboard import Board, MemoryScores
from falloff.perfmodel.scores import Intervals

_BEATS_REGRESSION = 0.8  # of the regression's error, on MPT
_PERCENT = 100.0
_LEAST_CELLS = 10
BANDS = {"a": (0.80, 0.97), "b": (0.85, 0.95)}  # of the coverage of 90 % intervals, by column


@dataclass(frozen=True)
class Goal:
    """One score beside its goal. sign is 1 where less is better, -1 where more is."""

    name: str
    value: float
    goal: float
    unit: str = "%"
    sign: int = 1

    @property
    def subject(self) -> str:
        """Return the name without its column, (a) or (b)."""
        return self.name.replace(" (a)", "").replace(" (b)", "")

    @property
    def is_met(self) -> bool:
        """Return whether the score is at its goal or better; a score that could not be had is not."""
        return math.isfinite(self.value) and self.sign * (self.value - self.goal) <= 0


def goals_of(board: Board) -> Iterator[Goal]:
    """Yield every score that has a goal."""
    for scores in board.families:
        family = scores.family
        yield Goal(f"{family.name} (a)", _PERCENT * scores.ours_unseen.mape, family.goal_unseen)
        if family.goal_known is not None:
            yield Goal(f"{family.name} (b)", _PERCENT * scores.ours_known.mape, family.goal_known)
        if family.name.startswith("MPT"):
            bar = _PERCENT * _BEATS_REGRESSION * scores.regression_known.mape
            yield Goal(f"{family.name} (b), 20 % below the regression", _PERCENT * scores.ours_known.mape, bar)
    yield from _choice_goals(board)
    for name, points in (("a", 2.0), ("b", 1.5)):
        retention = board.retentions[name]
        yield Goal(f"MPT retention ({name})", retention.points, points, "points")
        if name == "b":
            yield Goal("MPT retention (b), Spearman over models", retention.spearman, 0.7, "", -1)
    if board.llama is not None:
        off = _PERCENT * abs(board.llama.predicted_ratio - board.llama.real_ratio)
        yield Goal("Llama 3 405B, ratio of the two 8k rows", off, 2.0, "points")
    yield from _memory_goals(board.memory)
    yield from _interval_goals(board)


def _choice_goals(board: Board) -> Iterator[Goal]:
    goals = {"a": (0.80, 0.75, 7.0, 20.0), "b": (0.85, 0.80, 5.0, 15.0)}
    for column, (over_all, above, median, mean) in goals.items():
        chosen = [choice for name, choice in board.choices.items() if name.split(",")[0] == column]
        for name, field, goal, unit, sign in (
            ("Spearman over all", "spearman", over_all, "", -1),
            ("Spearman within MFU >= 5 %", "spearman_above", above, "", -1),
            ("median regret", "median_regret", median, "%", 1),
            ("mean regret", "mean_regret", mean, "%", 1),
        ):
            value = float(np.mean([getattr(choice, field) for choice in chosen])) * (_PERCENT if unit else 1)
            yield Goal(f"playbook, {name} ({column})", value, goal, unit, sign)


def _memory_goals(memory: MemoryScores | None) -> Iterator[Goal]:
    if memory is None:
        return
    for column, goal in (("a", 8.0), ("b", 5.0)):
        for kind, errors in memory.errors[column].items():
            yield Goal(f"memory, {kind}, median ({column})", _PERCENT * errors.median, goal)
    yield Goal("fits, of cells that ran", memory.measured_cells.specificity, 0.99, "", -1)
    yield Goal("does not fit, of crash_or_oom", memory.measured_cells.recall, 0.75, "", -1)
    yield Goal("true OOM labels, balanced accuracy", memory.true_labels.balanced_accuracy, 0.95, "", -1)


def counts(name: str, one: Intervals) -> bool:
    """Return whether a source's coverage is judged: 90 and 80 per cent of a few cells cannot be told apart."""
    return name != "all" and one.n >= _LEAST_CELLS


def _interval_goals(board: Board) -> Iterator[Goal]:
    for column, half in (("a", 15.0), ("b", 12.0)):
        low, high = BANDS[column]
        inside = [low <= one.coverage <= high for name, one in board.intervals[column].items() if counts(name, one)]
        share = sum(inside) / len(inside) if inside else math.nan
        yield Goal(f"sources whose coverage is in its band ({column})", _PERCENT * share, 100.0, "%", -1)
        half_width = board.intervals[column]["all"].half_width
        yield Goal(f"median half-width of intervals ({column})", _PERCENT * half_width, half)
    ours, naive = shared_score(board.intervals["a"], board.naive_intervals)
    yield Goal("interval score (a), below the naive rule's", ours, naive, "")


def shared_score(ours: Mapping[str, Intervals], naive: Mapping[str, Intervals]) -> tuple[float, float]:
    """Return the mean interval score over the sources that both have, each source alike."""
    both = [name for name in naive if name in ours and name != "all"]
    return tuple(float(np.mean([scores[name].score for name in both])) for scores in (ours, naive))  # type: ignore[return-value]
