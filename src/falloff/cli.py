"""The command line: falloff ingest, doctor, compare. Exit codes: 0 well, 1 a user's mistake, 2 usage.

Everything heavy is imported by the command that needs it, so that --help answers at once.
"""

import argparse
import dataclasses
import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from falloff.doctor import Finding
    from falloff.ingest.recognise import Reading
    from falloff.records import CollectiveRecord, RunRecord
    from falloff.spec.hardware import Hardware

DESCRIPTION = "What the next node buys: logs in, records out; what is here; what differs between two runs."
EXAMPLES = """examples:
  falloff ingest run.log                     read a log, whatever program wrote it
  falloff ingest data/external data/raw      walk folders; each file left out is named with its reason
  falloff ingest run.log --json              the same for a program to read
  falloff doctor                             what is here, and what is missing for which part
  falloff compare a.log b.log                which fields differ, and which make a comparison unfair
  falloff compare 8.log 128.log --axis num_gpus
  falloff compare 8.log 32.log 128.log       a series: which of them differ in more than the number of GPUs
"""
CONVENTION = (
    "MFU is falloff's: 6 (N - N_embedding) + 12 L h s FLOPs a token, attention over the full square, LM head counted, "
    "input embedding and recomputation not, over the dense peak of the dtype; its source's own MFU stands beside it."
)
HARDWARE = Path("config", "hardware")
STUDIES = Path("config", "studies")
NETWORKS = Path("config", "models")
CHECKOUT = Path(__file__).parents[2]
# More lines than anybody reads on a terminal; --json has them all.
MOST_LINES = 60
# What the doctor prints before each finding.
MARKS = {"ok": "ok", "missing": "MISSING", "differs": "differs", "absent": "none"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    parsed = _parser().parse_args(arguments)
    command: Callable[[argparse.Namespace], int] = parsed.command
    try:
        return command(parsed)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # `falloff ingest ... | head` closes the pipe; what is left in the buffer has nowhere to go
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        print(f"error: {error.filename or 'a file'}: {error.strerror or error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="falloff",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"falloff {version('falloff')}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    ingest = _add(commands, "ingest", _ingest, "print the records of logs, whoever wrote them")
    ingest.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="log, table or folder")
    doctor = _add(commands, "doctor", _doctor, "say what is here, and what is missing for which part")
    doctor.add_argument("--root", type=Path, default=Path(), help="the checkout (default: this folder)")
    compare = _add(commands, "compare", _compare, "say what differs between two runs, or along a series of them")
    compare.add_argument(
        "paths",
        nargs="+",
        metavar="PATH",
        help="two logs or record files, PATH#RECORD_ID where one holds more than one record; one path, or three and "
        "more, are a series of all records in them",
    )
    compare.add_argument(
        "--axis",
        action="append",
        default=[],
        metavar="FIELD",
        help="a field whose difference is the question, such as num_gpus (may be repeated; a series is in the order of "
        "the first)",
    )
    compare.add_argument(
        "--within",
        type=_fraction,
        metavar="FRACTION",
        help="how near B must come to A to reproduce it, 0.05 or 5%% (default: 8%%, as far as readings of one "
        "published cell have moved between its launches)",
    )
    return parser


def _add(commands: Any, name: str, command: Callable[[argparse.Namespace], int], words: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=words, description=words.capitalize() + ".")
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else on standard output")
    parser.set_defaults(command=command)
    return parser


# ingest


@dataclass(frozen=True, kw_only=True)
class _LeftOut:
    """A file or folder that gave no records, with the reason in a sentence."""

    path: Path
    reason: str


def _ingest(parsed: argparse.Namespace) -> int:
    """Print the records of every log under the paths; 1 where one of the paths gave none."""
    from falloff.spec.hardware import read_all_hardware

    read: list[Reading] = []
    left_out: list[_LeftOut] = []
    for given in parsed.paths:
        if not given.exists():
            raise ValueError(f"{given}: there is no such file or folder")
    found = [[_read_or_leave_out(path) for path in _logs_under(given)] for given in parsed.paths]
    for given, items in zip(parsed.paths, found, strict=True):
        read += [item for item in items if not isinstance(item, _LeftOut)]
        left_out += [item for item in items if isinstance(item, _LeftOut)]
        if not items:
            left_out.append(_LeftOut(path=given, reason=f"{given}: no file is in it"))
    for lost in left_out:
        print(f"left out: {lost.reason}", file=sys.stderr)
    known = read_all_hardware(_hardware_folder())
    if parsed.json:
        remarks = [{"path": str(lost.path), "reason": lost.reason} for lost in left_out]
        _print_json({"convention": CONVENTION, "read": [_as_json(item, known) for item in read], "left_out": remarks})
    else:
        for item in _by_study(read, parsed.paths):
            _print_records(item, known)
        if any(item.runs for item in read):
            print(CONVENTION)
    return 0 if all(any(not isinstance(item, _LeftOut) for item in items) for items in found) else 1


def _hardware_folder() -> Path:
    """Return where the GPU types are: in the folder falloff is called from, else in its own checkout."""
    return HARDWARE if HARDWARE.is_dir() else CHECKOUT / HARDWARE


def _logs_under(path: Path) -> Iterator[Path]:
    """Yield each file under the path, folders that are one log or one source, and those that may not be looked into."""
    whole = ("source.yaml", "events.jsonl", "events.open.jsonl")
    try:
        if not path.is_dir() or any((path / name).is_file() for name in whole):
            yield path
            return
        children = sorted(child for child in path.iterdir() if not child.name.startswith("."))
    except OSError:
        yield path  # what is wrong with it, reading it says
        return
    for child in children:
        yield from _logs_under(child)


def _read_or_leave_out(path: Path) -> "Reading | _LeftOut":
    try:
        return _read(path)
    except ValueError as error:
        reason = str(error)
    except OSError as error:
        reason = f"cannot be read ({error.strerror})"
    return _LeftOut(path=path, reason=reason if str(path) in reason else f"{path}: {reason}")


def _read(path: Path, framework: str = "auto") -> "Reading":
    from falloff.ingest.recognise import read_any

    reading = read_any(path, _hardware_folder(), framework)
    if not reading.runs and not reading.collectives:
        raise ValueError(f"{path}: no records in it")
    return reading


def _by_study(read: Sequence["Reading"], given: Sequence[Path]) -> list["Reading"]:
    """Return the runs of our own benchmark together by study, each folder one table; others' logs each by itself."""
    from falloff.ingest.recognise import Reading

    grouped: dict[tuple[str, Path], list[Reading]] = {}
    for item in read:
        cell = item.path.parent
        # data/raw/<study>/<cell>/<repeat>, as far up as a path was given
        inside = any(path != item.path and path in (cell.parent, *cell.parent.parents) for path in given)
        above = cell.parent if inside else cell if cell in given else item.path
        grouped.setdefault((item.kind, above if item.kind == "native" else item.path), []).append(item)
    return [
        Reading(
            path=path,
            kind=kind,
            runs=[run for item in items for run in item.runs],
            collectives=[record for item in items for record in item.collectives],
            steps={name: steps for item in items for name, steps in item.steps.items()},
        )
        for (kind, path), items in grouped.items()
    ]


def _stale(records: Sequence["RunRecord | CollectiveRecord"]) -> dict[str, str]:
    """Return why records are stale, by record id: their study, where it is here and readable, asks for other cells."""
    from falloff.analysis.coverage import stale_fields
    from falloff.spec.study import read_study

    reasons: dict[str, str] = {}
    for name in {record.study for record in records if record.study}:
        try:
            cells = {cell.cell_id: cell.cell for cell in read_study(STUDIES / f"{name}.yaml", NETWORKS).cells}
        except ValueError:
            continue  # called elsewhere, or on a study that is half edited: then nothing is known to be stale
        for record in records:
            if record.study != name:
                continue
            if record.cell_id not in cells:
                reasons[record.record_id] = f"the study {name} no longer asks for it"
            elif fields := stale_fields(cells[record.cell_id], record.cell_json):
                reasons[record.record_id] = f"the study {name} now has another {', '.join(fields)}"
    return reasons


def _as_row(record: "RunRecord | CollectiveRecord", stale: Mapping[str, str]) -> dict[str, Any]:
    row = dataclasses.asdict(record)
    return {**row, "outcome": f"{record.outcome}, stale"} if record.record_id in stale else row


def _print_records(item: "Reading", known: Mapping[str, "Hardware"]) -> None:
    from falloff.report import text

    print(item.path)
    stale = _stale([*item.runs, *item.collectives])
    # one's own measurements are never cut short
    most = MOST_LINES if item.kind != "native" else max(len(item.runs), len(item.collectives))
    if item.runs:
        print(text.runs_table([_as_row(run, stale) for run in item.runs[:most]], known))
        _print_rest(len(item.runs), most)
    for run in item.runs:
        steps = item.steps.get(run.record_id, ())
        if steps:
            print(f"\n  {run.record_id}: its logged steps, each the mean since the line before")
            print(text.steps_table(steps, dataclasses.asdict(run), known))
            print(f"  kept: {run.window}")
            print(f"  its own MFU: {run.reported_convention}")
    if item.collectives:
        if item.runs:
            print()
        print(text.collectives_table([_as_row(record, stale) for record in item.collectives[:most]]))
        _print_rest(len(item.collectives), most)
    for line in _remarks(item, known, stale):
        print(f"  {line}")
    print()


def _print_rest(number: int, most: int) -> None:
    if number > most:
        print(f"  and {number - most:,} more; --json has all {number:,}")


def _remarks(item: "Reading", known: Mapping[str, "Hardware"], stale: Mapping[str, str]) -> list[str]:
    """Return what a reader of the table has to know: how runs failed, why there is no MFU, what is stale, flags."""
    from falloff.report import text

    remarks: dict[str, list[str]] = {}
    for run in item.runs:
        reason = text.why_no_mfu(dataclasses.asdict(run), known)
        if run.outcome == "ok" and reason:
            remarks.setdefault(f"no MFU: {reason}", []).append(run.record_id)
    records: list[RunRecord | CollectiveRecord] = [*item.runs, *item.collectives]
    for record in records:
        if record.record_id in stale:
            remarks.setdefault(f"stale: {stale[record.record_id]}", []).append(record.record_id)
        if record.outcome_reason:
            remarks.setdefault(f"{record.outcome}: {record.outcome_reason}", []).append(record.record_id)
        for flag in record.flags or ():
            remarks.setdefault(flag, []).append(record.record_id)
    if _named_run(item.path):
        remarks[f"source.yaml beside it states more: falloff ingest {item.path.parent}"] = [item.path.name]
    return [
        f"{words} ({names[0] if len(names) == 1 else f'{len(names):,} records'})" for words, names in remarks.items()
    ]


def _as_json(item: "Reading", known: Mapping[str, "Hardware"]) -> dict[str, Any]:
    """Return the records as they are, and beside each run what is computed from it."""
    from falloff.analysis.efficiency import mfu, tokens_per_gpu_s
    from falloff.report import text

    runs = []
    for run in item.runs:
        row = dataclasses.asdict(run)
        steps = [
            {**dataclasses.asdict(step), "mfu": text.step_mfu(step, row, known)}
            for step in item.steps.get(run.record_id, ())
        ]
        computed = {
            "tokens_per_gpu_s": tokens_per_gpu_s(row),
            "mfu": mfu(row, known),
            "no_mfu": text.why_no_mfu(row, known),
        }
        runs.append({"record": row, "computed": computed, "steps": steps})
    collectives = [dataclasses.asdict(record) for record in item.collectives]
    stale = _stale([*item.runs, *item.collectives])
    return {"path": str(item.path), "kind": item.kind, "runs": runs, "collectives": collectives, "stale": stale}


# doctor


def _doctor(parsed: argparse.Namespace) -> int:
    """Print what is here; 1 where something is missing that `make figures` needs."""
    from falloff.doctor import blockers, examine

    findings = examine(parsed.root)
    missing = blockers(findings)
    if parsed.json:
        _print_json({"findings": [dataclasses.asdict(f) for f in findings], "missing": [f.name for f in missing]})
        return 1 if missing else 0
    _print_findings(findings)
    if missing:
        raise ValueError(f"`make figures` cannot run here, missing: {', '.join(f.name for f in missing)}")
    print("\nNothing that `make figures` needs is missing.")
    return 0


def _print_findings(findings: Sequence["Finding"]) -> None:
    from falloff.doctor import PARTS

    widest = max(len(finding.name) for finding in findings)
    for part in PARTS:
        of_part = [finding for finding in findings if finding.part == part]
        if of_part:
            print(f"\n{part}")
        for finding in of_part:
            print(f"  {MARKS[finding.state]:<8}{finding.name:<{widest}}  {finding.found}")
            if finding.advice:
                print(f"  {'':<8}{'':<{widest}}  -> {finding.advice}")


# compare


def _fraction(text: str) -> float:
    """Return 0.05 for '0.05' and for '5%'."""
    return float(text.removesuffix("%")) / 100 if text.endswith("%") else float(text)


def _compare(parsed: argparse.Namespace) -> int:
    """Print how records compare; a difference is a result, so it ends with 0."""
    return _compare_two(parsed) if len(parsed.paths) == 2 else _compare_series(parsed)


def _compare_two(parsed: argparse.Namespace) -> int:
    from falloff.analysis.comparability import compare_records
    from falloff.analysis.reproduction import reproduction
    from falloff.report.comparison_text import comparison_lines

    a, b = map(_one_record, parsed.paths)
    _refuse_unlike(parsed.paths, [a, b])
    _check_axes(parsed.axis, a)
    comparison = compare_records(dataclasses.asdict(a), dataclasses.asdict(b), parsed.axis)
    found = reproduction(comparison, parsed.within)
    if parsed.json:
        more = {"unfair": comparison.unfair, "apart": comparison.apart, "marks": comparison.marks}
        _print_json({**dataclasses.asdict(comparison), **more, "reproduction": found and dataclasses.asdict(found)})
    else:
        print("\n".join(comparison_lines(comparison, found)))
    return 0


def _compare_series(parsed: argparse.Namespace) -> int:
    from falloff.analysis.reproduction import BETWEEN_RUNS
    from falloff.analysis.series_guard import guard_series
    from falloff.report.comparison_text import series_lines

    found = [(path, record) for path in parsed.paths for record in _records_at(path)]
    records = [record for _, record in found]
    if len(records) < 2:
        raise ValueError(f"{parsed.paths[0]}: holds one record; name another to compare it with")
    _refuse_unlike([path for path, _ in found], records)
    axes = parsed.axis or ["num_gpus" if _kind(records[0]) == "training run" else "num_ranks"]
    _check_axes(axes, records[0])
    spread = BETWEEN_RUNS if parsed.within is None else parsed.within
    series = guard_series([dataclasses.asdict(record) for record in records], axes[0], spread, also=axes[1:])
    if parsed.json:
        _print_json(dataclasses.asdict(series))
    else:
        print("\n".join(series_lines(series)))
    return 0


def _refuse_unlike(paths: Sequence[str], records: Sequence["RunRecord | CollectiveRecord"]) -> None:
    for path, record in zip(paths, records, strict=True):
        if type(record) is not type(records[0]):
            kinds = f"{paths[0]} is a {_kind(records[0])} and {path} a {_kind(record)}"
            raise ValueError(f"{kinds}: only like is compared with like")


def _check_axes(axes: Sequence[str], record: "RunRecord | CollectiveRecord") -> None:
    from falloff.analysis.compared_fields import COLLECTIVE_FIELDS, RUN_FIELDS

    fields = RUN_FIELDS if _kind(record) == "training run" else COLLECTIVE_FIELDS
    for axis in axes:
        if axis not in fields:
            raise ValueError(f"--axis {axis}: no field of a {_kind(record)}; allowed: {', '.join(fields)}")


def _one_record(given: str) -> "RunRecord | CollectiveRecord":
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


def _records_at(given: str) -> list["RunRecord | CollectiveRecord"]:
    """Return the records that PATH holds, or those of PATH#RECORD_ID; ValueError where there are none."""
    path, _, record_id = given.partition("#")
    if not Path(path).exists():
        raise ValueError(f"{path}: there is no such file or folder")
    name = None if record_id else _named_run(Path(path))
    if name:
        path, record_id = str(Path(path).parent), name
    logs = _logs_under(Path(path))
    reads = [_read_record_file(log) if log.suffix == ".parquet" else _read(log) for log in logs]
    records: list[RunRecord | CollectiveRecord] = []
    for read in reads:
        records += [*read.runs, *read.collectives]
    found = [record for record in records if record.record_id == record_id] if record_id else records
    if not found:
        raise ValueError(f"{path}: holds no record {record_id!r}; it has: {_some_names(records)}")
    return found


def _some_names(records: Sequence["RunRecord | CollectiveRecord"]) -> str:
    names = [record.record_id for record in records]
    return ", ".join(names[:5]) + (f" and {len(names) - 5:,} more" if len(names) > 5 else "")


def _named_run(log: Path) -> str | None:
    """Return the record id under which a source.yaml beside a log names it; None where none that is readable does."""
    from falloff.spec.source import read_source

    try:
        source = read_source(log.parent) if log.is_file() else None
    except ValueError:
        return None
    names = [run.name for run in source.runs if run.log == log.name] if source else []
    return f"{log.parent.name}/{names[0]}" if len(names) == 1 else None


def _refuse_several_logs(folder: Path) -> None:
    """Raise ValueError for a folder above the logs of single runs, naming those that it holds."""
    logs = [str(path) for path in _logs_under(folder) if path != folder and path.is_dir()]
    if logs:
        some = ", ".join(logs[:5]) + (f" and {len(logs) - 5:,} more" if len(logs) > 5 else "")
        raise ValueError(f"{folder}: holds no log of its own; name one of those in it: {some}")


def _read_record_file(path: Path) -> "Reading":
    from falloff.ingest.recognise import Reading
    from falloff.records import CollectiveRecord, RunRecord, records_of_either_kind

    records = records_of_either_kind(path)
    runs = [record for record in records if isinstance(record, RunRecord)]
    collectives = [record for record in records if isinstance(record, CollectiveRecord)]
    return Reading(path=path, kind="records", runs=runs, collectives=collectives)


def _kind(record: object) -> str:
    return "training run" if type(record).__name__ == "RunRecord" else "collective"


def _print_json(value: Any) -> None:
    print(json.dumps(_plain(value), indent=1, ensure_ascii=False, allow_nan=False))


def _plain(value: Any) -> Any:
    """Return a value as JSON has it: NaN as null, times as text."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, str | int | float | bool | None) else str(value)
