"""The page: whole, one file, linked, legible, in the order of its story, and the same bytes twice."""

import itertools
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from falloff.report import page
from falloff.report.contents import GROUPS, ILLUSTRATION


def whole(render: Any, claims: pd.DataFrame, questions: pd.DataFrame, grid: Any) -> str:
    return str(render(claims=claims, questions=questions, grid=grid))


def test_every_tag_is_closed_and_every_link_within_leads_to_an_id_that_is_there_once(
    root: Path, render: Any, elements: Any, claims: pd.DataFrame, questions: pd.DataFrame, grid: Any
) -> None:
    found = elements(whole(render, claims, questions, grid))
    assert found.open == []
    ids = [attributes["id"] for _, attributes in found.found if "id" in attributes]
    assert len(ids) == len(set(ids))
    for attributes in found.of("a"):
        if attributes["href"].startswith("#"):
            assert attributes["href"][1:] in ids


def test_every_link_leads_to_a_file_and_nothing_is_loaded(
    root: Path, render: Any, elements: Any, claims: pd.DataFrame, questions: pd.DataFrame, grid: Any
) -> None:
    text = whole(render, claims, questions, grid)
    found = elements(text)
    for target in [a["href"] for a in found.of("a")]:
        assert "//" not in target
        assert target.startswith("#") or (Path("figures") / target).exists(), target
    loaded = [i["src"] for i in found.of("img")] + [link["href"] for link in found.of("link")]
    assert all(target.startswith("data:") for target in loaded)
    assert not [script for script in found.of("script") if "src" in script]
    style = text.partition("<style>")[2].partition("</style>")[0]
    assert "url(" not in style
    assert "@import" not in style


def test_the_page_has_landmarks_a_way_past_them_and_one_heading_above_all(
    root: Path, render: Any, elements: Any
) -> None:
    found = elements(render())
    for landmark in ("header", "nav", "main", "footer", "h1"):
        assert len(found.of(landmark)) == 1, landmark
    assert found.of("nav")[0]["aria-label"]
    (skip,) = [a for a in found.of("a") if a.get("class") == "skip"]
    assert skip["href"] == f"#{found.of('main')[0]['id']}"
    levels = [int(name[1]) for name, _ in found.found if re.fullmatch(r"h\d", name)]
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))


def test_the_first_screen_says_what_its_figures_find_up_to_the_first_clause(
    root: Path, render: Any, add_figure: Any
) -> None:
    add_figure("weak_scaling", finding="A GPU keeps 75.5 % of its rate. It was predicted.")
    add_figure("validation", finding="The error is 9 %; the rule's 19 %.")
    text = render(names=("validation", "weak_scaling", "strong_scaling"))
    head = text.partition("<header")[2].partition("<nav")[0]
    assert "The next node adds 12\N{NO-BREAK SPACE}% &lt; 50\N{NO-BREAK SPACE}%. <a" in head
    assert "A GPU keeps 75.5\N{NO-BREAK SPACE}% of its rate. <a" in head
    assert "The error is 9\N{NO-BREAK SPACE}%. <a" in head
    assert head.count("<img") == 1
    assert head.index("strong_scaling") < head.index("weak_scaling") < head.index("validation")


def test_the_head_counts_the_records_of_each_kind_and_explains_no_other(root: Path, render: Any) -> None:
    head = render().partition("<header")[2].partition("<nav")[0]
    assert "1 figure, " in head
    for words in ("1 measured", "1 imported", "2 published"):
        assert f"<strong>{words}</strong>" in head
    assert "predicted" not in head


def test_figures_stand_in_groups_and_what_no_group_names_comes_after_them(
    root: Path, render: Any, add_figure: Any
) -> None:
    names = ("another", "this_machine", "collectives", "strong_scaling")
    for name in names[:-1]:
        add_figure(name)
    body = render(names=names).partition("<main")[2]
    order = [body.index(f'id="{name}"') for name in ("strong_scaling", "collectives", "this_machine", "another")]
    assert order == sorted(order)
    assert body.index("Scaling</h2>") < body.index("Where the step goes</h2>") < body.index("More figures</h2>")


def test_an_illustration_of_the_model_stands_apart_from_the_findings(root: Path, render: Any, add_figure: Any) -> None:
    add_figure("node_size", title=f"What a larger domain buys{ILLUSTRATION}")
    add_figure("memory")
    text = render(names=("strong_scaling", "memory", "node_size"))
    apart = text.partition("Model illustrations</h2>")
    assert 'id="node_size"' in apart[2]
    assert 'id="node_size"' not in apart[0]
    assert 'id="memory"' in apart[0]
    assert "Machines and models</h2>" not in text  # a group whose figures all stand apart is left out


def test_the_contents_list_answers_first_and_every_figure_by_its_short_name(
    root: Path, render: Any, claims: pd.DataFrame
) -> None:
    contents = render(claims=claims).partition("<nav")[2].partition("</nav>")[0]
    assert contents.index("#claims") < contents.index("#coverage") < contents.index("#strong_scaling")
    assert GROUPS["Scaling"]["strong_scaling"] in contents


def test_a_part_that_is_not_there_has_no_section(root: Path, render: Any, elements: Any) -> None:
    sections = {section["id"] for section in elements(render()).of("section")}
    assert sections == {"group-scaling", "coverage"}


def test_the_same_input_gives_the_same_bytes_and_no_date(root: Path, render: Any, claims: pd.DataFrame) -> None:
    first = render(claims=claims)
    assert first == render(claims=claims)
    assert not re.search(r"20\d\d-\d\d", first)


def test_a_page_that_is_too_large_is_a_sentence(root: Path, render: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "MOST_BYTES", 10_000)
    with pytest.raises(ValueError, match=r"figures/index.html: it takes [\d,]+ bytes, more than 10,000"):
        render()


def luminance(color: str) -> float:
    channels = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(a: str, b: str) -> float:
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


def colors_of(scheme: int) -> dict[str, str]:
    style = (page.ASSETS / "page.css").read_text()
    return dict(re.findall(r"--([\w-]+): (#\w{6})", re.findall(r":root \{([^}]*)\}", style)[scheme]))


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("ground", ["ground", "wash"])
@pytest.mark.parametrize("text", ["ink", "soft", "link"])
def test_text_has_the_contrast_of_wcag_aa_on_every_ground(scheme: int, ground: str, text: str) -> None:
    colors = colors_of(scheme)
    assert contrast(colors[text], colors[ground]) >= 4.5


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_edges_of_fields_and_bars_have_the_contrast_of_wcag_aa(scheme: int) -> None:
    colors = colors_of(scheme)
    for ground in ("ground", "wash"):
        assert contrast(colors["edge"], colors[ground]) >= 3.0


def test_figures_stand_on_white_in_both_schemes() -> None:
    assert [colors_of(scheme)["card"] for scheme in (0, 1)] == ["#ffffff", "#ffffff"]
