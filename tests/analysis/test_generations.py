from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from falloff.analysis.generations import (
    FACTOR_GPUS,
    FACTORS,
    GPUS,
    LARGE,
    MACHINES,
    METRICS,
    NAMES,
    SMALL,
    nic_bits_per_flop,
    precision_of,
    tabulate,
)
from falloff.perfmodel.cells import read_cells
from falloff.perfmodel.prediction import shipped_fit
from falloff.perfmodel.validate import TABLE
from falloff.spec.cluster import find_cluster

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tables() -> tuple[pd.DataFrame, pd.DataFrame]:
    return tabulate(pd.DataFrame(), read_cells(ROOT / TABLE), shipped_fit())


@pytest.fixture(scope="module")
def table(tables: tuple[pd.DataFrame, pd.DataFrame]) -> pd.DataFrame:
    return tables[0]


def test_every_machine_has_a_point_at_every_count_where_something_fits(
    tables: tuple[pd.DataFrame, pd.DataFrame],
) -> None:
    table, coverage = tables
    for metric in METRICS:
        here = table[(table["panel"] == metric) & (table["kind"] == NAMES[SMALL])]
        assert {(row.machine, row.x) for row in here.itertuples()} == {
            (machine, gpus) for machine in MACHINES for gpus in GPUS[SMALL]
        }
        large = table[(table["panel"] == metric) & (table["kind"] == NAMES[LARGE])]
        assert len(large) == len(MACHINES) * len(GPUS[LARGE])
    assert not coverage["cell"].str.contains("does not fit").any()


def test_one_machine_recomputes_alike_at_every_count(table: pd.DataFrame) -> None:
    here = table[(table["panel"] == "mfu") & (table["kind"] == NAMES[SMALL])]
    for _, series in here.groupby("machine"):
        assert series["layout"].str.replace(r"^dp_shard \d+", "", regex=True).nunique() == 1


def test_mfu_under_fsdp_falls_with_the_gpus_on_every_machine(table: pd.DataFrame) -> None:
    here = table[(table["panel"] == "mfu") & (table["kind"] == NAMES[SMALL])]
    for _, series in here.groupby("machine"):
        assert series.sort_values("x")["y"].is_monotonic_decreasing


def test_factors_are_shares_and_retention_follows_from_them(table: pd.DataFrame) -> None:
    factors = table[table["panel"].isin(FACTORS)].pivot_table(index="machine", columns=["panel", "x"], values="y")
    assert ((factors > 0) & (factors <= 1)).all(axis=None)
    first, last = (np.prod([factors[name, gpus] for name in FACTORS], axis=0) for gpus in map(float, FACTOR_GPUS))
    kept = table[table["panel"] == "retention"].set_index("machine")["y"].reindex(factors.index)
    np.testing.assert_allclose(last / first, kept, rtol=1e-9)


def test_ratios_lie_within_their_intervals_and_a100_over_itself_is_one(table: pd.DataFrame) -> None:
    ratios = table[table["kind"] == "ratio"]
    assert (ratios["y_low"] <= ratios["y"]).all()
    assert (ratios["y"] <= ratios["y_high"]).all()
    own = ratios[(ratios["machine"] == "A100") & ratios["panel"].isin(["retention_over_a100", "mfu_over_a100"])]
    np.testing.assert_allclose(own[["y", "y_low", "y_high"]], 1.0)


def test_published_pairs_are_alike_and_stand_beside_a_prediction_each(table: pd.DataFrame) -> None:
    pairs = table[table["panel"] == "pairs"]
    counts = pairs.groupby("x")["provenance"].agg(lambda found: tuple(sorted(found)))
    assert set(counts) == {("predicted", "published")}
    real = pairs[pairs["provenance"] == "published"]
    assert (real["y_least"] <= real["y"]).all()
    assert (real["y"] <= real["y_most"]).all()
    h100 = real[real["machine"] == "H100"]
    assert (h100["y_most"] < 1).all(), "every like pair of MPT has a lower MFU on H100 than on A100"


def test_the_network_of_a_gpu_is_set_against_its_own_peak() -> None:
    peak = find_cluster(MACHINES["H100"]).peak_of("bfloat16")
    assert nic_bits_per_flop("H100") == pytest.approx(400e9 / peak)
    # four NICs of 100 Gb/s to eight GPUs
    assert nic_bits_per_flop("V100") == pytest.approx(50e9 / find_cluster(MACHINES["V100"]).peak_of("float16"))


def test_v100_has_no_bfloat16() -> None:
    for machine, cluster in MACHINES.items():
        assert find_cluster(cluster).peak_of(precision_of(machine)) > 0


def test_nothing_measured_is_claimed_without_runs(tables: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    assert set(tables[0]["provenance"]) == {"published", "predicted"}
    assert "measured" not in set(tables[1]["status"])
