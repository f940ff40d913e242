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
from falloff.spec.reading import read_yaml

# The mark beside each kind of evidence is the one that the figures draw.
EVIDENCE = {
    "measured": ("●", "written by falloff's own benchmark, on this machine or in a log that ships"),
    "imported": ("■", "another program's raw log, read and recomputed here"),
    "published": ("◇", "a number from a table or figure in print"),
    "predicted": ("▨", "a number from the performance model, never joined to a measurement"),
}
LACKING = {
    "failed": "ran and gave no number",
    "refused": "impossible as stated, so not started or not drawn",
    "stale": "has a log of other settings",
    "missing": "no log and no published number",
}
COVERAGE_COLUMNS = ("figure", "cell", "status", "reason", "n")
# A grid of thousands of cells is told by its reasons; the cells one by one stand in the coverage table.
MOST_ROWS = 40
MOST_NAMES = 6

# A figure of two columns is 7 in at 240 px: shown at 156 px an inch, all figures have letters of one size.
SHOWN_PER_PIXEL = 0.65


@dataclass(frozen=True, kw_only=True)
class Source:
    """One source of a figure: how many records of which kind, and the folders that hold its logs or tables."""

    name: str
    provenance: str
    num_records: int
    folders: tuple[Path, ...]
    licence: str | None


@dataclass(frozen=True, kw_only=True)
class _Home:
    """A folder of others' logs and tables, with what its source says of its licence."""

    folder: Path
    licence: str | None


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One figure of the page. coverage has the columns of analysis.coverage, this figure's rows alone."""

    name: str
    title: str
    caption: str
    alt: str
    counts: Mapping[str, int]
    size: tuple[int, int]
    sources: tuple[Source, ...]
    coverage: pd.DataFrame


def read_entries(figures: Sequence[Path], coverage: Iterable[Path], external: Path) -> list[Entry]:
    """Return the figures whose .json is given (with .png and .csv beside it), in that order.

    `external` is the folder of others' logs and tables. ValueError names a file that cannot be read.
    """
    rows = read_coverage(coverage)
    homes = _homes(external)
    return [_read_entry(path, rows, homes) for path in figures]


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
    return _PAGE.format(
        style=_STYLE,
        nav="\n".join(f'<li><a href="#{_e(entry.name)}">{_e(entry.title)}</a></li>' for entry in entries),
        num_figures=_count(len(entries), "figure"),
        evidence="\n".join(_evidence_row(kind, total[kind]) for kind in EVIDENCE),
        body=body,
        readme=_relative(Path("README.md"), page),
        methods=_relative(Path("docs/methods.md"), page),
    )


