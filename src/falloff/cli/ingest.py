"""falloff ingest: what logs, traces and power samples hold, whoever wrote them."""

import argparse
import dataclasses
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from falloff.analysis.coverage import stale_fields
from falloff.analysis.data_quality import data_quality
from falloff.analysis.efficiency import mfu, tokens_per_gpu_s
from falloff.analysis.steps import step_summary
from falloff.cli.files import hardware_folder, named_run, paths_under
from falloff.cli.output import print_json
from falloff.ingest.recognise import KNOWN, Reading, read_any, read_rank_traces, trace_paths
from falloff.records import CollectiveRecord, KernelRecord, RunRecord
from falloff.report import device_text, text
from falloff.report.kernel_text import kernel_as_json, kernels_table
from falloff.report.step_text import step_mfu, steps_table
from falloff.spec.hardware import Hardware, read_all_hardware
from falloff.spec.study import read_study

CONVENTION = (
    "MFU is falloff's: 6 (N - N_embedding) + 12 L h s FLOPs a token, attention over the full square, LM head counted, "
    "input embedding and recomputation not, over the dense peak of the dtype; its source's own MFU stands beside it."
)
STUDIES = Path("config", "studies")
NETWORKS = Path("config", "models")
# More lines than anybody reads on a terminal; --json has them all.
MOST_LINES = 60

AnyRecord = RunRecord | CollectiveRecord | KernelRecord


@dataclass(frozen=True, kw_only=True)
class _LeftOut:
    """A file or folder that gave nothing, with the reason in a sentence."""

    path: Path
    reason: str


def run(parsed: argparse.Namespace) -> int:
    """Print what every file under the paths holds; 1 where one of the paths gave nothing."""
    for given in parsed.paths:
        if not given.exists():
            raise ValueError(f"{given}: there is no such file or folder")
    found = [list(_read_under(given, parsed.framework)) for given in parsed.paths]
    read = [item for items in found for item in items if isinstance(item, Reading)]
    left_out = [item for items in found for item in items if isinstance(item, _LeftOut)]
    empty = [given for given, items in zip(parsed.paths, found, strict=True) if not items]
    left_out += [_LeftOut(path=given, reason=f"{given}: no file is in it") for given in empty]
    for lost in left_out:
        print(f"left out: {lost.reason}", file=sys.stderr)
    if any("is of no kind" in lost.reason for lost in left_out):
        print(f"falloff reads {KNOWN}", file=sys.stderr)
    known = read_all_hardware(hardware_folder())
    if parsed.json:
        remarks = [{"path": str(lost.path), "reason": lost.reason} for lost in left_out]
        print_json({"convention": CONVENTION, "read": [_as_json(item, known) for item in read], "left_out": remarks})
    else:
        for item in _by_study(read, parsed.paths):
            _print_reading(item, known)
        if any(item.runs for item in read):
            print(CONVENTION)
    return 0 if all(any(isinstance(item, Reading) for item in items) for items in found) else 1


def _read_under(given: Path, framework: str) -> Iterator[Reading | _LeftOut]:
    """Yield what each file under a path gives; the traces of one folder are read as those of one job's ranks."""
    paths = list(paths_under(given))
    together = _traces_by_folder(paths) if framework == "auto" else {}
    done: set[Path] = set()
    for path in paths:
        if path in done:
            continue
        # a folder's traces are tried together once, at the first of them
        ranks = together.pop(path.parent) if path in together.get(path.parent, ()) else []
        reading = read_rank_traces(ranks) if ranks else None
        if reading is None:
            yield _read_or_leave_out(path, framework)
            continue
        done |= set(ranks)
        yield reading
        yield from (_LeftOut(path=Path(lost), reason=reason) for lost, _, reason in reading.left)


def _traces_by_folder(paths: Sequence[Path]) -> dict[Path, list[Path]]:
    """Return the traces of each folder that holds more than one."""
    by_folder: dict[Path, list[Path]] = {}
    for path in trace_paths(paths):
        by_folder.setdefault(path.parent, []).append(path)
    return {folder: traces for folder, traces in by_folder.items() if len(traces) > 1}


def _read_or_leave_out(path: Path, framework: str) -> Reading | _LeftOut:
    try:
        reading = read_any(path, hardware_folder(), framework)
    except ValueError as error:
        reason = str(error)
    except OSError as error:
        reason = f"cannot be read ({error.strerror})"
    except Exception as error:  # one file on which a reader breaks must not keep the others from being read
        reason = f"falloff's reader broke on it, which is a fault of falloff to report ({error!r:.200})"
    else:
        if reading.is_something:
            return reading
        reason = "no records in it"
    return _LeftOut(path=path, reason=reason if str(path) in reason else f"{path}: {reason}")


def _by_study(read: Sequence[Reading], given: Sequence[Path]) -> list[Reading]:
    """Return the runs of our own benchmark together by study, each folder one table; all else by itself."""
    grouped: dict[tuple[str, Path], list[Reading]] = {}
    for item in read:
        cell = item.path.parent
        # data/raw/<study>/<cell>/<repeat>, as far up as a path was given
        inside = any(path != item.path and path in (cell.parent, *cell.parent.parents) for path in given)
        above = cell.parent if inside else cell if cell in given else item.path
        grouped.setdefault((item.kind, above if item.kind == "native" else item.path), []).append(item)
    return [
        dataclasses.replace(
            items[0],
            path=path,
            runs=[run for item in items for run in item.runs],
            collectives=[record for item in items for record in item.collectives],
            kernels=[record for item in items for record in item.kernels],
        )
        for (_, path), items in grouped.items()
    ]


