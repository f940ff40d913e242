"""falloff validate as people call it; what it scores is tested in tests/perfmodel/test_validate.py."""

import csv
import json
from pathlib import Path

import pytest

from falloff.cli.main import main
from falloff.perfmodel.calibrate import read_fit
from falloff.perfmodel.step import PARAMETERS
from falloff.perfmodel.validate import TABLE


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a table of the published rows with one of ten of its largest sources."""
    path = tmp_path_factory.mktemp("cells") / "cells.csv"
    with TABLE.open(newline="", encoding="utf-8") as source, path.open("w", newline="", encoding="utf-8") as file:
        reader = csv.DictReader(source)
        writer = csv.DictWriter(file, reader.fieldnames or [])
        writer.writeheader()
        large = ("ultrascale-playbook", "vtrain2024")
        writer.writerows(row for place, row in enumerate(reader) if row["source"] not in large or place % 10 == 0)
    return path


def test_scores_are_printed_for_people_and_programs(few: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "--cells", str(few), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {claim["claim"] for claim in told["claims"]} == {"C1", "C2", "C3", "C10"}
    assert set(told["short"]) == {goal["name"] for goal in told["goals"] if not goal["met"]}
    family = told["families"]["Korthikanti 2022 table 5"]
    assert family["ours_unseen"]["n"] == 9
    assert 0 < family["naive"]["mape"] < 1


def test_a_calibration_is_renewed_where_it_is_asked_for(
    few: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "perfmodel" / "calibration.json"
    assert main(["validate", "--cells", str(few), "--calibrate", "--output", str(path)]) == 0
    assert str(path) in capsys.readouterr().out
    assert read_fit(path, PARAMETERS).widths.sources


def test_a_table_that_is_not_there_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "--cells", str(tmp_path / "none.csv")]) == 1
    assert "none.csv: no such file" in capsys.readouterr().err


def test_watts_are_scored_run_by_run_and_refitted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "--power", "--output", str(tmp_path / "power.json")]) == 0
    out = capsys.readouterr().out
    assert "held out" in out
    assert "in-sample" in out
    told = json.loads((tmp_path / "power.json").read_text())
    assert {value["parameter"] for value in told["values"]} == {"product_draw", "memory_draw", "wire_energy_j_per_byte"}
    assert all(run["predicted_w"] is None for run in told["runs"] if run["control"])
    assert all(abs(run["error_of_measured_step"]) < 0.2 for run in told["runs"])
    for run in told["runs"]:
        if run["held_out_error_of_measured_step"] is not None:
            assert f"{run['record']} " in out


def test_watts_are_scored_by_themselves(few: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "--power", "--cells", str(few)]) == 1
    assert "--power scores our own runs' watts by itself" in capsys.readouterr().err


def test_an_output_needs_a_calibration(few: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "--cells", str(few), "--output", "x.json"]) == 1
    assert "--calibrate" in capsys.readouterr().err
