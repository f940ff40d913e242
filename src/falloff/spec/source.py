"""source.yaml of a folder of others' logs and tables: what each file is, and what the files leave out.

docs/source.md explains each key. The workflow reads it too, to tell which figures a folder feeds, so nothing heavier
than YAML is imported here.
"""

import dataclasses
import math
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from falloff.spec.reading import build, read_yaml, require_positive

SOURCE_NAME = "source.yaml"
TableFormat = Literal["falloff-training-cells", "falloff-collectives", "torchtitan-tables", "nccl-allreduce-readoff"]
Framework = Literal[
    "auto",
    "torchtitan",
    "megatron-lm",
    "megatron-progress",
    "nanotron",
    "deepspeed",
    "composer",
    "nemo",
    "nanochat",
    "olmo-core",
    "fms-fsdp",
    "llamafactory",
    "instructlab",
    "torchtune",
    "maxtext",
    "llm.c",
    "modded-nanogpt",
    "internevo",
    "mlperf",
    "transformers",
]
CollectivesFormat = Literal["torch-collectives", "nccl-tests", "deepspeed-comms"]
PowerReading = Literal["instant", "average"]
PowerScope = Literal["gpu", "module", "package", "node"]
PowerFormat = Literal[
    "falloff-power",
    "nvidia-smi",
    "nvidia-smi-dmon",
    "nvidia-smi-q",
    "dcgmi-dmon",
    "zeus-power",
    "zeus-windows",
    "zeus-monitor",
    "jpwr",
    "power-table",
]
# Their time stamps are of the host's clock.
_WITHOUT_ZONE = ("nvidia-smi", "nvidia-smi-q", "zeus-power", "zeus-monitor")


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """Steps, first to last, whose windows are not steady, and why."""

    first: int
    last: int
    reason: str

    def __post_init__(self) -> None:
        if not 1 <= self.first <= self.last:
            raise ValueError(f"first {self.first} and last {self.last} must be steps in order, counted from 1")


@dataclass(frozen=True, kw_only=True)
class PowerFile:
    """Power samples: their format, whose they are, and what the file leaves out.

    columns are nvidia-smi's fields in order where the file has no header, timezone that of time stamps without one.
    reading says which of several readings counts, scope whether the GPU's own power or its module's. The run's GPUs
    are told by UUID, or as the file itself counts them. clock_offset_s is how far the samples' clock is ahead of the
    log's; begin_s (unix) and period_s place samples of a monitor that prints no times. counter_range_j is the energy
    at which a counter starts again. more_files are of other samplers of the same run; each GPU counts once.
    """

    file: str
    format: PowerFormat
    gpus: tuple[int, ...] = ()
    uuids: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    timezone: str | None = None
    reading: PowerReading | None = None
    scope: PowerScope = "gpu"
    clock_offset_s: float = 0.0
    begin_s: float | None = None
    period_s: float | None = None
    counter_range_j: float | None = None
    more_files: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require_positive(self, "begin_s", "period_s", "counter_range_j")
        if not math.isfinite(self.clock_offset_s):
            raise ValueError(f"clock_offset_s must be finite, found {self.clock_offset_s}")
        if bool(self.gpus) == bool(self.uuids):
            raise ValueError("either gpus or uuids must say which GPUs the run had")
        if self.timezone is None and self.format in _WITHOUT_ZONE:
            raise ValueError(f"timezone must be stated, since {self.format} prints none beside its time stamps")


@dataclass(frozen=True, kw_only=True)
class Stated:
    """What a file leaves out of its hardware and software and whoever ran it states, in the names of the records.

    It vouches for the one file it stands beside; what is not known of that file stays out.
    """

    backend: str | None = None
    driver: str | None = None
    gpu_name: str | None = None
    hardware: str | None = None
    interconnect: str | None = None
    nccl: str | None = None
    nodes: int | None = None
    note: str | None = None
    torch: str | None = None

    def __post_init__(self) -> None:
        require_positive(self, "nodes")


@dataclass(frozen=True, kw_only=True)
class StatedOfRun(Stated):
    """RunRecord fields that the log leaves out."""

    board_part_number: str | None = None
    cuda: str | None = None
    framework_version: str | None = None
    gpus_per_node: int | None = None
    num_gpus: int | None = None
    param_dtype: str | None = None
    power_limit_w: float | None = None
    python: str | None = None
    reduce_dtype: str | None = None
    site: str | None = None
    vbios: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "num_gpus", "gpus_per_node", "power_limit_w")


@dataclass(frozen=True, kw_only=True)
class StatedOfCollectives(Stated):
    """CollectiveRecord fields that the file leaves out."""

    num_ranks: int | None = None
    ranks_per_node: int | None = None
    dtype: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "num_ranks", "ranks_per_node")


