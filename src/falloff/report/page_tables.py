"""The page's tables: claims with their verdicts, the reviewers' questions, the model's scores, every grid's shares."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from falloff.perfmodel.baselines import NAIVE_SHARE
from falloff.report.contents import short_name
from falloff.report.grid_shares import STATES
from falloff.report.markup import counted, escaped, prose
from falloff.report.page_entries import Entry
from falloff.report.page_figures import percent, share_bar, shares_of

SEVERAL = "; "  # parts the figures, claims and records of one row
CLAIM_COLUMNS = (
    *("claim", "statement", "grade", "source", "stated", "ours", "value", "verdict", "evidence", "why", "figures"),
    *("record_ids", "command", "ablation", "beside"),
)
QUESTION_COLUMNS = ("number", "question", "answer", "figures", "claims")
# a verdict's mark and what it amounts to
VERDICTS: Mapping[str, tuple[str, str]] = {
    "holds": ("✓", "yes"),
    "holds in direction": ("(✓)", "part"),
    "does not hold": ("✗", "no"),
    "model agrees": ("▨✓", "model"),
    "model disagrees": ("▨✗", "model"),
    "cannot be decided": ("?", "open"),
}
_MOST_RECORDS = 60
# columns that are folded under a claim, and their heads
_FOLDED = {"ablation": "The model with a term switched off", "beside": "Beside it, and deciding nothing"}


def claims_html(claims: pd.DataFrame, figures: Collection[str]) -> str:
    """Return the table of claims; `figures` are those of the page, which alone are linked.

    ValueError where the table lacks a column of CLAIM_COLUMNS.
    """
    _check(claims, CLAIM_COLUMNS, "claims")
    rows = "\n".join(_claim_row(row, figures) for row in claims.to_dict("records"))
    return f"""<p class="intro">{_verdict_words(claims["verdict"])} A verdict that a claim holds or does not rests on
measured, imported or published records, listed with it; prediction alone makes the model agree or disagree and no
more.</p>
<div class="scroll" tabindex="0" role="group" aria-label="Claims">
<table class="cards" data-sortable data-search="claims">
<caption>Claims of the paper and of the question on TorchTitan's tables, each with what decides it</caption>
<thead><tr><th scope="col">claim</th><th scope="col">stated</th><th scope="col">ours</th><th scope="col">verdict</th>
<th scope="col">why</th></tr></thead>
<tbody>
{rows}
</tbody>
</table>
</div>"""


def _verdict_words(verdicts: pd.Series) -> str:
    counts = verdicts.astype(str).value_counts()
    ordered = [name for name in VERDICTS if name in counts.index]
    ordered += [str(name) for name in counts.index if name not in ordered]
    said = ", ".join(f"{counts[name]} “{escaped(name)}”" for name in ordered)
    return f"{counted(len(verdicts), 'verdict')}: {said}."


def _claim_row(row: Mapping[Any, Any], figures: Collection[str]) -> str:
    claim, mark = _text(row["claim"]), _verdict(_text(row["verdict"]))
    origin = ", ".join(filter(None, (_text(row["source"]), _text(row["grade"]))))
    value = "" if pd.isna(row["value"]) else f' data-sort="{float(row["value"]):g}"'
    return f"""<tr id="claim-{_slug(claim)}">
