"""Ending the ranks' step: what Slurm is asked, by stand-ins for squeue and scancel."""

import subprocess
import sys
from collections.abc import Sequence

import pytest

from falloff.slurm import step
from falloff.slurm.client import SlurmError
from falloff.slurm.step import end_step

STEPS = "7.0 snakejob\n7.1 abc\n7.extern extern\n"


def end(monkeypatch: pytest.MonkeyPatch, dies_of: str | None) -> list[Sequence[str]]:
    """Return what is asked of Slurm where srun ends upon a call that holds `dies_of`."""
    srun = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    asked: list[Sequence[str]] = []

    def run_command(command: Sequence[str], tries: int = 3) -> str:
        asked.append(command)
        if dies_of is not None and command[0] == "scancel" and dies_of in command:
            srun.kill()
        if dies_of == "nothing answers":
            raise SlurmError("no answer")
        return STEPS

    monkeypatch.setattr(step, "run_command", run_command)
    end_step("7", "abc", srun, 1.0)
    srun.kill()
    srun.wait()
    return asked[1:]


def test_a_step_is_ended_by_sigterm_so_that_ranks_say_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    assert end(monkeypatch, "--signal=TERM") == [["scancel", "--signal=TERM", "7.1"]]


def test_a_step_that_heeds_no_sigterm_is_ended_as_slurm_does(monkeypatch: pytest.MonkeyPatch) -> None:
    assert end(monkeypatch, None) == [["scancel", "--signal=TERM", "7.1"], ["scancel", "7.1"]]


def test_a_slurm_that_does_not_answer_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert end(monkeypatch, "nothing answers") == []
