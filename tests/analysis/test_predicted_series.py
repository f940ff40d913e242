import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from falloff.analysis.execution_time import PARTS, STACKED
from falloff.analysis.execution_time import tabulate as tabulate_time
from falloff.analysis.power_per_token import tabulate as tabulate_power
from falloff.analysis.predicted_series import GPUS, is_plain, own_runs, predicted_series, published_series, step_parts
from falloff.analysis.weak_scaling import tabulate as tabulate_weak
from falloff.ingest.native import read_native_log
from falloff.perfmodel.cells import read_cells
from falloff.perfmodel.prediction import prior_fit
from falloff.perfmodel.validate import TABLE
from falloff.records import RunRecord, read_records, write_records
from falloff.spec.hardware import read_all_hardware

ROOT = Path(__file__).parents[2]
HARDWARE = read_all_hardware(ROOT / "config" / "hardware")
FIT = prior_fit()
SERIES = ("llama2-7b-dp_shard1-*/1", "llama2-7b-dp_shard2-*/1", "llama2-1b-dp_shard2-*/1")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    logs = [path for name in SERIES for path in sorted((ROOT / "data/raw/h200").glob(f"{name}/events.jsonl"))]
    records = [record for log in logs for record in read_native_log(log, HARDWARE)[0]]
    path = tmp_path_factory.mktemp("records") / "runs.parquet"
    write_records(path, records, RunRecord)
    return read_records([path], RunRecord)


@pytest.fixture(scope="module")
def weak(runs: pd.DataFrame) -> pd.DataFrame:
    return tabulate_weak(runs, read_cells(ROOT / TABLE), FIT, HARDWARE)[0]


def test_a_predicted_series_has_every_count_and_falls_off_in_the_end() -> None:
    for series in predicted_series(FIT):
        assert set(GPUS) <= set(series.gpus)
        assert series.made.tokens_per_gpu_s[-1] < series.made.tokens_per_gpu_s[0]
        assert (series.made.low < series.made.tokens_per_gpu_s).all()


def test_the_parts_of_a_step_add_up_to_it() -> None:
    for series in predicted_series(FIT, (8, 512)):
        parts = step_parts(series.made)
        assert sum(parts[name] for name in STACKED) == pytest.approx(series.made.steps.step_s)
        assert all((seconds >= -1e-12).all() for seconds in parts.values())
        assert (parts["exposed"] <= parts["collective"] + 1e-12).all()


def test_published_series_keep_their_batch_a_gpu_and_lose_rate() -> None:
    for series in published_series(read_cells(ROOT / TABLE), FIT):
        assert len(series.cells) >= 3
        assert len({cell.text("micro_batch") for cell in series.cells}) == 1
        assert (np.diff(series.gpus) > 0).all()
        assert (np.diff(series.tokens_per_gpu_s) < 0).all()


def test_a_control_is_none_of_our_ordinary_runs(runs: pd.DataFrame) -> None:
    own, ordinary = own_runs(runs), runs[runs["control"].isna()]
    assert own["control"].isna().all()
    assert len(ordinary) < len(runs)
    # of the others the model has all but what recomputes single operators
    assert set(ordinary.loc[~ordinary["record_id"].isin(own["record_id"]), "recompute"]) == {"elementwise"}
    assert own_runs(runs.assign(control="no communication")).empty


def test_weak_scaling_keeps_predictions_apart_from_what_was_measured_and_published(weak: pd.DataFrame) -> None:
    kinds = {kind: set(rows["kind"]) for kind, rows in weak.groupby("provenance")}
    assert kinds == {
        "measured": {"measured"},
        "published": {"published"},
        "predicted": {"series", "same cells", "ideal", "best"},
    }
    rates = weak[(weak["panel"] == "tokens_per_gpu_s") & (weak["kind"] == "series")]
    assert (rates["y_low"] < rates["y"]).all()
    assert (rates["y"] < rates["y_high"]).all()
    kept = weak[(weak["panel"] == "kept") & (weak["x"] == 128)]
    assert (kept["y"] == 1.0).all()


def test_all_gpus_have_as_many_times_the_rate_of_one(weak: pd.DataFrame) -> None:
    wanted = weak[weak["kind"] != "ideal"].pivot_table(index=["series", "x"], columns="panel", values="y")
    gpus = wanted.index.get_level_values("x")
    assert wanted["tokens_per_s"].to_numpy() == pytest.approx((wanted["tokens_per_gpu_s"] * gpus).to_numpy())


def test_a_traced_run_stands_beside_what_is_predicted_of_its_very_cell(runs: pd.DataFrame) -> None:
    table, _ = tabulate_time(runs, FIT)
    traces = table[table["panel"] == "traces"]
    assert set(traces["provenance"]) == {"measured"}
    assert set(traces["part"]) == set(PARTS)
    compute = traces[traces["part"] == "compute"]
    assert (compute["y"] / compute["x"]).between(0.5, 2.0).all()


def test_watts_are_called_unvalidated_wherever_none_of_ours_was_metered(runs: pd.DataFrame) -> None:
    table, coverage = tabulate_power(runs, FIT)
    predicted = table[table["provenance"] == "predicted"]
    labels = {machine: rows["validated"].iloc[0] for machine, rows in predicted.groupby("series")}
    assert "unvalidated" not in labels["H200"]
    assert all(labels[machine].startswith("unvalidated") for machine in ("H100", "A100"))
    assert set(coverage["status"]) == {"measured", "missing"}


def test_without_our_logs_the_figures_have_predictions_alone() -> None:
    none = pd.DataFrame()
    for table, _ in (tabulate_time(none, FIT), tabulate_power(none, FIT)):
        assert set(table["provenance"]) == {"predicted"}


def test_a_run_of_another_machine_is_none_of_ours(runs: pd.DataFrame) -> None:
    assert own_runs(runs.assign(hardware="h100-sxm")).empty
    assert json.loads(runs["cell_json"].iloc[0])["network"]["name"].startswith("llama2")


def test_plain_runs_neither_recompute_nor_accumulate_nor_keep_their_parameters(runs: pd.DataFrame) -> None:
    own = own_runs(runs)
    copies = own["num_gpus"] / own["pp"].fillna(1)
    assert is_plain(own.assign(global_batch=2 * own["microbatch"] * copies)).sum() == 0
    plain, others = own[is_plain(own)], own[~is_plain(own)]
    assert set(plain["recompute"]) == {"none"}
    assert plain["compile"].all()
    assert {"never"} == set(others["reshard"].dropna()) - {"after forward"}
    assert not (plain["reshard"] == "never").any()