<th scope="row" data-sort="{_place(claim)}"><strong>{escaped(claim)}</strong> {prose(_text(row["statement"]))}
<span class="aside">{prose(origin)}</span></th>
<td data-head="stated">{_or_dash(row["stated"])}</td>
<td data-head="ours"{value}>{_or_dash(row["ours"])}</td>
<td data-head="verdict">{mark}<span class="aside">{prose(_text(row["evidence"]))}</span></td>
<td data-head="why">{_because(row, figures)}</td>
</tr>"""


def _or_dash(value: Any) -> str:
    text = _text(value)
    ends = re.sub(r"(?<=\d), (?=[^\]]*\])", ",\N{NO-BREAK SPACE}", text)  # of an interval in brackets
    return "–" if text in ("", "-") else prose(ends)


def _verdict(verdict: str) -> str:
    mark, kind = VERDICTS.get(verdict, ("?", "open"))
    return f'<span class="verdict {kind}"><span aria-hidden="true">{mark}</span> {escaped(verdict)}</span>'


def _because(row: Mapping[Any, Any], figures: Collection[str]) -> str:
    """Return the first reason and the figures, and folded all else: what remains, stands beside, and the records."""
    first, *others = _parts(_text(row["why"])) or [""]
    links = _figure_links(_text(row["figures"]), figures)
    records = _parts(_text(row["record_ids"]))
    named = ", ".join(escaped(record) for record in records[:_MOST_RECORDS])
    rest = f" and {len(records) - _MOST_RECORDS:,} more" if len(records) > _MOST_RECORDS else ""
    command = _text(row["command"])
    folded = [_listed("", others)]
    folded += [_listed(head, _parts(_text(row[name]))) for name, head in _FOLDED.items()]
    folded += [f'<p class="records">{counted(len(records), "record")}: {named}{rest}</p>'] if records else []
    folded += [f"<p><code>{escaped(command)}</code></p>"] if command else []
    shown = f'<span class="aside">{links}</span>' if links else ""
    detail = f"<details><summary>What it rests on</summary>{''.join(folded)}</details>" if any(folded) else ""
    end = "." if first and not first.endswith(".") else ""
    return f"{prose(first)}{end}{shown}{detail}"


def _listed(head: str, items: Sequence[str]) -> str:
    """Return items as a list under a head, nothing where there are none."""
    above = f"<p>{head}</p>" if head and items else ""
    return f"{above}<ul>{''.join(f'<li>{prose(item)}</li>' for item in items)}</ul>" if items else ""


def questions_html(questions: pd.DataFrame, figures: Collection[str], claims: Collection[str]) -> str:
    """Return the reviewers' questions, each with its answer and links to figures and claims of the page.

    ValueError where the table lacks a column of QUESTION_COLUMNS.
    """
    _check(questions, QUESTION_COLUMNS, "questions")
    items = []
    for row in questions.sort_values("number", kind="stable").to_dict("records"):
        links = [_figure_links(_text(row["figures"]), figures), _claim_links(_text(row["claims"]), claims)]
        shown = " ".join(link for link in links if link)
        items.append(
            f'<li id="question-{row["number"]}" value="{row["number"]}"><h3>{prose(_text(row["question"]))}</h3>'
            f"<p>{prose(_text(row['answer']))}</p>" + (f'<p class="links">{shown}</p>' if shown else "") + "</li>"
        )
    listed = "\n".join(items)
    return f'<ol class="questions">\n{listed}\n</ol>'


_SCORES = (("model", "model"), ("naive", "naive rule"), ("constant", "constant HFU"), ("regression", "regression"))


def scores_html(scores: pd.DataFrame) -> str:
    """Return the table of analysis.model_scores: errors by family, the least one marked, goals and whether met."""
    rows = "\n".join(_score_row(row) for row in scores.to_dict("records"))
    set_goals = scores[scores["goal"].notna()]
    met = int(set_goals["is_met"].astype(bool).sum())
    beaten = int((scores["model"] < scores[["naive", "constant", "regression"]].min(axis=1)).sum())
    heads = "".join(f'<th scope="col" class="num">{words}</th>' for _, words in _SCORES)
    return f"""<p class="intro">Mean error of predicted step times, in per cent, over cells that the fit had not seen.
