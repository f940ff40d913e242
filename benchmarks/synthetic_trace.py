"""Write Kineto traces whose every quantity is known in whole nanoseconds, and the truth beside them.

Events stand in the order of real files: the host's operators first, then what CUPTI's buffers held, a thread at a time
and in order of launch, so that neither the device's events nor those of one stream come sorted by time.
One step is in memory at a time, whatever the size of the file.
"""

import argparse
import gzip
import json
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from benchmarks import kineto_text
from benchmarks.kineto_text import BACKWARD_THREAD, HOST_PID, MAIN_THREAD, START_NS
from benchmarks.schedule import (
    COMM_PLANS,
    COMMUNICATION,
    KERNELS_A_STEP,
    MAIN,
    Activity,
    Collective,
    Step,
    Workload,
    draw_steps,
    group_of,
    step_length_ns,
)
from benchmarks.truth import Tally, mean_skew_ns

# Of the shared trace's 43,318 events: per event on the device 1.7 operators, 0.74 calls that start nothing.
OPERATORS_PER_ACTIVITY = 1.7
CALLS_PER_ACTIVITY = 0.74
EVENTS_PER_ACTIVITY = 7.3  # those, a launch, two ends of its arrow, one of the other calls' and the device's event
STEPS_A_BUFFER = 3  # CUPTI hands over 8 MB of records at a time, some 25,000 activities of a thread
BACKWARD_FROM = 0.35  # of a step's launches the rest come from the autograd thread


@dataclass(frozen=True, kw_only=True)
class Request:
    """One set of files: ranks of them, of num_events events each; sync_share of the activities have a sync event."""

    folder: Path
    num_events: int
    num_ranks: int = 1
    world_size: int = 8
    median_kernel_ns: int = 6_000
    seed: int = 1
    compress: bool = False
    sync_share: float = 0.0
    clock_spread_ns: int = 0  # the ranks' clocks differ by up to this
    kernels_a_step: int | None = None


class EventFile:
    """Events written one after the other with commas between them, and counted."""

    def __init__(self, stream: IO[str]) -> None:
        """Write to an open text stream."""
        self.stream = stream
        self.num = 0

    def write(self, texts: Iterable[str]) -> None:
        """Append events."""
        for text in texts:
            if self.num:
                self.stream.write(",\n")
            self.stream.write(text)
            self.num += 1


def write_traces(request: Request) -> dict[str, Any]:
    """Write rank<r>.trace.json(.gz) for each rank and truth.json into the folder; return the truth."""
    request.folder.mkdir(parents=True, exist_ok=True)
    work = _workload(request)
    tallies = [Tally() for _ in range(request.num_ranks)]
    ranks = [_write_rank(request, work, rank, tally) for rank, tally in enumerate(tallies)]
    truth = {
        "num_events": request.num_events,
        "num_ranks": request.num_ranks,
        "world_size": request.world_size,
        "median_kernel_ns": request.median_kernel_ns,
        "seed": request.seed,
        "sync_share": request.sync_share,
        "skew_ns": mean_skew_ns(tallies),
        "ranks": ranks,
    }
    (request.folder / "truth.json").write_text(json.dumps(truth, indent=1) + "\n")
    return truth


def _workload(request: Request) -> Workload:
    kernels = request.kernels_a_step or KERNELS_A_STEP
    probe = Workload(
        seed=request.seed,
        median_kernel_ns=request.median_kernel_ns,
        world_size=request.world_size,
        num_steps=1,
        kernels_a_step=kernels,
    )
    activities = len(next(draw_steps(probe, 0)).activities)
    # a little fewer steps than the events would hold: operators of the host fill the rest
    num_steps = max(1, int(request.num_events / (activities * (EVENTS_PER_ACTIVITY + request.sync_share))))
    return Workload(
        seed=request.seed,
        median_kernel_ns=request.median_kernel_ns,
        world_size=request.world_size,
        num_steps=num_steps,
        kernels_a_step=kernels,
    )


