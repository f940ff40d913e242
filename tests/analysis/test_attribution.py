from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from falloff.analysis.attributed_parts import IDEAL
from falloff.analysis.attribution import FIGURE, OWN, tabulate
from falloff.analysis.retention_changes import AS_IS, WORKLOADS
from falloff.ingest.native import read_native_log
from falloff.perfmodel.prediction import shipped_fit
from falloff.records import RunRecord, read_records, write_records
from falloff.spec.hardware import read_all_hardware

ROOT = Path(__file__).parents[2]
FIT = shipped_fit(ROOT / "config" / "perfmodel" / "calibration.json")
NO_RUNS = pd.DataFrame()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    logs = sorted((ROOT / "data/raw/h200").glob("llama2-7b-dp_shard[12]-*/1/events.jsonl"))
    hardware = read_all_hardware(ROOT / "config" / "hardware")
    records = [record for log in logs for record in read_native_log(log, hardware)[0]]
    path = tmp_path_factory.mktemp("records") / "runs.parquet"
    write_records(path, records, RunRecord)
    return read_records([path], RunRecord)


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    found, _ = tabulate(NO_RUNS, NO_RUNS, FIT)
    return found


def test_the_parts_of_each_predicted_step_sum_to_it(table: pd.DataFrame) -> None:
    steps = table[table["panel"] == "steps"]
    whole = steps[steps["part"] == "step"].set_index("series")["y"]
    sums = steps[steps["part"] != "step"].groupby("series")["y"].sum()
    assert len(whole) == 2 * len(WORKLOADS)
    assert sums.to_dict() == pytest.approx(whole.to_dict())


def test_what_the_ends_differ_by_is_what_the_ratio_of_the_rates_says(table: pd.DataFrame) -> None:
    for workload in WORKLOADS:
        ends = table[(table["panel"] == "ends") & (table["workload"] == workload.name)]
        kept = table[(table["workload"] == workload.name) & (table["change"] == AS_IS)]["y"].iloc[0]
        assert 1 + ends["y"].sum() == pytest.approx(1 / kept)
        assert ends.set_index("part")["y"][IDEAL] == pytest.approx(0.0)


def test_no_row_is_more_than_predicted_without_runs_and_what_is_missing_is_said() -> None:
    found, coverage = tabulate(NO_RUNS, NO_RUNS, FIT)
    assert set(found["provenance"]) == {"predicted"}
    assert set(coverage["figure"]) == {FIGURE}
    assert set(coverage["status"]) == {"missing"}
    assert coverage["reason"].notna().all()
    assert not (found["workload"] == OWN).any()
    assert np.isfinite(found["y"]).all()


def test_the_measured_parts_sum_to_the_measured_step_and_have_the_names_of_the_predicted_ones(
    runs: pd.DataFrame,
) -> None:
    found, coverage = tabulate(runs, NO_RUNS, FIT)
    own = found[(found["workload"] == OWN) & (found["panel"] == "steps")]
    for _, steps in own.groupby(["series", "provenance"]):
        whole = steps[steps["part"] == "step"]["y"].iloc[0]
        assert steps[steps["part"] != "step"]["y"].sum() == pytest.approx(whole)
    parts = {kind: set(rows["part"]) for kind, rows in own.groupby("provenance")}
    assert parts["measured"] == parts["predicted"]
    assert (own[(own["part"] == "slowed") & (own["x"] == 1)]["y"] == 0).all()
    assert (own[(own["part"] == "slowed") & (own["x"] == 2)]["y"] > 0).all()
    assert "measured" in set(coverage["status"])


def test_published_ends_have_steps_and_no_parts(records_of: Callable[[str, Any], pd.DataFrame]) -> None:
    found, _ = tabulate(NO_RUNS, records_of("torchtitan-tables", RunRecord), FIT)
    printed = found[found["provenance"] == "published"]
    steps = printed[printed["panel"] == "steps"]
    assert set(steps["part"]) == {"step"}
    assert set(steps["series"]) <= set(found[found["provenance"] == "predicted"]["series"])
    ratios = printed[printed["panel"] == "retention"]
    assert len(ratios) == 6
    assert ratios["y"].between(0.9, 1.0).all()
    assert ratios["y_low"].isna().all()
