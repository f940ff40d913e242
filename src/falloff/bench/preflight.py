"""What this node's GPUs do before a study: products, memory, collectives of all and of each pair, clocks and watts.

    python -m falloff.bench.preflight OUT.json --device cuda --processes 8 --limit-s 600   (falloff.preflight does)

One process a GPU. Every rank writes what it measured as it goes, so that a failure leaves what came before it.
"""

import argparse
import json
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import combinations
from pathlib import Path
from typing import Any, Literal, NoReturn

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor

from falloff.bench.power import PERIOD_S
from falloff.bench.power_nvml import nvml_source
from falloff.bench.power_source import Meter, Reading
from falloff.bench.rank import exchange, gpu_uuid, leave
from falloff.provenance import find_nvml
from falloff.units import GIB, KIB, MIB, bytes_label

RATES_NAME = "rates.rank{rank}.jsonl"
REPEATS = 5
COLLECTIVE_TIMEOUT_S = 90
WARM_UP_CALLS = 3
# Of the time under load, what is left out at its beginning: an H200's SM clock fell from 1,965 to 1,890 MHz in the
# first 0.6 s of products and then stayed within 4 % (driver 580, 2026-11-30).
SETTLING_SHARE = 0.2


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How large and how long everything is on a kind of device."""

    device: Literal["cpu", "cuda"]
    dtype: torch.dtype
    gemm_size: int
    burst_calls: int
    sustained_s: float
    block_s: float
    array_bytes: int
    array_calls: int
    message_calls: tuple[tuple[int, int], ...]  # bytes of a message, calls in one repeat


PLANS = {
    "cuda": Plan(
        device="cuda",
        dtype=torch.bfloat16,
        gemm_size=8192,
        burst_calls=10,
        sustained_s=6.0,
        block_s=0.25,
        array_bytes=2 * GIB,
        array_calls=20,
        message_calls=((GIB, 5), (64 * KIB, 100)),
    ),
    # enough to try the whole path, too little to judge a machine by
    "cpu": Plan(
        device="cpu",
        dtype=torch.float32,
        gemm_size=128,
        burst_calls=10,
        sustained_s=0.2,
        block_s=0.02,
        array_bytes=4 * MIB,
        array_calls=4,
        message_calls=((MIB, 2), (64 * KIB, 5)),
    ),
}


class Worker:
    """One rank: its device, its plan, the others, and the file that takes what it measured."""

    def __init__(self, index: int, size: int, plan: Plan, folder: Path) -> None:
        self.index, self.size, self.plan = index, size, plan
        self.device = torch.device("cuda", index) if plan.device == "cuda" else torch.device("cpu")
        if plan.device == "cuda":
            torch.cuda.set_device(self.device)
        else:
            torch.set_num_threads(1)
        self.store = dist.FileStore(str(folder / "store"), size)  # type: ignore[attr-defined]
        self._path = folder / RATES_NAME.format(rank=index)
        self._num_meetings = 0

    def write(self, measure: str, unit: str, ranks: Sequence[int], repeats: Sequence[float], **more: Any) -> None:
        """Append one measure of one rank or of several together: a rate a repeat."""
        line = {"measure": measure, "unit": unit, "ranks": list(ranks), "repeats": list(repeats), **more}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def meet(self) -> None:
        """Wait for every rank, by the store alone: what waits in NCCL keeps its GPU at work."""
        self._num_meetings += 1
        exchange(self.store, f"meeting {self._num_meetings}", self.index, self.size, "")

    def seconds(self, call: Callable[[], object], calls: int) -> float:
        """Return the seconds that one of so many calls in a row takes on the device."""
        if self.device.type == "cpu":
            began_s = time.perf_counter()
            for _ in range(calls):
                call()
            return (time.perf_counter() - began_s) / calls
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        begin.record()
        for _ in range(calls):
            call()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) * 1e-3 / calls

    def wait(self) -> None:
        """Wait for the device."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def work(index: int, size: int, plan: Plan, folder: Path) -> NoReturn:
    """Measure everything as one rank of `size`, and end the process."""
    worker = Worker(index, size, plan, folder)
    worker.write("uuid", "", [index], [], uuid=gpu_uuid(worker.device))
    worker.meet()
    measure_products(worker)
    worker.meet()
    measure_memory(worker)
    worker.wait()
    if plan.device == "cuda":
        torch.cuda.empty_cache()
    worker.meet()
    if size > 1:
        join_others(worker)
        measure_collectives(worker)
        dist.destroy_process_group()
    leave(0)


