"""The scores as text: the table with its goals, what falls short and why, the study's claims, then all the rest."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from falloff.perfmodel.claims import Claim
from falloff.perfmodel.controls import Control
from falloff.perfmodel.families import PLAYBOOK_PEER_REGRET
from falloff.perfmodel.goals import Goal, goals_of, shared_score
from falloff.perfmodel.retention import CONSTANT_LOSS
from falloff.perfmodel.scoreboard import Board, FamilyScores, MemoryScores
from falloff.perfmodel.scores import Errors, Intervals
from falloff.perfmodel.shortfalls import reasons
from falloff.units import MILLI

_PERCENT = 100.0


def text_of(board: Board, claims: Sequence[Claim] = (), controls: Sequence[Control] = ()) -> str:
    """Return the whole report."""
    goals = list(goals_of(board))
    sections = (
        _head(board),
        _table(board, goals),
        _short(board, goals),
        _claims(claims),
        _controls(controls),
        _family_details(board.families),
        _choices(board),
        _retention(board),
        _llama(board),
        _memory(board.memory),
        _intervals(board),
        _held("One scale held out, all sources", board.held_scales),
        _held("One generation held out, all sources", board.held_generations),
        _held("Every source, held out (a)", board.sources),
    )
    return "\n\n".join("\n".join(section) for section in sections if section) + "\n"


def _head(board: Board) -> list[str]:
    return [
        f"{board.rows + board.refused} published cells: {board.rows} expressed as steps, {board.refused} not "
        f"(falloff predict says why); {board.learned} may be learned from.",
        "Errors are of step time, predicted over measured less one. (a): the whole source unseen. (b): the source",
        "known, split by whole models and by whole GPU counts, the mean of both. Baselines of (b) are fitted to the",
        "family's own training cells, of (a) to all other sources. The floor is the best that any function of the",
        "columns can do on cells that share them all. Coverage is of 90 % intervals, source by source: its band is 80",
        "to 97 % in (a), 85 to 95 % in (b), of sources with ten cells and more. Half-widths are of the logarithm.",
    ]


_HEADER = ("score", "cells", "best peer, as tried", "ours a", "goal", "ours b", "goal", "naive", "HFU a/b", "regr. a/b")


def _table(board: Board, goals: Sequence[Goal]) -> list[str]:
    """Return every score that has a goal: a family's with what stands beside it, then the others."""
    rows = [_HEADER, *(_family_row(one) for one in board.families)]
    names = [scores.family.name for scores in board.families]
    others = [goal for goal in goals if goal.subject not in names]
    peers = _peers(board)
    for subject in dict.fromkeys(goal.subject for goal in others):
        found = {_column(goal): goal for goal in others if goal.subject == subject}
        cells = [word for name in ("a", "b") for word in _goal_words(found.get(name))]
        peer, naive = peers.get(subject, ("-", "-"))
        rows.append((subject, "", peer, *cells, naive, "", ""))
    return [
        "Step time: MAPE in per cent; below it every other score with a goal (* short of the goal)",
        *_columns(rows),
    ]


def _column(goal: Goal) -> str:
    return "b" if "(b)" in goal.name else "a"


def _goal_words(goal: Goal | None) -> tuple[str, str]:
    if goal is None:
        return "-", "-"
    unit = f" {goal.unit}".rstrip()
    return f"{goal.value:.3g}{unit}{'' if goal.is_met else '*'}", f"{goal.goal:.3g}{unit}"


