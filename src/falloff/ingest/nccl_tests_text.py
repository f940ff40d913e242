"""What nccl-tests prints, from lines to runs: headers, ranks, rows that something split, footers."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from falloff.ingest import nccl_debug
from falloff.ingest.nccl_tests_log import MOST_COUNT, MOST_RANKS, Device, Row, Settings
from falloff.ingest.nccl_tests_table import Columns, columns_of, fields_of, rest_text, row_of, row_text, with_units
from falloff.units import GIGA

# what srun --label pads, mpich -prepend-rank and container logs put before a line, beyond what logtext takes off
_PREFIX = re.compile(r"\s*\d+: (?=\s|#|\S)|\[\d+\](?= )|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S* ")
# A row is flushed in pieces, and mpich's rank stands before each: 'sum      -1[0]    1626.5    0.64    1.24      0[0]'
_RANK_WITHIN = re.compile(r"(?<=[^\s\[])\[\d{1,9}\](?=\s|$)")
_THREADS = re.compile(r"\bnThread (\d{1,9}) nGpus (\d{1,9}) minBytes\b")
_WARMUP = re.compile(r"\bwarmup iters: (\d{1,9})\b")
_ITERATIONS = re.compile(r"(?<!warmup )(?<!agg )\biters: (\d{1,9})\b")
_VERSION = re.compile(r"\b([nr]ccl)-tests[ :]+[Vv]ersion:? (\S+)")
_LIBRARY_CODE = re.compile(r"\b[nr]ccl-library=(\d{1,9})\b")
_STARTING = re.compile(r"# (?:Collective test starting|Starting):? (\S+)")
_DEVICE = re.compile(
    r"\bRank +(\d{1,9}) (?:Group +(\d{1,9}) )?(?:Pid +(\d{1,18}) )?on +(\S+) device +\d{1,9} "
    r"\[[0-9a-fA-Fx:.]+\] (\S.*)$"
)
_OUT_OF_BOUNDS = re.compile(r"\bOut of bounds values +: +(\d{1,18}) +(OK|FAILED)")
_AVERAGE = re.compile(r"\bAvg bus bandwidth +: +(\d{1,18}(?:\.\d+)?(?:e[-+]?\d{1,2})?)")
_CYCLE = re.compile(r"# Testing \d+ cycle")
_TITLE = re.compile(r"\b(?:out-of-place|in-place)\b")
_CONCLUDED = re.compile(r"# Collective test concluded\b")
_EXPORTED = re.compile(r"(?<!\S)((?:NCCL|RCCL)_[A-Z0-9_]+)=(\S+)")

# binaries of nccl-tests and rccl-tests, and the names of the collectives in our records
BINARIES = {
    "all_reduce": "all_reduce",
    "all_reduce_bias": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "alltoallv": "all_to_all_v",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
    "sendrecv": "send_recv",
    "hypercube": "hypercube",
}
_BINARY = re.compile(rf"(?<![A-Za-z0-9_])({'|'.join(sorted(BINARIES, key=len, reverse=True))})_perf")

_LEAST_LOST_FIELDS = 3
# a row has 250 characters, a command line of mpirun up to some thousands
_LONGEST_LINE_CHARS = 1 << 14

StartKind = Literal["version", "starting", "threads"]


@dataclass(kw_only=True)
class Segment:
    """The lines from one start of a program to the next, sorted out; several programs may have printed into it."""

    starts: set[StartKind] = field(default_factory=set)
    num_unheard: int = 0  # starts before it that were followed by nothing of their own
    library: Literal["nccl-tests", "rccl-tests"] = "nccl-tests"
    library_version: str | None = None
    nccl: str | None = None
    starting: str | None = None  # the collective that it says it tests
    command: str | None = None  # and the one that a command line before it names
    settings: Settings | None = None
    devices: list[Device] = field(default_factory=list)
    num_tables: int = 0
    rows: list[Row] = field(default_factory=list)
    num_cut_lines: int = 0
    num_empty_rows: int = 0
    averages: list[float] = field(default_factory=list)
    out_of_bounds: list[int] = field(default_factory=list)
    exported: dict[str, str] = field(default_factory=dict)
    has_end: bool = True  # whether such an output ends with an average
    stated_ranks: int | None = None  # of all processes, where it states their number and lists none
    stated_nodes: int | None = None
    debug_lines: dict[str, None] = field(default_factory=dict)  # those that say something, each once

    @property
    def has_body(self) -> bool:
        """Whether there is more in it than lines that start a program."""
        return bool(self.devices or self.num_tables or self.rows or self.averages or self.num_cut_lines)

    @property
    def is_of_nccl_tests(self) -> bool:
        """Whether anything in it is nccl-tests' own."""
        return bool(self.has_body or self.starts)


