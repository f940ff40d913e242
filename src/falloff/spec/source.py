"""source.yaml of a folder of others' logs and tables: what each file is, and what the files leave out.

The workflow reads it too, to tell which figures a folder feeds, so nothing heavier than YAML is imported here.
"""

from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from falloff.spec.reading import build, read_yaml, require_positive

SOURCE_NAME = "source.yaml"
TableFormat = Literal["falloff-training-cells", "falloff-collectives", "torchtitan-tables", "nccl-allreduce-readoff"]
PowerReading = Literal["instant", "average"]


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
    """nvidia-smi's samples: its fields in order, the host's time zone, which reading counts, the run's GPUs."""

    file: str
    format: Literal["nvidia-smi"]
    columns: tuple[str, ...]
    timezone: str
    reading: PowerReading
    gpus: tuple[int, ...]  # as the column index counts them


@dataclass(frozen=True, kw_only=True)
class Stated:
    """What a file leaves out of its hardware and software and whoever ran it states, in the names of the records."""

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

    num_ranks: int
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
    framework: Literal["torchtitan"]
    log: str
    timezone: str | None = None
    trace: str | None = None
    trace_note: str | None = None
    power: PowerFile | None = None
    left_out_steps: tuple[LeftOut, ...] = ()
    stated: StatedOfRun = StatedOfRun()


@dataclass(frozen=True, kw_only=True)
class CollectivesFile:
    """One file of collectives."""

    file: str
    format: Literal["torch-collectives"]
    stated: StatedOfCollectives


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
        of_runs = [file for run in self.runs for file in (run.log, run.trace, run.power and run.power.file) if file]
        return (*of_runs, *(item.file for item in self.collectives), *(table.file for table in self.tables))

    @property
    def contents(self) -> set[str]:
        """Return what the folder holds: runs, collectives, and the formats of its tables."""
        logs = {name for name, items in (("runs", self.runs), ("collectives", self.collectives)) if items}
        return logs | {table.format for table in self.tables}


def read_source(folder: Path) -> ExternalSource:
    """Return what `folder`/source.yaml says; ValueError for unknown keys, wrong values and files not there."""
    path = folder / SOURCE_NAME
    source = build(ExternalSource, read_yaml(path), str(path))
    for file in source.files:
        if PurePosixPath(file).is_absolute() or ".." in PurePosixPath(file).parts:
            raise ValueError(f"{path}: names the file {file!r}; a file within {folder} is needed")
        if not (folder / file).is_file():
            raise ValueError(f"{path}: names the file {file!r}, which is not in {folder}")
    return source
