import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from falloff.analysis.claim_tables import claims_frame
from falloff.analysis.claims import decide
from falloff.analysis.results import Told
from falloff.report.artifact_text import FIGURES, OF_A_MACHINE, artifact_page
from falloff.spec.claims import Claim
from falloff.spec.reading import build
from falloff.spec.results import CLAIMS, Minutes, Result

TABLE = pd.DataFrame(
    {
        "panel": ["rate"] * 2,
        "x": [8.0, 128.0],
        "y": [10.0, 9.0],
        "provenance": ["published"] * 2,
        "record_id": ["a; b", "c"],
    }
)
CLAIM: Claim = build(
    Claim,
    {
        "id": "C1",
        "part": "EFA",
        "statement": "It falls | by much.",
        "source": "arXiv 2411.13055",
        "grade": ["said"],
        "stated": "-37 %",
        "figures": ["weak_scaling", "attribution"],
        "checks": [
            {
                "what": "tokens/s",
                "role": "decides",
                "table": "weak_scaling",
                "query": "x > 0",
                "measure": "change_of_ends",
                "unit": "%",
                "below": 0,
            }
        ],
        "expected": {"verdict": "holds", "value": -10, "within": 0.5},
    },
    "here",
)
RESULT: Result = build(
    Result,
    {
        "name": "two",
        "statement": "two keep {kept}",
        "evidence": ["predicted", "measured"],
        "again": "two H200",
        "values": {"kept": {"table": "h200", "query": "x > 0", "measure": "mean"}},
    },
    "here",
)
COUNTS = {name: {"measured": 1, "imported": 0, "published": 1012, "predicted": 3} for name in FIGURES}
MINUTES = Minutes(timed="two cores", of={**dict.fromkeys(FIGURES, 0.5), CLAIMS: 4.0, "h200": 1.25})


def page(**change: Any) -> str:
    given = {
        "claims": [CLAIM],
        "decided": claims_frame([decide(CLAIM, {"weak_scaling": TABLE})]),
        "told": [Told(RESULT, "two keep 75 %", ("efficiency", "mfu"))],
        "counts": COUNTS,
        "minutes": MINUTES,
        "references": {"h200"},
    }
    return artifact_page(**{**given, **change})


def row(text: str, begins: str) -> list[str]:
    (line,) = [line for line in text.splitlines() if line.startswith(f"| {begins} |")]
    return line.strip("| ").split(" | ")


def test_a_claim_has_its_verdict_value_tolerance_command_minutes_machine_and_evidence() -> None:
    assert row(page(), "C1, EFA") == [
        "C1, EFA",
        "It falls / by much.",
        "-37 %",
        "**holds**, -10.0 %",
        "0.5 %",
        "`falloff claims --claim C1`",
        "4.0 for all",
        "any",
        "published, 3 records; weak_scaling, attribution",
    ]


def test_a_result_names_the_panels_of_its_csv_and_where_it_could_be_measured_again() -> None:
    assert row(page(), "two keep 75 %") == [
        "two keep 75 %",
        "`snakemake figures/h200.pdf`",
        "`efficiency`, `mfu` of figures/h200.csv",
        "none",
        "1.2",
        "any; to measure again two H200",
        "measured, predicted",
    ]


def test_every_figure_has_a_row_and_only_those_with_a_copy_have_it_linked() -> None:
    text = page()
    commands = re.findall(r"`snakemake figures/(\w+)\.pdf`", text.partition("## Figures")[2])
    assert commands == [*FIGURES, *OF_A_MACHINE]
    assert re.findall(r"\]\(figures/(\w+\.\w+)\)", text) == ["h200.csv", "h200.png"]
    assert row(text, "One and two H200")[2:] == [
        "1.2",
        "any",
        "1",
        "0",
        "1,012",
        "3",
        "[CSV](figures/h200.csv), [PNG](figures/h200.png)",
    ]


def test_what_is_measured_where_it_is_drawn_has_no_number() -> None:
    assert not re.search(r"\d", " ".join(row(page(), "This machine")[2:]))


@pytest.mark.parametrize("name", [CLAIMS, "memory"])
def test_a_figure_without_its_minutes_is_an_error_that_names_it(name: str) -> None:
    few = {key: minutes for key, minutes in MINUTES.of.items() if key != name}
    with pytest.raises(ValueError, match=f"minutes of {name} are not stated"):
        page(minutes=Minutes(timed="two cores", of=few))


def test_the_page_links_only_to_files_that_are_there() -> None:
    docs = Path(__file__).parents[2] / "docs"
    links = re.findall(r"\]\(([^)]+)\)", page())
    assert links
    assert [link for link in links if not (docs / link).exists()] == []
