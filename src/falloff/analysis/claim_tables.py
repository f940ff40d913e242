"""The tables `claims`, `claim_checks` and `questions`: what became of each, one row each."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from falloff.analysis.claim_ablation import agrees
from falloff.analysis.claim_words import ablation_words, ablations, beside, ours, why
from falloff.analysis.claims import NONE, Decided, Tables, fill, is_changed
from falloff.spec.claims import Question

COMMAND = "snakemake results/tables/claims.parquet"


def claims_frame(decided: Sequence[Decided]) -> pd.DataFrame:
    """Return the table `claims`, one row a claim in their order; lists are joined by '; ', numbers are in the unit.

    changed says whether verdict or value left what config/claims.yaml expects.
    """
    return pd.DataFrame([_claim_row(one) for one in decided])


def _claim_row(one: Decided) -> dict[str, Any]:
    claim, shown = one.claim, one.shown
    value = shown.found.value if shown else float("nan")
    low, high = shown.interval if shown else (float("nan"), float("nan"))
    records = sorted({name for each in one.deciding for name in each.record_ids})
    return {
        "claim": claim.name,
        "statement": claim.statement,
        "grade": ", ".join(claim.grade),
        "source": claim.source,
        "stated": claim.stated,
        "ours": ours(one),
        "value": value,
        "low": low,
        "high": high,
        "unit": shown.check.unit if shown else "",
        "verdict": one.verdict,
        "evidence": one.evidence,
        "value_evidence": ", ".join(shown.kinds) if shown else NONE,
        "why": why(one),
        "ablation": ablations(one),
        "beside": beside(one),
        "figures": "; ".join(claim.figures),
        "record_ids": "; ".join(records),
        "command": COMMAND,
        "expected_verdict": claim.expected.verdict,
        "expected_value": np.nan if claim.expected.value is None else claim.expected.value,
        "changed": is_changed(one),
    }


def checks_frame(decided: Sequence[Decided]) -> pd.DataFrame:
    """Return the table `claim_checks`: one row a check, with its query and what survives with a term off."""
    return pd.DataFrame([row for one in decided for row in _check_rows(one)])


def _check_rows(one: Decided) -> Iterator[dict[str, Any]]:
    for each in one.checks:
        made, ablated = each.check, each.ablated
        low, high = each.interval
        yield {
            "claim": one.claim.name,
            "role": made.role,
            "what": made.what,
            "table": made.table,
            "query": made.query,
            "measure": made.measure,
            "value": each.found.value,
            "low": low,
            "high": high,
            "unit": made.unit,
            "stated": np.nan if made.stated is None else made.stated,
            "outcome": each.outcome,
            "evidence": ", ".join(each.kinds) or NONE,
            "n": len(each.found.rows),
            "partial": made.partial,
            "ablation": ablation_words(each) if ablated else None,
            "breaking": "; ".join(ablated.breaking) if ablated and agrees(made, ablated.value) else None,
            "groups": "; ".join(each.groups) or None,
            "record_ids": "; ".join(each.record_ids),
        }


def questions_frame(questions: Sequence[Question], tables: Tables) -> pd.DataFrame:
    """Return the table `questions`, one row a question, its answer filled; ValueError names the question."""
    return pd.DataFrame([_question_row(question, tables) for question in questions])


def _question_row(question: Question, tables: Tables) -> dict[str, Any]:
    try:
        answer = fill(question.answer, question.values, tables)
    except ValueError as error:
        raise ValueError(f"question {question.number}: {error}") from error
    return {
        "number": question.number,
        "question": question.question,
        "answer": " ".join(answer.split()),
        "figures": "; ".join(question.figures),
        "claims": "; ".join(question.claims),
    }