def _write_rank(request: Request, work: Workload, rank: int, tally: Tally) -> dict[str, Any]:
    path = request.folder / f"rank{rank}.trace.json{'.gz' if request.compress else ''}"
    offset_ns = 0
    if request.clock_spread_ns:
        offset_ns = (rank * 7919 * 1009) % request.clock_spread_ns
    with _sections(request.folder) as (host, device, tail):
        _write_steps(request, work, rank, START_NS + offset_ns, tally, (host, device, tail))
        tail.write(_names())
        fill = request.num_events - host.num - device.num - tail.num
        last_ns = START_NS + work.num_steps * step_length_ns(work)
        host.write(kineto_text.operator(i, MAIN_THREAD, last_ns + 700 * i, 600) for i in range(max(0, fill)))
        num_events = host.num + device.num + tail.num
        groups = sorted(
            {
                (*_group(plan.name, group), group)
                for plan in COMM_PLANS
                for r in range(work.world_size)
                if (group := group_of(r, plan, work.world_size))
            }
        )
        _assemble(
            path, kineto_text.header(rank, work.world_size, groups), [host, device, tail], kineto_text.footer(rank)
        )
    return {
        "rank": rank,
        "path": path.name,
        "num_bytes": path.stat().st_size,
        "num_events": num_events,
        "clock_offset_ns": offset_ns,
        **tally.truth(),
    }


def _group(collective: str, group: tuple[int, ...]) -> tuple[str, str]:
    return kineto_text.group_name(Collective(0, collective, group, 0, 0, 0, 0, 0))


@contextmanager
def _sections(folder: Path) -> Iterator[tuple[EventFile, EventFile, EventFile]]:
    """Yield files for the host's events, the device's, and what stands at the end; they are gone afterwards."""
    with (
        tempfile.TemporaryFile("w+", dir=folder) as host,
        tempfile.TemporaryFile("w+", dir=folder) as device,
        tempfile.TemporaryFile("w+", dir=folder) as tail,
    ):
        yield EventFile(host), EventFile(device), EventFile(tail)


def _assemble(path: Path, header: str, sections: list[EventFile], footer: str) -> None:
    # no time stamp in the gzip header: the same request gives the same bytes
    with path.open("wb") as raw, gzip.GzipFile("", "wb", 6, raw, 0) if path.suffix == ".gz" else raw as out:  # type: ignore[union-attr]
        out.write(header.encode())
        separator = b""
        for section in sections:
            section.stream.flush()
            section.stream.seek(0)
            if section.num:
                out.write(separator)
                shutil.copyfileobj(section.stream.buffer, out, 1 << 20)  # type: ignore[attr-defined]
                separator = b",\n"
        out.write(footer.encode())


