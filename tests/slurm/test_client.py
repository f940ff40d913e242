import stat
from pathlib import Path

import pytest

from falloff.slurm import client
from falloff.slurm.client import Job, SlurmError, UnknownJobError, fields_of, job_facts, run_command, squeue_jobs


class Commands:
    """Slurm's commands as scripts, and how often each was called."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def make(self, name: str, *answers: tuple[str, int]) -> None:
        """Let a command give its answers, text and exit code, one after the other; the last one again and again."""
        (self._folder / f"{name}.calls").write_text("")
        for number, (text, _) in enumerate(answers):
            (self._folder / f"{name}.{number}").write_text(text)
        codes = " ".join(str(code) for _, code in answers)
        script = self._folder / name
        script.write_text(
            "#!/bin/bash\n"
            f"cd {self._folder}; echo x >> {name}.calls; codes=({codes}); n=$(($(wc -l < {name}.calls) - 1))\n"
            f"((n < {len(answers)})) || n={len(answers) - 1}\n"
            f"((codes[n])) && cat {name}.$n >&2 || cat {name}.$n\nexit ${{codes[n]}}\n"
        )
        script.chmod(script.stat().st_mode | stat.S_IXUSR)

    def count(self, name: str) -> int:
        return len((self._folder / f"{name}.calls").read_text().splitlines())


HICCUP = ("slurm_load_jobs error: Socket timed out on send/recv operation\n", 1)
UNKNOWN = ("slurm_load_jobs error: Invalid job id specified\n", 1)
NO_ACCOUNTING = ("Slurm accounting storage is disabled\n", 1)


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(client, "PAUSES_S", (0.0, 0.0))
    return Commands(tmp_path)


def test_what_fails_once_is_asked_again(slurm: Commands) -> None:
    slurm.make("squeue", HICCUP, HICCUP, ("fine\n", 0))
    assert run_command(["squeue"]) == "fine\n"
    assert slurm.count("squeue") == 3


def test_what_fails_each_time_is_an_error_with_slurms_own_words(slurm: Commands) -> None:
    slurm.make("squeue", HICCUP)
    with pytest.raises(SlurmError, match=r"^squeue --me: slurm_load_jobs error: Socket timed out"):
        run_command(["squeue", "--me"])
    assert slurm.count("squeue") == 3


def test_a_command_without_an_answer_is_given_up(slurm: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "ANSWER_S", 0.2)
    with pytest.raises(SlurmError, match=r"no answer in 0\.2 s"):
        run_command(["sleep", "5"], tries=1)


def test_where_there_is_no_slurm_the_command_is_named(slurm: Commands) -> None:
    with pytest.raises(SlurmError, match="squeue_of_nobody is not installed here"):
        run_command(["squeue_of_nobody"])


def test_that_a_job_is_unknown_is_an_answer_and_asked_once(slurm: Commands) -> None:
    slurm.make("scontrol", UNKNOWN)
    with pytest.raises(UnknownJobError):
        run_command(["scontrol", "show", "job", "9"])
    assert slurm.count("scontrol") == 1


def test_jobs_are_read_whatever_their_comment_holds(slurm: Commands) -> None:
    slurm.make("squeue", ("7|RUNNING|None|n[1-2]|rule_x|y z|/home/me/falloff\n8|PENDING|Priority|||/tmp\n", 0))
    assert squeue_jobs("--me") == [
        Job(job_id="7", state="RUNNING", nodes="n[1-2]", comment="rule_x|y z", folder="/home/me/falloff"),
        Job(job_id="8", state="PENDING", reason="Priority", nodes="", comment="", folder="/tmp"),
    ]


def test_a_value_may_hold_blanks_and_be_empty() -> None:
    line = "JobId=7 JobState=RUNNING OS=Linux 6.1 #1 SMP CPUs/Task=2 Comment=rule_a b Dependency= WorkDir=/tmp\n"
    assert fields_of(line) == {
        "JobId": "7",
        "JobState": "RUNNING",
        "OS": "Linux 6.1 #1 SMP",
        "CPUs/Task": "2",
        "Comment": "rule_a b",
        "Dependency": "",
        "WorkDir": "/tmp",
    }


def test_the_controller_is_asked_first(slurm: Commands) -> None:
    slurm.make("scontrol", ("JobId=7 JobState=TIMEOUT ExitCode=0:15\n", 0))
    slurm.make("sacct", NO_ACCOUNTING)
    assert job_facts("7") == {"JobId": "7", "JobState": "TIMEOUT", "ExitCode": "0:15"}
    assert slurm.count("sacct") == 0


def test_accounting_tells_what_the_controller_has_forgotten_of_the_last_start(slurm: Commands) -> None:
    slurm.make("scontrol", UNKNOWN)
    rows = "7|NODE_FAIL|0:0|0:0|None|n1|1|2\n7|OUT_OF_MEMORY|0:125|0:0|None|n2|3|4\n"
    slurm.make("sacct", (rows, 0))
    facts = job_facts("7")
    assert facts is not None
    assert (facts["JobState"], facts["ExitCode"], facts["NodeList"]) == ("OUT_OF_MEMORY", "0:125", "n2")


@pytest.mark.parametrize("accounting", [NO_ACCOUNTING, ("", 0)])
def test_a_job_that_neither_knows_has_no_facts(slurm: Commands, accounting: tuple[str, int]) -> None:
    slurm.make("scontrol", UNKNOWN)
    slurm.make("sacct", accounting)
    assert job_facts("7") is None


def test_that_nobody_answers_says_nothing_of_a_job(slurm: Commands) -> None:
    slurm.make("scontrol", HICCUP)
    slurm.make("sacct", NO_ACCOUNTING)
    with pytest.raises(SlurmError, match="Socket timed out"):
        job_facts("7")


def test_accounting_answers_for_a_controller_that_does_not(slurm: Commands) -> None:
    slurm.make("scontrol", HICCUP)
    slurm.make("sacct", ("7|COMPLETED|0:0|0:0|None|n1|1|2\n", 0))
    assert (job_facts("7") or {})["JobState"] == "COMPLETED"
