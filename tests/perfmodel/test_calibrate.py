import dataclasses

import numpy as np
import pytest

from falloff.perfmodel.baselines import naive_tokens
from falloff.perfmodel.calibrate import (
    NO_FRAMEWORK,
    deviations,
    fit,
    joined,
    read_fit,
    row_weights,
    sensitivities,
    taught_by,
    thinned,
    write_fit,
)
from falloff.perfmodel.jobs import Job, Shape, stack
from falloff.perfmodel.parameters import Parameter, Values, by_name
from falloff.spec.cluster import find_cluster

SHAPE = Shape(layers=32, hidden=4096, heads=32, kv_heads=32, ffn=11008, vocab=32000)
CLUSTERS = ("a100-80gb-sxm-ib200", "h100-sxm-ib400")


def parameter(name, shared_by, prior=1.0, spread=0.5, low=0.01, high=5.0):
    return Parameter(
        name=name, prior=prior, spread=spread, low=low, high=high, shared_by=shared_by, meaning="a", source="a test"
    )


PARAMETERS = by_name(
    [parameter("speed", "generation"), parameter("drag", "all", prior=0.05), parameter("unused", "fabric")]
)


def predict(jobs, values):
    return naive_tokens(jobs) * values.of("speed", jobs) * jobs.gpus ** -values.of("drag", jobs)


def jobs_of():
    cluster = {name: find_cluster(name) for name in CLUSTERS}
    return stack(
        [
            Job(shape=SHAPE, cluster=cluster[name], seq=2048, microbatch=1, num_microbatches=1, dp_shard=gpus)
            for name in CLUSTERS
            for gpus in (8, 16, 64, 256, 1024) * 4
        ]
    )


JOBS = jobs_of()
SOURCES = np.array(["first"] * 20 + ["second"] * 20)
TRUTH = Values(parameters=PARAMETERS, fitted={("speed", "a100"): 0.8, ("speed", "h100"): 1.3, ("drag", "all"): 0.1})
REAL = predict(JOBS, TRUTH)
EVERY = np.ones(len(JOBS), dtype=bool)


def test_a_fit_recovers_what_made_the_data_within_its_interval():
    found = fit(JOBS, REAL, SOURCES, EVERY, PARAMETERS, predict, evaluations=20)
    deviation = dict(zip(found.coordinates, np.sqrt(np.diag(found.covariance)), strict=True))
    for coordinate, value in TRUTH.fitted.items():
        assert abs(np.log(found.values.get(*coordinate) / value)) < 2 * deviation[coordinate]
    assert predict(JOBS, found.values) == pytest.approx(REAL, rel=0.06)


def test_a_group_that_no_row_reaches_keeps_its_prior():
    found = fit(JOBS, REAL, SOURCES, SOURCES == "first", PARAMETERS, predict)
    assert found.values.get("speed", "h100") == 1.0
    assert found.values.get("speed", "a100") != 1.0


def test_a_prediction_for_an_unseen_generation_is_less_sure():
    found = fit(JOBS, REAL, SOURCES, SOURCES == "first", PARAMETERS, predict)
    spread = deviations(JOBS, found, predict)
    assert spread[SOURCES == "second"].min() > 2 * spread[SOURCES == "first"].max()


def test_held_out_rows_do_not_touch_a_fit():
    changed = np.where(SOURCES == "second", 17.0, REAL)
    one = fit(JOBS, REAL, SOURCES, SOURCES == "first", PARAMETERS, predict)
    two = fit(JOBS, changed, SOURCES, SOURCES == "first", PARAMETERS, predict)
    assert one.values.fitted == two.values.fitted


def test_a_row_without_a_rate_is_not_fitted():
    holes = REAL.copy()
    holes[::2] = np.nan
    assert fit(JOBS, holes, SOURCES, EVERY, PARAMETERS, predict).rows == 20


def test_an_outlier_pulls_less_than_its_square():
    spoilt = REAL.copy()
    spoilt[0] *= 30
    clean, pulled = (fit(JOBS, real, SOURCES, EVERY, PARAMETERS, predict) for real in (REAL, spoilt))
    assert pulled.values.get("speed", "a100") == pytest.approx(clean.values.get("speed", "a100"), rel=0.3)