def measure_products(worker: Worker) -> None:
    """Time a square product: a few calls after a rest, then for seconds on end, all GPUs at once.

    Of normal random numbers: zeros flip no bits, so that a GPU under its power limit would clock higher.
    """
    plan, size = worker.plan, worker.plan.gemm_size
    a, b = (torch.randn(size, size, dtype=plan.dtype, device=worker.device) for _ in range(2))
    out = torch.empty_like(a)
    flops = 2 * size**3
    name = f"product {str(plan.dtype).removeprefix('torch.')} {size}"

    def call() -> object:
        return torch.mm(a, b, out=out)

    for _ in range(WARM_UP_CALLS):
        call()
    burst_s = []
    for _ in range(REPEATS):
        worker.wait()
        time.sleep(plan.block_s)
        burst_s.append(worker.seconds(call, plan.burst_calls))
    worker.write(f"{name}, burst", "FLOP/s", [worker.index], [flops / seconds for seconds in burst_s])
    worker.meet()
    calls = max(1, math.ceil(plan.block_s / burst_s[-1]))
    begin_s = time.time()
    blocks = list(_blocks(worker, call, calls))
    kept = [(at_s, seconds) for at_s, seconds in blocks if at_s >= begin_s + SETTLING_SHARE * plan.sustained_s]
    worker.write(
        f"{name}, sustained",
        "FLOP/s",
        [worker.index],
        [flops / seconds for _, seconds in kept],
        window=[kept[0][0], time.time()],
    )
    if not torch.isfinite(out).all():
        raise ValueError(f"rank {worker.index}: the product of finite numbers is not finite")


def _blocks(worker: Worker, call: Callable[[], object], calls: int) -> Iterator[tuple[float, float]]:
    """Yield when each block of calls began and the seconds of one call, until the plan's time is over.

    One more block than that at least, so that what follows the settling is never empty.
    """
    end_s = time.time() + worker.plan.sustained_s
    while True:
        began_s = time.time()
        yield began_s, worker.seconds(call, calls)
        if began_s > end_s:
            return


