"""From runs to sealed logs: the launcher starts the ranks, outlives them, and writes how each run ended.

It exits well for every outcome, since a failure is a result. One batch at a time on a machine: a lock is held while
ranks run, and who finds a dead launcher's ranks ends them first (ownership.py). In a Slurm job the scheduler sees to
that, and each run's directory is owned by one job (slurm/owner.py). Neighbouring runs share their
processes, as a launch costs 10 to 15 s on a GPU node; each is started, timed, judged and sealed by itself.
"""

import contextlib
import itertools
import signal
import subprocess
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Self

from falloff import rawlog
from falloff.growing_log import GrowingLog
from falloff.launch import Processes, Run, first_event
from falloff.other_load import OtherLoad
from falloff.outcome import SIGNAL_EXIT, hang_in, judge
from falloff.ownership import (
    JobEnd,
    end_orphans,
    job_lock,
    job_of_attempt,
    machine_lock,
    num_lost_starts,
    set_aside_dead_attempt,
    set_aside_lost_start,
)
from falloff.slurm import owner
from falloff.slurm.allocation import SlurmJob
from falloff.slurm.ending import state_of_attempt, state_of_own_end
from falloff.slurm.states import out_of_host_memory, own_exit_code

PERIOD_S = 0.05
# From a rank's failure to the end of all: the agent takes a tenth of a second, unless a rank hears no signal.
FAILURE_GRACE_S = 10.0
# The same over several nodes, where no agent ends the ranks of another's: long enough for each to state its own cause.
NODES_FAILURE_GRACE_S = 1.0
# A sampler takes one more reading after its signal; one that is stuck in the driver heeds none.
SAMPLER_GRACE_S = 5.0
# As c10d's store says that it cannot listen (torch 2.11 and 2.13). A port is chosen some seconds before it is used.
PORT_TAKEN = "EADDRINUSE"
MOST_LOST_STARTS = 3

Done = tuple[Run, str]


def measure(run: Run, job: SlurmJob | None = None) -> str:
    """Run the cell and seal its log; return the outcome. A log that is already sealed is left as it is."""
    ((_, outcome),) = measure_batch([run], job=job)
    return outcome


def measure_batch(
    runs: Sequence[Run], may_start: Callable[[Run], bool] = lambda _: True, job: SlurmJob | None = None
) -> Generator[Done, None, None]:
    """Measure runs one after the other; yield each with its outcome once its log is sealed.

    A run that `may_start` refuses when its turn comes is left as it is. In a Slurm `job` the ranks are on its nodes.
    """
    yield from measure_beside([runs], may_start, job)


def measure_beside(
    lanes: Sequence[Sequence[Run]], may_start: Callable[[Run], bool] = lambda _: True, job: SlurmJob | None = None
) -> Generator[Done, None, None]:
    """Measure lanes of runs beside each other, such as one on each GPU; yield as measure_batch does."""
    with _lock_of(job) as lock, _Batch(lock, job) as batch:
        ready: list[list[Run]] = []
        for lane in lanes:
            ready.append([])
            for run in lane:
                outcome = _outcome_before(run, job)
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
            for run in itertools.chain.from_iterable(ready):
                _release(run, job)


def _lock_of(job: SlurmJob | None) -> contextlib.AbstractContextManager[Path]:
    return machine_lock() if job is None else job_lock(job.allocation.job_id)


def _outcome_before(run: Run, job: SlurmJob | None) -> str | None:
    """Return the outcome of a run that is not to be measured, None for one that is, its folder made ready."""
    if not rawlog.is_sealed(run.run_dir) and (job is None or owner.claim(run.run_dir, job.allocation)):
        end_orphans(run.run_dir)
        if set_aside_dead_attempt(run.run_dir, _end_of_attempt(run, job)):
            return None
        _release(run, job)
    return str(rawlog.read_events(run.run_dir / rawlog.SEALED_NAME)[-1]["outcome"])


def _end_of_attempt(run: Run, job: SlurmJob | None) -> JobEnd | None:
    """Return how the job of an attempt ended that was left without an outcome; None where that says nothing of it."""
    job_id = job_of_attempt(run.run_dir)
    if job is None or job_id is None:
        return None
    return JobEnd(state=state_of_attempt(job_id, job.allocation), job_id=job_id, retries=job.site.retries)


