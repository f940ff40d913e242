from falloff.analysis.claim_ablation import Model
from falloff.analysis.claim_words import ablations, beside, ours, why
from falloff.analysis.claims import decide
from falloff.perfmodel.prediction import prior_fit

from .test_claims import MODEL, REAL, TABLES, claim


def test_the_reason_names_what_decides_with_its_kind_of_evidence() -> None:
    text = why(decide(claim(REAL, MODEL), TABLES))
    assert text == "Published change: -10.0 % (published, 3 rows)."


def test_a_number_that_is_missed_is_missed_by_so_much() -> None:
    text = why(decide(claim(REAL, {**MODEL, "stated": -37.22, "tolerance": 2, "digits": 2}), TABLES))
    assert "the model's: -25.00 % (predicted, 2 rows), 12.22 points (2 allowed) from the stated -37.22 %" in text


def test_a_stated_number_lies_inside_or_outside_of_our_interval() -> None:
    row = {**MODEL, "query": "x == 2048", "measure": "value", "scale": 100, "offset": -100}
    inside, outside = (
        why(decide(claim({**row, "stated": stated, "tolerance": 1}), TABLES)) for stated in (-37.22, -60)
    )
    assert "which is inside our -50.0 to 10.0 %" in inside
    assert "which is outside our -50.0 to 10.0 %" in outside


def test_what_rows_lack_and_a_remark_are_part_of_the_reason() -> None:
    text = why(decide(claim({**REAL, "partial": "it stops at 512"}, remark="so far."), TABLES))
    assert text.endswith("but it stops at 512; so far.")


def test_what_cannot_be_decided_begins_with_the_reason() -> None:
    assert why(decide(claim(MODEL, undecidable="nobody has printed it"), TABLES)).startswith("Nobody has printed it; ")


def test_a_check_without_its_rows_is_the_reason_and_says_how_many_are_there() -> None:
    few = {**REAL, "what": "eight networks", "no_less": 8}
    lost = "ight networks: table weak_scaling lacks rows that it takes (3 of 8 are there)"
    found = decide(claim(REAL, few, MODEL), TABLES)
    assert found.verdict == "cannot be decided"
    assert why(found).startswith(f"E{lost}; the model's: -25.0 %")
    refuted = decide(claim({**REAL, "below": -50}, few), TABLES)
    assert why(refuted) == f"Published change: -10.0 % (published, 3 rows); e{lost}."


def test_what_stands_beside_is_told_apart_from_the_reason() -> None:
    found = decide(claim(REAL, {**MODEL, "role": "beside"}), TABLES)
    assert "the model's" not in why(found)
    assert (beside(found) or "").startswith("the model's: -25.0 %")
    assert ablations(found) is None


def test_what_is_left_of_the_model_with_its_mechanism_off_is_told_apart_from_the_reason() -> None:
    ablation = {"grid": "weak_7b", "where": "machine == 'H100'", "quantity": "mfu", "without": ["network"]}
    found = decide(claim({**MODEL, "ablation": ablation}), TABLES, Model(prior_fit()))
    assert why(found) == "The model's: -25.0 % (predicted, 2 rows)."
    assert (ablations(found) or "").startswith("the model's: with communication free ")
    assert (ablations(found) or "").endswith("ends of its parameters' 90 %")


def test_a_count_that_is_not_reached_with_a_mechanism_off_is_reached_never() -> None:
    crossing = {"measure": "crossing", "arguments": {"level": 1}, "y": "y", "unit": "GPUs", "digits": 0, "above": 0}
    ablation = {
        "grid": "weak_7b",
        "where": "machine == 'H100'",
        "quantity": "transfer_over_compute",
        "without": ["network"],
    }
    found = decide(claim({**MODEL, **crossing, "below": None, "ablation": ablation}), TABLES, Model(prior_fit()))
    assert "with communication free never, not so" in (ablations(found) or "")


def test_what_fails_is_the_first_reason() -> None:
    fails = {**REAL, "what": "another", "below": -50}
    assert why(decide(claim(REAL, fails), TABLES)).startswith("Another: ")


def test_a_value_of_another_kind_than_the_evidence_says_so() -> None:
    found = decide(claim(REAL, {**MODEL, "stated": -37.22, "tolerance": 2}), TABLES)
    assert ours(found) == "-25.0 % (predicted)"
    assert ours(decide(claim(REAL), TABLES)) == "-10.0 %"