def lacking(coverage: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of coverage without a number, ordered as in LACKING.

    n stays the number of cells or readings that a row stands for, 0 where that cannot be counted.
    """
    rows = coverage[coverage["status"].isin(LACKING)].copy()
    rows["n"] = rows["n"].fillna(0).astype(int)
    rows["reason"] = rows["reason"].where(rows["reason"].notna(), "no reason is stated").astype(str)
    rows["status"] = pd.Categorical(rows["status"], list(LACKING), ordered=True)
    return rows.sort_values(["status"], kind="stable")


def grouped(rows: pd.DataFrame, most_names: int = MOST_NAMES) -> pd.DataFrame:
    """Return one row a status and reason: n is their sum, cell names the first few."""
    groups = rows.groupby(["status", "reason"], sort=False, observed=True)
    return pd.DataFrame(
        [
            {
                "status": status,
                "reason": reason,
                "n": int(group["n"].clip(lower=1).sum()),
                "cell": _names(group["cell"], most_names),
            }
            for (status, reason), group in groups
        ],
        columns=["status", "reason", "n", "cell"],
    )


def _names(cells: Iterable[str], most: int) -> str:
    names = list(dict.fromkeys(str(cell) for cell in cells))
    rest = f"; and {len(names) - most} more" if len(names) > most else ""
    return "; ".join(names[:most]) + rest


def _read(path: Path, reader: Callable[[Path], pd.DataFrame]) -> pd.DataFrame:
    try:
        return reader(path)
    except (OSError, ValueError) as error:  # pyarrow's and pandas's own errors are of these kinds
        raise ValueError(f"{path}: cannot be read ({str(error).splitlines()[0]})") from error


def _read_entry(path: Path, coverage: pd.DataFrame, homes: Mapping[str, Sequence[_Home]]) -> Entry:
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
        texts = {key: str(about[key]) for key in ("title", "caption", "alt")}
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
        Source(
            name=str(source),
            provenance=str(provenance),
            num_records=len(group),
            folders=_native_folders(group["source_ref"]) or _folders(homes.get(str(source), ()), group["source_ref"]),
            licence=next((home.licence for home in homes.get(str(source), ())), None),
        )
        for (source, provenance), group in evidence(table).groupby(["source", "provenance"], sort=True)
    ]
    return sorted(found, key=lambda source: (-source.num_records, source.name, source.provenance))


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
    """Return where each source that a folder of `external` names is kept, and its licence."""
    homes: dict[str, list[_Home]] = {}
    for path in sorted([*external.glob("*/source.yaml"), *external.glob("*/sources.yaml")]):
        for name, about in _named_sources(read_yaml(path), path):
            homes.setdefault(name, []).append(_Home(folder=path.parent, licence=about.get("licence")))
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
<figure>
<a class="card" href="{name}.pdf" title="open the PDF">
<img src="{name}.png" width="{width}" height="{height}" alt="{_e(entry.alt)}">
</a>
<figcaption>{_e(_without_counts(entry.caption))}</figcaption>
</figure>
<p class="kinds"><span class="label">Evidence</span> {_evidence_words(entry.counts)}</p>
<p class="links"><span class="label">Files</span> {_links(entry, page)}</p>
{_sources_html(entry, page)}
{_lacking_html(entry)}
</section>"""


def _without_counts(caption: str) -> str:
    """Return the caption without the counts that save_figure puts first: they stand below it, with their marks."""
    return re.sub(r"^Records: [^.]*\. ?", "", caption)


def _evidence_words(counts: Mapping[str, int]) -> str:
    present = [
        f'<span class="kind"><span aria-hidden="true">{EVIDENCE[kind][0]}</span> {counts[kind]:,} {kind}</span>'
        for kind in EVIDENCE
        if counts.get(kind)
    ]
    return " ".join(present) or "no points"


def _links(entry: Entry, page: Path) -> str:
    links = [(f"{entry.name}.pdf", "PDF"), (f"{entry.name}.png", "PNG"), (f"{entry.name}.csv", "CSV")]
    links.append((_relative(Path("notebooks") / f"{entry.name}.ipynb", page), "notebook"))
    return " ".join(f'<a href="{_e(target)}">{words}</a>' for target, words in links)


def _sources_html(entry: Entry, page: Path) -> str:
    items = "\n".join(f"<li>{_source_words(source, page)}</li>" for source in entry.sources)
    return f"""<details>
<summary>{_count(len(entry.sources), "source")} of its records, with logs and licence</summary>
<ul>
{items}
</ul>
</details>"""


def _source_words(source: Source, page: Path) -> str:
    links = ", ".join(
        f'<a href="{_e(_relative(_door(folder), page))}">{_e(folder.as_posix())}</a>' for folder in source.folders
    )
    licence = f"; licence: {_e(source.licence)}" if source.licence else ""
    words = f"{_e(source.name)}, {_count(source.num_records, 'record')} {_e(source.provenance)}"
    return f"{words}{f' ({links})' if links else ''}{licence}"


def _door(folder: Path) -> Path:
    """Return what to open of a folder: its description where it has one."""
    described = folder / "SOURCE.md"
    return described if described.is_file() else folder


def _lacking_html(entry: Entry) -> str:
    rows = lacking(entry.coverage)
    if rows.empty:
        return '<p class="whole">Every cell of its grid has a number.</p>'
    shown = rows if len(rows) <= MOST_ROWS else grouped(rows)
    counts = rows["n"].clip(lower=1).groupby(rows["status"], observed=True).sum()
    words = ", ".join(f"{counts[status]:,} {status}" for status in LACKING if status in counts.index)
    groups = "\n".join(_status_rows(status, shown[shown["status"] == status]) for status in counts.index)
    return f"""<details>
<summary>Not shown: {words}</summary>
<table>
<caption class="hidden">Cells of this figure's grid without a number</caption>
<thead><tr><th scope="col">cell</th><th scope="col">reason</th><th scope="col" class="number">count</th></tr></thead>
{groups}
</table>
</details>"""


def _status_rows(status: str, rows: pd.DataFrame) -> str:
    lines = "\n".join(
        f'<tr><td>{_e(str(row.cell))}</td><td>{_e(str(row.reason))}</td><td class="number">{_number(row.n)}</td></tr>'
        for row in rows.itertuples()
    )
    return f"""<tbody>
<tr><th colspan="3" scope="rowgroup"><strong>{status}</strong>: {LACKING[status]}</th></tr>
{lines}
</tbody>"""


def _number(count: Any) -> str:
    return f"{int(count):,}" if count else ""


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


_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>falloff: what the next node buys</title>
<style>
{style}
</style>
</head>
<body>
<a class="skip" href="#figures">Skip to the figures</a>
<header>
<p class="name">falloff</p>
<h1>What does the next node buy?</h1>
<p>How the training of large language models scales, in tokens, watts and seconds, and why each added GPU gives less
than the one before. Each of the {num_figures} on this page shows what kind of evidence every point is, where it came
from, and which cells of its grid have no number, and why.</p>
<ul class="evidence" aria-label="Records on this page by kind of evidence">
{evidence}
</ul>
</header>
<nav aria-label="Figures">
<p class="label">Figures</p>
<ol>
{nav}
</ol>
</nav>
<main id="figures">
{body}
</main>
<footer>
<p>Built by <code>make figures</code> from the logs and tables in this repository.
<a href="{readme}">README</a> <a href="{methods}">How each number is computed</a></p>
</footer>
</body>
</html>
"""

# Each pair of text and ground has at least 4.5:1 in both schemes (WCAG 2.2 AA; a test computes it).
_STYLE = """:root {
  --ground: #fbfaf8; --card: #ffffff; --ink: #1f1d1a; --soft: #5c5850; --rule: #dcd8d0; --link: #0b5394;
}
@media (prefers-color-scheme: dark) {
  :root { --ground: #161719; --card: #ffffff; --ink: #e9e6e0; --soft: #aaa59b; --rule: #3a3b3e; --link: #8ab8f0; }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; scroll-padding-top: 1rem; }
body {
  margin: 0 auto; max-width: 92rem; padding: 2.5rem 1rem 3rem; background: var(--ground); color: var(--ink);
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
  overflow-wrap: anywhere;
}
header p, figcaption, .kinds, .links, details, .whole, footer p { max-width: 46rem; }
.name { margin: 0; color: var(--soft); letter-spacing: .04em; }
h1 { margin: .1rem 0 .8rem; font-size: clamp(1.7rem, 5vw, 2.4rem); line-height: 1.15; letter-spacing: -.015em; }
h2 { margin: 0 0 .9rem; font-size: 1.35rem; line-height: 1.25; letter-spacing: -.01em; }
a { color: var(--link); text-underline-offset: .15em; }
a:focus-visible, summary:focus-visible { outline: 3px solid var(--link); outline-offset: 3px; border-radius: 2px; }
.skip { position: absolute; left: -100vw; }
.skip:focus { left: 1rem; top: .5rem; background: var(--ground); padding: .25rem .5rem; }
.evidence { list-style: none; padding: 0; margin: 1.2rem 0 0; max-width: 46rem; color: var(--soft); }
.evidence li { display: grid; grid-template-columns: 1.6rem 1fr; }
.evidence strong { color: var(--ink); font-weight: 600; font-variant-numeric: tabular-nums; }
.mark { color: var(--ink); }
.label { color: var(--soft); margin: 0 .6rem 0 0; }
nav { margin: 2rem 0 0; padding: 1rem 0; border-block: 1px solid var(--rule); }
nav .label { font-weight: 600; }
nav ol { margin: .3rem 0 0; padding: 0; list-style: none; }
nav li { padding: .2rem 0; }
section { padding: 2.2rem 0 1.6rem; border-bottom: 1px solid var(--rule); }
figure { margin: 0; }
.card { display: block; width: fit-content; max-width: 100%; background: var(--card); border: 1px solid var(--rule);
  border-radius: 6px; padding: .75rem; }
.card img { display: block; max-width: 100%; height: auto; }
figcaption { margin-top: .9rem; }
.kinds, .links { margin: .8rem 0 0; }
.kind, .links a { margin-right: 1rem; white-space: nowrap; }
.whole { margin: .8rem 0 0; color: var(--soft); }
details { margin-top: .8rem; }
summary { cursor: pointer; padding: .15rem 0; }
details ul { margin: .3rem 0; padding-left: 1.3rem; }
table { width: 100%; table-layout: fixed; margin-top: .5rem; border-collapse: collapse; font-size: .9rem;
  line-height: 1.4; }
th, td { padding: .35rem .8rem .35rem 0; border-bottom: 1px solid var(--rule); text-align: left; vertical-align: top; }
th { color: var(--soft); font-weight: 400; }
th strong { color: var(--ink); font-weight: 600; }
th:first-child { width: 36%; }
th:last-child:not(:first-child) { width: 4rem; }
tbody th { padding-top: .9rem; }
.number { text-align: right; padding-right: 0; font-variant-numeric: tabular-nums; white-space: nowrap; }
.hidden { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
footer { padding-top: 1.5rem; color: var(--soft); }
footer a { margin-left: .8rem; white-space: nowrap; }
@media (min-width: 80rem) {
  body { display: grid; grid-template-columns: 14rem minmax(0, 1fr); column-gap: 3rem; padding-inline: 2.5rem; }
  header, main, footer { grid-column: 2; }
  nav { grid-column: 1; grid-row: 1 / span 3; align-self: start; position: sticky; top: 2rem; margin: 0; border: 0; }
  nav li { line-height: 1.35; padding: .35rem 0; font-size: .95rem; }
}
@media print {
  nav, .skip { display: none; }
  section { break-inside: avoid; }
}"""
