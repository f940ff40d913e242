"""Any file or folder that falloff reads, told by its content: names and endings are labels."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from falloff import rawlog
from falloff.ingest import published
from falloff.ingest.deepspeed_comms import deepspeed_comms_records, is_deepspeed_comms
from falloff.ingest.exposure import Exposure, measure_exposure
from falloff.ingest.external import collective_records, framework_records, read_folder_and_steps
from falloff.ingest.frameworks import FRAMEWORKS, framework_of
from falloff.ingest.logtext import HEAD_CHARS, clean, read_head
from falloff.ingest.native import read_native_kernels, read_native_log
from falloff.ingest.nccl_debug import NcclDebug, is_nccl_debug_log, read_nccl_debug
from falloff.ingest.nccl_profiler import PLUGIN_CATEGORIES, NcclProfile, read_nccl_profile
from falloff.ingest.nccl_tests import is_nccl_tests_log, nccl_tests_records
from falloff.ingest.power_files import power_format
from falloff.ingest.power_reasons import ClockReasons, is_clock_reasons, read_clock_reasons_file
from falloff.ingest.power_summary import PowerSummary, summarise_power
from falloff.ingest.ranks import RankReport, measure_ranks, read_ranks
from falloff.ingest.stragglers import SlowStep, is_slow_steps, read_slow_steps_file
from falloff.ingest.torch_collectives import is_collectives_file
from falloff.ingest.trace import Trace, read_trace
from falloff.ingest.trace_steps import busy_events
from falloff.ingest.training_log import LoggedStep
from falloff.records import CollectiveRecord, KernelRecord, RunRecord
from falloff.spec.hardware import Hardware, read_all_hardware
from falloff.spec.source import SOURCE_NAME

AUTO = "auto"
LONGEST_SENTENCE = 800
KNOWN = (
    f"falloff's events.jsonl or its directory, training logs ({', '.join(FRAMEWORKS)}), nccl-tests, NCCL_DEBUG, "
    "DeepSpeed's summary of communication, lines 'COLL <name> <bytes> <microseconds> <bus GB/s>', Kineto traces, power "
    f"samples, nvidia-smi's clock reasons, tables of the ranks that waited for data, a folder with {SOURCE_NAME}"
)


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What one file or folder gave, and of which kind it is.

    steps: what a run's own log prints, by record id. A trace, power samples and what NCCL says of itself are no
    records by themselves: they stand beside those of a run.
    """

    path: Path
    kind: str
    runs: list[RunRecord] = field(default_factory=list)
    collectives: list[CollectiveRecord] = field(default_factory=list)
    kernels: list[KernelRecord] = field(default_factory=list)
    steps: Mapping[str, tuple[LoggedStep, ...]] = field(default_factory=dict)
    trace: Trace | None = None
    exposure: Exposure | None = None
    power: PowerSummary | None = None
    nccl_debug: NcclDebug | None = None
    nccl_profile: NcclProfile | None = None
    clock_reasons: tuple[ClockReasons, ...] = ()  # a GPU and report each
    slow_steps: tuple[SlowStep, ...] = ()
    ranks: RankReport | None = None  # of the traces of one job
    left: tuple[tuple[str, str, str], ...] = ()  # traces of that job that gave nothing: path, status, reason

    @property
    def is_something(self) -> bool:
        """Whether anything was read."""
        parts = (self.exposure, self.power, self.nccl_debug, self.nccl_profile, self.ranks)
        listed = self.runs or self.collectives or self.kernels or self.clock_reasons or self.slow_steps
        return bool(listed) or any(part is not None for part in parts)


def read_any(path: Path, hardware: Path = published.HARDWARE, framework: str = AUTO) -> Reading:
    """Return what a file or a folder of a known kind holds.

    `hardware` is the folder in which GPU names are looked up. `framework` names the framework of a training log
    whose content does not tell it. ValueError, one sentence, for what cannot be read and what is of no known kind.
    """
    if framework != AUTO and framework not in FRAMEWORKS:
        raise ValueError(f"framework is {framework!r}; allowed: {AUTO}, {', '.join(FRAMEWORKS)}")
    try:
        return _read(path, hardware, framework)
    except ValueError as error:
        text = str(error)
        if len(text) <= LONGEST_SENTENCE:
            raise
        # a sentence quotes what was found, and a garbled file may hold a word of a megabyte
        half = LONGEST_SENTENCE // 2
        raise ValueError(f"{text[:half]} ... {text[-half:]}") from error


def _read(path: Path, hardware: Path, framework: str) -> Reading:
    if path.is_dir():
        return _read_directory(path, hardware)
    if framework != AUTO:
        return _read_framework_log(path, framework, read_all_hardware(hardware))
    head, is_compressed = read_head(path, HEAD_CHARS)
    kind = kind_of(clean(head), path)
    if kind == "native" and is_compressed:
        raise ValueError(f"{path}: is falloff's own log and compressed; unpack it first (gunzip)")
    if kind == "native":
        return _read_native(path, path, hardware)
    return _READERS.get(kind, _read_framework)(path, kind, read_all_hardware(hardware))


def trace_paths(paths: Iterable[Path]) -> list[Path]:
    """Return those of the files that are Kineto traces by their first part; what cannot be read is none."""
    return [path for path in paths if path.is_file() and _begins_as_trace(path)]


def _begins_as_trace(path: Path) -> bool:
    try:
        return is_trace(read_head(path, HEAD_CHARS)[0])
    except ValueError:
        return False