def _stale(records: Sequence[AnyRecord]) -> dict[str, str]:
    """Return why records are stale, by record id: their study, where it is here and readable, asks for other cells."""
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


def _as_row(record: AnyRecord, stale: Mapping[str, str]) -> dict[str, Any]:
    row = dataclasses.asdict(record)
    return {**row, "outcome": f"{record.outcome}, stale"} if record.record_id in stale else row


def _print_reading(item: Reading, known: Mapping[str, Hardware]) -> None:
    print(f"{item.path} ({item.kind})")
    stale = _stale([*item.runs, *item.collectives, *item.kernels])
    # one's own measurements are never cut short
    most = MOST_LINES if item.kind != "native" else max(len(item.runs), len(item.collectives))
    if item.runs:
        print(text.runs_table([_as_row(run, stale) for run in item.runs[:most]], known))
        _print_rest(len(item.runs), most)
    for run in item.runs:
        _print_steps(item, run, known)
    if item.collectives:
        if item.runs:
            print()
        print(text.collectives_table([_as_row(record, stale) for record in item.collectives[:most]]))
        _print_rest(len(item.collectives), most)
    if item.kernels:
        print(kernels_table([_as_row(record, stale) for record in item.kernels]))
    for line in (*device_text.lines(item), *(f"  {remark}" for remark in _remarks(item, known, stale))):
        print(line)
    print()


def _print_steps(item: Reading, run: RunRecord, known: Mapping[str, Hardware]) -> None:
    steps, row = item.steps.get(run.record_id, ()), dataclasses.asdict(run)
    if not steps:
        return
    print(f"\n  {run.record_id}: its logged steps, each the mean since the line before")
    print(steps_table(steps, row, known))
    summary = step_summary(row)
    print(f"  kept: {run.window}" + (f"; {summary.words}" if summary else ""))
    if run.reported_convention:
        print(f"  its own MFU and TFLOP/s: {run.reported_convention}")


def _print_rest(number: int, most: int) -> None:
    if number > most:
        print(f"  and {number - most:,} more; --json has all {number:,}")


def _remarks(item: Reading, known: Mapping[str, Hardware], stale: Mapping[str, str]) -> list[str]:
    """Return what a reader of the tables has to know, each remark with the records that it is about."""
    remarks: dict[str, list[str]] = {}
    records: list[AnyRecord] = [*item.runs, *item.collectives, *item.kernels]
    for record in records:
        for words in _remarks_on(record, known, stale):
            remarks.setdefault(words, []).append(record.record_id)
    if named_run(item.path):
        remarks[f"source.yaml beside it states more: falloff ingest {item.path.parent}"] = [item.path.name]
    return [
        f"{words} ({names[0] if len(names) == 1 else f'{len(names):,} records'})" for words, names in remarks.items()
    ]


def _remarks_on(record: AnyRecord, known: Mapping[str, Hardware], stale: Mapping[str, str]) -> Iterator[str]:
    """Yield how a run failed, why it has no MFU, what is stale, what was cut, its flags, doubts about its numbers."""
    row = dataclasses.asdict(record)
    if isinstance(record, RunRecord):
        reason = text.why_no_mfu(row, known)
        if record.outcome == "ok" and reason:
            yield f"no MFU: {reason}"
    if record.record_id in stale:
        yield f"stale: {stale[record.record_id]}"
    if record.outcome_reason:
        yield f"{record.outcome}: {record.outcome_reason}"
    if record.num_cut_lines:
        yield f"lines that were cut or garbled and left out: {record.num_cut_lines}"
    yield from record.flags or ()
    if record.note and record.provenance == "imported":
        yield record.note
    if isinstance(record, RunRecord):
        yield from data_quality(row, known)


def _as_json(item: Reading, known: Mapping[str, Hardware]) -> dict[str, Any]:
    """Return what was read as it is, and beside each run what is computed from it."""
    return {
        "path": str(item.path),
        "kind": item.kind,
        "runs": [_run_as_json(run, item, known) for run in item.runs],
        "collectives": [dataclasses.asdict(record) for record in item.collectives],
        "kernels": [kernel_as_json(dataclasses.asdict(record)) for record in item.kernels],
        "stale": _stale([*item.runs, *item.collectives, *item.kernels]),
        **device_text.as_json(item),
    }


def _run_as_json(run: RunRecord, item: Reading, known: Mapping[str, Hardware]) -> dict[str, Any]:
    row = dataclasses.asdict(run)
    steps = item.steps.get(run.record_id, ())
    summary = step_summary(row)
    computed = {
        "tokens_per_gpu_s": tokens_per_gpu_s(row),
        "mfu": mfu(row, known),
        "no_mfu": text.why_no_mfu(row, known),
        "steps": dataclasses.asdict(summary) if summary else None,
        "remarks": data_quality(row, known),
    }
    logged = [{**dataclasses.asdict(step), "mfu": step_mfu(step, row, known)} for step in steps]
    return {"record": row, "computed": computed, "steps": logged}
