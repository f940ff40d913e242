"""The page figures/index.html: the finding, every figure, the claims, the questions, the scores, and a what-if panel.

One file that needs no network and no server. The same input gives the same bytes: no dates. Its script adds to what can
be read without it: search, sorting, the panel.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from falloff.report.contents import GROUPS, ILLUSTRATION, OTHERS, group_of, short_name
from falloff.report.markup import counted, escaped, first_clause, prose, relative
from falloff.report.page_entries import Entry
from falloff.report.page_figures import EVIDENCE, card_html, figure_html
from falloff.report.page_panel import panel_html
from falloff.report.page_tables import claims_html, coverage_html, questions_html, scores_html
from falloff.spec.assumptions import Offer

ASSETS = Path(__file__).parent
MOST_BYTES = 5_000_000  # what opens at once, and is small enough to be mailed
# The first screen: what its figures find, each under what was asked, in three sentences; the first figure is shown.
LEADS: Mapping[str, str] = {
    "strong_scaling": "Where the batch is fixed (published runs)",
    "weak_scaling": "Where the batch grows with the machine (7B, FSDP)",
    "validation": "How far that can be trusted",
}


@dataclass(frozen=True, kw_only=True)
class Study:
    """All that the page shows. A part that is None or empty has no section.

    claims and questions have the columns that page_tables names, scores those of analysis.model_scores, grid is of
    analysis.what_if, prices are by its clusters.
    """

    entries: Sequence[Entry]
    claims: pd.DataFrame | None = None
    questions: pd.DataFrame | None = None
    scores: pd.DataFrame | None = None
    grid: Mapping[str, Any] | None = None
    prices: Mapping[str, Offer] = field(default_factory=dict)


@dataclass(frozen=True)
class _Section:
    """A part of the page: its address, heading, content, and the figures that the contents list under it."""

    name: str
    title: str
    body: str
    entries: Sequence[Entry] = ()


def page_html(study: Study, page: Path) -> str:
    """Return the page that stands at `page`, its links relative to it; ValueError names a table that lacks a column.

    A page of more than MOST_BYTES is a ValueError too.
    """
    sections = list(_sections(study, page))
    text = _document(study, sections, page)
    if len(text.encode()) > MOST_BYTES:
        raise ValueError(
            f"{page}: it takes {len(text.encode()):,} bytes, more than {MOST_BYTES:,}; draw smaller figures"
        )
    return text


def _document(study: Study, sections: Sequence[_Section], page: Path) -> str:
    body = "\n".join(_section_html(section) for section in sections)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>falloff: what the next node buys</title>
<link rel="icon" href="data:,">
<style>
{_asset("page.css")}</style>
</head>
<body>
<a class="skip" href="#main">Skip to the findings</a>
{_header(study.entries)}
<nav aria-label="Contents">
{_contents(sections)}
</nav>
<main id="main" tabindex="-1">
{body}
</main>
<footer>
<p>Built by <code>make figures</code> from the logs and tables in this repository.
<a href="{relative(Path("README.md"), page)}">README</a>
<a href="{relative(Path("docs/methods.md"), page)}">How each number is computed</a></p>
</footer>
<script>
{_asset("page.js")}</script>
</body>
</html>
"""


def _asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")


def _header(entries: Sequence[Entry]) -> str:
    leads = {entry.name: entry for entry in entries if entry.name in LEADS}
    ordered = [leads[name] for name in LEADS if name in leads]
    said = "\n".join(_lead(entry) for entry in ordered)
    shown = f'<figure class="lead">\n{_lead_card(ordered[0])}\n</figure>\n' if ordered else ""
    total = {kind: sum(entry.counts.get(kind, 0) for entry in entries) for kind in EVIDENCE}
    evidence = "\n".join(_evidence_row(kind, total[kind]) for kind in EVIDENCE if total[kind])
    return f"""<header>
<div class="opening">
<div class="words">
<p class="name">falloff</p>
<h1>What does the next node buy?</h1>
<p class="lede">How the training of large language models scales, in tokens, watts and dollars, and why each added GPU
gives less than the one before.</p>
<ul class="leads">
{said}
</ul>
</div>
<div class="shown">
{shown}<p class="counts">{counted(len(entries), "figure")}, every point of one of these kinds, every missing one with
its reason.</p>
<ul class="evidence" aria-label="Records on this page by kind of evidence">
{evidence}
</ul>
</div>
</div>
</header>"""