def _write_steps(
    request: Request,
    work: Workload,
    rank: int,
    offset_ns: int,
    tally: Tally,
    files: tuple[EventFile, EventFile, EventFile],
) -> None:
    host, device, tail = files
    correlation = 1
    forward: list[str] = []
    backward: list[str] = []
    for step in draw_steps(work, rank):
        tally.add(step)
        first_backward = int(len(step.activities) * BACKWARD_FROM)
        for position, (activity, collective) in enumerate(_in_launch_order(step)):
            thread, buffer = (MAIN_THREAD, forward) if position < first_backward else (BACKWARD_THREAD, backward)
            texts = _records(activity, collective, correlation, thread, offset_ns)
            buffer.extend(texts)
            if _due(request.sync_share, correlation):
                wait = (activity.end_ns + offset_ns, work.median_kernel_ns // 2)
                buffer.append(kineto_text.sync_event("Stream Wait Event", activity.stream, wait, correlation))
            for i in range(_due(OPERATORS_PER_ACTIVITY, correlation)):
                start_ns = activity.start_ns + offset_ns - 20_000 + 900 * i
                host.write([kineto_text.operator(2 * correlation + i, thread, start_ns, 2_500 - 900 * i)])
            correlation += 1
        host.write(_host_annotations(step, offset_ns))
        tail.write(_device_annotations(step, offset_ns))
        if (step.number + 1) % STEPS_A_BUFFER == 0 or step.number + 1 == work.num_steps:
            # the autograd thread's buffer comes first, as in the shared trace
            device.write(backward)
            device.write(forward)
            forward, backward = [], []


def _due(share: float, number: int) -> int:
    """Return how many of something fall to this number so that after n numbers there are share * n of them."""
    return int(share * (number + 1)) - int(share * number)


def _in_launch_order(step: Step) -> Iterator[tuple[Activity, Collective | None]]:
    """Return activities as the host launched them: the main stream's queue is the longest."""
    by_index = {c.index: c for c in step.collectives}
    lead_ns = (step.activities[-1].start_ns - step.activities[0].start_ns) // 20

    def launched_ns(activity: Activity) -> int:
        return activity.start_ns - (lead_ns if activity.stream == MAIN else 0)

    for activity in sorted(step.activities, key=launched_ns):
        yield activity, by_index[activity.label] if activity.kind == COMMUNICATION else None


def _records(
    activity: Activity, collective: Collective | None, correlation: int, thread: int, offset_ns: int
) -> Iterator[str]:
    """Yield what CUPTI records of one activity: it, its launch, the arrow, and a call beside it now and then."""
    launched_ns = activity.start_ns + offset_ns - 15_000
    yield kineto_text.device_event(activity, collective, correlation, offset_ns)
    yield kineto_text.flow("f", correlation, (0, activity.stream), activity.start_ns + offset_ns)
    name, cbid = kineto_text.launch_of(activity)
    yield kineto_text.call(name, cbid, correlation, thread, (launched_ns, 4_321))
    yield kineto_text.flow("s", correlation, (HOST_PID, thread), launched_ns)
    if _due(CALLS_PER_ACTIVITY, correlation):
        name, cbid = kineto_text.CALLS[correlation % len(kineto_text.CALLS)]
        yield kineto_text.call(name, cbid, correlation + (1 << 26), thread, (launched_ns + 5_000, 1_234))
        yield kineto_text.flow("s", correlation + (1 << 26), (HOST_PID, thread), launched_ns + 5_000)


def _host_annotations(step: Step, offset_ns: int) -> Iterator[str]:
    start_ns, end_ns = step.activities[0].start_ns + offset_ns, max(a.end_ns for a in step.activities) + offset_ns
    span = (start_ns - 50_000, end_ns - start_ns + 50_000)  # from before the first launch
    yield kineto_text.annotation("user_annotation", f"ProfilerStep#{step.number}", (HOST_PID, MAIN_THREAD), span, 1)


def _device_annotations(step: Step, offset_ns: int) -> Iterator[str]:
    """Yield the step as each stream saw it, and FSDP's ranges around the collectives."""
    for stream in sorted({a.stream for a in step.activities}):
        own = [a for a in step.activities if a.stream == stream]
        start_ns, end_ns = own[0].start_ns, max(a.end_ns for a in own)
        span = (start_ns + offset_ns, end_ns - start_ns)
        yield kineto_text.annotation("gpu_user_annotation", f"ProfilerStep#{step.number}", (0, stream), span, 1)
    for c in step.collectives:
        span = (c.start_ns + offset_ns, c.end_ns - c.start_ns)
        yield kineto_text.annotation(
            "gpu_user_annotation", f"FSDP::{c.name} (layers.{c.index})", (0, c.stream), span, 2
        )


def _names() -> Iterator[str]:
    for pid, label in ((HOST_PID, "CPU"), (0, "GPU 0")):
        yield kineto_text.metadata("process_name", pid, "name", '"python"')
        yield kineto_text.metadata("process_labels", pid, "labels", f'"{label}"')


def main() -> None:
    """Write the traces asked for on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--events", type=int, default=1_000_000, help="of each rank")
    parser.add_argument("--ranks", type=int, default=1, help="files to write")
    parser.add_argument("--world-size", type=int, default=8)
    parser.add_argument("--median-kernel-us", type=float, default=6)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--gzip", action="store_true")
    parser.add_argument("--sync-share", type=float, default=0.0, help="synchronisation events per device event")
    parser.add_argument("--clock-spread-us", type=float, default=0.0)
    given = parser.parse_args()
    truth = write_traces(
        Request(
            folder=given.folder,
            num_events=given.events,
            num_ranks=given.ranks,
            world_size=max(given.world_size, given.ranks),
            median_kernel_ns=round(given.median_kernel_us * 1000),
            seed=given.seed,
            compress=given.gzip,
            sync_share=given.sync_share,
            clock_spread_ns=round(given.clock_spread_us * 1000),
        )
    )
    for rank in truth["ranks"]:
        print(rank["path"], rank["num_bytes"], "bytes", rank["num_events"], "events", f"{rank['overlap_share']:.4%}")


if __name__ == "__main__":
    main()
