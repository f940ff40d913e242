from pathlib import Path
from typing import Any

import pytest
import yaml

from falloff.report.artifact_text import FIGURES
from falloff.spec.results import CLAIMS, read_results

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "config" / "results.yaml"

VALUE: dict[str, Any] = {"table": "memory", "query": "x > 0", "measure": "mean", "unit": "%"}
RESULT: dict[str, Any] = {
    "name": "memory",
    "statement": "errors are {error}",
    "evidence": ["predicted"],
    "values": {"error": VALUE},
}
MINUTES: dict[str, Any] = {"timed": "on two cores", "of": {"memory": 1.5}}


def write(path: Path, *results: dict[str, Any], minutes: dict[str, Any] = MINUTES) -> Path:
    path.write_text(yaml.safe_dump({"results": list(results), "minutes": minutes}))
    return path


def test_every_figure_but_those_of_a_machine_has_its_minutes_and_no_other_has() -> None:
    assert set(read_results(RESULTS).minutes.of) == {CLAIMS, *FIGURES}


def test_a_result_is_of_a_figure_that_is_drawn() -> None:
    assert {result.figure for result in read_results(RESULTS).results} <= set(FIGURES)


def test_a_statement_states_no_number_of_ours_itself() -> None:
    """What a statement may state: GPUs, the size of a network, a degree, a length; never a result."""
    for result in read_results(RESULTS).results:
        assert "%" not in result.statement, result.name


def test_what_was_measured_or_imported_says_on_what_machine_it_can_be_again() -> None:
    for result in read_results(RESULTS).results:
        assert bool(result.again) == bool({"measured", "imported"} & set(result.evidence)), result.name


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"statement": "errors are {mistake}"}, r"\{mistake\} is filled from values, which has error"),
        ({"statement": "errors are small"}, "values has 'error', which no text names"),
        ({"statement": "errors are small", "values": {}}, "values is empty"),
        ({"evidence": []}, "evidence must say what kinds of rows"),
        ({"evidence": ["guessed"]}, "evidence is 'guessed'; allowed: measured, imported, published, predicted"),
        ({"values": {"error": {**VALUE, "table": "runs"}}}, "table 'runs' is no figure's"),
        (
            {"statement": "{error} {rate}", "values": {"error": VALUE, "rate": {**VALUE, "table": "h200"}}},
            "values are of h200, memory; a result is of one figure",
        ),
    ],
)
def test_a_mistake_in_a_result_is_one_sentence_that_names_it(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    path = write(tmp_path / "results.yaml", {**RESULT, **change})
    with pytest.raises(ValueError, match=said) as raised:
        read_results(path)
    assert "\n" not in str(raised.value)
    assert str(raised.value).startswith(f"{path}: memory: ")


def test_two_results_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="memory is stated twice"):
        read_results(write(tmp_path / "results.yaml", RESULT, RESULT))


@pytest.mark.parametrize(
    ("minutes", "said"),
    [
        ({**MINUTES, "of": {"memory": 0}}, "minutes of memory must be above zero, found 0"),
        ({**MINUTES, "timed": " "}, "timed is blank"),
    ],
)
def test_minutes_say_how_they_were_timed_and_are_above_zero(tmp_path: Path, minutes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read_results(write(tmp_path / "results.yaml", RESULT, minutes=minutes))