def _lead(entry: Entry) -> str:
    clause = first_clause(entry.finding)
    kinds = [kind for kind in EVIDENCE if entry.counts.get(kind)]
    marks = "".join(EVIDENCE[kind][0] for kind in kinds)
    listed = " and ".join(filter(None, (", ".join(kinds[:-1]), kinds[-1] if kinds else "no points")))
    return (
        f"<li><strong>{LEADS[entry.name]}</strong> {prose(clause)}. "
        f'<a href="#{escaped(entry.name)}"><span aria-hidden="true">{marks}</span> {listed}</a></li>'
    )


def _lead_card(entry: Entry) -> str:
    read = f'<a href="#{escaped(entry.name)}">How to read it, and its limits</a>'
    return f"{card_html(entry, f'#{entry.name}')}\n<figcaption>{escaped(entry.title)}. {read}</figcaption>"


def _evidence_row(kind: str, count: int) -> str:
    mark, words = EVIDENCE[kind]
    return (
        f'<li><span class="mark" aria-hidden="true">{mark}</span>'
        f"<span><strong>{count:,} {kind}</strong> {words}</span></li>"
    )


def _sections(study: Study, page: Path) -> Iterator[_Section]:
    """Yield the parts of the page in its order: findings, illustrations, what follows from them, how good they are."""
    found = [entry for entry in study.entries if not is_illustration(entry)]
    for group in (*GROUPS, OTHERS):
        members = [entry for entry in found if group_of(entry.name) == group]
        if members:
            yield _figures(group, members, page)
    illustrations = [entry for entry in study.entries if is_illustration(entry)]
    if illustrations:
        words = "What the model says where nothing was measured or published on the main axis: no findings."
        yield _figures("Model illustrations", illustrations, page, words)
    yield from _answers(study)


def _answers(study: Study) -> Iterator[_Section]:
    figures = {entry.name for entry in study.entries}
    claims = [] if study.claims is None else list(study.claims["claim"].astype(str))
    if study.grid is not None:
        yield _Section("what-if", "What if", panel_html(study.grid, study.prices))
    if study.claims is not None:
        yield _Section("claims", "Claims", claims_html(study.claims, figures))
    if study.questions is not None:
        yield _Section("questions", "What reviewers asked", questions_html(study.questions, figures, claims))
    if study.scores is not None and len(study.scores):
        yield _Section("scores", "How good the model is", scores_html(study.scores))
    yield _Section("coverage", "Coverage of each grid", coverage_html(study.entries))


def is_illustration(entry: Entry) -> bool:
    """Return whether a figure says of itself that it has no point but predicted ones on its main axis."""
    return entry.title.endswith(ILLUSTRATION)


def _figures(title: str, entries: Sequence[Entry], page: Path, words: str = "") -> _Section:
    intro = f'<p class="intro">{words}</p>\n' if words else ""
    body = intro + "\n".join(figure_html(entry, page) for entry in entries)
    return _Section(f"group-{title.lower().replace(' ', '-')}", title, body, entries)


def _section_html(section: _Section) -> str:
    return f"""<section id="{section.name}" aria-labelledby="{section.name}-title">
<h2 id="{section.name}-title">{escaped(section.title)}</h2>
{section.body}
</section>"""


def _contents(sections: Sequence[_Section]) -> str:
    """Return the contents: the answers first, then the figures by group, as a long list hides its end."""
    parts = {
        "Answers": [section for section in sections if not section.entries],
        "Figures": [section for section in sections if section.entries],
    }
    return "\n".join(
        f'<p class="label">{name}</p>\n<ul>\n{"".join(map(_contents_item, listed))}\n</ul>'
        for name, listed in parts.items()
        if listed
    )


def _contents_item(section: _Section) -> str:
    items = "".join(
        f'<li><a href="#{escaped(entry.name)}">{escaped(short_name(entry.name, entry.title))}</a></li>'
        for entry in section.entries
    )
    below = f"<ul>{items}</ul>" if items else ""
    return f'<li><a href="#{section.name}">{escaped(section.title)}</a>{below}</li>\n'
