"""A figure on the page: finding, image, how to read it, limits, evidence, files, sources, coverage."""

from collections.abc import Mapping
from pathlib import Path

from falloff.report.embedding import data_uri
from falloff.report.grid_shares import STATES, GridShares, grid_shares
from falloff.report.lacking import lacking_html
from falloff.report.markup import counted, escaped, prose, relative
from falloff.report.page_entries import Entry, Source

# The mark beside each kind of evidence is the one that the figures draw.
EVIDENCE = {
    "measured": ("●", "written by falloff's own benchmark, on this machine or in a log that ships"),
    "imported": ("■", "another program's raw log, read and recomputed here"),
    "published": ("◇", "a number from a table or figure in print"),
    "predicted": ("▨", "a number from the performance model, never joined to a measurement"),
}
_WIDE_PX = 700  # what is wider scrolls sideways on a phone, as its letters would be too small otherwise
_LONG = 220  # characters: a finding of more is set smaller
# A figure of two columns is 7 in at 240 px: shown at 156 px an inch, all figures have letters of one size.
SHOWN_PER_PIXEL = 0.65


def figure_html(entry: Entry, page: Path) -> str:
    """Return the article of one figure, its links relative to the page."""
    name = escaped(entry.name)
    return f"""<article class="figure" id="{name}" aria-labelledby="{name}-title">
<h3 id="{name}-title">{escaped(entry.title)}</h3>
<p class="finding{" long" if len(entry.finding) > _LONG else ""}">{prose(entry.finding)}</p>
<figure>
{card_html(entry, f"{name}.pdf")}
<figcaption>{_reading_html(entry.reading)}</figcaption>
</figure>
<p class="kinds"><span class="label">Evidence</span> {evidence_words(entry.counts)}</p>
<p class="links"><span class="label">Files</span> {_links(entry, page)}</p>
{_coverage_html(entry)}
{_sources_html(entry, page)}
</article>"""


def card_html(entry: Entry, target: str) -> str:
    """Return a figure's image on its white card, as a link to `target`."""
    width, height = (round(side * SHOWN_PER_PIXEL) for side in entry.size)
    is_wide = width > _WIDE_PX
    scrolls = f' tabindex="0" role="group" aria-label="{escaped(entry.title)}"' if is_wide else ""
    hint = '\n<p class="hint">Swipe the figure sideways; tap it to enlarge.</p>' if is_wide else ""
    return f"""<div class="card{" wide" if is_wide else ""}"{scrolls}>
<a href="{escaped(target)}">
<img src="{data_uri(entry.image)}" width="{width}" height="{height}" alt="{escaped(entry.alt)}">
</a>
</div>{hint}"""


def evidence_words(counts: Mapping[str, int]) -> str:
    """Return how many records of each kind there are, each kind with its mark; kinds without any left out."""
    present = [
        f'<span class="kind"><span aria-hidden="true">{EVIDENCE[kind][0]}</span> {counts[kind]:,} {kind}</span>'
        for kind in EVIDENCE
        if counts.get(kind)
    ]
    return " ".join(present) or "no points"


def shares_of(entry: Entry) -> GridShares:
    """Return how much of a figure's grid is measured, published, predicted, missing."""
    return grid_shares(entry.coverage, entry.counts.get("predicted", 0))


def share_bar(shares: GridShares) -> str:
    """Return a bar of a grid's shares, for eyes alone: the numbers stand beside it."""
    parts = "".join(
        f'<span class="{state}" style="flex-grow:{shares.counts[state]}"></span>'
        for state in STATES
        if shares.counts[state]
    )
    return f'<span class="shares" aria-hidden="true">{parts}</span>'


def _reading_html(reading: str) -> str:
    """Return how to read a figure and its limits, which begin with that word, as two paragraphs."""
    parts = zip(("How to read it", "Limits"), reading.split("Limits: ", 1), strict=False)
    return "\n".join(f'<p><span class="label">{label}</span> {prose(text.strip())}</p>' for label, text in parts)


def _links(entry: Entry, page: Path) -> str:
    links = [(f"{entry.name}.{kind.lower()}", kind) for kind in ("PDF", "PNG", "CSV")]
    links.append((relative(Path("notebooks") / f"{entry.name}.ipynb", page), "notebook"))
    for words, kinds in (("raw logs", ("measured", "imported")), ("source tables", ("published",))):
        folders = [folder for source in entry.sources if source.provenance in kinds for folder in source.folders]
        different = list(dict.fromkeys(folders))
        for place, folder in enumerate(different, start=1):
            number = f" {place}" if len(different) > 1 else ""
            links.append((relative(folder, page), f"{words}{number}"))
    return " ".join(
        f'<a href="{escaped(target)}" aria-label="{escaped(f"{words} of {entry.title}")}">{words}</a>'
        for target, words in links
    )


def _coverage_html(entry: Entry) -> str:
    """Return a figure's grid by state, and the reasons of what is missing, folded."""
    shares = shares_of(entry)
    if not shares.total:
        return lacking_html(entry.coverage)
    words = ", ".join(f"{percent(shares.share(state))} {state}" for state in STATES if shares.counts[state])
    rows = "\n".join(
        f'<tr><th scope="row">{state}</th><td class="num">{shares.counts[state]:,}</td>'
        f'<td class="num">{percent(shares.share(state))}</td></tr>'
        for state in STATES
        if shares.counts[state]
    )
    if shares.num_refused:
        rows += (
            f'\n<tr><th scope="row">impossible</th><td class="num">{shares.num_refused:,}</td>'
            '<td class="num">no part of it</td></tr>'
        )
    return f"""<details class="coverage">
<summary><span class="label">Coverage of its grid</span> {share_bar(shares)} <span>{words}</span></summary>
<table aria-label="Readings and cells of the grid of {escaped(entry.title)}">
<thead><tr><th scope="col">state</th><th scope="col" class="num">number</th>
<th scope="col" class="num">share</th></tr></thead>
<tbody>
{rows}
</tbody>
</table>
{lacking_html(entry.coverage)}
</details>"""


def percent(share: float) -> str:
    """Return a share in whole per cent; what is there and rounds to nothing is under one, and 99.6 is not all."""
    if 0 < share < 0.005:
        return "<\N{NO-BREAK SPACE}1\N{NO-BREAK SPACE}%".replace("<", "&lt;")
    return f"{min(round(100 * share), 99) if share < 1 else 100}\N{NO-BREAK SPACE}%"


def _sources_html(entry: Entry, page: Path) -> str:
    if not entry.sources:
        return ""
    items = "\n".join(f"<li>{_source_words(source, page)}</li>" for source in entry.sources)
    return f"""<details class="sources">
<summary><span class="label">Sources</span> <span>{counted(len(entry.sources), "source")}</span></summary>
<ul>
{items}
</ul>
</details>"""


def _source_words(source: Source, page: Path) -> str:
    links = ", ".join(
        f'<a href="{escaped(relative(_door(folder), page))}">{escaped(folder.as_posix())}</a>'
        for folder in source.folders
    )
    parts = [f"{escaped(source.name)}: {counted(source.num_records, 'record')} {escaped(source.provenance)}"]
    # no link: the page leads nowhere that is not in the repository
    parts += [escaped(source.address.replace("https://", "").removeprefix("none; "))] if source.address else []
    parts += [f"licence: {escaped(source.licence)}"] if source.licence else []
    return "; ".join([*parts, *([links] if links else [])])


def _door(folder: Path) -> Path:
    """Return what to open of a folder: its description where it has one."""
    described = folder / "SOURCE.md"
    return described if described.is_file() else folder
