import pytest

from falloff.outcome import hang_in, judge
from falloff.spec.study import Limits

LIMITS = Limits(timeout_s=5)


def failure(kind: str) -> dict[str, object]:
    return {"event": "failure", "rank": 1, "kind": kind, "message": "why"}


@pytest.mark.parametrize(
    ("events", "exit_code", "timed_out", "outcome"),
    [
        ([{"event": "completed"}], 0, False, "ok"),
        ([failure("crash"), {"event": "completed"}], 1, False, "crash"),
        ([], 0, False, "crash"),
        ([failure("crash")], 1, True, "timeout"),
        # a rank that ran out of memory leaves the others to crash on a lost peer: the cause is what counts
        ([failure("crash"), failure("oom")], 1, False, "oom"),
        ([failure("hang"), failure("oom")], 1, False, "oom"),
        ([failure("unstable")], 1, False, "unstable"),
        ([failure("hang")], 1, False, "timeout"),
        # who waits for a rank that hangs may meet another that has given up
        ([failure("crash"), failure("hang")], 1, False, "timeout"),
        ([{"event": "rank_signalled", "rank": 1, "signal": 6}, failure("hang")], 1, False, "timeout"),
        ([{"event": "rank_signalled", "rank": 0, "signal": 9}], 1, False, "killed"),
        ([], -9, False, "killed"),
        ([], 143, False, "killed"),
    ],
)
def test_the_outcome_is_judged_by_its_cause(
    events: list[dict[str, object]], exit_code: int, timed_out: bool, outcome: str
) -> None:
    found, reason = judge(events, exit_code, timed_out, LIMITS)
    assert found == outcome
    assert (reason is None) is (outcome == "ok")


@pytest.mark.parametrize(
    ("events", "exit_code", "timed_out", "words"),
    [
        ([], 1, False, "the ranks ended with exit code 1"),
        ([], 134, False, "the ranks ended by signal 6 (SIGABRT)"),
        ([], 143, True, "the ranks did not end by themselves"),
        ([failure("hang")], 134, False, "rank 1: why"),
    ],
)
def test_what_goes_wrong_after_all_was_measured_costs_nothing_and_is_said(
    events: list[dict[str, object]], exit_code: int, timed_out: bool, words: str
) -> None:
    found = judge([{"event": "completed"}, *events], exit_code, timed_out, LIMITS)
    assert found == ("ok", f"all was measured; then {words}")


@pytest.mark.parametrize(
    "prefix", ["[rank3]:[E1130 ProcessGroupNCCL.cpp:632] [Rank 3] ", "[PG ID 0 (default_pg) Rank 3] "]
)
def test_a_collective_that_nccls_watchdog_gave_up_is_named(prefix: str) -> None:
    text = (
        f"{prefix}Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE, NumelIn=8, "
        "NumelOut=8, Timeout(ms)=120000) ran for 120050 milliseconds before timing out.\n"
    )
    assert hang_in(f"before\n{text}after") == (3, "ALLREDUCE of 8 elements not done after 120 s")


def test_a_watchdog_that_is_stuck_itself_is_a_hang_too() -> None:
    text = "[rank0]:[E ..] [PG 0 Rank 0] ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress"
    assert hang_in(text) == (0, "NCCL's watchdog stuck for 480 s")


def test_output_without_a_watchdogs_words_is_no_hang() -> None:
    assert hang_in("[rank0]: RuntimeError: NCCL error\nWatchdog thread started\n") is None
