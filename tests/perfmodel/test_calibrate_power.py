"""Draws fitted to our own runs: the shipped values come out of the shipped logs, and the errors are told."""

import dataclasses

import numpy as np
import pytest

from falloff.perfmodel.calibrate_power import fit_power, held_out_errors, is_capped, score_power, series_of
from falloff.perfmodel.parameters import Values
from falloff.perfmodel.power import PARAMETERS, draw_parts, power_of
from falloff.perfmodel.power_runs import LOGS, PowerRuns, read_power_runs
from falloff.perfmodel.step import PARAMETERS as STEP_PARAMETERS
from falloff.perfmodel.step import Steps, predict_steps


@pytest.fixture(scope="module")
def runs() -> PowerRuns:
    return read_power_runs(LOGS)


@pytest.fixture(scope="module")
def steps(runs: PowerRuns) -> Steps:
    return predict_steps(runs.jobs, Values(parameters=STEP_PARAMETERS))


def test_the_shipped_draws_come_out_of_the_shipped_logs(runs: PowerRuns, steps: Steps) -> None:
    found = fit_power(runs, steps)
    for name in ("product_draw", "memory_draw", "wire_energy_j_per_byte"):
        parameter = PARAMETERS[name]
        assert abs(np.log(found.get(name, "all") / parameter.prior)) < 2 * parameter.spread, name


def test_draws_that_made_runs_are_found_again(runs: PowerRuns, steps: Steps) -> None:
    true = Values(parameters=PARAMETERS, fitted={("product_draw", "all"): 1.1, ("memory_draw", "all"): 0.8})
    # steps long enough that no limit holds them
    long_s = runs.step_s * 3
    parts = draw_parts(runs.jobs, steps, long_s)
    drawn = power_of(runs.jobs, parts, long_s, np.zeros(len(runs)), true).draw_w
    made = dataclasses.replace(runs, step_s=long_s, draw_w=drawn, control=np.full(len(runs), ""))
    found = fit_power(made, steps)
    assert found.get("product_draw", "all") == pytest.approx(1.1, rel=0.05)
    assert found.get("memory_draw", "all") == pytest.approx(0.8, rel=0.12)


def test_runs_at_the_limit_are_met_within_five_per_cent(runs: PowerRuns, steps: Steps) -> None:
    scores = score_power(runs, steps)
    assert np.abs(scores.of_measured_step[scores.is_capped]).max() < 0.05


def test_runs_below_the_limit_are_met_within_sixteen_per_cent_of_their_measured_step(
    runs: PowerRuns, steps: Steps
) -> None:
    scores = score_power(runs, steps)
    assert np.abs(scores.of_measured_step[~scores.is_capped]).max() < 0.16


def test_a_control_is_not_scored_under_a_predicted_step(runs: PowerRuns, steps: Steps) -> None:
    control = runs.control.copy()
    control[0] = "delay"
    scores = score_power(dataclasses.replace(runs, control=control), steps)
    assert np.isnan(scores.of_predicted_step[0])
    assert np.isfinite(scores.of_measured_step[0])


def test_runs_at_the_limit_alone_are_no_data(runs: PowerRuns, steps: Steps) -> None:
    capped = dataclasses.replace(runs, draw_w=np.full(len(runs), 690.0))
    assert is_capped(capped).all()
    with pytest.raises(ValueError, match="all runs are at their power limit"):
        fit_power(capped, steps)


def test_a_held_out_error_is_of_a_fit_that_saw_no_run_of_its_network_and_layout(runs: PowerRuns, steps: Steps) -> None:
    errors, free = held_out_errors(runs, steps), ~is_capped(runs)
    series = np.array([series_of(name) for name in runs.names])
    assert np.isfinite(errors).all()
    # a run whose draw is another leaves its own series' fits as they are, and moves the others'
    place = int(np.flatnonzero(free)[0])
    draw = runs.draw_w.copy()
    draw[place] *= 1.2
    moved = held_out_errors(dataclasses.replace(runs, draw_w=draw), steps)
    others = free & (series != series[place])
    assert moved[place] == pytest.approx((1 + errors[place]) / 1.2 - 1)
    assert (moved[others] != errors[others]).any()


def test_series_are_named_by_network_and_layout() -> None:
    assert series_of("h200/llama2-1b-dp_shard2-9fce8d2a/1") == "llama2-1b-dp_shard2"
    assert series_of("alone") == "alone"
