from typing import Any

import pandas as pd
import pytest

from falloff.analysis.results import tell
from falloff.spec.reading import build
from falloff.spec.results import Result

TABLE = pd.DataFrame(
    {
        "panel": ["rate", "rate", "parts"],
        "x": [1.0, 2.0, 2.0],
        "y": [8.0, 6.0, 0.125],
        "provenance": ["measured", "measured", "predicted"],
    }
)
KEPT: dict[str, Any] = {
    "table": "h200",
    "query": 'panel == "rate"',
    "measure": "ratio_of_ends",
    "scale": 100,
    "unit": "%",
    "digits": 0,
}


def result(**change: Any) -> Result:
    stated = {"name": "two", "statement": "two keep {kept}", "evidence": ["measured"], "values": {"kept": KEPT}}
    return build(Result, {**stated, **change}, "here")


def test_a_sentence_is_filled_by_the_table_and_names_the_panels_of_its_numbers() -> None:
    told = tell(result(), {"h200": TABLE})
    assert told.text == "two keep 75 %"
    assert told.panels == ("rate",)


def test_a_panel_is_named_once_in_the_order_of_the_numbers() -> None:
    exposed = {"table": "h200", "query": 'panel == "parts"', "measure": "value"}
    values = {"exposed": exposed, "kept": KEPT, "again": KEPT}
    whole = result(statement="{exposed} {kept} {again}", evidence=["measured", "predicted"], values=values)
    assert tell(whole, {"h200": TABLE}).panels == ("parts", "rate")


def test_evidence_that_the_rows_do_not_bear_out_is_refused() -> None:
    with pytest.raises(ValueError, match="two: evidence is stated as published, and its rows are measured"):
        tell(result(evidence=["published"]), {"h200": TABLE})


def test_a_number_that_is_not_to_be_had_is_an_error_and_no_sentence() -> None:
    none = {**KEPT, "query": 'panel == "rate" and x > 2'}
    with pytest.raises(ValueError, match=r"two: \{kept\} has no number"):
        tell(result(values={"kept": none}), {"h200": TABLE})


def test_a_column_that_is_not_there_names_the_result() -> None:
    with pytest.raises(ValueError, match=r"^two: table h200, .*there is no column 'z'"):
        tell(result(values={"kept": {**KEPT, "y": "z"}}), {"h200": TABLE})
