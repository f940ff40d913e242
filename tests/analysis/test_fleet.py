import numpy as np
import pandas as pd
import pytest

from falloff.analysis.fleet import FLEET, NETWORKS, PARTS, tabulate
from falloff.perfmodel.prediction import shipped_fit
from falloff.spec.assumptions import read_loss_laws


@pytest.fixture(scope="module")
def tables() -> tuple[pd.DataFrame, pd.DataFrame]:
    return tabulate(pd.DataFrame(), [], shipped_fit())


@pytest.fixture(scope="module")
def table(tables: tuple[pd.DataFrame, pd.DataFrame]) -> pd.DataFrame:
    return tables[0]


def test_every_job_has_its_share_of_the_fleet(table: pd.DataFrame) -> None:
    rows = table[table["panel"] == "energy_per_token_j"]
    assert (rows["x"] * rows["jobs"] == FLEET).all()
    assert set(rows["jobs"]) == set(PARTS)


def test_a_token_of_a_larger_network_takes_more_energy_on_the_same_gpus(table: pd.DataFrame) -> None:
    rows = table[(table["panel"] == "energy_per_token_j") & (table["x"] == FLEET)].set_index("series")["y"]
    ordered = [rows[name] for name in NETWORKS]
    assert ordered == sorted(ordered)


def test_the_parts_multiply_to_the_whole_and_the_small_network_differs_by_scale_alone(table: pd.DataFrame) -> None:
    parts = table[table["panel"] == "parts"].pivot_table(index="series", columns="part", values="y")
    assert np.allclose(parts["size"] * parts["network"] * parts["scale"], parts["whole"])
    assert parts.loc["7B", ["size", "network"]].tolist() == pytest.approx([1, 1])


def test_the_scale_is_the_ratio_of_one_job_to_eight_of_the_same_network(table: pd.DataFrame) -> None:
    scale = table[(table["panel"] == "parts") & (table["part"] == "scale")].set_index("series")["y"]
    ratio = table[table["panel"] == "jobs_ratio"].set_index("series")
    assert scale.to_dict() == pytest.approx(ratio["y"].to_dict())
    assert (ratio["y_low"] < ratio["y"]).all()
    assert (ratio["y"] < ratio["y_high"]).all()


def test_every_law_has_its_target_network_near_the_least_energy(table: pd.DataFrame) -> None:
    for law in read_loss_laws().laws:
        rows = table[(table["panel"] == "mwh_to_loss") & (table["law"] == law.name) & (table["target"] == "7B")]
        energy = rows.set_index("network")["y"]
        assert energy["7B"] < energy["1B"]
        assert energy["7B"] < energy["405B"]


def test_a_network_too_small_for_a_loss_has_no_row(table: pd.DataFrame) -> None:
    rows = table[(table["panel"] == "mwh_to_loss") & (table["target"] == "70B")]
    assert "1B" not in set(rows["network"])
    assert np.isfinite(rows["y"]).all()


def test_without_our_runs_nothing_is_measured_and_what_does_not_fit_is_told(
    tables: tuple[pd.DataFrame, pd.DataFrame],
) -> None:
    table, coverage = tables
    assert set(table["provenance"]) == {"predicted"}
    assert coverage["cell"].str.contains("405B in 32 jobs").any()