def read_rank_traces(paths: Sequence[Path]) -> Reading | None:
    """Return the traces of one folder as those of the ranks of one job, compared.

    One without kernels is left out. None where they are not: two of one rank, fewer than two with kernels.
    """
    found = read_ranks(paths)
    working = [trace for trace in found.traces if busy_events(trace).any()]
    idle = [trace.path for trace in found.traces if not busy_events(trace).any()]
    try:
        report = measure_ranks(working) if len(working) > 1 else None
    except ValueError:
        return None
    left = (*found.left, *((path, "no kernels", f"{path}: the trace holds no kernels") for path in idle))
    return Reading(path=paths[0].parent, kind="traces", ranks=report, left=left) if report else None


def kind_of(head: str, path: Path) -> str:
    """Return of which kind a file is whose first part, escapes removed, is `head`; ValueError where it is of none."""
    if not head.strip():
        raise ValueError(f"{path}: is empty")
    for kind, is_kind in _KINDS:
        if is_kind(head):
            return kind
    framework = framework_of(head)
    if framework is not None:
        return framework
    for kind, is_kind in _KINDS_AFTER_LOGS:
        if is_kind(head):
            return kind
    raise ValueError(f"{path}: is of no kind that falloff reads")


def is_trace(head: str) -> bool:
    """Return whether a file's first part is that of a Kineto trace."""
    begins = head.lstrip("\ufeff \t\r\n")[:1]
    return (
        begins in ("{", "[") and bool(begins) and ('"traceEvents"' in head or '"ph"' in head) and not _is_plugin(head)
    )


def _is_plugin(head: str) -> bool:
    return '"ph"' in head and any(f'"cat": "{category}"' in head for category in PLUGIN_CATEGORIES)


def _is_native(head: str) -> bool:
    """Return whether the first line is an event of a raw log, or what is left of one."""
    line = head.splitlines()[0]
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):  # a number of more than 4,300 digits is no JSONDecodeError
        return line.startswith('{"event": ')
    return isinstance(event, dict) and "event" in event


# Asked in this order. A training log may hold lines of NCCL's own log, a file of nccl-tests too.
_KINDS: Sequence[tuple[str, Callable[[str], bool]]] = (
    ("native", _is_native),
    ("nccl-profile", _is_plugin),
    ("trace", is_trace),
    ("nccl-tests", is_nccl_tests_log),
)
_KINDS_AFTER_LOGS: Sequence[tuple[str, Callable[[str], bool]]] = (
    ("power", lambda head: power_format(head) is not None),
    ("torch-collectives", is_collectives_file),
    ("deepspeed-comms", is_deepspeed_comms),
    ("nccl-debug", is_nccl_debug_log),
    ("slow-steps", is_slow_steps),
    ("clock-reasons", is_clock_reasons),
)


def _read_trace(path: Path, kind: str, _: Mapping[str, Hardware]) -> Reading:
    trace = read_trace(path)
    try:
        return Reading(path=path, kind=kind, trace=trace, exposure=measure_exposure(trace))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _read_framework(path: Path, kind: str, known: Mapping[str, Hardware]) -> Reading:
    return _read_framework_log(path, kind, known)


_READERS: Mapping[str, Callable[[Path, str, Mapping[str, Hardware]], Reading]] = {
    "trace": _read_trace,
    "nccl-profile": lambda path, kind, _: Reading(path=path, kind=kind, nccl_profile=read_nccl_profile(path)),
    "nccl-debug": lambda path, kind, _: Reading(path=path, kind=kind, nccl_debug=read_nccl_debug(path)),
    "nccl-tests": lambda path, kind, known: Reading(path=path, kind=kind, collectives=nccl_tests_records(path, known)),
    "deepspeed-comms": lambda path, kind, _: Reading(path=path, kind=kind, collectives=deepspeed_comms_records(path)),
    "torch-collectives": lambda path, kind, _: Reading(path=path, kind=kind, collectives=collective_records(path)),
    "power": lambda path, kind, _: Reading(path=path, kind=kind, power=summarise_power(path)),
    "slow-steps": lambda path, kind, _: Reading(path=path, kind=kind, slow_steps=tuple(read_slow_steps_file(path))),
    "clock-reasons": lambda path, kind, _: Reading(
        path=path, kind=kind, clock_reasons=tuple(read_clock_reasons_file(path))
    ),
}


def _read_framework_log(path: Path, framework: str, known: Mapping[str, Hardware]) -> Reading:
    found = framework_records(path, framework, known)
    steps = {record.record_id: logged for record, logged in found}
    return Reading(path=path, kind=framework, runs=[record for record, _ in found], steps=steps)


def _read_native(path: Path, log: Path, hardware: Path) -> Reading:
    known = read_all_hardware(hardware)
    runs, collectives = read_native_log(log, known, anywhere=True)
    kernels = read_native_kernels(log, known, anywhere=True)
    if not (runs or collectives or kernels):
        raise ValueError(f"{path}: its run ended as {outcome_of(log)} before any kernel was timed")
    return Reading(path=path, kind="native", runs=runs, collectives=collectives, kernels=kernels)


def outcome_of(log: Path) -> str:
    """Return how the run of a sealed log ended, in a word."""
    return str(rawlog.read_events(log)[-1]["outcome"])


def _read_directory(path: Path, hardware: Path) -> Reading:
    if (path / SOURCE_NAME).is_file():
        runs, collectives, steps = read_folder_and_steps(path, hardware)
        return Reading(path=path, kind="external", runs=runs, collectives=collectives, steps=steps)
    if (path / rawlog.SEALED_NAME).is_file():
        return _read_native(path, path / rawlog.SEALED_NAME, hardware)
    if (path / rawlog.OPEN_NAME).is_file():
        raise ValueError(f"{path}: its run has not ended yet, the log is {rawlog.OPEN_NAME}; it is sealed at the end")
    raise ValueError(f"{path}: a directory without {SOURCE_NAME} and {rawlog.SEALED_NAME}")
