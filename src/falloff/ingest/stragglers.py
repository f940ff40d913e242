"""Straggling nodes: ranks of one node that keep all the others waiting, told from the times of each rank."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from falloff.ingest.logtext import clean, read_lines, split_prefix, without_prefixes
from falloff.spec.source import LeftOut

# A step is bound by data where a rank waits for it during more than a tenth of the step: that much of the step is not
# the machine's. In a healthy step of the same log the wait is 3 ms of minutes.
DATA_SHARE = 0.1
# Of its ranks' steps over those of all. In our own logs, on cores that ranks fight for, no rank's median over ten steps
# is further than 1.3 % from that of all ranks; 5 % is four times as much.
AWAY = 0.05
# With two nodes the median lies between them, and neither is the odd one.
FEWEST_NODES = 3
FEWEST_STEPS = 3

_SECONDS = r"\s*[=:]\s*(\d+(?:\.\d+)?)\s*(ms|s)?\b"
_HEAD = re.compile(r"\[step\s{1,9}(\d{1,15})\].{0,400}?step_time" + _SECONDS, re.IGNORECASE)
_LONGEST = re.compile(r"dt_max" + _SECONDS, re.IGNORECASE)
_COLUMNS = ("rank", "data_time", "step_time")
_UNITS = {"": 1.0, "s": 1.0, "ms": 1e-3}


@dataclass(frozen=True, kw_only=True)
class SlowStep:
    """One step of which a log lists its slowest ranks: seconds each waited for data, and took apart from that.

    longest_data_s is what the log says of the rank that waited longest. num_cut_lines counts lines among its rows that
    could not be read.
    """

    step: int
    step_s: float
    longest_data_s: float | None = None
    rank_data_s: Mapping[int, float] = field(default_factory=dict)
    rank_step_s: Mapping[int, float] = field(default_factory=dict)
    num_cut_lines: int = 0

    @property
    def waiting(self) -> tuple[int, ...]:
        """Return the ranks that waited for data during more than DATA_SHARE of the step, in order."""
        return tuple(sorted(rank for rank, wait in self.rank_data_s.items() if wait > DATA_SHARE * self.step_s))

    @property
    def data_bound(self) -> bool:
        """Return whether the step was as long as it was for want of data; such a step is not steady."""
        return bool(self.waiting) or (self.longest_data_s or 0.0) > DATA_SHARE * self.step_s

    def groups(self, ranks_per_node: int | None = None) -> tuple[tuple[int, ...], ...]:
        """Return the waiting ranks by node, the longest wait first; without ranks_per_node by unbroken runs of ranks.

        Launchers count ranks node by node, so ranks that are neighbours share a node more often than not.
        """
        groups: dict[int, list[int]] = {}
        for place, rank in enumerate(self.waiting):
            groups.setdefault(rank - place if ranks_per_node is None else rank // ranks_per_node, []).append(rank)
        longest = sorted(groups.values(), key=lambda group: -max(self.rank_data_s[rank] for rank in group))
        return tuple(map(tuple, longest))


def is_slow_steps(head: str) -> bool:
    """Return whether a file's first part lists a step's slowest ranks by the time that they waited for data."""
    text = without_prefixes(head)
    step = _HEAD.search(text)
    if step is None:
        return False
    following = text[step.start() :].splitlines()
    return bool(_LONGEST.search(following[0])) or any(set(_COLUMNS) <= set(line.split()) for line in following[:10])


def read_slow_steps_file(path: Path) -> list[SlowStep]:
    """Return read_slow_steps of a file; ValueError, one sentence, for one that cannot be read or lists none."""
    try:
        return _slow_steps(line.text for line in read_lines(path))
    except ValueError as error:
        raise ValueError(str(error) if str(path) in str(error) else f"{path}: {error}") from error


def read_slow_steps(text: str) -> list[SlowStep]:
    """Return the steps of which a log lists the slowest ranks by data_time (as xtuner's analysis prints them).

    Columns are told by their names, whatever their order; a row with another number of them, or without numbers, is
    counted and left out. A step without a table has no ranks. ValueError for a text without such a step.
    """
    return _slow_steps(split_prefix(clean(raw))[1] for raw in text.splitlines())


def _slow_steps(lines: Iterable[str]) -> list[SlowStep]:
    tables: list[_Table] = []
    columns: list[str] = []
    for line in lines:
        if head := _HEAD.search(line):
            longest = _LONGEST.search(line)
            longest_data_s = _seconds(*longest.groups()) if longest else None
            tables.append(_Table(int(head[1]), _seconds(*head.groups()[1:]), longest_data_s))
            columns = []
        elif tables and set(_COLUMNS) <= set(line.split()):
            columns = line.split()
        elif tables and columns and not tables[-1].take(columns, line):
            columns = []
    if not tables:
        raise ValueError("no step with its slowest ranks is in it: a line '[step 1] step_time=1.0s ...' begins each")
    return [table.finished() for table in tables]


@dataclass
class _Table:
    """A step's line and the rows below it, gathered one after another."""

    step: int
    step_s: float
    longest_data_s: float | None
    rank_data_s: dict[int, float] = field(default_factory=dict)
    rank_step_s: dict[int, float] = field(default_factory=dict)
    num_cut_lines: int = 0

    def take(self, columns: Sequence[str], line: str) -> bool:
        """Take a row; return False for a blank or other text, which ends the table."""
        words = line.split()
        if not words or not re.match(r"[\d.+-]", words[0]):
            return False
        row = dict(zip(columns, words, strict=False))
        try:
            rank, data_s, step_s = int(row["rank"]), float(row["data_time"]), float(row["step_time"])
        except (KeyError, ValueError):
            rank, data_s, step_s = -1, -1.0, -1.0
        if len(words) != len(columns) or rank < 0 or not (0 <= data_s < math.inf and 0 <= step_s < math.inf):
            self.num_cut_lines += 1
        else:
            self.rank_data_s[rank], self.rank_step_s[rank] = data_s, step_s
        return True

    def finished(self) -> SlowStep:
        """Return the step with its rows."""
        return SlowStep(
            step=self.step,
            step_s=self.step_s,
            longest_data_s=self.longest_data_s,
            rank_data_s=self.rank_data_s,
            rank_step_s=self.rank_step_s,
            num_cut_lines=self.num_cut_lines,
        )


def left_out(steps: Sequence[SlowStep], ranks_per_node: int | None = None) -> tuple[LeftOut, ...]:
    """Return the steps that are bound by data as those that a steady state leaves out, with who waited and how long."""
    return tuple(
        LeftOut(first=step.step, last=step.step, reason=f"bound by data: {_waiting_words(step, ranks_per_node)}")
        for step in steps
        if step.data_bound and step.step > 0  # a log that counts from 0 has its first step there, left out anyhow
    )


def _waiting_words(step: SlowStep, ranks_per_node: int | None) -> str:
    groups = step.groups(ranks_per_node)
    if not groups:
        return f"a rank waited {step.longest_data_s:.4g} of {step.step_s:.4g} s"
    ranks, longest = groups[0], max(step.rank_data_s[rank] for rank in groups[0])
    names = f"ranks {ranks[0]}-{ranks[-1]}" if len(ranks) > 1 else f"rank {ranks[0]}"
    return f"{names} waited up to {longest:.4g} of {step.step_s:.4g} s"


def _seconds(number: str, unit: str | None) -> float:
    return float(number) * _UNITS[(unit or "").lower()]


def straggler(rank_step_s: Sequence[Sequence[float]], ranks_per_node: int) -> str | None:
    """Return which node of a run kept the others waiting, in words, None where none did or that cannot be told.

    `rank_step_s` is [step][rank]. Each rank's step is taken over the median of all ranks in that step, and each rank
    stands for itself by its median over the steps, so that one odd step says nothing. A node straggles where all its
    ranks are AWAY to one side and no rank of another node is: above, its steps are longer; below, it comes late to the
    collectives and the others wait in them for it. None for fewer than three nodes or three steps.
    """
    times = np.asarray(rank_step_s, dtype=float)
    if ranks_per_node < 1 or times.ndim != 2 or times.shape[0] < FEWEST_STEPS or not np.isfinite(times).all():
        return None
    num_nodes, rest = divmod(times.shape[1], ranks_per_node)
    if num_nodes < FEWEST_NODES or rest or times.min() <= 0:
        return None
    away = np.median(times / np.median(times, axis=1, keepdims=True), axis=0).reshape(num_nodes, ranks_per_node)
    odd = np.abs(away - 1) > AWAY
    one_sided = (away > 1 + AWAY).all(axis=1) | (away < 1 - AWAY).all(axis=1)
    if odd.any(axis=1).sum() != 1 or not one_sided[odd.any(axis=1)].all():
        return None
    node = int(np.argmax(one_sided))
    return _straggler_words(node, ranks_per_node, float(np.median(away[node])))


def _straggler_words(node: int, ranks_per_node: int, share: float) -> str:
    first, last = node * ranks_per_node, (node + 1) * ranks_per_node - 1
    ranks = f"rank {first}" if first == last else f"ranks {first}-{last}"
    if share > 1:
        return f"{ranks} (node {node}) take {share:.2f} times the steps of the others"
    return f"{ranks} (node {node}) are late, the others wait: their own steps are {share:.2f} of the others'"
