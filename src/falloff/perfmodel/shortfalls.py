"""Why a score falls short of its goal: what the errors look like, and what they come from as far as it is known."""

from collections.abc import Sequence

import numpy as np

from falloff.perfmodel.goals import BANDS, Goal, counts
from falloff.perfmodel.scoreboard import Board, FamilyScores
from falloff.perfmodel.scores import Errors

_ONE_SIDED = 0.75  # share of the mean error that its bias makes: above, all cells miss on the same side
# what is known of a score's errors beyond their numbers, by how its name begins; the first that fits
_CAUSES: tuple[tuple[str, str], ...] = (
    (
        "Korthikanti",
        "recomputation, sequence parallelism and interleaving are timed by one formula each, for all sizes",
    ),
    ("Megatron SC'21 PTD", "its days are rounded, and a percent of them is within what one factor would mend"),
    (
        "SC'21 ZeRO-3",
        "DeepSpeed's ZeRO-3 of 2021 gathers parameter by parameter, and how well it overlapped is not stated",
    ),
    ("vTrain multi-node", "its network is a simulator's setting, and what overlapped with what is not stated"),
    ("vTrain single-node", "small models wait for the host, whose speed no source states"),
    ("MPT FSDP, A100", "the releases of PyTorch and llm-foundry behind its rows are not stated"),
    ("MPT FSDP, H100", "interconnect and PyTorch are not stated; the regression learns each column of this one table"),
    ("TorchTitan", "its H100s are of a rare kind (96 GB, 500 W), and its rows are of PyTorch from 2024 to 2026"),
    ("Llama 3", "two rows of one run, whose failures, pipeline order and balance are told in prose alone"),
    ("playbook", "the picks that lose most are runs whose sends stalled, which no column tells (docs/perfmodel.md)"),
    ("MPT retention", "the loss is a few per cent, as large as what differs between runs"),
    (
        "memory, reserved",
        "nearly all of it is nanotron's, whose runs of one layout fall into two kinds that no row tells apart",
    ),
    ("memory, device", "it holds contexts and buffers of libraries that no source states"),
    ("memory", "what is kept of activations is told by recomputation modes that most sources leave blank"),
    ("fits", "the playbook's recomputation is not stated, and its runs that just fitted are called out of memory"),
    ("does not fit", "a run that crashed for another reason than memory counts as one that did not fit"),
    ("true OOM labels", "there are few of them, each of a run close to the limit"),
    ("sources whose coverage", "cells of one source miss on the same side, so that its coverage is near all or none"),
    ("median half-width of intervals", "an interval cannot be narrower than the errors of cells that no fit has seen"),
    ("interval score", "sources that are far outside cost twenty times their distance"),
)


def reasons(board: Board, goals: Sequence[Goal]) -> list[str]:
    """Return a sentence for each goal that is not met."""
    return [reason(board, goal) for goal in goals if not goal.is_met]


def reason(board: Board, goal: Goal) -> str:
    """Return how far a score is from its goal, and what its errors come from."""
    values = f"{goal.name}: {_number(goal.value, goal.unit)} where {_number(goal.goal, goal.unit)} was the goal"
    facts = [*_facts(board, goal), *[cause for start, cause in _CAUSES if goal.name.startswith(start)][:1]]
    return f"{values}{': ' if facts else ''}{'; '.join(facts)}."


def _number(value: float, unit: str) -> str:
    return f"{value:.3g} {unit}".strip()


def _facts(board: Board, goal: Goal) -> list[str]:
    """Return what the errors behind a goal look like."""
    for scores in board.families:
        if goal.name.startswith(scores.family.name):
            return _family_facts(scores, goal.name)
    if goal.name.startswith(("sources whose coverage", "median half-width")):
        return _interval_facts(board, goal)
    if goal.name.startswith("memory, ") and board.memory is not None:
        column = goal.name[-2]
        kind = goal.name.split(", ")[1]
        return _sided(board.memory.errors[column][kind], "memory is predicted", "large", "small")
    return []


def _interval_facts(board: Board, goal: Goal) -> list[str]:
    scores = board.intervals["a" if "(a)" in goal.name else "b"]
    if goal.name.startswith("median half-width"):
        middle = float(np.median([one.half_width for name, one in scores.items() if name != "all"]))
        return [f"the median source's is {100 * middle:.0f} %, three large sources set the median cell's"]
    low, high = BANDS["a" if "(a)" in goal.name else "b"]
    outside = [
        f"{name} {one.coverage:.0%}"
        for name, one in scores.items()
        if counts(name, one) and not low <= one.coverage <= high
    ]
    return [f"outside are {', '.join(outside)}"]


def _family_facts(scores: FamilyScores, name: str) -> list[str]:
    errors = scores.ours_unseen if "(a)" in name else scores.ours_known
    found = _sided(errors, "steps are predicted", "long", "short")
    if "(a)" in name and len(scores.scales) > 1:
        worst, worst_errors = max(scores.scales.items(), key=lambda pair: pair[1].mape)
        found.append(f"most {worst if worst[0].isalpha() else f'at {worst}'} GPUs ({100 * worst_errors.mape:.0f} %)")
    if scores.floor.cells and 100 * scores.floor.mape > 1:
        found.append(f"cells alike in every column differ by {100 * scores.floor.mape:.1f} % themselves")
    return found


def _sided(errors: Errors, what: str, over: str, under: str) -> list[str]:
    if abs(errors.bias) >= _ONE_SIDED * errors.mape:
        return [f"{what} too {over if errors.bias > 0 else under} throughout (bias {100 * errors.bias:+.0f} %)"]
    return [f"errors on both sides (bias {100 * errors.bias:+.0f} %, median {100 * errors.median:.0f} %)"]
