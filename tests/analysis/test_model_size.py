from pathlib import Path

import pandas as pd
import pytest

from falloff.analysis.model_points import job
from falloff.analysis.model_size import BEST, FSDP, GPUS, METRICS, NETWORKS, params_of, tabulate
from falloff.perfmodel.cells import read_cells
from falloff.perfmodel.jobs import stack
from falloff.perfmodel.prediction import shipped_fit
from falloff.perfmodel.validate import TABLE
from falloff.spec.network import read_network

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return tabulate(pd.DataFrame(), read_cells(ROOT / TABLE), shipped_fit())[0]


@pytest.mark.parametrize("name", NETWORKS.values())
def test_parameters_are_those_of_the_network_but_for_its_norms(name: str) -> None:
    made = params_of(stack([job(name, "h100-sxm-ib400", 8, local_batch=1)]))[0]
    assert made == pytest.approx(read_network(name, ROOT / "config" / "models").params, rel=1e-3)


def test_every_network_is_drawn_in_every_series_and_in_the_order_of_its_size(table: pd.DataFrame) -> None:
    for metric in METRICS:
        for _, series in table[table["panel"] == metric].groupby(["kind", "num_gpus"]):
            assert list(series.sort_values("x")["size"]) == list(NETWORKS)


def test_the_fastest_layout_is_at_least_as_fast_as_sharding_over_all(table: pd.DataFrame) -> None:
    mfu = table[(table["panel"] == "mfu") & (table["num_gpus"] == GPUS)]
    rates = mfu[mfu["kind"].isin([FSDP, BEST])].pivot_table(index="size", columns="kind", values="y")
    assert (rates[BEST] >= rates[FSDP] * (1 - 1e-9)).all()


def test_published_series_stand_beside_predictions_of_the_same_cells(table: pd.DataFrame) -> None:
    published = table[table["kind"] == "published"]
    assert {"MPT, A100", "MPT, H100", "Megatron, A100", "Llama 3, H100"} <= set(published["series"])
    for name, rows in published.groupby("series"):
        same = table[table["series"] == f"{name}, the same cells"]
        assert sorted(same["x"]) == sorted(rows["x"])
        assert rows["y"].between(0.02, 0.7).all()


def test_the_playbooks_points_are_one_a_network_its_fastest(table: pd.DataFrame) -> None:
    own = table[table["series"] == "playbook, 128 H100"]
    assert own["size"].is_unique
    cells = [cell for cell in read_cells(ROOT / TABLE) if cell.source == "ultrascale-playbook"]
    rates = {cell.cell_id: cell.measured("tokens_per_s_per_gpu") or 0 for cell in cells}
    for row in own.to_dict("records"):
        alike = [c for c in cells if c.text("model") == row["size"] and c.measured("gpus") == 128]
        assert rates[row["record_id"]] == max(rates[cell.cell_id] for cell in alike)


def test_megatrons_series_is_table_1_and_grows_with_the_gpus(table: pd.DataFrame) -> None:
    own = table[table["series"] == "Megatron, A100"].sort_values("x")
    assert len(own) == 10
    assert own["num_gpus"].is_monotonic_increasing
