"""One job owns a run's directory; jobs here are what a table says of them."""

import dataclasses
import json
from pathlib import Path

import pytest

from falloff import rawlog
from falloff.slurm.allocation import Allocation
from falloff.slurm.client import SlurmError
from falloff.slurm.owner import OWNER_NAME, claim, is_alive, owns, release

MINE = Allocation(job_id="7", nodes=("node1",), addresses=("a",), port=1)
OTHER = dataclasses.replace(MINE, job_id="8")


def forgotten(_job_id: str) -> None:
    return None


def at_work(_job_id: str) -> dict[str, str]:
    return {"JobState": "RUNNING"}


def silent(_job_id: str) -> dict[str, str]:
    raise SlurmError("no answer")


def test_a_directory_that_nobody_owns_is_taken_and_given_back(tmp_path: Path) -> None:
    assert claim(tmp_path / "run", MINE, silent)
    assert owns(tmp_path / "run", MINE)
    assert not owns(tmp_path / "run", OTHER)
    release(tmp_path / "run", OTHER)
    assert owns(tmp_path / "run", MINE)
    release(tmp_path / "run", MINE)
    assert list((tmp_path / "run").iterdir()) == []


def test_a_job_that_is_no_more_is_taken_over_from(tmp_path: Path) -> None:
    claim(tmp_path, OTHER)
    assert claim(tmp_path, MINE, forgotten)
    assert owns(tmp_path, MINE)
    assert [path.name for path in tmp_path.iterdir()] == [OWNER_NAME]


def test_another_start_of_the_same_job_is_no_more(tmp_path: Path) -> None:
    claim(tmp_path, MINE)
    again = dataclasses.replace(MINE, restart_count=1)
    assert claim(tmp_path, again, at_work)
    assert owns(tmp_path, again)
    assert not owns(tmp_path, MINE)


@pytest.mark.parametrize("facts", [at_work, silent])
def test_a_job_that_lives_or_may_live_is_waited_for_until_the_run_is_sealed(
    tmp_path: Path, facts: object, capsys: pytest.CaptureFixture[str]
) -> None:
    claim(tmp_path, OTHER)
    looks: list[str] = []

    def seals_at_the_third_look(job_id: str) -> dict[str, str] | None:
        looks.append(job_id)
        if len(looks) == 3:
            (tmp_path / rawlog.SEALED_NAME).touch()
        return facts(job_id)  # type: ignore[operator, no-any-return]

    assert not claim(tmp_path, MINE, seals_at_the_third_look, period_s=0.0)
    assert looks == ["8"] * 3
    assert owns(tmp_path, OTHER)
    assert capsys.readouterr().err.count("job 8 measures it") == 1


def test_an_owner_that_is_garbled_is_nobody(tmp_path: Path) -> None:
    (tmp_path / OWNER_NAME).write_text('{"job_')
    assert claim(tmp_path, MINE, silent)


def test_who_takes_over_in_the_meantime_keeps_it(tmp_path: Path) -> None:
    """The owner that was found dead may be another's by the time that it is removed."""
    claim(tmp_path, OTHER)
    third = dataclasses.replace(MINE, job_id="9")

    def another_is_quicker(job_id: str) -> dict[str, str] | None:
        if job_id == "8":
            claim(tmp_path, third, forgotten)
            return None
        release(tmp_path, third)
        return {"JobState": "RUNNING"}

    assert claim(tmp_path, MINE, another_is_quicker, period_s=0.0)
    assert json.loads((tmp_path / OWNER_NAME).read_text())["job_id"] == "7"


def of_a_newer_slurm(_job_id: str) -> dict[str, str]:
    return {"JobState": "DREAMING"}


@pytest.mark.parametrize(
    ("facts", "alive"), [(at_work, True), (silent, True), (of_a_newer_slurm, True), (forgotten, False)]
)
def test_a_job_of_which_nothing_is_known_is_over_and_one_of_which_nothing_is_said_is_not(
    facts: object, alive: bool
) -> None:
    assert is_alive("8", facts) is alive  # type: ignore[arg-type]
