"""What the page reads of figures: texts, sources, coverage, and a sentence where a file is broken."""

import io
import math
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from falloff.report import saving
from falloff.report.page_entries import read_coverage, read_entries


def test_figures_are_read_in_the_order_of_the_story(root: Path, add_figure: Any, entries: Any) -> None:
    names = ("another", "this_machine", "collectives", "strong_scaling")
    for name in names:
        add_figure(name)
    assert [entry.name for entry in entries(names=names)] == [
        "strong_scaling",
        "collectives",
        "this_machine",
        "another",
    ]


def test_a_source_that_records_name_by_its_title_is_found_too(root: Path, entries: Any) -> None:
    path = Path("figures/strong_scaling.csv")
    path.write_text(path.read_text().replace("ultrascale-playbook", "The Playbook"))
    (entry,) = entries()
    assert [source.licence for source in entry.sources if source.name == "The Playbook"] == ["Apache-2.0"]


def test_of_two_folders_with_one_source_the_one_that_holds_the_points_is_taken(
    root: Path, entries: Any, write: Any
) -> None:
    write("data/external/other/sources.yaml", Path("data/external/table/sources.yaml").read_bytes())
    write("data/external/other/other.csv", "source,url\nultrascale-playbook,another page\n")
    write("data/external/table/table.csv", "source,url\nultrascale-playbook,a page\n")
    folders = {folder for source in entries()[0].sources for folder in source.folders}
    assert Path("data/external/table") in folders
    assert Path("data/external/other") not in folders


def test_rows_without_a_value_are_no_evidence(root: Path, entries: Any) -> None:
    with Path("figures/strong_scaling.csv").open("a") as table:
        table.write("a,s,32,,published,ultrascale-playbook,a page,playbook-3\n")
    assert [source.num_records for source in entries()[0].sources if source.provenance == "published"] == [2]


def test_the_records_of_the_sources_are_those_that_the_figure_counts(root: Path, entries: Any) -> None:
    path = Path("figures/strong_scaling.csv")
    table = pd.read_csv(io.StringIO(path.read_text())).assign(kind=["best", "ideal", "ideal", "best", "best"])
    table.loc[3, "y"] = math.nan
    path.write_text(saving.csv_text(table))
    counted = {source.provenance: source.num_records for source in entries()[0].sources}
    assert counted == {kind: count for kind, count in saving.counts_by_provenance(table).items() if count}


def test_a_figure_without_coverage_still_has_its_place(root: Path) -> None:
    (entry,) = read_entries([Path("figures/strong_scaling.json")], [], Path("data/external"))
    assert entry.title == "What the next node adds"
    assert entry.coverage.empty


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("figures/strong_scaling.json", b"{", r"strong_scaling.json: not what save_figure writes"),
        ("figures/strong_scaling.json", b"{}", r"strong_scaling.json: not what save_figure writes"),
        ("figures/strong_scaling.png", b"GIF89a", r"strong_scaling.png: not a PNG file"),
        ("figures/strong_scaling.csv", b"", r"strong_scaling.csv: cannot be read"),
        ("figures/strong_scaling.csv", b"x,y\n1,2\n", r"strong_scaling.csv: cannot be read .*no column provenance"),
    ],
)
def test_a_broken_file_of_a_figure_is_a_sentence(
    root: Path, entries: Any, name: str, content: bytes, sentence: str
) -> None:
    Path(name).write_bytes(content)
    with pytest.raises(ValueError, match=sentence):
        entries()


@pytest.mark.parametrize("name", ["figures/strong_scaling.json", "figures/strong_scaling.png"])
def test_a_file_of_a_figure_that_is_not_there_is_a_sentence(root: Path, entries: Any, name: str) -> None:
    Path(name).unlink()
    with pytest.raises(ValueError, match=Path(name).name):
        entries()


def test_a_table_that_is_no_coverage_is_a_sentence(root: Path) -> None:
    pd.DataFrame({"figure": ["a"]}).to_parquet("other.parquet")
    with pytest.raises(ValueError, match=r"other.parquet: not a coverage table, it has no column cell, status"):
        read_coverage([Path("other.parquet")])
    Path("bad.parquet").write_bytes(b"no parquet")
    with pytest.raises(ValueError, match=r"bad.parquet: cannot be read"):
        read_coverage([Path("bad.parquet")])


def test_a_source_without_a_folder_has_none(root: Path, entries: Any) -> None:
    shutil.rmtree("data/external/table")
    (playbook,) = [source for source in entries()[0].sources if source.name == "ultrascale-playbook"]
    assert playbook.folders == ()
    assert playbook.num_records == 2