def test_many_rows_of_one_source_weigh_as_ten_independent_ones_at_most():
    sources = np.array(["few"] * 2 + ["many"] * 1000)
    weights = row_weights(sources, np.ones(1002, dtype=bool))
    assert weights[:2].sum() > 1.8
    assert 9 < weights[2:].sum() < 10


def test_thinning_keeps_the_ends_and_every_small_source():
    sources = np.array(["small"] * 3 + ["large"] * 500)
    kept = thinned(sources, np.ones(503, dtype=bool), most=50)
    assert kept[:3].all()
    assert kept[3]
    assert kept[-1]
    assert kept.sum() == 53


def test_a_job_moves_with_its_own_group_alone():
    coordinates = (("speed", "a100"), ("speed", "h100"), ("drag", "all"), ("unused", "infiniband"))
    moves = sensitivities(JOBS, Values(parameters=PARAMETERS), coordinates, predict)
    assert moves[:20, 0] == pytest.approx(1.0)
    assert (moves[:20, 1] == 0).all()
    assert moves[:, 2] == pytest.approx(-0.05 * np.log(JOBS.gpus), rel=1e-2)
    assert (moves[:, 3] == 0).all()


def test_what_taught_a_job_is_the_lesser_of_its_framework_and_its_generation():
    by_framework = by_name([parameter("speed", "generation"), parameter("habit", "framework")])

    def model(jobs, values):
        return naive_tokens(jobs) * values.of("speed", jobs) * values.of("habit", jobs)

    found = fit(JOBS, REAL, SOURCES, SOURCES == "first", by_framework, model)
    assert (taught_by(JOBS, found)[SOURCES == "first"] == 1).all()  # its generation, and the framework of all
    assert (taught_by(JOBS, found)[SOURCES == "second"] == 0).all()  # the framework alone
    nothing = dataclasses.replace(found, reached_by={})
    assert (taught_by(JOBS, nothing) == 0).all()


def test_programs_that_no_name_holds_are_not_taught_by_one_another():
    jobs = dataclasses.replace(JOBS, framework=np.full(len(JOBS), NO_FRAMEWORK))
    by_framework = by_name([parameter("habit", "framework")])
    found = fit(jobs, REAL, SOURCES, EVERY, by_framework, lambda j, v: naive_tokens(j) * v.of("habit", j))
    assert (taught_by(jobs, found) == 0).all()


def test_a_fit_written_is_read_back_and_says_what_it_rests_on(tmp_path):
    found = fit(JOBS, REAL, SOURCES, EVERY, PARAMETERS, predict)
    path = tmp_path / "results" / "fit.json"
    write_fit(found, path)
    read = read_fit(path, PARAMETERS)
    assert read.values.fitted == pytest.approx(found.values.fitted, rel=1e-5)
    assert read.widths == found.widths
    assert (read.covariance == read.covariance.T).all()
    assert read.reached_by[("speed", "h100")] == ("second",)
    assert deviations(JOBS, read, predict) == pytest.approx(deviations(JOBS, found, predict), rel=1e-3)


def test_a_fit_of_another_model_is_refused(tmp_path):
    path = tmp_path / "fit.json"
    write_fit(fit(JOBS, REAL, SOURCES, EVERY, PARAMETERS, predict), path)
    with pytest.raises(ValueError, match="has no parameter drag"):
        read_fit(path, by_name([parameter("speed", "generation"), parameter("unused", "fabric")]))
    path.write_text("{}", encoding="utf-8")
    with pytest.raises(ValueError, match="not a fit"):
        read_fit(path, PARAMETERS)


def test_only_what_is_named_moves_and_two_fits_join():
    speed = fit(JOBS, REAL, SOURCES, EVERY, PARAMETERS, predict, moved=["speed"])
    drag = fit(JOBS, REAL, SOURCES, EVERY, PARAMETERS, predict, moved=["drag"])
    assert {name for name, _ in speed.coordinates} == {"speed"}
    assert speed.values.get("drag", "all") == 0.05
    both = joined(speed, drag)
    assert both.values.fitted == {**speed.values.fitted, **drag.values.fitted}
    assert both.covariance.shape == (3, 3)
    assert both.covariance[0, 2] == 0
