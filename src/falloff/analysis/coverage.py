"""Coverage: of each cell that a figure asks for, whether there is a number, and if not, why not."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args

import pandas as pd

from falloff.spec.cell import Cell, TrainCell, cell_to_json
from falloff.spec.collectives_cell import CollectivesCell
from falloff.spec.kernels_cell import KernelsCell
from falloff.spec.study import Study, StudyCell

Status = Literal["measured", "imported", "published", "failed", "stale", "missing", "refused"]


@dataclass(frozen=True, kw_only=True)
class CoverageRow:
    """One cell, or one kind of cell, of a figure: what became of it. n counts the points or runs it stands for."""

    figure: str
    cell: str
    status: Status
    reason: str | None = None
    n: int = 1

    def __post_init__(self) -> None:
        if self.status not in get_args(Status):
            raise ValueError(
                f"coverage of {self.figure}: status is {self.status!r}; allowed: {', '.join(get_args(Status))}"
            )


def failed_rows(figure: str, runs: pd.DataFrame) -> Iterator[CoverageRow]:
    """Yield a row for each run that did not end well, with what became of it."""
    for row in runs[runs["outcome"] != "ok"].to_dict("records"):
        reason = ": ".join(part for part in (row["outcome"], row["outcome_reason"]) if isinstance(part, str))
        yield CoverageRow(figure=figure, cell=str(row["record_id"]), status="failed", reason=reason)


def coverage_frame(rows: Iterable[CoverageRow]) -> pd.DataFrame:
    """Return coverage as a frame with one row each, all columns there even without rows."""
    return pd.DataFrame([asdict(row) for row in rows], columns=[field.name for field in fields(CoverageRow)])


def study_coverage(figure: str, study: Study, *records: pd.DataFrame) -> list[CoverageRow]:
    """Return what became of each cell of a native study, from the records (runs, collectives) of its logs.

    A cell has a row for each status that its repeats came to. A log is stale where it states a field otherwise
    than the study does, and where its cell is no longer asked for; a field that only one of them states is no
    difference, so a field that spec/ gains makes no log stale.
    """
    logs = _logs_of(study, records)
    rows: list[CoverageRow] = []
    for cell in study.cells:
        rows.extend(_rows_of_cell(figure, cell, logs.pop(cell.cell_id, [])))
    for refused in study.refused:
        logs.pop(refused.cell_id, None)
        rows.append(
            CoverageRow(figure=figure, cell=_stated_words(refused.stated), status="refused", reason=refused.reason, n=0)
        )
    for cell_id, of_cell in sorted(logs.items()):
        reason = "the study no longer asks for it"
        rows.append(CoverageRow(figure=figure, cell=cell_id, status="stale", reason=reason, n=len(of_cell)))
    return rows


def current_records(study: Study, records: pd.DataFrame) -> pd.DataFrame:
    """Return the records that belong to cells of the study as it now stands, the stale ones left out."""
    cells = {cell.cell_id: cell.cell for cell in study.cells}
    keep = [
        row["study"] == study.name
        and row["cell_id"] in cells
        and not stale_fields(cells[row["cell_id"]], row["cell_json"])
        for row in records[["study", "cell_id", "cell_json"]].to_dict("records")
    ]
    return records[pd.Series(keep, index=records.index, dtype=bool)]


def stale_fields(cell: Cell, cell_json: str | None) -> list[str]:
    """Return the fields, dotted, that the study's cell and the cell of a log both state and state differently."""
    # through JSON, so that a tuple is the list that the log holds
    return list(differing_fields(json.dumps(cell_to_json(cell)), cell_json)) if isinstance(cell_json, str) else []


def differing_fields(a: str, b: str) -> dict[str, tuple[Any, Any]]:
    """Return the fields, dotted, that two cells as JSON both state and state differently, with both values.

    A network's source is left out: it is a text for people, and a better one changes nothing that runs.
    """
    left, right = dict(_flat(json.loads(a))), dict(_flat(json.loads(b)))
    common = sorted((left.keys() & right.keys()) - {"network.source"})
    return {name: (left[name], right[name]) for name in common if left[name] != right[name]}


