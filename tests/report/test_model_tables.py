from pathlib import Path

import numpy as np
import pytest

from falloff.perfmodel.calibrate import Fit
from falloff.perfmodel.parameters import Values
from falloff.perfmodel.prediction import prior_fit, shipped_fit
from falloff.perfmodel.step import PARAMETERS
from falloff.report.model_tables import all_parameters, filled_page, fitted_table, tables

PAGE = Path(__file__).parents[2] / "docs" / "perfmodel.md"


@pytest.fixture(scope="module")
def page() -> str:
    return PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", sorted(all_parameters()))
def test_the_page_names_and_explains_every_parameter(page: str, name: str) -> None:
    before, _, after = page.partition("<!-- parameters -->")
    rows = after.partition("<!-- end of parameters -->")[0].splitlines()
    (row,) = [line for line in rows if line.startswith(f"| `{name}` |")]
    assert all_parameters()[name].meaning in row
    # beside its row it stands in the formula that it moves
    assert f"`{name}`" in before


def test_the_tables_of_the_page_are_those_of_the_code_and_of_the_shipped_calibration(page: str) -> None:
    assert filled_page(page, shipped_fit()) == page, "run make calibration, or workflow_scripts/document_parameters.py"


def test_a_fitted_value_stands_beside_its_prior_with_its_interval() -> None:
    key = ("gemm_sustained", "h100")
    values = Values(parameters=PARAMETERS, fitted={key: 0.8})
    fit = Fit(values, (key,), np.array([[0.01]]), 5, ("a",), {key: ("a", "b")})
    row = fitted_table(fit).splitlines()[-1]
    assert row.startswith("| `gemm_sustained` | h100 |")
    assert "| 0.8 | 0.679 to 0.943 | 2 |" in row


def test_a_model_that_is_fitted_to_nothing_has_a_table_without_rows() -> None:
    assert len(fitted_table(prior_fit()).splitlines()) == 2


def test_every_line_of_a_table_has_as_many_cells() -> None:
    for table in tables(shipped_fit()).values():
        counts = {line.count(" | ") for line in table.splitlines()}
        assert len(counts) == 1


def test_a_page_without_a_place_for_a_table_is_an_error() -> None:
    with pytest.raises(ValueError, match="no place for the table parameters"):
        filled_page("nothing", prior_fit())