@dataclass(frozen=True, kw_only=True)
class RunFiles:
    """One run: its log and, where there are any, its power samples and a trace of rank 0.

    timezone is that of the log's time stamps; without it power cannot be joined.
    """

    name: str
    log: str
    framework: Framework = "auto"  # auto: told by the log's content
    timezone: str | None = None
    trace: str | None = None
    trace_note: str | None = None
    power: PowerFile | None = None
    left_out_steps: tuple[LeftOut, ...] = ()
    stated: StatedOfRun = StatedOfRun()


@dataclass(frozen=True, kw_only=True)
class CollectivesFile:
    """One file of collectives. Lines of torch.distributed's collectives leave out the ranks, which must be stated."""

    file: str
    format: CollectivesFormat
    stated: StatedOfCollectives = StatedOfCollectives()

    def __post_init__(self) -> None:
        if self.format == "torch-collectives" and self.stated.num_ranks is None:
            raise ValueError("stated.num_ranks must be stated: lines of torch-collectives leave it out")


@dataclass(frozen=True, kw_only=True)
class TableFile:
    """One table of published numbers; the formats are those of falloff.ingest's readers."""

    file: str
    format: TableFormat


@dataclass(frozen=True, kw_only=True)
class ExternalSource:
    """What source.yaml says of a folder. Texts are for people; retrieved is a date or month."""

    title: str
    address: str
    version: str
    licence: str
    retrieved: str
    runs: tuple[RunFiles, ...] = ()
    collectives: tuple[CollectivesFile, ...] = ()
    tables: tuple[TableFile, ...] = ()

    def __post_init__(self) -> None:
        if not (self.runs or self.collectives or self.tables):
            raise ValueError("runs, collectives and tables are all empty; one of them must name a file")
        for kind, names in (
            ("run", [run.name for run in self.runs]),
            ("table", [table.file for table in self.tables]),
            ("file of collectives", [item.file for item in self.collectives]),
        ):
            twice = next((name for name in names if names.count(name) > 1), None)
            if twice is not None:
                raise ValueError(f"the {kind} {twice!r} is stated twice")

    @property
    def files(self) -> tuple[str, ...]:
        """Return every file that the folder must hold, by its path within it."""
        of_runs = [file for run in self.runs for file in (run.log, run.trace, *_power_files(run.power)) if file]
        return (*of_runs, *(item.file for item in self.collectives), *(table.file for table in self.tables))

    @property
    def contents(self) -> set[str]:
        """Return what the folder holds: runs, collectives, and the formats of its tables."""
        logs = {name for name, items in (("runs", self.runs), ("collectives", self.collectives)) if items}
        return logs | {table.format for table in self.tables}


def _power_files(power: PowerFile | None) -> tuple[str, ...]:
    return (power.file, *power.more_files) if power else ()


def read_source(folder: Path) -> ExternalSource:
    """Return what `folder`/source.yaml says.

    ValueError names all keys and all files that are missing at once, else the first unknown key or wrong value.
    """
    path = folder / SOURCE_NAME
    stated = read_yaml(path)
    missing = list(_missing_keys(ExternalSource, stated))
    if missing:
        raise ValueError(f"{path}: {'; '.join(missing)} must be stated")
    source = build(ExternalSource, stated, str(path))
    for file in source.files:
        if PurePosixPath(file).is_absolute() or ".." in PurePosixPath(file).parts:
            raise ValueError(f"{path}: names the file {file!r}; a file within {folder} is needed")
    lost = [repr(file) for file in dict.fromkeys(source.files) if not (folder / file).is_file()]
    if lost:
        files, verb = ("file", "is") if len(lost) == 1 else ("files", "are")
        raise ValueError(f"{path}: names the {files} {', '.join(lost)}, which {verb} not in {folder}")
    return source


def _missing_keys(cls: Any, stated: Any, where: str = "") -> Iterator[str]:
    """Yield the required keys that a mapping and those within it lack, as 'runs 2: name, log'.

    A mapping with a key that is unknown yields none: one of its keys may be misspelt, and build names the one meant.
    """
    fields = {field.name: field for field in dataclasses.fields(cls)}
    if not isinstance(stated, Mapping) or stated.keys() - fields.keys():
        return
    lacking = [
        name
        for name, field in fields.items()
        if name not in stated and field.default is field.default_factory is dataclasses.MISSING
    ]
    if lacking:
        yield f"{where}{', '.join(lacking)}"
    hints = typing.get_type_hints(cls)
    for name, value in stated.items():
        # X of X, X | None and tuple[X, ...]
        inner = next(
            (hint for hint in (hints[name], *typing.get_args(hints[name])) if dataclasses.is_dataclass(hint)), None
        )
        items = value if isinstance(value, list) else [value]
        for position, item in enumerate(items if inner else (), start=1):
            of_many = f" {position}" if len(items) > 1 else ""
            yield from _missing_keys(inner, item, f"{where}{name}{of_many}: ")
