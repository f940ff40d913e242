"""From runs to sealed logs: the launcher starts the ranks, outlives them, and writes how each run ended.

It exits well for every outcome, since a failure is a result. One batch at a time on a machine: a lock is held while
ranks run, and who finds a dead launcher's ranks ends them first (ownership.py). Neighbouring runs share their
processes, as a launch costs 10 to 15 s on a GPU node; each is started, timed, judged and sealed by itself.
"""

import contextlib
import json
import signal
import subprocess
import time
from collections.abc import Callable, Generator, Sequence
from itertools import takewhile
from pathlib import Path
from types import FrameType
from typing import Any, Self

from falloff import rawlog
from falloff.launch import Processes, Run, first_event
from falloff.other_load import OtherLoad
from falloff.outcome import SIGNAL_EXIT, hang_in, judge
from falloff.ownership import end_orphans, machine_lock, set_aside_dead_attempt, set_aside_lost_start

PERIOD_S = 0.05
# From a rank's failure to the end of all: the agent takes a tenth of a second, unless a rank hears no signal.
FAILURE_GRACE_S = 10.0
# A sampler takes one more reading after its signal; one that is stuck in the driver heeds none.
SAMPLER_GRACE_S = 5.0

Done = tuple[Run, str]


def measure(run: Run) -> str:
    """Run the cell and seal its log; return the outcome. A log that is already sealed is left as it is."""
    ((_, outcome),) = measure_batch([run])
    return outcome


def measure_batch(
    runs: Sequence[Run], may_start: Callable[[Run], bool] = lambda _: True
) -> Generator[Done, None, None]:
    """Measure runs one after the other; yield each with its outcome once its log is sealed.

    A run that `may_start` refuses when its turn comes is left as it is.
    """
    yield from measure_beside([runs], may_start)


def measure_beside(
    lanes: Sequence[Sequence[Run]], may_start: Callable[[Run], bool] = lambda _: True
) -> Generator[Done, None, None]:
    """Measure lanes of runs beside each other, such as one on each GPU; yield as measure_batch does."""
    with machine_lock() as lock, _Batch(lock) as batch:
        ready: list[list[Run]] = []
        for lane in lanes:
            ready.append([])
            for run in lane:
                outcome = _outcome_before(run)
                if outcome is None:
                    ready[-1].append(run)
                else:
                    yield run, outcome
        at_work = [_measure_lane(lane, batch, may_start) for lane in ready]
        try:
            while at_work:
                for lane_at_work in list(at_work):
                    try:
                        done = next(lane_at_work)
                    except StopIteration:
                        at_work.remove(lane_at_work)
                        continue
                    if done is not None:
                        yield done
                time.sleep(PERIOD_S)
        finally:
            for lane_at_work in at_work:
                lane_at_work.close()


def _outcome_before(run: Run) -> str | None:
    """Return the outcome of a run that is not to be measured, None for one that is, its folder made ready."""
    if rawlog.is_sealed(run.run_dir):
        return str(rawlog.read_events(run.run_dir / rawlog.SEALED_NAME)[-1]["outcome"])
    end_orphans(run.run_dir)
    return None if set_aside_dead_attempt(run.run_dir) else "killed"


