"""Our own runs as jobs with their watts."""

from pathlib import Path

import numpy as np
import pytest

from falloff.perfmodel.power_runs import LOGS, PowerRuns, ordinary, read_power_runs


@pytest.fixture(scope="module")
def runs() -> PowerRuns:
    return read_power_runs(LOGS)


def test_the_shipped_runs_are_jobs_of_two_gpus_at_most_with_a_plausible_draw(runs: PowerRuns) -> None:
    assert len(runs) == len(runs.jobs) >= 10
    assert (runs.jobs.gpus <= 8).all()
    assert ((runs.draw_w > 80) & (runs.draw_w < 720)).all()
    assert (runs.jobs.framework == "falloff").all()


def test_a_run_keeps_its_batch(runs: PowerRuns) -> None:
    assert (runs.jobs.tokens / runs.jobs.seq == np.round(runs.jobs.tokens / runs.jobs.seq)).all()
    assert (runs.step_s > 0.05).all()


def test_controls_are_told_apart(runs: PowerRuns) -> None:
    assert (ordinary(runs).control == "").all()


def test_a_folder_without_runs_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds no run of h200-sxm with its power"):
        read_power_runs(tmp_path)
