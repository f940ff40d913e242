"""The page figures/index.html: every figure with its caption, evidence, links, and the cells that it lacks.

Plain HTML without scripts or anything from a network, so that it opens from a file system. The same input gives the
same bytes: no dates.
"""

import html
import json
import os
import re
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from falloff.report.evidence import COLUMNS, evidence
from falloff.report.lacking import lacking_html
from falloff.report.page_style import PAGE, STYLE
from falloff.spec.reading import read_yaml

# The mark beside each kind of evidence is the one that the figures draw.
EVIDENCE = {
    "measured": ("●", "written by falloff's own benchmark, on this machine or in a log that ships"),
    "imported": ("■", "another program's raw log, read and recomputed here"),
    "published": ("◇", "a number from a table or figure in print"),
    "predicted": ("▨", "a number from the performance model, never joined to a measurement"),
}
COVERAGE_COLUMNS = ("figure", "cell", "status", "reason", "n")
# The order of the page: what was measured, what the model makes of it, the few cores of one machine. Others follow.
STORY = (
    *("strong_scaling", "weak_scaling", "marginal_returns", "execution_time", "power_per_token", "attribution"),
    *("collectives", "collective_regimes", "overlap", "comparability", "h200"),
    *("parallelism_mix", "tensor_parallel", "best_layout", "hybrid_sharding", "context_parallel", "context_length"),
    *("model_size", "generations", "node_size", "fleet", "goodput"),
    *("validation", "extrapolation", "memory", "this_machine"),
)
_WIDE_PX = 700  # what is wider scrolls sideways on a phone, as its letters would be too small otherwise

# A figure of two columns is 7 in at 240 px: shown at 156 px an inch, all figures have letters of one size.
SHOWN_PER_PIXEL = 0.65


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
    size: tuple[int, int]
    sources: tuple[Source, ...]
    coverage: pd.DataFrame


def read_entries(figures: Sequence[Path], coverage: Iterable[Path], external: Path) -> list[Entry]:
    """Return the figures whose .json is given (with .png and .csv beside it), in the order of STORY.

    `external` is the folder of others' logs and tables. ValueError names a file that cannot be read.
    """
    rows = read_coverage(coverage)
    homes = _homes(external)
    ordered = sorted(figures, key=lambda path: STORY.index(path.stem) if path.stem in STORY else len(STORY))
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


def page_html(entries: Sequence[Entry], page: Path) -> str:
    """Return the page that stands at `page`, its links relative to it."""
    total = {kind: sum(entry.counts.get(kind, 0) for entry in entries) for kind in EVIDENCE}
    body = "\n".join(_section(entry, page) for entry in entries)
    return PAGE.format(
        style=STYLE,
        nav="\n".join(f'<li><a href="#{_e(entry.name)}">{_e(entry.title)}</a></li>' for entry in entries),
        num_figures=_count(len(entries), "figure"),
        evidence="\n".join(_evidence_row(kind, total[kind]) for kind in EVIDENCE if total[kind]),
        body=body,
        readme=_relative(Path("README.md"), page),
        methods=_relative(Path("docs/methods.md"), page),
    )


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
        address=home.address if home else None,
        licence=home.licence if home else None,
    )


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


def _section(entry: Entry, page: Path) -> str:
    width, height = (round(side * SHOWN_PER_PIXEL) for side in entry.size)
    name = _e(entry.name)
    return f"""<section id="{name}" aria-labelledby="{name}-title">
<h2 id="{name}-title">{_e(entry.title)}</h2>
<p class="finding">{_prose(entry.finding)}</p>
<figure>
<div class="card{" wide" if width > _WIDE_PX else ""}" tabindex="0" role="group" aria-label="{_e(entry.title)}">
<a href="{name}.pdf" title="open the PDF">
<img src="{name}.png" width="{width}" height="{height}" alt="{_e(entry.alt)}">
</a>
</div>
<p class="hint">Swipe the figure sideways; tap it for the PDF.</p>
<figcaption>{_reading_html(entry.reading)}</figcaption>
</figure>
<p class="kinds"><span class="label">Evidence</span> {_evidence_words(entry.counts)}</p>
<p class="links"><span class="label">Files</span> {_links(entry, page)}</p>
{_sources_html(entry, page)}
{lacking_html(entry.coverage)}
</section>"""


def _reading_html(reading: str) -> str:
    """Return how to read a figure and its limits, which begin with that word, as two paragraphs."""
    parts = zip(("How to read it", "Limits"), reading.split("Limits: ", 1), strict=False)
    return "\n".join(f'<p><span class="label">{label}</span> {_prose(text.strip())}</p>' for label, text in parts)


def _prose(text: str) -> str:
    """Return a sentence as HTML in which no line ends between a number and its percent sign."""
    return re.sub(r"(?<=\d) %", "\N{NO-BREAK SPACE}%", _e(text))


def _evidence_words(counts: Mapping[str, int]) -> str:
    present = [
        f'<span class="kind"><span aria-hidden="true">{EVIDENCE[kind][0]}</span> {counts[kind]:,} {kind}</span>'
        for kind in EVIDENCE
        if counts.get(kind)
    ]
    return " ".join(present) or "no points"


def _links(entry: Entry, page: Path) -> str:
    links = [(f"{entry.name}.{kind.lower()}", kind) for kind in ("PDF", "PNG", "CSV")]
    links.append((_relative(Path("notebooks") / f"{entry.name}.ipynb", page), "notebook"))
    for words, kinds in (("raw logs", ("measured", "imported")), ("source tables", ("published",))):
        folders = [folder for source in entry.sources if source.provenance in kinds for folder in source.folders]
        different = list(dict.fromkeys(folders))
        for place, folder in enumerate(different, start=1):
            number = f" {place}" if len(different) > 1 else ""
            links.append((_relative(folder, page), f"{words}{number}"))
    return " ".join(
        f'<a href="{_e(target)}" aria-label="{_e(f"{words} of {entry.title}")}">{words}</a>' for target, words in links
    )


def _sources_html(entry: Entry, page: Path) -> str:
    if not entry.sources:
        return ""
    items = "\n".join(f"<li>{_source_words(source, page)}</li>" for source in entry.sources)
    return f"""<p class="label sources">Sources</p>
<ul class="sources">
{items}
</ul>"""


def _source_words(source: Source, page: Path) -> str:
    links = ", ".join(
        f'<a href="{_e(_relative(_door(folder), page))}">{_e(folder.as_posix())}</a>' for folder in source.folders
    )
    parts = [f"{_e(source.name)}: {_count(source.num_records, 'record')} {_e(source.provenance)}"]
    # no link: the page leads nowhere that is not in the repository
    parts += [_e(source.address.replace("https://", "").removeprefix("none; "))] if source.address else []
    parts += [f"licence: {_e(source.licence)}"] if source.licence else []
    return "; ".join([*parts, *([links] if links else [])])


def _door(folder: Path) -> Path:
    """Return what to open of a folder: its description where it has one."""
    described = folder / "SOURCE.md"
    return described if described.is_file() else folder


def _evidence_row(kind: str, count: int) -> str:
    mark, words = EVIDENCE[kind]
    return (
        f'<li><span class="mark" aria-hidden="true">{mark}</span>'
        f"<span><strong>{f'{count:,}' if count else 'none'} {kind}</strong>: {words}</span></li>"
    )


def _relative(target: Path, page: Path) -> str:
    return Path(os.path.relpath(target, page.parent)).as_posix()


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def _e(text: str) -> str:
    return html.escape(text, quote=True)
