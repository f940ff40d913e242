"""docs/artifact.md: each claim, result and figure with its command, what to expect of it, its minutes and evidence."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pandas as pd

from falloff.analysis.claim_tables import COMMAND
from falloff.analysis.claims import EVIDENCE
from falloff.analysis.results import Told
from falloff.report.contents import GROUPS, STORY, short_name
from falloff.report.evidence import SEVERAL
from falloff.report.markdown import markdown_table
from falloff.report.text import DASH
from falloff.spec.claims import Claim
from falloff.spec.results import CLAIMS, Minutes

# figures of whatever was measured where they are built: nothing of them is the same elsewhere
OF_A_MACHINE = tuple(GROUPS["This machine"])
FIGURES = tuple(name for name in STORY if name not in OF_A_MACHINE)
_ANY = "any"
_THEIRS = {"this_machine": "yours, whose runs it draws", "slurm_smoke": "a Slurm cluster of yours"}

_INTRODUCTION = """\
# Claims, and how to check each

Written by `make reference` from config/claims.yaml, config/results.yaml and the tables that the workflow builds: no
result in it is typed. Two commands do it all, with Python 3.11 or newer and make, on Linux:

    make figures    # every figure, every claim decided, and the page; measures the study `laptop` on this machine
    make test       # passes the tests

Or one thing alone, in the environment that `make` creates (`source .venv/bin/activate`):

    snakemake figures/strong_scaling.pdf       # a figure: its finding stands in the .json, its numbers in the .csv
    {command}    # all claims
    falloff claims --claim C1                  # one of them: verdict, why, each query, the records under it

**Machine.** Any: no GPU, and no network once installed. What was measured stands in raw logs that ship; the machine to
measure it on again is named with it.

**Minutes** are from nothing built:
{timed}.
They are not to be summed, since figures share ingested logs and fits: `make figures` does these once, and after it
nothing is left to do.

**The same to the byte** are CSVs on any machine, and PDF, PNG and index.html on one, however often they are built.
Tests hold the CSVs that docs/figures/ has copies of, and this page, against what the tree builds. Verdicts are to come
out as they stand here; a value may move by its tolerance before a test turns red. How a verdict comes about is in
[methods.md](methods.md), and the limits of a figure are in its caption.
"""


def artifact_page(
    claims: Sequence[Claim],
    decided: pd.DataFrame,
    told: Sequence[Told],
    counts: Mapping[str, Mapping[str, int]],
    minutes: Minutes,
    references: Collection[str],
) -> str:
    """Return the page in Markdown.

    `decided` is the table of claims (analysis/claim_tables.py), `counts` the records of each of FIGURES by provenance,
    `references` the figures that docs/figures/ has a copy of. ValueError names a figure without its minutes.
    """
    lacking = [name for name in (CLAIMS, *FIGURES) if name not in minutes.of]
    if lacking:
        raise ValueError(f"minutes of {lacking[0]} are not stated")
    parts = [
        _INTRODUCTION.format(command=COMMAND, timed=minutes.timed),
        "## Claims of the study\n",
        f"Each after `{COMMAND}`, whose minutes are given.\n",
        _claims_table(claims, decided, minutes),
        "## What our own tables show\n",
        _results_table(told, minutes),
        "## Figures\n",
        _figures_table(counts, minutes, references),
    ]
    return "\n".join(parts)


def _claims_table(claims: Sequence[Claim], decided: pd.DataFrame, minutes: Minutes) -> str:
    rows = {str(row["claim"]): row for row in decided.to_dict("records")}
    heads = (
        "claim",
        "statement",
        "stated",
        "expected",
        "tolerance",
        "command",
        "minutes",
        "machine",
        "evidence, figures",
    )
    return markdown_table(heads, [_claim_row(claim, rows[claim.name], minutes) for claim in claims])


def _claim_row(claim: Claim, row: Mapping[Any, Any], minutes: Minutes) -> tuple[str, ...]:
    records = [name for name in str(row["record_ids"]).split(SEVERAL) if name]
    kind = str(row["evidence"])
    number = f", {len(records):,} {'record' if len(records) == 1 else 'records'}" if records else ""
    expected = claim.expected
    return (
        claim.name,
        " ".join(claim.statement.split()),
        claim.stated or DASH,
        f"**{row['verdict']}**, {row['ours']}",
        DASH if expected.value is None else f"{expected.within:g} {row['unit']}".strip(),
        f"`falloff claims --claim {claim.id}`",
        f"{minutes.of[CLAIMS]:.1f} for all",
        _ANY,
        f"{kind}{number}; {', '.join(claim.figures)}",
    )


def _results_table(told: Sequence[Told], minutes: Minutes) -> str:
    heads = ("result", "command", "expected in", "tolerance", "minutes", "machine", "evidence")
    return markdown_table(heads, [_result_row(one, minutes) for one in told])


def _result_row(one: Told, minutes: Minutes) -> tuple[str, ...]:
    result, figure = one.result, one.result.figure
    return (
        one.text,
        _command(figure),
        f"{', '.join(f'`{panel}`' for panel in one.panels)} of figures/{figure}.csv",
        result.tolerance,
        f"{minutes.of[figure]:.1f}",
        f"{_ANY}; to measure again {result.again}" if result.again else _ANY,
        ", ".join(kind for kind in EVIDENCE if kind in result.evidence),
    )


def _figures_table(counts: Mapping[str, Mapping[str, int]], minutes: Minutes, references: Collection[str]) -> str:
    rows = [
        (
            short_name(name, name),
            _command(name),
            f"{minutes.of[name]:.1f}",
            _ANY,
            *(f"{counts[name][kind]:,}" for kind in EVIDENCE),
            f"[CSV](figures/{name}.csv), [PNG](figures/{name}.png)" if name in references else DASH,
        )
        for name in FIGURES
    ]
    own = [
        (short_name(name, name), _command(name), "its runs", _THEIRS[name], *[DASH] * len(EVIDENCE), DASH)
        for name in OF_A_MACHINE
    ]
    return markdown_table(("figure", "command", "minutes", "machine", *EVIDENCE, "copy in docs/"), [*rows, *own])


def _command(figure: str) -> str:
    return f"`snakemake figures/{figure}.pdf`"
