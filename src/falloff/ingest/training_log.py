"""A training log of any framework: its step lines, the facts before them, how it ended, one TrainingLog a run.

Frameworks differ in how a line reads and in what it counts: a framework is a System, a few functions and patterns in
a module of its own. How lines become runs is the same for all and stands in training_runs.
"""

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from falloff.ingest.logtext import Line, number_of


@dataclass(frozen=True, kw_only=True, slots=True)  # a log of a thousand ranks has millions
class LoggedStep:
    """One step line or block. Rates are means over num_steps steps that end with `step`; None is not printed, or N/A.

    Everything stands here as the log prints it, in SI units; what follows from it is computed elsewhere. time is the
    host's local time, peak_flops_share the log's MFU (0.55 for 55 %), energy_j one GPU's in one step.
    """

    step: int
    is_numbered: bool = True  # whether the log says which step it is; one above whose values the file begins does not
    total_steps: int | None = None
    num_steps: int | None = None  # where the log says so; None: the steps since the line before
    time: datetime | None = None
    rank: int | None = None
    loss: float | None = None
    grad_norm: float | None = None
    memory_bytes: float | None = None
    step_s: float | None = None
    tokens_per_s: float | None = None  # of all GPUs
    tokens_per_gpu_s: float | None = None
    samples_per_s: float | None = None  # of all GPUs
    flops_per_gpu_s: float | None = None
    hardware_flops_per_gpu_s: float | None = None
    peak_flops_share: float | None = None
    draw_w: float | None = None
    energy_j: float | None = None
    global_batch: int | None = None  # samples
    seq: int | None = None
    tokens_seen: float | None = None
    samples_seen: float | None = None
    elapsed_s: float | None = None  # of training since this launch
    elapsed_digit_s: float | None = None  # the last digit of elapsed_s
    event: str | None = None  # what stopped the steps within this window, as the lines before it say
    unusable: str | None = None  # why its rates count for nothing: a running mean, a first line after a restart
    more: Mapping[str, str] = field(default_factory=dict)  # fields that have no place above, as printed

    def number_in_more(self, name: str) -> float | None:
        """Return the number of a field that has no place of its own; None where it is not printed, N/A or garbled."""
        try:
            return number_of(self.more.get(name, ""))
        except ValueError:
            return None


@dataclass(frozen=True, kw_only=True)
class TrainingLog:
    """What one run's part of a log says. `facts` are RunRecord fields; num_cut_lines counts lines that are not whole.

    steps has one entry a logged step, all ranks' lines merged; num_rows is how many whole lines they are from.
    """

    framework: str
    steps: tuple[LoggedStep, ...]
    num_rows: int
    num_cut_lines: int
    facts: Mapping[str, Any]
    starts: bool  # whether it holds the start of a launch: the first lines are not steady
    outcome: str
    outcome_reason: str | None


Settled = tuple[Mapping[str, Any], Sequence[LoggedStep]]


@dataclass(frozen=True, kw_only=True)
class System:
    """How one framework's log reads.

    is_step: whether a line is a step line or what is left of one. parse: the step of a whole line and the names of
    the fields that every whole line of this log has; None or ValueError for a line that is cut or garbled.
    read_facts: RunRecord fields that lines before the first step state. events: what stops the steps, in words, and
    the line that says so. ended: what it prints when a run ends well (None: it prints nothing, the last of
    total_steps tells). join: makes one line of a block of lines. ranks_repeat: whether several ranks print the same
    step without saying who they are; where they do not, a line of `begins` after a step begins another run. stream:
    tells apart runs whose step lines are mixed in one file. lost_loss: the step of a cut line whose loss is left out
    before the cut. needs: what else than a whole line a step needs, for the sentence that says that there is none.
    remarks: other lines that settle wants. settle: the run's facts and steps from those before it, for what takes
    several lines to tell.
    """

    name: str
    is_step: Callable[[str], bool]
    parse: Callable[[Line], tuple[LoggedStep, frozenset[str]] | None]
    read_facts: Callable[[Sequence[str]], Mapping[str, Any]]
    events: tuple[tuple[str, re.Pattern[str]], ...] = ()
    ended: re.Pattern[str] | None = None
    begins: re.Pattern[str] | None = None  # a line that only the start of a launch has
    join: Callable[[Iterable[Line]], Iterator[Line]] | None = None
    ranks_repeat: bool = True
    stream: Callable[[str], Hashable] | None = None
    lost_loss: Callable[[str], int | None] | None = None
    needs: str | None = None
    remarks: re.Pattern[str] | None = None
    settle: Callable[[Mapping[str, Any], Sequence[LoggedStep], Sequence[str]], Settled] | None = None