def _peers(board: Board) -> dict[str, tuple[str, str]]:
    """Return what the best peer and the naive rule come to, by the score's subject."""
    naive = board.choices["naive rule"]
    half = board.half_scale
    halved = [f"{_PERCENT * value:.0f} %" for value in (np.median(half), half.mean())] if len(half) else ["-", "-"]
    retention = board.retentions["a"]
    still = _PERCENT * float(np.mean([abs(loss.real) for loss in retention.losses])) if retention.losses else math.nan
    _, naive_score = shared_score(board.intervals["a"], board.naive_intervals)
    median, mean = PLAYBOOK_PEER_REGRET
    return {
        "playbook, Spearman over all": ("-", f"{naive.spearman:.2f}"),
        "playbook, Spearman within MFU >= 5 %": ("-", f"{naive.spearman_above:.2f}"),
        "playbook, median regret": (
            f"{median:g} kernel regression; {halved[0]} winner at half the GPUs",
            _percent(naive.median_regret),
        ),
        "playbook, mean regret": (
            f"{mean:g} kernel regression; {halved[1]} winner at half the GPUs",
            _percent(naive.mean_regret),
        ),
        "MPT retention": (f"{retention.constant_points:.2f} a constant {CONSTANT_LOSS:.0%}", f"{still:.2f}"),
        "interval score, below the naive rule's": ("-", f"{naive_score:.2f}"),
    }


def _family_row(one: FamilyScores) -> tuple[str, ...]:
    family = one.family
    peer = "-" if family.peer_mape is None else f"{family.peer_mape:.1f} {family.peer}"
    peer += f" ({family.peer_cells} cells)" if family.peer_cells else ""
    return (
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


def _controls(controls: Sequence[Control]) -> list[str]:
    if not controls:
        return []
    rows = [("collectives", "run", "step ms", "ours", "error %", "exposed %", "ours")]
    for control in controls:
        rows.append(
            (
                "none" if control.stretch == 0 else f"x {control.stretch:g}",
                control.record_id,
                f"{control.measured_step_s / MILLI:.1f}",
                f"{control.predicted_step_s / MILLI:.1f}",
                f"{_PERCENT * control.error:+.1f}",
                _percent_or_dash(control.measured_exposed),
                _percent_or_dash(control.predicted_exposed),
            )
        )
    return [
        "Our controls on two H200, collectives left out or so many times as long; no fit of times has seen them:",
        *_columns(rows),
    ]


def _percent_or_dash(share: float) -> str:
    return "-" if math.isnan(share) else f"{_PERCENT * share:.1f}"


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
    ours, naive = shared_score(board.intervals["a"], board.naive_intervals)
    middles = [
        float(np.median([one.half_width for name, one in board.intervals[column].items() if name != "all"]))
        for column in ("a", "b")
    ]
    return [
        *_columns(rows),
        f"Interval score over sources (a): ours {ours:.2f}, the naive rule's quantiles {naive:.2f}. Half-width of the "
        f"median source: a {_percent(middles[0])}, b {_percent(middles[1])}.",
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


def _short(board: Board, goals: Sequence[Goal]) -> list[str]:
    short = [goal for goal in goals if not goal.is_met]
    if not short:
        return [f"All {len(goals)} goals are met."]
    head = f"{len(goals) - len(short)} of {len(goals)} goals are met. What falls short, and why:"
    return [head, *(f"- {sentence}" for sentence in reasons(board, goals))]


def _claims(claims: Sequence[Claim]) -> list[str]:
    if not claims:
        return []
    rows: list[tuple[str, ...]] = [("claim", "what", "stated", "ours", "90 %", "priors alone", "remark")]
    for one in claims:
        stated = "-" if one.stated is None else _amount(one.stated, one.unit)
        between = "" if one.low is None or one.high is None else f"{one.low:.1f} to {one.high:.1f}"
        before = "" if one.by_priors is None else _amount(one.by_priors, one.unit)
        rows.append((one.claim, one.what, stated, _amount(one.ours, one.unit), between, before, one.remark))
    return [
        "The study's claims, nothing fitted to any of them: Llama 2 7B, FSDP over all ranks, 2 x 4,096 tokens a GPU",
        *_columns(rows),
    ]


def _amount(value: float, unit: str) -> str:
    if not math.isfinite(value):
        return "none"
    return f"{value:,.0f} {unit}" if unit == "GPUs" else f"{value:.1f} {unit}"


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
