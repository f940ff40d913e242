"""The order of the page."""

import re
from pathlib import Path

from falloff.report.contents import OTHERS, STORY, group_of, place_of, short_name

ROOT = Path(__file__).parents[2]


def test_every_figure_that_has_a_notebook_has_its_group_and_its_short_name() -> None:
    assert {path.stem for path in (ROOT / "notebooks").glob("*.ipynb")} <= set(STORY)


def test_no_figure_stands_twice_and_short_names_differ() -> None:
    assert len(STORY) == len(set(STORY))
    names = [short_name(name, "") for name in STORY]
    assert len(names) == len(set(names))
    assert max(map(len, names)) <= 32


def test_a_figure_that_no_group_names_comes_last_under_its_title() -> None:
    assert place_of("another") > max(map(place_of, STORY))
    assert group_of("another") == OTHERS
    assert short_name("another", "Its title") == "Its title"


def test_the_report_of_the_workflow_has_the_same_groups() -> None:
    rules = (ROOT / "rules" / "figures.smk").read_text()
    assert re.search(r"category=lambda wildcards: group_of\(wildcards.name\)", rules)