Of {len(scores)} rows the model has the least error of the four in {beaten}, and meets its goal in {met} of
{len(set_goals)}. The naive rule is {percent(NAIVE_SHARE)} of peak for every step. The constant HFU and the regression
are fitted to the cells that the model was fitted to, and where the source was known to those of the family alone, at
their strongest. The best tool before ran as shipped, or with one factor fitted.</p>
<div class="scroll" tabindex="0" role="group" aria-label="Scores of the model">
<table class="cards" data-sortable>
<caption>Errors by family of published cells; ★ the least of the four</caption>
<thead><tr><th scope="col">family</th><th scope="col">what the fit knew</th><th scope="col" class="num">cells</th>
{heads}<th scope="col">best tool before</th><th scope="col">goal</th></tr></thead>
<tbody>
{rows}
</tbody>
</table>
</div>"""


def _score_row(row: Mapping[Any, Any]) -> str:
    errors = {name: float(row[name]) for name, _ in _SCORES if pd.notna(row[name])}
    least = min(errors.values())
    cells = "".join(
        f'<td class="num" data-head="{words}">'
        + ("–" if name not in errors else f"{errors[name]:.1f}{_star(errors[name] == least)}")
        + "</td>"
        for name, words in _SCORES
    )
    peer = "–" if pd.isna(row["peer_error"]) else f"{row['peer_error']:g} ({escaped(str(row['peer']))})"
    verdict = "met" if row["is_met"] else "not\N{NO-BREAK SPACE}met"
    place = "" if pd.isna(row["goal"]) else f' data-sort="{row["goal"]:g}"'
    goal = "none" if pd.isna(row["goal"]) else f"{row['goal']:g}:\N{NO-BREAK SPACE}{verdict}"
    return (
        f'<tr><th scope="row">{escaped(str(row["family"]))}</th><td data-head="what the fit knew">{row["column"]}</td>'
        f'<td class="num" data-head="cells">{int(row["n"]):,}</td>{cells}'
        f'<td data-head="best tool before">{peer}</td><td data-head="goal"{place}>{goal}</td></tr>'
    )


def _star(is_least: bool) -> str:
    return '<span class="star" title="the least of the four">\N{NARROW NO-BREAK SPACE}★</span>' if is_least else ""


def coverage_html(entries: Sequence[Entry]) -> str:
    """Return the table of every figure's grid: how much of it is measured, published, predicted and missing."""
    heads = "".join(f'<th scope="col" class="num">{state}</th>' for state in STATES)
    rows = "\n".join(_coverage_row(entry) for entry in entries)
    return f"""<div class="scroll" tabindex="0" role="group" aria-label="Coverage of each grid">
<table class="cards" data-sortable>
<caption>Share of each figure's grid by what fills it; last, how many more cells are impossible as stated</caption>
<thead><tr><th scope="col">figure</th><th scope="col" class="num">readings and cells</th>{heads}
<th scope="col" class="num">impossible</th></tr></thead>
<tbody>
{rows}
</tbody>
</table>
</div>"""


def _coverage_row(entry: Entry) -> str:
    shares = shares_of(entry)
    cells = "".join(
        f'<td class="num{_faint(shares.counts[state])}" data-head="{state}" data-sort="{shares.share(state):.6f}">'
        + (percent(shares.share(state)) if shares.counts[state] else "–")
        + "</td>"
        for state in STATES
    )
    name = escaped(entry.name)
    return (
        f'<tr><th scope="row"><a href="#{name}">{escaped(short_name(entry.name, entry.title))}</a>'
        f'{share_bar(shares)}</th><td class="num" data-head="readings and cells">{shares.total:,}</td>{cells}'
        f'<td class="num{_faint(shares.num_refused)}" data-head="impossible">{shares.num_refused or "–"}</td></tr>'
    )


def _faint(number: int) -> str:
    """Return the class that leaves a cell out on a phone, where nothing is in it."""
    return "" if number else " none"


def _check(table: pd.DataFrame, columns: Iterable[str], name: str) -> None:
    lacking = [column for column in columns if column not in table.columns]
    if lacking:
        raise ValueError(f"table of {name}: it has no column {', '.join(lacking)}")


def _text(value: Any) -> str:
    if value is None or (not isinstance(value, str) and pd.isna(value)):
        return ""
    return str(value).strip()


def _parts(text: str) -> list[str]:
    return [part for part in (part.strip() for part in text.split(SEVERAL.strip())) if part]


def _figure_links(names: str, figures: Collection[str]) -> str:
    return " ".join(
        f'<a href="#{escaped(name)}">{escaped(short_name(name, name))}</a>' for name in _parts(names) if name in figures
    )


def _claim_links(names: str, claims: Collection[str]) -> str:
    """Return links to claims by name; one that is decided in parts, such as 'C4, EFA', leads to the first of them."""
    found = {
        name: next((claim for claim in claims if claim == name or claim.startswith(f"{name}, ")), None)
        for name in _parts(names)
    }
    return " ".join(f'<a href="#claim-{_slug(claim)}">{escaped(name)}</a>' for name, claim in found.items() if claim)


def _slug(text: str) -> str:
    return re.sub(r"[^\w-]+", "-", text)


def _place(claim: str) -> int:
    """Return the number in a claim's name, by which C10 comes after C9."""
    found = re.search(r"\d+", claim)
    return int(found[0]) if found else 0