class _Batch:
    """The runs in progress, and what SIGINT, SIGTERM and SIGHUP do to them.

    While ranks run they end them, are noted as a person's doing, and end the launcher with 128 + the signal. Once
    the ranks of a run have ended its log is sealed first: a run that is complete is not thrown away.
    """

    def __init__(self, lock: Path) -> None:
        self.run_ids: list[str] = []
        self._lock = lock
        self._open: dict[Path, Processes] = {}
        self._seals = False
        self._signal: int | None = None

    def __enter__(self) -> Self:
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        self._previous = {number: signal.signal(number, self._handle) for number in numbers}
        return self

    def __exit__(self, *_error: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def enter(self, processes: Processes) -> None:
        """Name processes in the lock, by which they are found should this launcher die."""
        self.run_ids.append(processes.run_id)
        self._lock.write_text(" ".join(self.run_ids), encoding="utf-8")

    def leave(self, processes: Processes) -> None:
        """End processes and forget them."""
        processes.close()
        self.run_ids.remove(processes.run_id)

    def begin(self, run: Run, processes: Processes) -> None:
        """Take a run for one in progress."""
        self._open[run.run_dir] = processes

    def end(self, run: Run, finish: Callable[[], None]) -> None:
        """Finish a run whatever signal comes, and heed the signal then."""
        self._seals = True
        finish()
        del self._open[run.run_dir]
        self._seals = False
        if self._signal is not None:
            self._handle(self._signal, None)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        self._signal = number
        if self._seals:
            return
        for run_dir, processes in self._open.items():
            # what cannot be noted on a full disk is ended all the same
            with contextlib.suppress(OSError, ValueError):
                rawlog.append_event(run_dir, "interrupted", signal=number)
            processes.end()
        raise SystemExit(SIGNAL_EXIT + number)


def _measure_lane(
    runs: Sequence[Run], batch: _Batch, may_start: Callable[[Run], bool]
) -> Generator[Done | None, None, None]:
    """Measure runs one after the other, yielding None while there is nothing but to wait."""
    left = list(runs)
    while left:
        place = left[0].place
        shared = list(takewhile(lambda run: run.place == place, left))  # noqa: B023 (used at once)
        num_done = yield from _measure_shared(shared, batch, may_start)
        del left[:num_done]


def _measure_shared(
    runs: Sequence[Run], batch: _Batch, may_start: Callable[[Run], bool]
) -> Generator[Done | None, None, int]:
    """Measure runs in one set of processes; return how many are dealt with when that set is no more."""
    processes = Processes(runs)
    batch.enter(processes)
    launch_place = 0
    try:
        for number, run in enumerate(runs):
            if not may_start(run):
                continue
            outcome = yield from _measure_in(processes, run, batch, launch_place, is_last=run is runs[-1])
            if outcome is None:
                return number
            yield run, outcome
            launch_place += 1
            if processes.exit_code is not None:
                return number + 1
        return len(runs)
    finally:
        batch.leave(processes)


def _measure_in(
    processes: Processes, run: Run, batch: _Batch, launch_place: int, *, is_last: bool
) -> Generator[None, None, str | None]:
    """Measure one run; return its outcome, None where the processes that others had used ended before it began."""
    run.run_dir.mkdir(parents=True, exist_ok=True)
    batch.begin(run, processes)
    rawlog.append_event(run.run_dir, "run_started", **first_event(run, processes, launch_place))
    started_s, others = time.monotonic(), OtherLoad(batch.run_ids)
    timed_out = yield from _watch(processes, run, is_last=is_last)
    outcome = None

    def finish() -> None:
        nonlocal outcome
        if launch_place and not timed_out and _was_lost_before_it_began(run, processes):
            processes.take_output(run.run_dir)
            set_aside_lost_start(run.run_dir, processes.exit_code)
        else:
            outcome = _seal(run, processes, time.monotonic() - started_s, others, timed_out=timed_out)

    batch.end(run, finish)
    return outcome


def _watch(processes: Processes, run: Run, *, is_last: bool) -> Generator[None, None, bool]:
    """Wait until a run is over or past its time; return whether it was past its time.

    The last run of its processes is over when they are.
    """
    log = _GrowingLog(run.run_dir)
    deadline_s = time.monotonic() + run.limits.timeout_s
    sampler = processes.start_sampler(run.run_dir)
    try:
        processes.start()
        while processes.exit_code is None and not (log.completed and not is_last and not log.ranks_leave):
            log.read()
            if time.monotonic() > min(deadline_s, log.failure_s + FAILURE_GRACE_S):
                processes.end(but=sampler.pid)
                return time.monotonic() > deadline_s
            yield
        return False
    finally:
        _end_sampler(sampler)
        if processes.exit_code is not None:
            processes.end()


def _end_sampler(sampler: "subprocess.Popen[bytes]") -> None:
    for end in (sampler.terminate, sampler.kill):
        end()
        with contextlib.suppress(subprocess.TimeoutExpired):
            sampler.wait(SAMPLER_GRACE_S)
            return


class _GrowingLog:
    """What the open log of a run says so far, read as it grows."""

    def __init__(self, run_dir: Path) -> None:
        self.completed = False
        self.ranks_leave = False
        self.failure_s = float("inf")
        self._path = run_dir / rawlog.OPEN_NAME
        self._read_bytes = 0

    def read(self) -> None:
        """Read the lines that have come since the last call."""
        with self._path.open("rb") as file:
            file.seek(self._read_bytes)
            new = file.read()
        lines, newline, _ = new.rpartition(b"\n")
        self._read_bytes += len(lines) + len(newline)
        for line in lines.split(b"\n"):
            if line.startswith(b'{"event": "completed"'):
                self.completed, self.ranks_leave = True, bool(json.loads(line).get("ranks_leave"))
            elif line.startswith(b'{"event": "failure"'):
                self.failure_s = min(self.failure_s, time.monotonic())


def _was_lost_before_it_began(run: Run, processes: Processes) -> bool:
    """Return whether ranks that others had used before ended without this run's doing.

    What a run before left, such as an error that a GPU reports late, must not be this run's outcome. Memory that
    runs out while the network is built is.
    """
    if processes.exit_code is None:
        return False
    events = rawlog.read_open_events(run.run_dir)
    kinds = {event["kind"] for event in events if event["event"] == "failure"}
    has_begun = any(event["event"] in ("process_group", "completed") for event in events)
    return not has_begun and not kinds - {"crash"}


def _seal(run: Run, processes: Processes, wall_s: float, others: OtherLoad, *, timed_out: bool) -> str:
    """Write how a run ended and seal its log; return the outcome."""
    output, exit_code = processes.take_output(run.run_dir), processes.exit_code
    events = rawlog.read_open_events(run.run_dir)
    if exit_code and (hang := hang_in(output)) and not any(event["event"] == "failure" for event in events):
        rank, message = hang
        rawlog.append_event(run.run_dir, "failure", rank=rank, kind="hang", message=message)
        events = rawlog.read_open_events(run.run_dir)
    outcome, reason = judge(events, exit_code or 0, timed_out, run.limits)
    ending: dict[str, Any] = {"outcome": outcome, "reason": reason, "exit_code": exit_code, "wall_s": wall_s}
    rawlog.append_event(run.run_dir, "outcome", **ending, other_cpu_share=others.share())
    rawlog.seal(run.run_dir)
    return outcome
