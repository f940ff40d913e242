"""falloff claims: what became of each claim, as the workflow's tables have it."""

import json
from pathlib import Path

import pandas as pd
import pytest

from falloff.analysis.claim_tables import checks_frame, claims_frame
from falloff.analysis.claims import decide
from falloff.cli.main import main
from falloff.spec.claims import Claim
from falloff.spec.reading import build

ROWS = pd.DataFrame(
    {
        "x": range(40),
        "y": range(40, 0, -1),
        "provenance": "published",
        "record_id": [f"record-{place}" for place in range(40)],
    }
)
CHECK = {
    "what": "the rate",
    "role": "decides",
    "table": "collectives",
    "query": "x >= 0",
    "measure": "change_of_ends",
    "unit": "%",
    "below": 0,
}
CLAIM = {
    "id": "C4",
    "part": "EFA",
    "statement": "It falls.",
    "source": "arXiv 2411.13055",
    "grade": ["said"],
    "figures": ["collectives"],
    "checks": [CHECK],
    "expected": {"verdict": "holds"},
}


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    claims = [CLAIM, {**CLAIM, "id": "C20", "part": None, "checks": [{**CHECK, "query": "x > 99"}]}]
    decided = [decide(build(Claim, claim, "here"), {"collectives": ROWS}) for claim in claims]
    claims_frame(decided).to_parquet(tmp_path / "claims.parquet")
    checks_frame(decided).to_parquet(tmp_path / "claim_checks.parquet")
    return tmp_path


@pytest.mark.parametrize("width", [80, 160])
def test_the_table_has_every_claim(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tables: Path, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    assert main(["claims", "--tables", str(tables)]) == 0
    out = capsys.readouterr().out
    assert "C4, EFA" in out
    assert "C20" in out
    assert max(map(len, out.splitlines())) <= width


@pytest.mark.parametrize("name", ["C4", "c4", "C4, EFA"])
def test_a_claim_is_found_by_its_id_or_its_part(capsys: pytest.CaptureFixture[str], tables: Path, name: str) -> None:
    assert main(["claims", "--tables", str(tables), "--claim", name]) == 0
    out = capsys.readouterr().out
    assert out.startswith("C4, EFA: holds\n")
    assert "record-0" in out
    assert "C20" not in out


def test_json_has_every_record_and_nothing_else_is_printed(capsys: pytest.CaptureFixture[str], tables: Path) -> None:
    assert main(["claims", "--tables", str(tables), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [claim["claim"] for claim in found] == ["C4, EFA", "C20"]
    assert found[0]["checks"][0]["record_ids"].count("record-") == 40
    assert found[1]["verdict"] == "cannot be decided"


def test_an_unknown_claim_is_one_sentence_with_those_that_there_are(
    capsys: pytest.CaptureFixture[str], tables: Path
) -> None:
    assert main(["claims", "--tables", str(tables), "--claim", "C9"]) == 1
    assert capsys.readouterr().err == "error: claim 'C9' is unknown; known: C4, EFA; C20\n"


def test_a_table_that_is_not_built_is_one_sentence_with_its_command(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["claims", "--tables", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert "claims.parquet is not built; `snakemake results/tables/claims.parquet` builds it" in said
    assert said.count("\n") == 1


def test_what_is_printed_has_no_blank_of_pandas(capsys: pytest.CaptureFixture[str], tables: Path) -> None:
    frame = pd.read_parquet(tables / "claims.parquet").assign(stated="")
    frame.to_parquet(tables / "claims.parquet")
    assert main(["claims", "--tables", str(tables)]) == 0
    assert "nan" not in capsys.readouterr().out