def _release(run: Run, job: SlurmJob | None) -> None:
    if job is not None:
        owner.release(run.run_dir, job.allocation)


class _Batch:
    """The runs in progress, and what SIGINT, SIGTERM and SIGHUP do to them.

    While ranks run they end them, are noted as a person's doing, and end the launcher with 128 + the signal. Once
    the ranks of a run have ended its log is sealed first: a run that is complete is not thrown away. In a Slurm job
    they come from Slurm, and what it says of the job is what becomes of the run.
    """

    def __init__(self, lock: Path, job: SlurmJob | None) -> None:
        self.run_ids: list[str] = []
        self.job = job
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
        if self.job is not None:
            # Slurm sends SIGTERM to the launcher's step and to all of its job, and what is begun here is finished once
            for other in self._previous:
                signal.signal(other, signal.SIG_IGN)
        for run_dir, processes in self._open.items():
            # what cannot be noted on a full disk is ended all the same
            with contextlib.suppress(OSError, ValueError):
                rawlog.append_event(run_dir, "interrupted", signal=number)
            if self.job is None:
                processes.end()
                continue
            processes.end(by_step=False)
            end = _end_of_job(self.job, processes, run_dir)
            if end is not None and owner.owns(run_dir, self.job.allocation):
                set_aside_dead_attempt(run_dir, end)
        raise SystemExit(SIGNAL_EXIT + number)


def _end_of_job(job: SlurmJob, processes: Processes, run_dir: Path) -> JobEnd | None:
    """Return how this very job ends under its ranks; None where it goes on, or Slurm does not say."""
    state = state_of_own_end(job.allocation, processes.take_output(run_dir))
    return state and JobEnd(state=state, job_id=job.allocation.job_id, retries=job.site.retries)


def _measure_lane(
    runs: Sequence[Run], batch: _Batch, may_start: Callable[[Run], bool]
) -> Generator[Done | None, None, None]:
    """Measure runs one after the other, yielding None while there is nothing but to wait."""
    left = list(runs)
    while left:
        place = left[0].place
        shared = list(itertools.takewhile(lambda run: run.place == place, left))  # noqa: B023 (used at once)
        num_done = yield from _measure_shared(shared, batch, may_start)
        del left[:num_done]


def _measure_shared(
    runs: Sequence[Run], batch: _Batch, may_start: Callable[[Run], bool]
) -> Generator[Done | None, None, int]:
    """Measure runs in one set of processes; return how many are dealt with when that set is no more."""
    processes = Processes(runs) if batch.job is None else Processes(runs, batch.job)
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
    rawlog.make_open_logs(run.run_dir, processes.num_nodes)
    batch.begin(run, processes)
    rawlog.append_event(run.run_dir, "run_started", **first_event(run, processes, launch_place))
    started_s, others = time.monotonic(), OtherLoad(batch.run_ids)
    timed_out = yield from _watch(processes, run, is_last=is_last)
    outcome, job_is_over = None, False

    def finish() -> None:
        nonlocal outcome, job_is_over
        end = None if timed_out or batch.job is None else _end_under(batch.job, processes, run)
        if end is not None:
            job_is_over = True
            set_aside_dead_attempt(run.run_dir, end)
        elif not timed_out and (words := _why_it_never_began(run, processes, launch_place)):
            set_aside_lost_start(run.run_dir, processes.exit_code, words)
        else:
            outcome = _seal(run, processes, time.monotonic() - started_s, others, timed_out=timed_out)
            _release(run, batch.job)

    batch.end(run, finish)
    if job_is_over:
        raise SystemExit(1)
    return outcome


def _end_under(job: SlurmJob, processes: Processes, run: Run) -> JobEnd | None:
    """Return how the job ended that took the ranks of a run with it, None where they ended by themselves.

    A launcher that was cut off and whose run another job has taken over ends here, and seals nothing.
    """
    if not owner.owns(run.run_dir, job.allocation):
        raise SystemExit(f"{run.run_dir}: another job has taken it over from job {job.allocation.job_id}")
    if not processes.exit_code or any(event["event"] == "completed" for event in rawlog.read_open_events(run.run_dir)):
        return None
    return _end_of_job(job, processes, run.run_dir)


