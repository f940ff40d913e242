"""The page: whole, linked, legible, and the same bytes twice."""

import io
import json
import math
import re
import shutil
import struct
import zlib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from falloff.analysis.collectives import NOT_DRAWN
from falloff.analysis.coverage import CoverageRow, coverage_frame
from falloff.report import page, saving

TABLE = """panel,series,x,y,provenance,source,source_ref,record_id
a,s,8,1.5,published,ultrascale-playbook,a page,playbook-1
a,s,16,2.5,published,ultrascale-playbook,a page,playbook-2
b,s,16,0.5,published,ultrascale-playbook,a page,playbook-2
a,s,1,3,imported,two H200s,h200/compile.log,h200/compile
a,s,2,4,measured,falloff bench,data/raw/laptop/llama/1/events.jsonl,laptop/llama/1
"""
SOURCES_YAML = (
    "ultrascale-playbook: {name: The Playbook, address: 'https://some.where/it', licence: Apache-2.0, counts: tokens}\n"
)


def png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", b"") + chunk(b"IEND", b"")


def write(path: Path, content: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder laid out as the repository is, with one figure."""
    monkeypatch.chdir(tmp_path)
    about = {
        "title": "What the next node adds",
        "finding": "The next node adds 12 % < 50 %.",
        "reading": "Tokens & seconds <fixed batch>. Limits: one launch.",
        "missing": "Not shown: 80B.",
        "alt": 'A line below the "ideal" one.',
        "counts": {"measured": 1, "imported": 1, "published": 2, "predicted": 0},
    }
    write(Path("figures/strong_scaling.json"), json.dumps(about))
    write(Path("figures/strong_scaling.csv"), TABLE)
    write(Path("figures/strong_scaling.png"), png(1680, 720))
    for name in ("figures/strong_scaling.pdf", "notebooks/strong_scaling.ipynb", "README.md", "docs/methods.md"):
        write(Path(name), "there")
    for name in ("data/external/table/SOURCE.md", "data/external/h200/SOURCE.md", "data/raw/laptop/llama/1/x"):
        write(Path(name), "there")
    write(Path("data/external/table/sources.yaml"), SOURCES_YAML)
    write(Path("data/external/table/source.yaml"), "title: a table of many\n")
    write(Path("data/external/h200/source.yaml"), "title: two H200s\nlicence: CC-BY-4.0\n")
    return tmp_path


def render(rows: list[CoverageRow] | None = None) -> str:
    given = rows or [CoverageRow(figure="strong_scaling", cell="1B, 8 GPUs", status="published", n=2)]
    coverage_frame(given).to_parquet("coverage.parquet")
    entries = page.read_entries(
        [Path("figures/strong_scaling.json")], [Path("coverage.parquet")], Path("data/external")
    )
    return page.page_html(entries, Path("figures/index.html"))


class Elements(HTMLParser):
    """Every start tag with its attributes, and whether tags close in order."""

    VOID = frozenset({"meta", "img", "br", "link", "hr"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, Any]]] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def of(self, tag: str) -> list[dict[str, Any]]:
        return [attributes for name, attributes in self.found if name == tag]


def test_every_tag_is_closed_and_every_id_is_there_once(root: Path) -> None:
    elements = Elements(render())
    assert elements.open == []
    ids = [attributes["id"] for _, attributes in elements.found if "id" in attributes]
    assert len(ids) == len(set(ids))
    for attributes in elements.of("a"):
        if attributes["href"].startswith("#"):
            assert attributes["href"][1:] in ids


def test_every_link_leads_to_a_file_and_none_to_a_network(root: Path) -> None:
    elements = Elements(render())
    targets = [a["href"] for a in elements.of("a")] + [i["src"] for i in elements.of("img")]
    for target in targets:
        assert "//" not in target
        assert target.startswith("#") or (Path("figures") / target).exists(), target


def test_the_page_runs_no_script_and_loads_nothing(root: Path) -> None:
    text = render()
    assert Elements(text).of("script") == []
    assert Elements(text).of("link") == []
    assert "http" not in text
    assert "url(" not in text
    assert "@import" not in text


def test_a_figure_has_its_files_its_notebook_and_its_sources(root: Path) -> None:
    targets = {a["href"] for a in Elements(render()).of("a")}
    assert {
        "strong_scaling.pdf",
        "strong_scaling.csv",
        "../notebooks/strong_scaling.ipynb",
        "../data/external/table/SOURCE.md",
        "../data/external/h200/SOURCE.md",
        "../data/raw/laptop",
    } <= targets


def test_raw_logs_and_source_tables_are_among_the_files_each_link_saying_of_what(root: Path) -> None:
    named = {a.get("aria-label"): a["href"] for a in Elements(render()).of("a")}
    title = "What the next node adds"
    assert named[f"raw logs 1 of {title}"] == "../data/raw/laptop"
    assert named[f"raw logs 2 of {title}"] == "../data/external/h200"
    assert named[f"source tables of {title}"] == "../data/external/table"
    assert named[f"PDF of {title}"] == "strong_scaling.pdf"


def test_a_source_that_records_name_by_its_title_is_found_too(root: Path) -> None:
    write(Path("figures/strong_scaling.csv"), TABLE.replace("ultrascale-playbook", "The Playbook"))
    assert "The Playbook: 2 records published; some.where/it; licence: Apache-2.0" in render()


def test_figures_stand_in_the_order_of_the_story(root: Path) -> None:
    for name in ("this_machine", "another", "collectives"):
        for ending in ("json", "csv", "png", "pdf"):
            shutil.copy(f"figures/strong_scaling.{ending}", f"figures/{name}.{ending}")
    given = [Path(f"figures/{name}.json") for name in ("another", "this_machine", "collectives", "strong_scaling")]
    entries = page.read_entries(given, [], Path("data/external"))
    assert [entry.name for entry in entries] == ["strong_scaling", "collectives", "this_machine", "another"]


def test_the_finding_comes_before_the_figure_and_what_is_missing_only_below_it(root: Path) -> None:
    text = render()
    assert (
        text.index("The next node adds 12\N{NO-BREAK SPACE}% &lt; 50\N{NO-BREAK SPACE}%.")
        < text.index("<img")
        < text.index("How to read it")
    )
    assert "Not shown: 80B." not in text


def test_a_wide_figure_scrolls_in_its_card_on_a_phone_and_a_narrow_one_does_not(root: Path) -> None:
    assert '<div class="card wide" tabindex="0"' in render()
    write(Path("figures/strong_scaling.png"), png(816, 720))
    assert '<div class="card" tabindex="0"' in render()
    assert ".wide img { max-width: none; width: 46rem; }" in render()


def test_the_sources_state_records_and_licence(root: Path) -> None:
    text = render()
    assert "<li>The Playbook: 2 records published; some.where/it; licence: Apache-2.0; <a" in text
    assert "<li>two H200s: 1 record imported; licence: CC-BY-4.0; <a" in text


def test_an_image_has_its_alternative_and_its_size(root: Path) -> None:
    (image,) = Elements(render()).of("img")
    assert image["alt"] == 'A line below the "ideal" one.'
    assert int(image["width"]) / int(image["height"]) == pytest.approx(1680 / 720, rel=0.01)


def test_text_of_a_figure_is_escaped_and_its_counts_are_said_once(root: Path) -> None:
    text = render()
    assert "Tokens &amp; seconds &lt;fixed batch&gt;.</p>" in text
    assert '<p><span class="label">Limits</span> one launch.</p>' in text
    assert text.count("2 published") == 2  # in the head and below the figure


def test_the_head_counts_the_points_of_each_kind(root: Path) -> None:
    head = render().partition("<nav")[0]
    assert "1 figure " in head
    for words in ("1 measured", "1 imported", "2 published"):
        assert f"<strong>{words}</strong>" in head
    assert "predicted" not in head  # what is not on the page is not explained


def test_the_same_input_gives_the_same_bytes_and_no_date(root: Path) -> None:
    first = render()
    assert first == render()
    assert not re.search(r"20\d\d-\d\d", first)


def test_a_whole_grid_is_said_to_be_whole(root: Path) -> None:
    text = render()
    assert "Every cell of its grid has a number." in text
    assert "<table>" not in text


def test_cells_without_a_number_are_counted_and_listed_with_their_reasons(root: Path) -> None:
    text = render(
        [
            CoverageRow(figure="strong_scaling", cell="80B, 8 GPUs", status="missing", reason="no count", n=2),
            CoverageRow(figure="strong_scaling", cell="8B, tp 3", status="refused", reason="heads <8>", n=0),
            CoverageRow(figure="strong_scaling", cell="1B, 8 GPUs", status="failed", reason="oom: rank 0"),
            CoverageRow(figure="strong_scaling", cell="1B, 16 GPUs", status="stale", reason=None),
            CoverageRow(figure="another", cell="not of this one", status="failed", reason="crash"),
        ]
    )
    assert "<summary>Not shown: 1 failed, 1 refused, 1 stale, 2 missing</summary>" in text
    assert "<li>8B, tp 3: heads &lt;8&gt;</li>" in text
    assert "<li>1B, 16 GPUs: no reason is stated</li>" in text
    assert "not of this one" not in text


def test_what_cannot_be_counted_has_no_count(root: Path) -> None:
    text = render([CoverageRow(figure="strong_scaling", cell="execution time", status="missing", reason="none", n=0)])
    assert "Not shown: 1 missing" in text
    assert "<li>execution time: none</li>" in text


def test_of_two_folders_with_one_source_the_one_that_holds_the_points_is_linked(root: Path) -> None:
    write(Path("data/external/other/sources.yaml"), SOURCES_YAML)
    write(Path("data/external/other/other.csv"), "source,url\nultrascale-playbook,another page\n")
    write(Path("data/external/table/table.csv"), "source,url\nultrascale-playbook,a page\n")
    targets = {a["href"] for a in Elements(render()).of("a")}
    assert "../data/external/table/SOURCE.md" in targets
    assert not any("other" in target for target in targets)


def test_rows_without_a_value_are_no_evidence(root: Path) -> None:
    write(Path("figures/strong_scaling.csv"), TABLE + "a,s,32,,published,ultrascale-playbook,a page,playbook-3\n")
    assert "The Playbook: 2 records published" in render()


def test_the_records_of_the_sources_are_those_that_the_figure_counts(root: Path) -> None:
    table = pd.read_csv(io.StringIO(TABLE)).assign(kind=["best", "ideal", "ideal", "best", "best"])
    table.loc[3, "y"] = math.nan
    write(Path("figures/strong_scaling.csv"), saving.csv_text(table))
    text = render()
    for kind, count in saving.counts_by_provenance(table).items():
        assert (f": {count} record {kind}" in text) == bool(count)


def test_thousands_of_cells_are_told_by_their_reasons(root: Path) -> None:
    rows = [
        CoverageRow(figure="strong_scaling", cell=f"cell {number}", status="failed", reason=f"reason {number % 2}")
        for number in range(1519)
    ]
    text = render(rows)
    assert "Not shown: 1,519 failed" in text
    assert text.count("(760)") == 1
    assert "cell 0; cell 2; cell 4; cell 6; cell 8; cell 10; and 754 more" in text


def test_cells_of_networks_by_gpus_are_a_grid_with_their_reason_once(root: Path) -> None:
    lacks = [("1B", 8, 24), ("1B", 16, 53), ("80B", 8, 51), ("80B", 1024, 7)]
    text = render(
        [
            CoverageRow(
                figure="strong_scaling",
                cell=f"{network} on {gpus:,} GPUs, {n} of 60 runs",
                status="failed",
                reason="crashed",
                n=n,
            )
            for network, gpus, n in lacks
        ]
    )
    assert text.count("crashed") == 1
    assert (
        '<th scope="col">runs on GPUs</th><th scope="col">8</th><th scope="col">16</th><th scope="col">1,024</th>'
        in text
    )
    assert '<tr><th scope="row">80B</th><td>51 of 60</td><td></td><td>7 of 60</td></tr>' in text


def test_what_the_records_hold_beside_the_figure_is_said(root: Path) -> None:
    rows = [
        CoverageRow(figure="strong_scaling", cell="drawn", status="published", n=3),
        CoverageRow(figure="strong_scaling", cell="a sweep", status="published", reason=NOT_DRAWN, n=1200),
    ]
    text = render(rows)
    assert "<summary>Also in the records, not drawn: 1,200</summary>" in text
    assert "<li>a sweep: 1,200 published</li>" in text


def luminance(color: str) -> float:
    channels = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("text", ["ink", "soft", "link"])
def test_text_has_the_contrast_of_wcag_aa_in_both_schemes(root: Path, scheme: int, text: str) -> None:
    schemes = re.findall(r":root \{([^}]*)\}", render())
    colors = dict(re.findall(r"--(\w+): (#\w{6})", schemes[scheme]))
    low, high = sorted((luminance(colors[text]), luminance(colors["ground"])))
    assert (high + 0.05) / (low + 0.05) >= 4.5


def test_figures_stand_on_white_in_both_schemes(root: Path) -> None:
    assert re.findall(r"--card: (#\w{6})", render()) == ["#ffffff", "#ffffff"]


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
def test_a_broken_file_of_a_figure_is_a_sentence(root: Path, name: str, content: bytes, sentence: str) -> None:
    Path(name).write_bytes(content)
    with pytest.raises(ValueError, match=sentence):
        render()


@pytest.mark.parametrize("name", ["figures/strong_scaling.json", "figures/strong_scaling.png"])
def test_a_file_of_a_figure_that_is_not_there_is_a_sentence(root: Path, name: str) -> None:
    Path(name).unlink()
    with pytest.raises(ValueError, match=Path(name).name):
        render()


def test_a_table_that_is_no_coverage_is_a_sentence(root: Path) -> None:
    pd.DataFrame({"figure": ["a"]}).to_parquet("other.parquet")
    with pytest.raises(ValueError, match=r"other.parquet: not a coverage table, it has no column cell, status"):
        page.read_coverage([Path("other.parquet")])
    Path("bad.parquet").write_bytes(b"no parquet")
    with pytest.raises(ValueError, match=r"bad.parquet: cannot be read"):
        page.read_coverage([Path("bad.parquet")])


def test_a_figure_without_coverage_still_has_its_place(root: Path) -> None:
    entries = page.read_entries([Path("figures/strong_scaling.json")], [], Path("data/external"))
    assert "What the next node adds" in page.page_html(entries, Path("figures/index.html"))


def test_a_source_without_a_folder_is_named_without_a_link(root: Path) -> None:
    shutil.rmtree("data/external/table")
    text = render()
    assert "<li>ultrascale-playbook: 2 records published</li>" in text
