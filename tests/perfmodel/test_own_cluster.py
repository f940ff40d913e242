"""A cluster's own values follow its measurements, with the shipped ones where they say nothing."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from falloff.perfmodel.calibrate import Fit
from falloff.perfmodel.calibrate_collectives import Point, predicted_s, problem_of
from falloff.perfmodel.collectives import Kind
from falloff.perfmodel.own_cluster import OwnFit, calibrate_cluster, with_own_values
from falloff.perfmodel.own_points import CopyPoint, OwnPoints, ProductPoint, read_own_points
from falloff.perfmodel.parameters import Values
from falloff.perfmodel.prediction import predict, shipped_fit
from falloff.perfmodel.step import PARAMETERS
from falloff.spec.cluster import Cluster, OwnValue, find_cluster
from falloff.units import MIB
from tests.perfmodel.example_jobs import jobs

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def in_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


@pytest.fixture(scope="module")
def fit() -> Fit:
    return shipped_fit(ROOT / "config" / "perfmodel" / "calibration.json")


def scaled(points: OwnPoints, factor: float) -> OwnPoints:
    slower = [dataclasses.replace(point, measured_s=point.measured_s * factor) for point in points.collectives]
    return dataclasses.replace(points, collectives=tuple(slower))


def made(cluster: Cluster, fit: Fit, true: dict[tuple[str, str], float], kinds: tuple[Kind, ...]) -> OwnPoints:
    """Return a sweep as the model itself has it under true values: in a node, over 2 nodes and over 16."""
    points = tuple(
        Point(source=kind, kind=kind, cluster=cluster, ranks=ranks, ranks_per_node=min(ranks, 8),
              message_bytes=size * MIB, measured_s=1.0)
        for kind in kinds for ranks in (8, 16, 128) for size in (0.25, 4.0, 64.0, 1024.0, 8192.0)
    )  # fmt: skip
    problem = problem_of(points)
    values = Values(parameters=PARAMETERS, fitted={**fit.values.fitted, **true})
    seconds = predicted_s(problem, values)
    timed = [dataclasses.replace(point, measured_s=float(s)) for point, s in zip(points, seconds, strict=True)]
    return OwnPoints(tuple(timed), (), (), ())


def test_values_that_made_a_sweep_are_found_again(fit: Fit) -> None:
    cluster = find_cluster("a100-80gb-sxm-ib200")
    true = {("fabric_efficiency", "infiniband"): 0.5, ("nvlink_efficiency", "a100"): 0.65,
            ("fabric_hop_factor", "infiniband"): 4.0}  # fmt: skip
    found = calibrate_cluster(cluster, made(cluster, fit, true, ("all_reduce", "all_gather", "reduce_scatter")), fit)
    for (name, _), value in true.items():
        assert found.values[name].value == pytest.approx(value, rel=0.1), name
        assert found.values[name].low < value < found.values[name].high, name


@pytest.mark.parametrize(
    ("log", "cluster", "names"),
    [
        ("tests/data/nccl_tests/2025_two_runs.log", "h100-sxm-ib400", ("fabric_efficiency", "send_efficiency")),
        ("data/external/torchtitan-h200x2", "h200-sxm-virtual", ("nvlink_efficiency",)),
    ],
)
def test_twice_the_bandwidth_in_a_log_is_twice_the_fitted_bandwidth(
    log: str, cluster: str, names: tuple[str, ...], fit: Fit
) -> None:
    machine = find_cluster(cluster)
    points = read_own_points([Path(log)], machine)
    # below the bounds of what NVLink gives
    half, whole = (calibrate_cluster(machine, scaled(points, factor), fit) for factor in (2.0, 1.0))
    for name in names:
        assert whole.values[name].value / half.values[name].value == pytest.approx(2, rel=0.15), name


def test_errors_fall_where_values_are_fitted(fit: Fit) -> None:
    machine = find_cluster("h100-sxm-ib400")
    found = calibrate_cluster(machine, read_own_points([Path("tests/data/nccl_tests/2025_two_runs.log")], machine), fit)
    for residual in found.residuals:
        assert np.abs(residual.after).max() < 0.2 * np.abs(residual.before).max()


def test_what_the_points_do_not_tell_is_named_with_its_reason_and_stays_as_shipped(fit: Fit) -> None:
    machine = find_cluster("h200-sxm-virtual")
    found = calibrate_cluster(machine, read_own_points([Path("data/external/torchtitan-h200x2")], machine), fit)
    assert found.untold["fabric_efficiency"] == "no collective spans nodes"
    assert found.untold["gemm_sustained"] == "no 16-bit product was timed for seconds on end"
    assert not set(found.untold) & set(found.values)
    own = with_own_values(fit, written(machine, found))
    for name in ("pipelining", "gemm_sustained"):
        group = "all" if name == "pipelining" else "h100"
        assert own.values.get(name, group) == fit.values.get(name, group)


def test_a_rate_above_what_the_file_allows_is_said(fit: Fit) -> None:
    machine = find_cluster("h100-sxm-ib400")
    points = read_own_points([Path("tests/data/nccl_tests/2025_two_runs.log")], machine)
    found = calibrate_cluster(machine, scaled(points, 0.1), fit)
    assert "fabric_efficiency" in found.at_bound


def test_products_and_copies_set_their_own_rates(fit: Fit) -> None:
    machine = find_cluster("h200-sxm-virtual")
    slow = OwnPoints(
        (), (ProductPoint(source="p", m=8192, n=8192, k=8192, measured_s=2 * 8192**3 / 500e12),),
        (CopyPoint(source="p", bytes_s=3.6e12),), (),
    )  # fmt: skip
    found = calibrate_cluster(machine, slow, fit)
    assert found.values["memory_share"].value == pytest.approx(3.6 / 4.8, rel=0.05)
    assert 0.48 < found.values["gemm_sustained"].value < 0.58
    assert found.untold["nvlink_efficiency"] == "no collective was measured"


def written(cluster: Cluster, found: OwnFit) -> Cluster:
    return dataclasses.replace(cluster, node=dataclasses.replace(cluster.node, calibration=dict(found.values)))


def test_own_values_count_in_a_prediction_and_in_its_interval(fit: Fit) -> None:
    plain = find_cluster("h100-sxm-ib400")
    slow = OwnValue(value=0.25, low=0.2, high=0.3, points=6)
    own = dataclasses.replace(plain, node=dataclasses.replace(plain.node, calibration={"fabric_efficiency": slow}))
    many = jobs({"cluster": plain, "dp_shard": 256})
    before, after = predict(many, fit), predict(many, with_own_values(fit, own))
    assert after.tokens_per_gpu_s[0] < 0.9 * before.tokens_per_gpu_s[0]
    sure = dataclasses.replace(slow, low=0.249, high=0.251)
    narrow = dataclasses.replace(plain, node=dataclasses.replace(plain.node, calibration={"fabric_efficiency": sure}))
    certain = predict(many, with_own_values(fit, narrow))
    assert certain.low[0] > after.low[0]
    assert certain.high[0] < after.high[0]


def test_a_cluster_without_own_values_leaves_a_fit_as_it_is(fit: Fit) -> None:
    assert with_own_values(fit, find_cluster("h100-sxm-ib400")) is fit


def test_a_parameter_that_the_model_has_not_is_one_sentence(fit: Fit) -> None:
    plain = find_cluster("h100-sxm-ib400")
    odd = {"nvlink_speed": OwnValue(value=1, low=1, high=1, points=1)}
    own = dataclasses.replace(plain, node=dataclasses.replace(plain.node, calibration=odd))
    with pytest.raises(ValueError, match="calibration names nvlink_speed, which the model has not"):
        with_own_values(fit, own)