def _watch(processes: Processes, run: Run, *, is_last: bool) -> Generator[None, None, bool]:
    """Wait until a run is over or past its time; return whether it was past its time.

    The last run of its processes is over when they are.
    """
    log = GrowingLog(run.run_dir)
    grace_s = FAILURE_GRACE_S if processes.num_nodes == 1 else NODES_FAILURE_GRACE_S
    deadline_s = time.monotonic() + run.limits.timeout_s
    sampler = processes.start_sampler(run.run_dir)
    try:
        processes.start()
        while processes.exit_code is None and not (log.completed and not is_last and not log.ranks_leave):
            log.read()
            if time.monotonic() > min(deadline_s, log.failure_s + grace_s):
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


def _why_it_never_began(run: Run, processes: Processes, launch_place: int) -> str | None:
    """Return why a run is to be begun in new processes, None where what became of it is its own doing."""
    if processes.exit_code is None or not _was_lost_before_it_began(run, processes):
        return None
    output = processes.take_output(run.run_dir)
    if launch_place:
        return "the processes that it was to share ended before it began"
    if processes.job is not None and PORT_TAKEN in output and num_lost_starts(run.run_dir) < MOST_LOST_STARTS:
        return "another process took the port at which its ranks were to meet"
    return None


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


def _none_began(events: list[dict[str, Any]]) -> bool:
    """Return whether no rank of a job came so far as to say on which node it is."""
    return not any(event["event"] in ("node", "process_group", "completed") for event in events)


def _said_before_ranks(output: str) -> str:
    """Return the last line that a node printed, such as that of a shell; srun's own words where none did."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    of_nodes = [line for line in lines if not line.startswith(("srun:", "slurmstepd"))]
    if any(PORT_TAKEN in line for line in of_nodes):
        return "other processes took the ports at which its ranks were to meet, one after the other"
    return (of_nodes or lines or ["nothing was said"])[-1][:300]


def _other_share(others: OtherLoad, processes: Processes, events: list[dict[str, Any]]) -> float | None:
    """Return the share of this machine's cores that others used; None where ranks of a job ended without a last word.

    Ranks of a Slurm job are no children of the launcher, and what they used is nowhere once they have ended.
    """
    if processes.job is None or processes.exit_code is None:
        return others.share()
    ended = [event for event in events if event["event"] == "node_ended" and event["host"] == processes.node["host"]]
    return others.share(sum(event["cpu_s"] for event in ended)) if ended else None


def _seal(run: Run, processes: Processes, wall_s: float, others: OtherLoad, *, timed_out: bool) -> str:
    """Write how a run ended and seal its log; return the outcome."""
    output, exit_code = processes.take_output(run.run_dir), processes.exit_code
    if exit_code and processes.job is not None:
        exit_code = own_exit_code(output, exit_code)
    events = rawlog.read_open_events(run.run_dir)
    kinds = {event["kind"] for event in events if event["event"] == "failure"}
    if exit_code and processes.job is not None and (line := out_of_host_memory(output)) and "oom" not in kinds:
        rawlog.append_event(run.run_dir, "failure", rank=None, kind="oom", message=f"host memory: {line}")
    elif exit_code and (hang := hang_in(output)) and not kinds:
        rank, message = hang
        rawlog.append_event(run.run_dir, "failure", rank=rank, kind="hang", message=message)
    elif exit_code and processes.job is not None and not kinds and _none_began(events) and exit_code < SIGNAL_EXIT:
        message = f"launch_error: no rank began: {_said_before_ranks(output)}"
        rawlog.append_event(run.run_dir, "failure", rank=None, kind="launch", message=message)
    events = rawlog.read_open_events(run.run_dir)
    outcome, reason = judge(events, exit_code or 0, timed_out, run.limits)
    ending: dict[str, Any] = {"outcome": outcome, "reason": reason, "exit_code": exit_code, "wall_s": wall_s}
    rawlog.append_event(run.run_dir, "outcome", **ending, other_cpu_share=_other_share(others, processes, events))
    rawlog.seal(run.run_dir)
    return outcome
