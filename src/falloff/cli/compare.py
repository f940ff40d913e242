"""falloff compare: what differs between two runs, or along a series of them."""

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path

from falloff.analysis.comparability import compare_records
from falloff.analysis.compared_fields import COLLECTIVE_FIELDS, RUN_FIELDS
from falloff.analysis.reproduction import reproduction, stated_threshold
from falloff.analysis.series_guard import guard_series
from falloff.cli.files import named_run, paths_under, read_record_file, read_records_of
from falloff.cli.output import print_json
from falloff.records import CollectiveRecord, RunRecord
from falloff.report.comparison_text import comparison_lines, series_lines


def run(parsed: argparse.Namespace) -> int:
    """Print how records compare; a difference is a result, so it ends with 0."""
    return _compare_two(parsed) if len(parsed.paths) == 2 else _compare_series(parsed)


def _compare_two(parsed: argparse.Namespace) -> int:
    a, b = map(_one_record, parsed.paths)
    _refuse_unlike(parsed.paths, [a, b])
    _check_axes(parsed.axis, a)
    comparison = compare_records(dataclasses.asdict(a), dataclasses.asdict(b), parsed.axis)
    found = reproduction(comparison, stated_threshold(parsed.within))
    if parsed.json:
        more = {"unfair": comparison.unfair, "apart": comparison.apart, "marks": comparison.marks}
        print_json({**dataclasses.asdict(comparison), **more, "reproduction": found and dataclasses.asdict(found)})
    else:
        print("\n".join(comparison_lines(comparison, found)))
    return 0


def _compare_series(parsed: argparse.Namespace) -> int:
    found = [(path, record) for path in parsed.paths for record in _records_at(path)]
    records = [record for _, record in found]
    if len(records) < 2:
        raise ValueError(f"{parsed.paths[0]}: holds one record; name another to compare it with")
    _refuse_unlike([path for path, _ in found], records)
    axes = parsed.axis or ["num_gpus" if _kind(records[0]) == "training run" else "num_ranks"]
    _check_axes(axes, records[0])
    series = guard_series([dataclasses.asdict(record) for record in records], axes[0], parsed.within, also=axes[1:])
    if parsed.json:
        print_json(dataclasses.asdict(series))
    else:
        print("\n".join(series_lines(series)))
    return 0


def _refuse_unlike(paths: Sequence[str], records: Sequence[RunRecord | CollectiveRecord]) -> None:
    for path, record in zip(paths, records, strict=True):
        if type(record) is not type(records[0]):
            kinds = f"{paths[0]} is a {_kind(records[0])} and {path} a {_kind(record)}"
            raise ValueError(f"{kinds}: only like is compared with like")


def _check_axes(axes: Sequence[str], record: RunRecord | CollectiveRecord) -> None:
    fields = RUN_FIELDS if _kind(record) == "training run" else COLLECTIVE_FIELDS
    for axis in axes:
        if axis not in fields:
            raise ValueError(f"--axis {axis}: no field of a {_kind(record)}; allowed: {', '.join(fields)}")


def _one_record(given: str) -> RunRecord | CollectiveRecord:
    """Return the one record that PATH or PATH#RECORD_ID names; ValueError names what is there otherwise.

    A log that a source.yaml beside it names is read with what that states.
    """
    path = given.partition("#")[0]
    if Path(path).is_dir():
        _refuse_several_logs(Path(path))
    found = _records_at(given)
    if len(found) == 1:
        return found[0]
    raise ValueError(f"{path}: holds {len(found):,} records; name one as {path}#RECORD_ID: {_some_names(found)}")


def _records_at(given: str) -> list[RunRecord | CollectiveRecord]:
    """Return the records that PATH holds, or those of PATH#RECORD_ID; ValueError where there are none."""
    path, _, record_id = given.partition("#")
    if not Path(path).exists():
        raise ValueError(f"{path}: there is no such file or folder")
    name = None if record_id else named_run(Path(path))
    if name:
        path, record_id = str(Path(path).parent), name
    logs = paths_under(Path(path))
    reads = [read_record_file(log) if log.suffix == ".parquet" else read_records_of(log) for log in logs]
    records: list[RunRecord | CollectiveRecord] = []
    for read in reads:
        records += [*read.runs, *read.collectives]
    found = [record for record in records if record.record_id == record_id] if record_id else records
    if not found:
        raise ValueError(f"{path}: holds no record {record_id!r}; it has: {_some_names(records)}")
    return found


def _some_names(records: Sequence[RunRecord | CollectiveRecord]) -> str:
    names = [record.record_id for record in records]
    return ", ".join(names[:5]) + (f" and {len(names) - 5:,} more" if len(names) > 5 else "")


def _refuse_several_logs(folder: Path) -> None:
    """Raise ValueError for a folder above the logs of single runs, naming those that it holds."""
    logs = [str(path) for path in paths_under(folder) if path != folder and path.is_dir()]
    if logs:
        some = ", ".join(logs[:5]) + (f" and {len(logs) - 5:,} more" if len(logs) > 5 else "")
        raise ValueError(f"{folder}: holds no log of its own; name one of those in it: {some}")


def _kind(record: object) -> str:
    return "training run" if isinstance(record, RunRecord) else "collective"
