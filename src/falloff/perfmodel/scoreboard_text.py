"""The scores as text: the table with its goals, then every other score, then what falls short."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from falloff.perfmodel.families import PLAYBOOK_PEER_REGRET
from falloff.perfmodel.retention import CONSTANT_LOSS
from falloff.perfmodel.scoreboard import Board, FamilyScores, MemoryScores
from falloff.perfmodel.scores import Errors, Intervals

_BEATS_REGRESSION = 0.8  # of the regression's error, on MPT
_PERCENT = 100.0


@dataclass(frozen=True)
class Goal:
    """One score beside its goal. sign is 1 where less is better, -1 where more is."""

    name: str
    value: float
    goal: float
    unit: str = "%"
    sign: int = 1

    @property
    def is_met(self) -> bool:
        """Return whether the score is at its goal or better; a score that could not be had is not."""
        return math.isfinite(self.value) and self.sign * (self.value - self.goal) <= 0


def text_of(board: Board) -> str:
    """Return the whole report."""
    goals = list(goals_of(board))
    sections = (
        _head(board),
        _family_table(board.families),
        _family_details(board.families),
        _choices(board),
        _retention(board),
        _llama(board),
        _memory(board.memory),
        _intervals(board),
        _held("One scale held out, all sources", board.held_scales),
        _held("One generation held out, all sources", board.held_generations),
        _held("Every source, held out (a)", board.sources),
        _short(goals),
    )
    return "\n\n".join("\n".join(section) for section in sections if section) + "\n"


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


def _interval_goals(board: Board) -> Iterator[Goal]:
    for column, low, high, half in (("a", 0.80, 0.97, 15.0), ("b", 0.85, 0.95, 12.0)):
        scored = {name: one for name, one in board.intervals[column].items() if name != "all" and one.n >= _LEAST_CELLS}
        inside = [low <= one.coverage <= high for one in scored.values()]
        share = sum(inside) / len(inside) if inside else math.nan
        yield Goal(
            f"sources whose coverage is within {low:.0%}-{high:.0%} ({column})", _PERCENT * share, 100.0, "%", -1
        )
        yield Goal(f"median half-width ({column})", _PERCENT * board.intervals[column]["all"].half_width, half)
    ours, naive = _shared_score(board.intervals["a"], board.naive_intervals)
    yield Goal("interval score (a), below the naive rule's", ours, naive, "")


_LEAST_CELLS = 10  # below, a coverage of 90 % and one of 80 % cannot be told apart


def _shared_score(ours: Mapping[str, Intervals], naive: Mapping[str, Intervals]) -> tuple[float, float]:
    """Return the mean interval score over the sources that both have, each source alike."""
    both = [name for name in naive if name in ours and name != "all"]
    return tuple(float(np.mean([scores[name].score for name in both])) for scores in (ours, naive))  # type: ignore[return-value]


def _head(board: Board) -> list[str]:
    return [
        f"{board.rows + board.refused} published cells: {board.rows} expressed as steps, {board.refused} not "
        f"(falloff predict says why); {board.learned} may be learned from.",
        "Errors are of step time, predicted over measured less one. (a): the whole source unseen. (b): the source",
        "known, split by whole models and by whole GPU counts, the mean of both. Baselines of (b) are fitted to the",
        "family's own training cells, of (a) to all other sources. The floor is the best that any function of the",
        "columns can do on cells that share them all.",
    ]


def _family_table(families: Sequence[FamilyScores]) -> list[str]:
    head = (
        "family",
        "cells",
        "best peer, as tried",
        "ours a",
        "goal",
        "ours b",
        "goal",
        "naive",
        "HFU a/b",
        "regr. a/b",
    )
    rows = [head]
    for one in families:
        family = one.family
        peer = "-" if family.peer_mape is None else f"{family.peer_mape:.1f} {family.peer}"
        peer += f" ({family.peer_cells} cells)" if family.peer_cells else ""
        rows.append(
            (
                family.name,
                str(one.ours_unseen.n),
                peer,
                _mark(_PERCENT * one.ours_unseen.mape, family.goal_unseen),
                f"{family.goal_unseen:g}",
                _mark(_PERCENT * one.ours_known.mape, family.goal_known),
                "-" if family.goal_known is None else f"{family.goal_known:g}",
                _percent(one.naive.mape),
                f"{_percent(one.constant_unseen.mape)}/{_percent(one.constant_known.mape)}",
                f"{_percent(one.regression_unseen.mape)}/{_percent(one.regression_known.mape)}",
            )
        )
    return ["Step time: MAPE in per cent (* short of the goal)", *_columns(rows)]


def _family_details(families: Sequence[FamilyScores]) -> list[str]:
    rows: list[tuple[str, ...]] = [
        ("family", "column", "MAPE", "median", "bias", "p90", "floor (cells with a twin)", "MAPE by GPUs (a)")
    ]
    for one in families:
        floor = "-" if not one.floor.cells else f"{_percent(one.floor.mape)} ({one.floor.cells})"
        scales = "  ".join(f"{name}: {_percent(errors.mape)}" for name, errors in one.scales.items())
        for column, errors in (("a", one.ours_unseen), ("b", one.ours_known), ("naive", one.naive)):
            first = column == "a"
            rows.append(
                (
                    one.family.name if first else "",
                    column,
                    *(_percent(value) for value in (errors.mape, errors.median)),
                    f"{_PERCENT * errors.bias:+.1f}",
                    _percent(errors.p90),
                    floor if first else "",
                    scales if first else "",
                )
            )
    return ["The same in detail", *_columns(rows)]


def _choices(board: Board) -> list[str]:
    rows = [("prediction", "layouts", "Spearman", "within MFU >= 5 %", "groups", "median regret", "mean regret")]
    for name, one in board.choices.items():
        rows.append(
            (
                name,
                str(one.cells),
                f"{one.spearman:.3f}",
                f"{one.spearman_above:.3f}",
                str(one.groups),
                _percent(one.median_regret),
                _percent(one.mean_regret),
            )
        )
    peer = PLAYBOOK_PEER_REGRET
    rows.append(("kernel regression, as tried", "", "", "", "", f"{peer[0]:g}", f"{peer[1]:g}"))
    half = board.half_scale
    if len(half):
        found = (_percent(float(np.median(half))), _percent(float(half.mean())))
        rows.append(("what won at half the GPUs", "", "", "", str(len(half)), *found))
    return ["Playbook: layouts ranked, and what the layout picked costs against the best measured one", *_columns(rows)]


def _retention(board: Board) -> list[str]:
    lines = ["MPT: change of tokens/s per GPU from 128 H100s, in per cent"]
    rows: list[tuple[str, ...]] = [("model", "GPUs", "published", "ours a", "ours b")]
    for first, second in zip(board.retentions["a"].losses, board.retentions["b"].losses, strict=True):
        values = (first.real, first.predicted, second.predicted)
        rows.append((first.model, str(first.gpus), *(f"{_PERCENT * value:+.1f}" for value in values)))
    a, b = board.retentions["a"], board.retentions["b"]
    lines += _columns(rows)
    lines.append(
        f"Mean error in points: a {a.points:.2f} (goal 2), b {b.points:.2f} (goal 1.5), a constant {CONSTANT_LOSS:.0%} "
        f"{a.constant_points:.2f}, Calculon and llm-analysis (always 0.0): "
        f"{_PERCENT * float(np.mean([abs(loss.real) for loss in a.losses])) if a.losses else math.nan:.2f}. "
        f"Spearman over models: a {a.spearman:.2f}, b {b.spearman:.2f} (goal 0.7)."
    )
    return lines


def _llama(board: Board) -> list[str]:
    if board.llama is None:
        return []
    one = board.llama
    return [
        f"Llama 3 405B from 8,192 to 16,384 GPUs: published {_PERCENT * (one.real_ratio - 1):+.1f} %, ours "
        f"{_PERCENT * (one.predicted_ratio - 1):+.1f} %. The 131k row, unscored: step "
        f"{_PERCENT * one.causal_error:+.1f} % if attention skips the masked half, {_PERCENT * one.full_error:+.1f} % "
        "if not."
    ]


def _memory(memory: MemoryScores | None) -> list[str]:
    if memory is None:
        return ["Memory is not predicted yet."]
    rows: list[tuple[str, ...]] = [("memory", "column", "cells", "median error", "bias", "p90")]
    for column, kinds in memory.errors.items():
        for kind, errors in kinds.items():
            bias = f"{_PERCENT * errors.bias:+.1f}"
            rows.append((kind, column, str(errors.n), _percent(errors.median), bias, _percent(errors.p90)))
    one, two = memory.measured_cells, memory.true_labels
    return [
        *_columns(rows),
        f"Fits, of {one.ran} cells that ran: {one.specificity:.3f} (goal 0.99). Does not fit, of {one.failed} "
        f"crash_or_oom: {one.recall:.3f} (goal 0.75).",
        f"Sources with true labels: fits, of {two.ran} that ran, {two.specificity:.3f}; does not fit, of {two.failed} "
        f"out of memory, {two.recall:.3f}; balanced accuracy {two.balanced_accuracy:.3f} (goal 0.95).",
    ]


def _intervals(board: Board) -> list[str]:
    rows: list[tuple[str, ...]] = [
        (
            "90 % intervals",
            "cells a",
            "coverage a",
            "half-width a",
            "score a",
            "cells b",
            "coverage b",
            "half-width b",
            "score b",
        )
    ]
    tables = [(board.intervals, "all"), (board.scale_intervals, "")]
    for table, last in tables:
        names = sorted(name for name in set(table["a"]) | set(table["b"]) if name != "all")
        for name in [*names, *([last] if last else [])]:
            values = [_interval_words(table[column].get(name)) for column in ("a", "b")]
            rows.append((f"{name} GPUs" if table is board.scale_intervals else name, *values[0], *values[1]))
    ours, naive = _shared_score(board.intervals["a"], board.naive_intervals)
    return [
        *_columns(rows),
        f"Interval score over sources (a): ours {ours:.2f}, the naive rule's quantiles {naive:.2f}.",
    ]


def _interval_words(one: Intervals | None) -> tuple[str, ...]:
    if one is None:
        return ("", "", "", "")
    return (str(one.n), f"{one.coverage:.0%}", _percent(one.half_width), f"{one.score:.2f}")


def _held(title: str, held: Mapping[str, tuple[Errors, Errors]]) -> list[str]:
    rows = [(title, "cells", "ours", "median", "bias", "naive rule")]
    for name, (ours, naive) in held.items():
        if ours.n:
            bias = f"{_PERCENT * ours.bias:+.1f}"
            rows.append((name, str(ours.n), _percent(ours.mape), _percent(ours.median), bias, _percent(naive.mape)))
    return _columns(rows)


def _short(goals: Sequence[Goal]) -> list[str]:
    short = [goal for goal in goals if not goal.is_met]
    lines = [
        f"{len(goals) - len(short)} of {len(goals)} goals are met. Short of its goal:"
        if short
        else "All goals are met."
    ]
    rows = [
        (goal.name, f"{goal.value:.3g} {goal.unit}".strip(), f"{goal.goal:.3g} {goal.unit}".strip()) for goal in short
    ]
    return [*lines, *_columns([("score", "ours", "goal"), *rows])] if rows else lines


def _mark(value: float, goal: float | None) -> str:
    if not math.isfinite(value):
        return "-"
    return f"{value:.1f}{'*' if goal is not None and value > goal else ''}"


def _percent(fraction: float) -> str:
    return f"{_PERCENT * fraction:.1f}" if math.isfinite(fraction) else "-"


def _columns(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    lines = ["  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return [lines[0], "  ".join("-" * width for width in widths), *lines[1:]]