def collective_of(text: str) -> str | None:
    """Return the collective whose binary a text names last, None where it names none."""
    names = _BINARY.findall(text)
    return BINARIES[names[-1]] if names else None


def read_segments(lines: Iterable[str]) -> list[Segment]:
    """Return the runs that lines of one file hold, in order; ValueError for a unit that is unknown."""
    reader = _Reader()
    for line in lines:
        reader.take(line)
    reader.close_row()
    return merge_segments([segment for segment in reader.segments if segment.is_of_nccl_tests])


def merge_segments(segments: Sequence[Segment]) -> list[Segment]:
    """Return the segments with those joined whose lines belong together.

    Programs without MPI that ran side by side print their starts, and perhaps their ranks, before any of them prints
    a table.
    """
    merged: list[Segment] = []
    waiting: list[Segment] = []
    for segment in segments:
        if not (segment.num_tables or segment.rows or segment.averages):
            waiting.append(segment)
            continue
        segment.num_unheard = len(waiting)
        segment.num_cut_lines += sum(other.num_cut_lines for other in waiting)
        if max(segment.num_tables, len(segment.averages)) > 1 or not segment.devices:
            segment.devices[:0] = [device for other in waiting for device in other.devices]
        segment.settings = segment.settings or next((s.settings for s in waiting if s.settings), None)
        merged.append(segment)
        waiting = []
    return merged + waiting[-1:]


