"""The files under the paths that a command is given, and what is read from each."""

from collections.abc import Iterator
from pathlib import Path

from falloff import rawlog
from falloff.ingest.recognise import Reading, read_any
from falloff.records import CollectiveRecord, RunRecord, records_of_either_kind
from falloff.spec.source import SOURCE_NAME, read_source

HARDWARE = Path("config", "hardware")
CHECKOUT = Path(__file__).parents[3]


def hardware_folder() -> Path:
    """Return where the GPU types are: in the folder falloff is called from, else in its own checkout."""
    return HARDWARE if HARDWARE.is_dir() else CHECKOUT / HARDWARE


def paths_under(path: Path) -> Iterator[Path]:
    """Yield each file under the path, folders that are one log or one source, and those that may not be looked into."""
    whole = (SOURCE_NAME, rawlog.SEALED_NAME, rawlog.OPEN_NAME)
    try:
        if not path.is_dir() or any((path / name).is_file() for name in whole):
            yield path
            return
        children = sorted(child for child in path.iterdir() if not child.name.startswith("."))
    except OSError:
        yield path  # what is wrong with it, reading it says
        return
    for child in children:
        yield from paths_under(child)


def read_records_of(path: Path) -> Reading:
    """Return the records of a log, table or folder; ValueError, one sentence, where it gives none."""
    reading = read_any(path, hardware_folder())
    if not reading.runs and not reading.collectives:
        raise ValueError(f"{path}: no records in it")
    return reading


def read_record_file(path: Path) -> Reading:
    """Return the records of a Parquet file, of either kind; errors as of records_of_either_kind."""
    records = records_of_either_kind(path)
    runs = [record for record in records if isinstance(record, RunRecord)]
    collectives = [record for record in records if isinstance(record, CollectiveRecord)]
    return Reading(path=path, kind="records", runs=runs, collectives=collectives)


def named_run(log: Path) -> str | None:
    """Return the record id under which a source.yaml beside a log names it; None where none that is readable does."""
    try:
        source = read_source(log.parent) if log.is_file() else None
    except ValueError:
        return None
    names = [run.name for run in source.runs if run.log == log.name] if source else []
    return f"{log.parent.name}/{names[0]}" if len(names) == 1 else None
