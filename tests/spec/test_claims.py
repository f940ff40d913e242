from pathlib import Path
from typing import Any

import pytest
import yaml

from falloff.spec.claims import Check, Claim, Measured, Question, placeholders, read_claims, read_questions, tables_of
from falloff.spec.reading import build

ROOT = Path(__file__).parents[2]
CLAIMS, QUESTIONS = (ROOT / "config" / f"{name}.yaml" for name in ("claims", "questions"))

CHECK: dict[str, Any] = {
    "what": "tokens/s",
    "role": "decides",
    "table": "weak_scaling",
    "query": "x > 0",
    "measure": "mean",
    "above": 0,
}
CLAIM: dict[str, Any] = {
    "id": "C1",
    "statement": "It falls.",
    "source": "arXiv 2411.13055",
    "grade": ["said"],
    "figures": ["weak_scaling"],
    "checks": [CHECK],
    "expected": {"verdict": "holds"},
}


def write(path: Path, key: str, *entries: dict[str, Any]) -> Path:
    path.write_text(yaml.safe_dump({key: list(entries)}))
    return path


def test_every_claim_of_the_study_is_there_and_every_question() -> None:
    assert {claim.id for claim in read_claims(CLAIMS)} == {f"C{number}" for number in range(1, 21)}
    assert [question.number for question in read_questions(QUESTIONS)] == list(range(1, 19))


def test_every_claim_that_a_question_names_is_one() -> None:
    known = {claim.id for claim in read_claims(CLAIMS)}
    for question in read_questions(QUESTIONS):
        assert set(question.claims) <= known


def test_every_figure_that_is_named_is_drawn() -> None:
    rules = "".join((ROOT / "rules" / name).read_text() for name in ("common.smk", "figures.smk"))
    for one in (*read_claims(CLAIMS), *read_questions(QUESTIONS)):
        for figure in one.figures:
            assert f'"{figure}"' in rules, figure


def test_an_answer_states_no_number_of_ours_itself() -> None:
    """What an answer may state: how many GPUs, the size of a network, a degree, a length; never a result."""
    for question in read_questions(QUESTIONS):
        assert "%" not in question.answer.replace("35 % MFU", "").replace("90 %", ""), question.number


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"id": "claim 1"}, "id must be C and a number, found 'claim 1'"),
        ({"grades": ["said"]}, r"unknown key 'grades' \(did you mean 'grade'\?\)"),
        ({"grade": ["heard"]}, "grade is 'heard'; allowed: said, second-hand"),
        ({"checks": []}, "checks is empty"),
        ({"figures": ["memory"]}, r"table 'weak_scaling' is none of its figures \(memory\)"),
        ({"checks": [{**CHECK, "table": "weak scaling"}]}, "table must be a figure's name, 'runs' or 'claim_model'"),
        ({"checks": [{**CHECK, "query": " "}]}, "query is blank"),
        ({"checks": [{**CHECK, "above": None}]}, "a check that decides needs above or below"),
        ({"checks": [{**CHECK, "below": -1}]}, "above 0 and below -1 leave nothing between them"),
        ({"checks": [{**CHECK, "stated": 3}]}, "stated and tolerance belong together"),
        ({"checks": [{**CHECK, "stated": 3, "tolerance": 0}]}, "tolerance must be above zero"),
        (
            {"checks": [{**CHECK, "ablation": {"grid": "g", "quantity": "q", "without": ["network"]}}]},
            "ablation belongs to the model",
        ),
        (
            {"checks": [{**CHECK, "role": "model", "ablation": {"grid": "g", "quantity": "q", "without": []}}]},
            "without must name at least one thing",
        ),
        ({"remark": "by {share}"}, r"\{share\} is filled from values, which has nothing"),
        ({"remark": "by {share"}, "do not match"),
    ],
)
def test_a_mistake_in_a_claim_is_one_sentence_that_names_it(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    path = write(tmp_path / "claims.yaml", "claims", {**CLAIM, **change})
    with pytest.raises(ValueError, match=said) as raised:
        read_claims(path)
    assert "\n" not in str(raised.value)
    assert str(raised.value).startswith(f"{path}: {change.get('id', 'C1')}: ")


def test_two_claims_of_one_name_are_refused_and_two_parts_are_not(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="C1 is stated twice"):
        read_claims(write(tmp_path / "claims.yaml", "claims", CLAIM, CLAIM))
    parts = [{**CLAIM, "part": part} for part in ("EFA", "InfiniBand")]
    found = read_claims(write(tmp_path / "claims.yaml", "claims", *parts))
    assert [claim.name for claim in found] == ["C1, EFA", "C1, InfiniBand"]


def test_a_value_that_no_answer_names_is_an_error() -> None:
    stated = {"number": 1, "question": "?", "answer": "None.", "figures": ["memory"]}
    unused = {"table": "memory", "query": "x > 0", "measure": "mean"}
    with pytest.raises(ValueError, match="values has 'share', which no text names"):
        build(Question, {**stated, "values": {"share": unused}}, "here")


def test_the_tables_are_those_of_figures_and_each_is_named_once() -> None:
    claim = build(Claim, {**CLAIM, "checks": [CHECK, {**CHECK, "table": "runs"}, CHECK]}, "here")
    assert tables_of([claim], []) == ["weak_scaling"]


def test_a_statistic_comes_to_its_unit_by_a_factor_and_an_offset() -> None:
    kept = Measured(table="t", query="x > 0", measure="value", scale=100, offset=-100)
    assert kept.in_unit(0.75) == pytest.approx(-25)


def test_a_check_beside_needs_no_direction() -> None:
    assert build(Check, {**CHECK, "role": "beside", "above": None}, "here").role == "beside"


def test_names_in_braces_are_found_in_order() -> None:
    assert placeholders("from {a} to {b}") == ["a", "b"]
    assert placeholders("none") == []
