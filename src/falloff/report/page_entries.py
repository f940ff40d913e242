"""What the page shows of each figure: its texts, counts, sources and coverage, read from what save_figure wrote."""

import json
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from falloff.report.contents import place_of
from falloff.report.evidence import COLUMNS, evidence
from falloff.spec.reading import read_yaml

_MOST_PLACES = 3
COVERAGE_COLUMNS = ("figure", "cell", "status", "reason", "n")


@dataclass(frozen=True, kw_only=True)
class Source:
    """One source of a figure: how many records of which kind, where from, and the folders of its logs or tables."""

    name: str
    provenance: str
    num_records: int
    folders: tuple[Path, ...]
    address: str | None
    licence: str | None


@dataclass(frozen=True, kw_only=True)
class _Home:
    """A folder of others' logs and tables, with what is said there of a source: its title, address and licence."""

    folder: Path
    title: str | None
    address: str | None
    licence: str | None


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One figure of the page. coverage has the columns of analysis.coverage, this figure's rows alone."""

    name: str
    title: str
    finding: str
    reading: str
    alt: str
    counts: Mapping[str, int]
    image: Path
    size: tuple[int, int]
    sources: tuple[Source, ...]
    coverage: pd.DataFrame


def read_entries(figures: Sequence[Path], coverage: Iterable[Path], external: Path) -> list[Entry]:
    """Return the figures whose .json is given (with .png and .csv beside it), in the order of contents.py.

    `external` is the folder of others' logs and tables. ValueError names a file that cannot be read.
    """
    rows = read_coverage(coverage)
    homes = _homes(external)
    ordered = sorted(figures, key=lambda path: place_of(path.stem))
    return [_read_entry(path, rows, homes) for path in ordered]


def read_coverage(paths: Iterable[Path]) -> pd.DataFrame:
    """Return the coverage tables as one frame; ValueError names one that cannot be read or lacks a column."""
    frames = [pd.DataFrame(columns=list(COVERAGE_COLUMNS))]
    for path in paths:
        frame = _read(path, pd.read_parquet)
        missing = [name for name in COVERAGE_COLUMNS if name not in frame.columns]
        if missing:
            raise ValueError(f"{path}: not a coverage table, it has no column {', '.join(missing)}")
        frames.append(frame[list(COVERAGE_COLUMNS)].astype({"reason": object, "cell": object}))
    return pd.concat(frames[1:] or frames, ignore_index=True)


def _read(path: Path, reader: Callable[[Path], pd.DataFrame]) -> pd.DataFrame:
    try:
        return reader(path)
    except (OSError, ValueError) as error:  # pyarrow's and pandas's own errors are of these kinds
        raise ValueError(f"{path}: cannot be read ({str(error).splitlines()[0]})") from error


def _read_entry(path: Path, coverage: pd.DataFrame, homes: Mapping[str, Sequence[_Home]]) -> Entry:
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
        texts = {key: str(about[key]) for key in ("title", "finding", "reading", "alt")}
        counts = {str(kind): int(count) for kind, count in about["counts"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: not what save_figure writes ({error!r})") from error
    table = _read(path.with_suffix(".csv"), _read_csv)
    return Entry(
        name=path.stem,
        **texts,
        counts=counts,
        image=path.with_suffix(".png"),
        size=_png_size(path.with_suffix(".png")),
        sources=tuple(_sources(table, homes)),
        coverage=coverage[coverage["figure"] == path.stem],
    )


def _read_csv(path: Path) -> pd.DataFrame:
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    lacking = [name for name in ("y", *COLUMNS) if name not in table.columns]
    if lacking:
        raise ValueError(f"it has no column {', '.join(lacking)}")
    return table.assign(y=table["y"].where(table["y"] != ""))


def _png_size(path: Path) -> tuple[int, int]:
    """Return width and height in pixels, from the header chunk (PNG specification, 11.2.1)."""
    try:
        head = path.read_bytes()[:24]
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror})") from error
    if len(head) < 24 or head[1:4] != b"PNG":
        raise ValueError(f"{path}: not a PNG file")
    width, height = struct.unpack(">II", head[16:24])
    return width, height


def _sources(table: pd.DataFrame, homes: Mapping[str, Sequence[_Home]]) -> Iterable[Source]:
    """Return each source of the table's records, the largest first."""
    found = [
        _source(str(source), str(provenance), group["source_ref"], homes.get(str(source), ()))
        for (source, provenance), group in evidence(table).groupby(["source", "provenance"], sort=True)
    ]
    return sorted(found, key=lambda source: (-source.num_records, source.name, source.provenance))


def _source(name: str, provenance: str, references: pd.Series, homes: Sequence[_Home]) -> Source:
    folders = _native_folders(references) or _folders(homes, references)
    home = next((home for home in homes if home.folder in folders), None)
    return Source(
        name=home.title if home and home.title else name,
        provenance=provenance,
        num_records=len(references),
        folders=folders,
        address=home.address if home else _places(provenance, references),
        licence=home.licence if home else None,
    )


def _places(provenance: str, references: pd.Series) -> str | None:
    """Return where a published source without a folder says it stands, by its records; None of others."""
    different = list(dict.fromkeys(str(reference) for reference in references if reference))
    return "; ".join(different) if provenance == "published" and 0 < len(different) <= _MOST_PLACES else None


def _native_folders(references: Iterable[str]) -> tuple[Path, ...]:
    """Return the folders of the native studies, data/raw/<study>, whose logs are referred to."""
    parts = [Path(str(reference)).parts for reference in references]
    return tuple(sorted({Path(*part[:3]) for part in parts if part[:2] == ("data", "raw") and len(part) > 3}))


def _folders(homes: Sequence[_Home], references: Iterable[str]) -> tuple[Path, ...]:
    """Return the folders of a source; of several, those whose tables hold the references."""
    folders = tuple(home.folder for home in homes)
    if len(folders) < 2:
        return folders
    wanted = sorted({str(reference) for reference in references})
    holding = tuple(folder for folder in folders if any(_holds(path, wanted) for path in folder.glob("*.csv")))
    return holding or folders


def _holds(path: Path, references: Sequence[str]) -> bool:
    text = path.read_text(encoding="utf-8", errors="replace")
    return any(reference in text for reference in references)


def _homes(external: Path) -> dict[str, list[_Home]]:
    """Return where each source that a folder of `external` names is kept, and what is said of it there."""
    homes: dict[str, list[_Home]] = {}
    for path in sorted([*external.glob("*/source.yaml"), *external.glob("*/sources.yaml")]):
        for name, about in _named_sources(read_yaml(path), path):
            title, address, licence = (about.get(field) for field in ("name", "address", "licence"))
            home = _Home(folder=path.parent, title=title, address=address, licence=licence)
            # records name a source by its key or by its name
            for known in dict.fromkeys((name, str(title))):
                homes.setdefault(known, []).append(home)
    return homes


def _named_sources(stated: Any, path: Path) -> Iterable[tuple[str, Mapping[str, Any]]]:
    """Return the sources of a folder: source.yaml's own under its title, and those of its tables by their keys."""
    if not isinstance(stated, Mapping):
        raise ValueError(f"{path}: a mapping is needed, found {stated!r}")
    if path.name == "source.yaml":
        return [(str(stated.get("title")), stated)]
    return [(str(name), about) for name, about in stated.items() if isinstance(about, Mapping)]