def measure_memory(worker: Worker) -> None:
    """Time a copy and a triad (a = b + 3 c) of large arrays; bytes read and bytes written count."""
    plan = worker.plan
    a, b, c = (torch.randn(plan.array_bytes // 4, device=worker.device) for _ in range(3))
    calls: dict[str, tuple[int, Callable[[], object]]] = {
        "copy": (2, lambda: a.copy_(b)),
        "triad": (3, lambda: torch.add(b, c, alpha=3.0, out=a)),
    }
    for name, (num_arrays, call) in calls.items():
        call()
        seconds = [worker.seconds(call, plan.array_calls) for _ in range(REPEATS)]
        rates = [num_arrays * plan.array_bytes / one_s for one_s in seconds]
        worker.write(f"memory {name}", "B/s", [worker.index], rates)


def join_others(worker: Worker) -> None:
    """Start the process group of all ranks."""
    on_gpu = worker.device.type == "cuda"
    dist.init_process_group(
        "nccl" if on_gpu else "gloo",
        store=dist.PrefixStore("group", worker.store),  # type: ignore[attr-defined]
        rank=worker.index,
        world_size=worker.size,
        timeout=timedelta(seconds=COLLECTIVE_TIMEOUT_S),
        device_id=worker.device if on_gpu else None,
    )


def measure_collectives(worker: Worker) -> None:
    """Time AllReduce over all ranks, then SendRecv and AllReduce of each pair alone while the others rest."""
    everyone = range(worker.size)
    _measure_group(worker, list(everyone), None)
    for pair in combinations(everyone, 2):
        worker.meet()
        # every rank takes part in making a group, also those that are not in it
        group = dist.new_group(list(pair)) if worker.size > 2 else None
        if worker.index in pair:
            _measure_group(worker, list(pair), group, is_pair=True)
            if group is not None:
                dist.destroy_process_group(group)
    worker.meet()


def _measure_group(worker: Worker, ranks: list[int], group: dist.ProcessGroup | None, *, is_pair: bool = False) -> None:
    for message_bytes, calls in worker.plan.message_calls:
        tensor = torch.empty(message_bytes // worker.plan.dtype.itemsize, dtype=worker.plan.dtype, device=worker.device)
        _check_sum(worker, tensor, ranks, group)
        if not is_pair or worker.size > 2:  # of two ranks the pair is all
            _measure_call(
                worker,
                f"{'pair ' if is_pair else ''}all_reduce {bytes_label(message_bytes)}",
                ranks,
                # bus bandwidth as nccl-tests defines it
                2 * (len(ranks) - 1) / len(ranks) * message_bytes,
                lambda tensor=tensor: dist.all_reduce(tensor, group=group),  # type: ignore[misc]
                calls,
            )
        if is_pair:
            name = f"pair send_recv {bytes_label(message_bytes)}"
            _measure_call(worker, name, ranks, message_bytes, _exchange_call(worker, tensor, ranks, group), calls)


def _measure_call(
    worker: Worker, measure: str, ranks: list[int], num_bytes: float, call: Callable[[], object], calls: int
) -> None:
    for _ in range(WARM_UP_CALLS):
        call()
    rates = [num_bytes / worker.seconds(call, calls) for _ in range(REPEATS)]
    if worker.index == ranks[0]:
        worker.write(measure, "B/s", ranks, rates)


def _exchange_call(
    worker: Worker, given: Tensor, ranks: list[int], group: dist.ProcessGroup | None
) -> Callable[[], object]:
    """Return a call in which two ranks send to each other at once."""
    gotten = torch.empty_like(given)
    (other,) = [rank for rank in ranks if rank != worker.index]

    def call() -> None:
        both = [dist.P2POp(dist.isend, given, other, group), dist.P2POp(dist.irecv, gotten, other, group)]
        for sent in dist.batch_isend_irecv(both):
            sent.wait()

    return call


def _check_sum(worker: Worker, tensor: Tensor, ranks: list[int], group: dist.ProcessGroup | None) -> None:
    """Raise ValueError where a sum over ranks is wrong; small whole numbers are exact in bfloat16."""
    tensor.fill_(ranks.index(worker.index) + 1)
    dist.all_reduce(tensor, group=group)
    expected = len(ranks) * (len(ranks) + 1) // 2
    if not bool((tensor == expected).all()):
        raise ValueError(f"rank {worker.index}: AllReduce over ranks {ranks} gave wrong sums")
    tensor.zero_()


class Watch:
    """Reads clocks, watts and throttling of all GPUs while the ranks work; nothing on a CPU."""

    def __init__(self, device: str) -> None:
        nvml = find_nvml() if device == "cuda" else None
        source = nvml_source(nvml) if nvml is not None else None
        self.meters: tuple[Meter, ...] = source.meters if source else ()
        self.readings: list[Reading] = []
        self._read, self._ended = source.read if source else list, threading.Event()
        self._thread = threading.Thread(target=self._loop, daemon=True)

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._ended.set()
        self._thread.join()

    def _loop(self) -> None:
        while not self._ended.wait(PERIOD_S):
            self.readings.extend(self._read())


def rank_lines(folder: Path) -> list[dict[str, Any]]:
    """Return what all ranks wrote, those of one rank in the order of its work; a line cut by a death is left out."""
    found = []
    for path in sorted(folder.glob(RATES_NAME.format(rank="*"))):
        text = path.read_text(encoding="utf-8")
        found += [json.loads(line) for line in text.split("\n")[:-1]]
    return found


def loads_of(lines: Sequence[dict[str, Any]], watch: Watch) -> list[dict[str, Any]]:
    """Return of each rank the NVML index of its GPU and what its meter said under the sustained load."""
    uuids = {line["ranks"][0]: line["uuid"] for line in lines if line["measure"] == "uuid"}
    windows = {line["ranks"][0]: line["window"] for line in lines if "window" in line}
    meters = {meter.uuid: meter for meter in watch.meters}
    loads = []
    for rank, uuid in sorted(uuids.items()):
        meter = meters.get(uuid)
        begin_s, end_s = windows.get(rank, (math.inf, -math.inf))
        inside = [r for r in watch.readings if meter and r.device == meter.index and begin_s <= r.time_s <= end_s]
        loads.append(
            {
                "rank": rank,
                "index": meter.index if meter else None,
                "uuid": uuid,
                "name": meter.name if meter else None,
                "sm_clock_mhz": [r.sm_clock_mhz for r in inside if r.sm_clock_mhz is not None],
                "draw_w": [r.draw_w for r in inside if r.draw_w is not None],
                "temperature_c": [r.temperature_c for r in inside if r.temperature_c is not None],
                "throttle_reasons": [r.throttle_reasons for r in inside if r.throttle_reasons is not None],
            }
        )
    return loads


def run_ranks(count: int, plan: Plan, folder: Path, limit_s: float) -> None:
    """Run so many ranks to their end; raise what ended one of them, TimeoutError after limit_s."""
    end_s = time.monotonic() + limit_s
    ranks = mp.spawn(work, (count, plan, folder), count, join=False)  # type: ignore[attr-defined,no-untyped-call]
    while not ranks.join(timeout=max(0.0, end_s - time.monotonic())):
        if time.monotonic() >= end_s:
            for process in ranks.processes:
                process.kill()  # one that is stuck in a collective heeds no gentler signal
            raise TimeoutError(f"not done after {limit_s:g} s")


def main(arguments: Sequence[str]) -> int:
    """Measure with as many processes as asked for, and write one file of all that they found, whatever ended them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", choices=sorted(PLANS), required=True)
    parser.add_argument("--processes", type=int, required=True)
    parser.add_argument("--limit-s", type=float, required=True)
    parsed = parser.parse_args(arguments)
    folder, watch = parsed.out.parent, Watch(parsed.device)
    try:
        with watch:
            run_ranks(parsed.processes, PLANS[parsed.device], folder, parsed.limit_s)
    finally:
        lines = rank_lines(folder)
        found = {"rates": [line for line in lines if line["repeats"]], "loads": loads_of(lines, watch)}
        parsed.out.write_text(json.dumps(found), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
