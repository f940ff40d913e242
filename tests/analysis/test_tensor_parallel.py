from pathlib import Path

import pandas as pd
import pytest

from falloff.analysis.tensor_parallel import DEGREES, STAGES, tabulate
from falloff.ingest.native import read_native_log
from falloff.perfmodel.cells import read_cells
from falloff.perfmodel.prediction import CALIBRATION, shipped_fit
from falloff.perfmodel.validate import TABLE
from falloff.records import RunRecord, read_records, write_records
from falloff.spec.hardware import read_all_hardware

ROOT = Path(__file__).parents[2]
CELLS = read_cells(ROOT / TABLE)


SERIES = ("llama2-7b-tp2-*/*", "llama2-7b-dp_shard2-*/1", "llama2-1b-tp2-*/1", "llama2-1b-dp_shard2-*/1")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    hardware = read_all_hardware(ROOT / "config" / "hardware")
    logs = [path for name in SERIES for path in sorted((ROOT / "data/raw/h200").glob(f"{name}/events.jsonl"))]
    records = [record for log in logs for record in read_native_log(log, hardware)[0]]
    path = tmp_path_factory.mktemp("records") / "runs.parquet"
    write_records(path, records, RunRecord)
    return read_records([path], RunRecord)


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return tabulate(pd.DataFrame(), CELLS, shipped_fit(ROOT / CALIBRATION))[0]


def panel(table: pd.DataFrame, name: str) -> pd.DataFrame:
    return table[table["panel"] == name]


def test_every_degree_and_pipeline_is_predicted_once(table: pd.DataFrame) -> None:
    rate = panel(table, "rate")
    assert sorted(zip(rate["pp"], rate["tp"], strict=True)) == [(pp, tp) for pp in STAGES for tp in DEGREES]


def test_parts_of_what_communication_costs_are_those_of_the_step(table: pd.DataFrame) -> None:
    alone = panel(table, "rate").query("pp == 1").set_index("x")
    parts = panel(table, "exposed").groupby("x")["y"].sum()
    whole = alone["exposed_s"] + alone["slowed_s"]
    # without pipeline and context parallelism nothing else is exposed
    assert parts.to_numpy() == pytest.approx(whole.to_numpy())


def test_a_gain_is_over_the_same_stages_without_tensor_parallelism(table: pd.DataFrame) -> None:
    for _, group in panel(table, "rate").groupby("series"):
        base = group.loc[group["x"] == 1, "y"].iloc[0]
        assert (1 + group["gain"]).to_numpy() == pytest.approx((group["y"] / base).to_numpy())


def test_collectives_as_long_as_they_are_give_what_the_other_panel_has(table: pd.DataFrame) -> None:
    stretched = panel(table, "stretch").query("x == 1").set_index("series")["y"]
    scale = panel(table, "scale").query("num_gpus == 256").set_index("series")["y"]
    assert stretched.sort_index().to_numpy() == pytest.approx(scale.sort_index().to_numpy())


def test_longer_data_parallel_collectives_favour_tensor_parallelism(table: pd.DataFrame) -> None:
    for _, group in panel(table, "stretch").groupby("series"):
        ordered = group.sort_values("x")["y"]
        assert ordered.iloc[-1] > ordered.iloc[0]


def test_our_runs_stand_beside_each_other_at_one_batch(runs: pd.DataFrame) -> None:
    table, coverage = tabulate(runs, CELLS[:0], shipped_fit(ROOT / CALIBRATION))
    own = panel(table, "own")
    assert len(own)
    assert (own["provenance"] == "measured").all()
    for _, group in own.groupby("series"):
        assert sorted(group["x"]) == [0, 1]
    ratios = panel(table, "own_ratio").set_index("series")["y"]
    rates = own.pivot_table(index="series", columns="x", values="y")
    assert ratios.sort_index().to_numpy() == pytest.approx((rates[1] / rates[0]).sort_index().to_numpy())
    assert (coverage["status"] == "measured").sum() == len(own)
