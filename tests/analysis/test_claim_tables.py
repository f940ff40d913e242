import pytest

from falloff.analysis.claim_tables import checks_frame, claims_frame, questions_frame
from falloff.analysis.claims import decide
from falloff.spec.claims import Question
from falloff.spec.reading import build

from .test_claims import MODEL, REAL, TABLES, claim

# what the page reads
PAGE = {
    "claim",
    "statement",
    "grade",
    "source",
    "stated",
    "ours",
    "value",
    "low",
    "high",
    "unit",
    "verdict",
    "evidence",
    "why",
    "figures",
    "record_ids",
    "command",
    "ablation",
    "beside",
}


def test_a_claim_has_a_row_with_what_the_page_shows() -> None:
    frame = claims_frame([decide(claim(REAL, MODEL), TABLES)])
    assert set(frame.columns) >= PAGE
    row = frame.iloc[0]
    assert (row["verdict"], row["evidence"], row["value"]) == ("holds", "published", pytest.approx(-10))
    assert row["record_ids"] == "p-1; p-2; p-3; p-4"
    assert not row["changed"]


def test_a_check_has_a_row_with_its_query_and_its_records() -> None:
    frame = checks_frame([decide(claim(REAL, MODEL), TABLES)])
    assert frame["role"].tolist() == ["decides", "model"]
    assert frame["evidence"].tolist() == ["published", "predicted"]
    assert frame["record_ids"].tolist() == ["p-1; p-2; p-3; p-4", "m-1; m-2"]


def test_a_question_has_its_answer_filled_and_a_mistake_names_it() -> None:
    stated = {
        "number": 4,
        "question": "By how much?",
        "answer": "By {change}.",
        "figures": ["weak_scaling"],
        "values": {"change": {name: REAL[name] for name in ("table", "query", "measure", "unit")}},
    }
    frame = questions_frame([build(Question, stated, "here")], TABLES)
    assert frame["answer"].tolist() == ["By -10.0 %."]
    with pytest.raises(ValueError, match="question 4: table 'weak_scaling' is not there"):
        questions_frame([build(Question, stated, "here")], {})