def cell_words(cell: Cell) -> str:
    """Return a cell in words for people: network, layout and processes, or the sweep."""
    if isinstance(cell, TrainCell):
        return f"{cell.network.name}, {cell.layout.label}"
    if isinstance(cell, KernelsCell):
        return f"kernels of {', '.join(network.name for network in cell.networks)}"
    return _sweep_words(cell)


def _sweep_words(cell: CollectivesCell) -> str:
    """Return a sweep's collectives and processes, and what it does otherwise than a sweep that states no more."""
    groups = f"in {cell.num_groups} groups of {cell.num_ranks} {'across' if cell.group_across else 'neighbours'}"
    forms = "in place" if all(cell.in_place) else "in and out of place"
    more = [
        words
        for words, applies in (
            (f"in {cell.dtype}", cell.dtype != "float32"),
            (forms, any(cell.in_place)),
            (groups, cell.num_groups > 1),
            ("as CUDA graphs", cell.launch == "graph"),
        )
        if applies
    ]
    return ", ".join([f"{', '.join(cell.collectives)} between {cell.num_processes} processes", *more])


@dataclass(frozen=True, kw_only=True)
class _Log:
    repeat: int
    cell_json: str | None
    outcome: str
    reason: str | None


def _logs_of(study: Study, records: Iterable[pd.DataFrame]) -> dict[str, list[_Log]]:
    """Return the study's logs by cell; a sweep has many records and one outcome, the worst.

    A repeat that was measured on several loans of GPUs has several logs.
    """
    logs: dict[str, dict[str, _Log]] = {}
    for frame in records:
        for row in frame[frame["study"] == study.name].to_dict("records"):
            of_cell = logs.setdefault(str(row["cell_id"]), {})
            log = _Log(
                repeat=row["repeat"], cell_json=row["cell_json"], outcome=row["outcome"], reason=row["outcome_reason"]
            )
            if row["source_ref"] not in of_cell or log.outcome != "ok":
                of_cell[row["source_ref"]] = log
    return {cell_id: list(of_cell.values()) for cell_id, of_cell in logs.items()}


def _rows_of_cell(figure: str, cell: StudyCell, logs: Sequence[_Log]) -> Iterator[CoverageRow]:
    words = cell_words(cell.cell)
    differing = [(log, stale_fields(cell.cell, log.cell_json)) for log in logs]
    current = [log for log, fields in differing if not fields]
    stale = [fields for _, fields in differing if fields]
    good = [log.repeat for log in current if log.outcome == "ok"]
    failed = sorted((log for log in current if log.outcome != "ok"), key=lambda log: log.repeat)
    if good:
        more = sorted({repeat for repeat in good if repeat > cell.repeats})
        reason = f"{_launches(more)} beyond the {cell.repeats} that the study asks for" if more else None
        yield CoverageRow(figure=figure, cell=words, status="measured", reason=reason, n=len(good))
    for log in failed:
        reason = f"{log.outcome}: {log.reason}" if isinstance(log.reason, str) and log.reason else log.outcome
        yield CoverageRow(figure=figure, cell=words, status="failed", reason=reason)
    if stale:
        names = ", ".join(sorted({name for names in stale for name in names}))
        reason = f"the study now states otherwise: {names}"
        yield CoverageRow(figure=figure, cell=words, status="stale", reason=reason, n=len(stale))
    lacking = [repeat for repeat in range(1, cell.repeats + 1) if repeat not in {log.repeat for log in logs}]
    if lacking:
        reason = f"no log of {_launches(lacking)} of {cell.repeats}" if logs else "no log"
        yield CoverageRow(figure=figure, cell=words, status="missing", reason=reason, n=len(lacking))


def _launches(repeats: Sequence[int]) -> str:
    return f"launch{'es' if len(repeats) > 1 else ''} {', '.join(map(str, sorted(repeats)))}"


def _stated_words(stated: Mapping[str, Any]) -> str:
    layout = stated.get("layout")
    axes = " × ".join(f"{axis} {degree}" for axis, degree in layout.items()) if isinstance(layout, Mapping) else ""
    if stated.get("kind") == "collectives":
        return f"collectives between {stated.get('num_processes')} processes"
    return ", ".join(part for part in (str(stated.get("network")), axes) if part)


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _flat(item, f"{name}.{key}" if name else str(key))
    else:
        yield name, value
