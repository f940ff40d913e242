"""How a job ended, by a controller that is a table."""

import dataclasses

import pytest

from falloff.slurm import ending
from falloff.slurm.allocation import Allocation
from falloff.slurm.client import SlurmError
from falloff.slurm.ending import state_of_attempt, state_of_own_end

JOB = Allocation(job_id="7", nodes=("n1", "n2"), addresses=("a", "b"), port=1)


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, str]]:
    jobs = {"7": {"JobState": "RUNNING"}}
    monkeypatch.setattr(ending, "job_facts", jobs.get)
    monkeypatch.setattr(ending, "lost_nodes", lambda _: [])
    return jobs


def test_an_attempt_ended_as_its_job_did(known: dict[str, dict[str, str]]) -> None:
    known["6"] = {"JobState": "FAILED", "ExitCode": "0:125"}
    assert state_of_attempt("6", JOB) == "failed_oom"


def test_of_a_job_that_slurm_forgot_nothing_is_known_but_that_its_launcher_died(
    known: dict[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert state_of_attempt("5", JOB) == "failed"

    def silent(_job_id: str) -> dict[str, str]:
        raise SlurmError("no answer")

    monkeypatch.setattr(ending, "job_facts", silent)
    assert state_of_attempt("5", JOB) == "failed"
    assert state_of_own_end(JOB, "") is None


@pytest.mark.parametrize(("restarts", "state"), [(0, "failed"), (1, "retry")])
def test_an_attempt_of_this_very_job_is_of_a_start_before_or_of_a_launcher_that_died(
    known: dict[str, dict[str, str]], restarts: int, state: str
) -> None:
    assert state_of_attempt("7", dataclasses.replace(JOB, restart_count=restarts)) == state


def test_a_job_goes_on_unless_slurm_or_its_step_says_otherwise(
    known: dict[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert state_of_own_end(JOB, "") is None
    assert state_of_own_end(JOB, "*** STEP 7.1 ON n1 CANCELLED AT 2026-11-30T14:49:21 DUE TO PREEMPTION ***") == "retry"
    monkeypatch.setattr(ending, "lost_nodes", lambda _: ["n2"])
    assert state_of_own_end(JOB, "") == "retry"