class _Reader:
    """Takes lines one by one; holds the run that they belong to and the row that is not whole yet."""

    def __init__(self) -> None:
        self.segments = [Segment()]
        self.columns: Columns | None = None
        self.title: str | None = None
        self.command: str | None = None
        self.pending: str | None = None
        self.hosts: dict[str, None] = {}
        self.exported: dict[str, str] = {}  # by lines that start no program: it holds for all that follow

    @property
    def segment(self) -> Segment:
        return self.segments[-1]

    def take(self, line: str) -> None:
        if len(line) > _LONGEST_LINE_CHARS:
            return
        line = _without_prefix(line)
        text, debug = nccl_debug.split_debug(line, self.hosts)
        if debug and nccl_debug.says_something(debug):
            self.segment.debug_lines[debug] = None
        if not text.strip():
            return
        self.segment.nccl = self.segment.nccl or nccl_debug.version_of(text)
        if self._take_row(text) or self._take_table(text) or self._take_footer(text):
            return
        if not (self._take_device(text) or self._take_start(text)):
            self._take_command(text)

    def close_row(self) -> None:
        """Count the row that never became whole."""
        self.segment.num_cut_lines += self.pending is not None
        self.pending = None

    def _take_row(self, text: str) -> bool:
        begun = row_text(text)
        if begun is not None:
            self.close_row()
            if not begun.split()[0].strip("0"):
                self.segment.num_empty_rows += 1
                return True
            if self.columns is None:
                self.segment.num_cut_lines += 1  # without its header nobody knows what it says
                return True
            self.pending = begun
        elif (rest := rest_text(text)) is None:
            return False
        elif self.pending is None:
            # the rest of a row whose beginning is lost; two numbers may be anybody's
            self.segment.num_cut_lines += self.columns is not None and len(rest.split()) >= _LEAST_LOST_FIELDS
            return True
        else:
            self.pending += f" {rest.strip()}"
        self._finish_row()
        return True

    def _finish_row(self) -> None:
        assert self.columns is not None
        assert self.pending is not None
        fields = fields_of(self.pending, self.columns)
        if len(fields) < self.columns.num_fields:
            return
        self.pending = None
        row = row_of(fields, self.columns)
        if row is None:
            self.segment.num_cut_lines += 1
        else:
            self.segment.rows.append(row)

    def _take_table(self, text: str) -> bool:
        columns = columns_of(text, self.title)
        if columns is not None:
            self.close_row()
            if self._is_of_next_run():
                self._begin()
            self.columns, self.title = columns, None
            self.segment.num_tables += 1
            self.segment.command = self.segment.command or self.command
            return True
        if self.columns is not None:
            with_scales = with_units(self.columns, text)
            if with_scales is not None:
                self.columns = with_scales
                return True
        if _TITLE.search(text) and not any(c.isdigit() for c in text):
            self.title = text
            return True
        return False

    def _is_of_next_run(self) -> bool:
        """Return whether the run before a header has ended, or was cut where nothing says that two print at once."""
        segment = self.segment
        if len(segment.averages) >= max(segment.num_tables, 1):
            return True
        return bool(segment.rows) and sum(device.rank == 0 for device in segment.devices) < 2

    def _take_footer(self, text: str) -> bool:
        bounds, average = _OUT_OF_BOUNDS.search(text), _AVERAGE.search(text)
        if bounds:
            self.segment.out_of_bounds.append(int(bounds[1]) or (1 if bounds[2] == "FAILED" else 0))
        if average:
            self.segment.averages.append(float(average[1]) * GIGA)
        if bounds or average:
            self.close_row()
        return bool(bounds or average or _CYCLE.search(text) or _CONCLUDED.search(text))

    def _take_device(self, text: str) -> bool:
        match = _DEVICE.search(text)
        if match is None:
            return False
        rank, group, pid, host, gpu = match.groups()
        self.hosts[host] = None
        self.segment.devices.append(Device(int(rank), int(group or 0), int(pid) if pid else None, host, gpu.strip()))
        return True

    def _take_start(self, text: str) -> bool:
        version, starting, threads = _VERSION.search(text), _STARTING.search(text), _THREADS.search(text)
        if version:
            # rccl-tests prints it after the settings until 2025, before them since
            code = _LIBRARY_CODE.search(text)
            if code or "threads" not in self.segment.starts:
                self._start("version")
            self.segment.library = "rccl-tests" if version[1] == "rccl" else "nccl-tests"
            self.segment.library_version = version[2]
            self.segment.nccl = nccl_debug.version_of_code(int(code[1])) if code else self.segment.nccl
        if starting:
            self._start("starting")
            self.segment.starting = collective_of(starting[1])
        if threads:
            self._start("threads")
            self.segment.settings = settings_of(text)
        return bool(version or starting or threads)

    def _take_command(self, text: str) -> None:
        collective, exported = collective_of(text), dict(_EXPORTED.findall(text))
        if collective:
            self.command = collective
            if self.segment.averages:
                self._begin()
            self.segment.exported |= exported
        else:
            self.exported |= exported

    def _start(self, kind: StartKind) -> None:
        if kind in self.segment.starts or self.segment.has_body:
            self._begin()
        self.segment.starts.add(kind)
        self.segment.command = self.segment.command or self.command

    def _begin(self) -> None:
        self.close_row()
        if self.segment.averages:
            self.columns = None  # the next program prints its own header
        self.segments.append(Segment(exported=dict(self.exported)))


def settings_of(text: str) -> Settings | None:
    """Return what the line '# nThread' states, None where it is garbled."""
    threads, warmup, iterations = _THREADS.search(text), _WARMUP.search(text), _ITERATIONS.search(text)
    assert threads is not None
    return checked_settings(
        Settings(
            threads=int(threads[1]),
            gpus=int(threads[2]),
            warmup_iterations=int(warmup[1]) if warmup else None,
            iterations=int(iterations[1]) if iterations else None,
        )
    )


def checked_settings(settings: Settings) -> Settings | None:
    """Return settings that can be, None for no rank at all and for numbers that are garbled."""
    counts = (settings.warmup_iterations or 0, settings.iterations or 0)
    return settings if 0 < settings.process_ranks <= MOST_RANKS and max(counts) < MOST_COUNT else None


def _without_prefix(line: str) -> str:
    match = _PREFIX.match(line)
    if match is None:
        return line
    rest = line[match.end() :]
    return _RANK_WITHIN.sub(" ", rest) if match[0].startswith("[") else rest
