"""How lines become runs, whatever the framework: by one that prints 'STEP number loss seconds'."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falloff.ingest.logtext import Line, number_of
from falloff.ingest.training_log import LoggedStep, Settled, System, TrainingLog
from falloff.ingest.training_runs import LARGEST_STEP, read_training_log

_PAIR = re.compile(r"(\w+)=(\S+)")


def parse(line: Line) -> tuple[LoggedStep, frozenset[str]] | None:
    found = dict(_PAIR.findall(line.text))
    if "step" not in found:
        return None
    stamp = found.get("at")
    step = LoggedStep(
        step=int(found["step"]),
        loss=number_of(found.get("loss", "")),
        step_s=number_of(found.get("s", "")),
        memory_bytes=number_of(found.get("memory", "")),
        total_steps=int(found["of"]) if "of" in found else None,
        time=datetime.strptime(stamp, "%H:%M:%S") if stamp else None,
    )
    return step, frozenset(found) & {"step", "loss", "s"}


def read_facts(texts: Sequence[str]) -> Mapping[str, Any]:
    found = [int(match[1]) for text in texts if (match := re.search(r"gpus: (\d+)", text))]
    return {"num_gpus": found[0]} if found else {}


PLAIN = System(
    name="plain",
    is_step=lambda text: "STEP" in text,
    parse=parse,
    read_facts=read_facts,
    events=(("a checkpoint was written", re.compile("saving")),),
    ended=re.compile("^done"),
    begins=re.compile("^start"),
)
Read = Callable[..., list[TrainingLog]]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def read_lines(*lines: str, system: System = PLAIN) -> list[TrainingLog]:
        path = tmp_path / "run.log"
        path.write_text("\n".join(lines) + "\n")
        return read_training_log(path, system)

    return read_lines


def step_line(step: int, s: float = 1.0, **more: object) -> str:
    return f"STEP step={step} loss=2.5 s={s} " + " ".join(f"{name}={value}" for name, value in more.items())


def test_facts_are_those_before_the_first_step(read: Read) -> None:
    (log,) = read("gpus: 8", step_line(1), "gpus: 9", step_line(2))
    assert (log.facts, log.num_rows, log.starts) == ({"num_gpus": 8}, 2, True)


def test_a_step_that_cannot_follow_begins_another_run_with_its_own_facts_or_those_before(read: Read) -> None:
    first, second, third = read("gpus: 8", step_line(1), step_line(2), "gpus: 16", step_line(1), "x", step_line(0))
    assert [log.facts["num_gpus"] for log in (first, second, third)] == [8, 16, 16]
    assert [[step.step for step in log.steps] for log in (first, second, third)] == [[1, 2], [1], [0]]


def test_what_was_said_since_the_last_step_belongs_to_the_next_run(read: Read) -> None:
    first, second = read(step_line(5), step_line(6), "saving", "start", step_line(3), step_line(4))
    assert [step.event for step in (*first.steps, *second.steps)] == [None, None, "a checkpoint was written", None]
    assert (first.starts, second.starts) == (False, True)


def test_an_event_belongs_to_the_step_after_it_once_for_all_ranks(read: Read) -> None:
    (log,) = read(
        *("[rank0]:" + step_line(1), "[rank1]:" + step_line(1), "saving"),
        *(f"[rank{rank}]:{step_line(step)}" for step in (2, 3) for rank in (1, 0)),
    )
    assert [step.event for step in log.steps] == [None, "a checkpoint was written", None]


def test_ranks_are_one_reading_the_slowest_ones_with_the_most_memory(read: Read) -> None:
    (log,) = read(
        "[rank0]:" + step_line(1, 1.5, memory=10), "[rank1]:" + step_line(1, 1.7, memory=8), "[rank0]:" + step_line(2)
    )
    assert [(step.step_s, step.memory_bytes) for step in log.steps] == [(1.7, 10.0), (1.0, None)]
    assert log.num_rows == 3


@pytest.mark.parametrize(("again", "is_another"), [("at=10:00:01", False), ("at=10:00:30", True), ("", False)])
def test_a_step_without_a_rank_is_printed_again_by_another_rank_or_another_run(
    read: Read, again: str, is_another: bool
) -> None:
    logs = read(step_line(4) + "at=10:00:00", step_line(4) + again)
    assert len(logs) == 1 + is_another


def test_a_rank_that_says_who_it_is_prints_a_step_once(read: Read) -> None:
    assert len(read("[rank0]:" + step_line(4), "[rank0]:" + step_line(4, 1.1))) == 2
    # a line that is the same to its last digit was written twice
    assert len(read("[rank0]:" + step_line(4), "[rank0]:" + step_line(4))) == 1


def test_a_run_that_goes_on_after_a_restart_is_another_one(read: Read) -> None:
    lines = ("[rank0]:" + step_line(4), "[rank0]:start", "[rank0]:" + step_line(5))
    assert [[step.step for step in log.steps] for log in read(*lines)] == [[4], [5]]
    # where several ranks print without saying who they are, one of them may start later
    (log,) = read(step_line(4), "start", step_line(5), step_line(6))
    assert [step.event for step in log.steps] == [None, "the run was started again", None]
    # one rank prints what a launch begins with, another one the steps
    alone = replace(PLAIN, ranks_repeat=False)
    assert len(read("[rank7]:" + step_line(4), "[rank0]:start", "[rank7]:" + step_line(5), system=alone)) == 2
    assert len(read(step_line(4), "start", step_line(5), system=replace(PLAIN, ranks_repeat=False))) == 2


def test_lines_that_lack_what_others_have_are_cut(read: Read) -> None:
    (log,) = read(step_line(1), step_line(2), "STEP step=3 loss=2.5", "STEP loss=2.5", "STEP step=x loss=1 s=1")
    assert ([step.step for step in log.steps], log.num_rows, log.num_cut_lines) == ([1, 2], 2, 3)


@pytest.mark.parametrize("garbled", ["s=-1", "s=1e999", "memory=-5", "s=nan"])
def test_an_impossible_quantity_makes_a_line_garbled(read: Read, garbled: str) -> None:
    (log,) = read(step_line(1), f"STEP step=2 loss=1 s=1 {garbled}")
    assert (log.num_rows, log.num_cut_lines) == (1, 1)


def test_a_step_that_no_run_reaches_is_garbled(read: Read) -> None:
    (log,) = read(step_line(1), step_line(LARGEST_STEP + 1), step_line(int("9" * 300)))
    assert (log.num_rows, log.num_cut_lines) == (1, 2)


@pytest.mark.parametrize(
    ("lines", "outcome"),
    [
        ([step_line(1), "done"], "ok"),
        ([step_line(5) + "of=5"], "ok"),
        ([step_line(4) + "of=5"], "killed"),
        ([step_line(1), "torch.OutOfMemoryError: CUDA out of memory."], "oom"),
        ([step_line(1), "RuntimeError: NCCL error"], "crash"),
        ([step_line(1), "[rank3]: ValueError: NCCL error"], "crash"),
        (
            [
                step_line(1),
                "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2024-05-01T13:00:00 DUE TO TIME LIMIT ***",
            ],
            "timeout",
        ),
        (
            [step_line(1), "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2024-05-01T13:00:00 DUE TO PREEMPTION ***"],
            "killed",
        ),
        (
            [
                step_line(1),
                "[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=12)",
                "RuntimeError: x",
            ],
            "timeout",
        ),
        (
            [step_line(1), "RuntimeError: x", "[Rank 3] Watchdog caught collective operation timeout: WorkNCCL()"],
            "crash",
        ),
        ([step_line(1), "done", "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2024-05-01T13:00:00 ***"], "ok"),
        ([step_line(1), "STEP step=2 loss=nan s=1", "done"], "unstable"),
        (["torch.OutOfMemoryError: CUDA out of memory."], "oom"),
    ],
)
def test_how_a_run_ended_is_what_its_log_says(read: Read, lines: list[str], outcome: str) -> None:
    (log,) = read(*lines)
    assert log.outcome == outcome
    assert (log.outcome_reason is None) == (outcome == "ok")


def test_a_log_without_a_step_or_a_failure_is_a_sentence(read: Read) -> None:
    with pytest.raises(ValueError, match=r"run\.log: holds no whole step line of plain, and no failure"):
        read("gpus: 8", "STEP loss=1")


def test_a_system_may_settle_steps_and_facts_from_all_of_them(read: Read) -> None:
    def settle(facts: Mapping[str, Any], steps: Sequence[LoggedStep], remarks: Sequence[str]) -> Settled:
        return {**facts, "note": remarks[0]}, [replace(step, unusable="last") for step in steps]

    (log,) = read("total: 5", step_line(1), system=replace(PLAIN, remarks=re.compile("^total"), settle=settle))
    assert (log.facts["note"], log.steps[0].unusable) == ("total: 5", "last")


@given(data=st.data(), num_steps=st.integers(1, 12), num_ranks=st.integers(1, 4))
def test_the_order_of_ranks_within_a_step_does_not_matter(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, num_steps: int, num_ranks: int
) -> None:
    seconds = st.integers(1, 10**6)
    rows = [[data.draw(seconds) for _ in range(num_ranks)] for _ in range(num_steps)]
    orders = [data.draw(st.permutations(range(num_ranks))) for _ in range(num_steps)]
    lines = [
        f"[rank{rank}]:{step_line(number, rows[number - 1][rank])}"
        for number in range(1, num_steps + 1)
        for rank in orders[number - 1]
    ]
    path = tmp_path_factory.mktemp("log") / "run.log"
    path.write_text("\n".join(lines) + "\n")
    (log,) = read_training_log(path, PLAIN)
    assert [step.step_s for step in log.steps] == [float(max(row)) for row in rows]
    assert log.num_rows == num_steps * num_ranks


@pytest.mark.parametrize(("text", "number"), [("11.5K", 11500.0), ("N/A", None), ("", None), ("11.5Kx", None)])
def test_a_field_without_a_place_of_its_own_is_a_number_or_none(text: str, number: float | None) -> None:
    step = LoggedStep(step=1, more={"rate": text})
    assert step.number_in_more("rate") == number
    assert step.number_in_more("other") is None
