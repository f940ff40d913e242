import dataclasses
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from falloff.analysis.extrapolation import OLDER_GPUS, OTHER_SOURCES, OURS, POINTS, curves, series_of
from falloff.analysis.extrapolation import tabulate as tabulate_extrapolation
from falloff.analysis.held_out import CUTS, REGIMES, held_out, regimes_of, scale_of
from falloff.analysis.memory import tabulate as tabulate_memory
from falloff.analysis.validation import WHO, step_error
from falloff.analysis.validation import tabulate as tabulate_validation
from falloff.perfmodel.baselines import naive_tokens
from falloff.perfmodel.jobs import stack
from falloff.perfmodel.parameters import Parameter, Values, by_name
from falloff.perfmodel.prediction import prior_fit
from falloff.perfmodel.requests import Request, job_of_request, parse_layout, shape_by_name
from falloff.perfmodel.step import predict_steps
from falloff.perfmodel.validate import TABLE, Model, read_table
from falloff.spec.cluster import find_cluster

# one number a generation: enough to run every split in seconds
PARAMETERS = by_name(
    [
        Parameter(
            name="share",
            prior=1.0,
            spread=0.3,
            low=0.1,
            high=4.0,
            shared_by="generation",
            meaning="a share of the naive rule",
            source="a test",
        )
    ]
)


def memory_of(jobs, values):
    return {kind: np.full(len(jobs), 30e9) for kind in ("allocated", "reserved", "device")}, jobs.microbatch < 4


MODEL = Model(
    PARAMETERS,
    lambda jobs, values: naive_tokens(jobs) * values.of("share", jobs),
    memory_of,
    waiting=lambda jobs, _values: np.zeros(len(jobs)),
)


@pytest.fixture(scope="module")
def cells() -> pd.DataFrame:
    return held_out(read_table(Path(__file__).parents[2] / TABLE), MODEL, prior_fit().values)


def test_no_cell_is_said_of_by_a_fit_to_as_many_gpus(cells: pd.DataFrame) -> None:
    for cut in CUTS:
        assert cells[cells["num_gpus"] <= cut][f"above_{cut}"].isna().all()
        assert cells[cells["num_gpus"] > cut][f"above_{cut}"].notna().all()


def test_each_cell_stands_once_and_names_its_source(cells: pd.DataFrame) -> None:
    assert cells["cell_id"].is_unique
    assert cells["source_ref"].str.len().min() > 0
    assert set(cells["regime"]) <= set(REGIMES)


def test_a_series_differs_in_gpus_alone(cells: pd.DataFrame) -> None:
    for kind in ("strong", "weak"):
        for _, own in cells.groupby(f"{kind}_series"):
            assert own["network"].nunique() == own["source"].nunique() == 1


def test_a_number_of_gpus_is_of_one_scale() -> None:
    assert list(scale_of([1, 8, 9, 64, 65, 512, 513])) == [
        *["up to 8"] * 2,
        *["9-64"] * 2,
        *["65-512"] * 2,
        "above 512",
    ]


def test_a_step_that_waits_for_its_network_is_bound_by_communication() -> None:
    names = []
    for bandwidth in (1.0, 1e-2):
        cluster = find_cluster("h100-sxm-ib400")
        node = dataclasses.replace(cluster.node, nic_bandwidth=cluster.node.nic_bandwidth * bandwidth)
        request = Request(
            shape=shape_by_name("llama2-7b"),
            cluster=dataclasses.replace(cluster, node=node),
            layout=parse_layout("", 64),
            seq=4096,
            local_batch=2,
            compiled=True,
        )
        values = Values(parameters=prior_fit().values.parameters)
        names.append(str(regimes_of(predict_steps(stack([job_of_request(request)]), values))[0]))
    assert names == ["products", "communication"]


def test_an_error_is_of_the_step_and_not_of_the_rate() -> None:
    frame = pd.DataFrame({"published": [100.0, 100.0], "unseen": [50.0, 200.0]})
    assert list(step_error(frame, "unseen")) == [1.0, -0.5]


