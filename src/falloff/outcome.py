"""How a run ended: judged by its log, by the exit code of its ranks and by what NCCL's watchdog printed."""

import re
import signal
from typing import Any

from falloff.spec.study import Limits
from falloff.units import MILLI

SIGNAL_EXIT = 128
# The order in which causes are believed: a rank out of memory leaves the others to hang or to crash on a lost peer.
CAUSES = {"launch": "crash", "oom": "oom", "unstable": "unstable", "hang": "timeout", "crash": "crash"}

# As ProcessGroupNCCL writes it before it aborts the process (torch 2.11 and 2.13).
_WATCHDOG = re.compile(
    r"[Rr]ank ?(?P<rank>\d+)\][^\n]*Watchdog caught collective operation timeout: "
    r"WorkNCCL\([^\n]*?OpType=(?P<collective>\w+), NumelIn=(?P<elements>\d+), NumelOut=\d+, "
    r"Timeout\(ms\)=(?P<limit_ms>\d+)\)"
)
_STUCK_WATCHDOG = re.compile(r"[Rr]ank ?(?P<rank>\d+)\][^\n]*watchdog got stuck for (?P<limit_s>\d+) seconds")


def judge(events: list[dict[str, Any]], exit_code: int, timed_out: bool, limits: Limits) -> tuple[str, str | None]:
    """Return the outcome of ended ranks and, unless they ended well too, the reason in words."""
    failures = [event for event in events if event["event"] == "failure"]
    if _is_complete(events):
        return "ok", _teardown_words(failures, exit_code, timed_out)
    if timed_out:
        before = "".join(f"; before that {_said_by(event)}" for event in failures[:1])
        return "timeout", f"not done after {limits.timeout_s:g} s{before}"
    for kind, outcome in CAUSES.items():
        for failure in failures:
            if failure["kind"] == kind:
                return outcome, _said_by(failure)
    for event in events:
        if event["event"] == "rank_signalled":
            return "killed", f"rank {event['rank']} ended by signal {event['signal']}{_name_of(event['signal'])}"
    if (number := _signal_of(exit_code)) is not None:
        return "killed", f"the ranks ended by signal {number}{_name_of(number)}"
    return "crash", f"the ranks ended with exit code {exit_code} and left no reason; see output.txt"


def _is_complete(events: list[dict[str, Any]]) -> bool:
    """Return whether every rank left the run with its work done; what goes wrong after that costs it nothing.

    A barrier at the very end that hangs is common, and then everything is measured and nothing ends well.
    """
    kinds = [event["event"] for event in events]
    return "completed" in kinds and "failure" not in kinds[: kinds.index("completed")]


def _teardown_words(failures: list[dict[str, Any]], exit_code: int, timed_out: bool) -> str | None:
    """Return how ranks ended that had nothing left to do, None where they ended well."""
    number = _signal_of(exit_code)
    if failures:
        words = _said_by(failures[0])
    elif timed_out:
        words = "the ranks did not end by themselves"
    elif number is not None:
        words = f"the ranks ended by signal {number}{_name_of(number)}"
    elif exit_code:
        words = f"the ranks ended with exit code {exit_code}"
    else:
        return None
    return f"all was measured; then {words}"


def _signal_of(exit_code: int) -> int | None:
    # a shell and Python's own handlers say 128 + the signal, the system says minus the signal
    return abs(exit_code) % SIGNAL_EXIT if exit_code < 0 or exit_code > SIGNAL_EXIT else None


def _said_by(failure: dict[str, Any]) -> str:
    """Return a failure's message with the rank whose it is; one of a whole node names that itself."""
    return failure["message"] if failure["rank"] is None else f"rank {failure['rank']}: {failure['message']}"


def _name_of(number: int) -> str:
    try:
        return f" ({signal.Signals(number).name})"
    except ValueError:
        return ""


def hang_in(output: str) -> tuple[int, str] | None:
    """Return the rank and the words of the first hang that NCCL's watchdog printed, None where it printed none."""
    if found := _WATCHDOG.search(output):
        limit_s = int(found["limit_ms"]) * MILLI
        return int(found["rank"]), f"{found['collective']} of {found['elements']} elements not done after {limit_s:g} s"
    if found := _STUCK_WATCHDOG.search(output):
        return int(found["rank"]), f"NCCL's watchdog stuck for {found['limit_s']} s"
    return None