def test_validation_tells_each_published_cell_from_what_is_predicted_of_it(cells: pd.DataFrame) -> None:
    table, coverage = tabulate_validation(cells)
    counts = table[table["y"].notna()].groupby("panel").size()
    assert counts["published"] == counts["unseen"] == coverage[coverage["status"] == "published"]["n"].sum()
    published = table[table["panel"] == "published"]
    assert set(published["provenance"]) == {"published"}
    assert set(table[table["panel"].isin(["unseen", "known"])]["provenance"]) == {"predicted"}
    assert set(table["who"].dropna()) == set(WHO)
    naive = table[(table["panel"] == "families") & (table["who"] == "naive rule")].set_index("series")["error"]
    assert naive["Megatron SC'21 table 1"] == pytest.approx(0.057, abs=0.008)


def test_memory_is_told_apart_by_what_is_counted_and_outcomes_add_up(cells: pd.DataFrame) -> None:
    table, _ = tabulate_memory(cells)
    assert set(table[table["panel"] == "predicted"]["series"]) == {"allocated", "reserved", "device"}
    outcomes = table[table["panel"] == "outcomes"]
    failed = outcomes[outcomes["outcome"] == "crash_or_oom"]["n"].sum()
    assert failed == (cells["outcome"] == "crash_or_oom").sum()


def test_extrapolation_asks_each_law_and_the_model_of_the_same_points(cells: pd.DataFrame) -> None:
    table, coverage = tabulate_extrapolation(cells)
    laws = table[table["panel"] == "laws"]
    assert laws.groupby(["kind_of_series", "cut", "points", "x"])["n"].nunique().max() == 1
    assert OURS in set(laws["who"])
    assert "refused" in set(coverage["status"])
    assert (laws["x"] >= 2).all()


def test_no_law_is_told_of_series_with_fewer_points_than_its_parameters_and_two(cells: pd.DataFrame) -> None:
    table, _ = tabulate_extrapolation(cells)
    laws = table[table["panel"] == "laws"]
    assert set(laws["points"]) <= set(POINTS)
    assert (laws[laws["who"] == "USL"]["points"] >= 5).all()
    assert (laws["points"] >= 4).all()


def test_coverage_counts_the_series_of_each_cut_and_the_refused_ones(cells: pd.DataFrame) -> None:
    _, coverage = tabulate_extrapolation(cells)
    fits = coverage[coverage["cell"].str.contains("fitted to 64 GPUs and fewer, the same batch")]
    assert len(fits) == 2 * len(POINTS)
    rated = cells[np.isfinite(cells["published"])]
    whole = len(list(series_of(rated, "strong", 64)))
    assert fits["reason"].str.contains(f"of {whole} series").sum() == len(POINTS)


def test_cells_of_the_newer_gpu_alone_are_said_of_by_a_fit_to_older_ones(cells: pd.DataFrame) -> None:
    assert set(cells[cells["newer"].notna()]["generation"]) == {"h100"}
    table, _ = tabulate_extrapolation(cells)
    labels = set(table[table["panel"] == "cuts"]["label"].dropna())
    assert labels == {OLDER_GPUS, OTHER_SOURCES}


def test_a_law_is_fitted_to_points_up_to_the_cut_alone(cells: pd.DataFrame) -> None:
    own = next(series_of(cells, "strong", 64, 4))
    changed = own.assign(published=own["published"].where(own["num_gpus"] <= 64, 1.0))
    wanted = np.array([128.0, 256.0])
    for name, rates in curves(own, 64, wanted, 4).items():
        assert rates == pytest.approx(curves(changed, 64, wanted, 4)[name])


@pytest.mark.parametrize("tabulate", [tabulate_validation, tabulate_memory, tabulate_extrapolation])
def test_a_figure_without_a_cell_is_an_error_that_names_it(cells: pd.DataFrame, tabulate) -> None:
    with pytest.raises(ValueError, match="figure"):
        tabulate(cells.iloc[:0])


def test_the_constant_share_of_peak_is_predicted_wherever_the_regression_is(cells: pd.DataFrame) -> None:
    for split in ("unseen", "by_models", "by_counts"):
        constant, regression = cells[f"constant_{split}"], cells[f"regression_{split}"]
        assert (constant.notna() == regression.notna()).all()
        assert (constant.dropna() > 0).all()
