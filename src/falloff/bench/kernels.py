"""One rank of a table of kernels: each timed by itself, in a burst and in a window, the largest also for long.

Ranks measure all at once, each its own GPU, and write their own events.
"""

import math
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from falloff import rawlog
from falloff.bench.failure import failure_kind
from falloff.bench.kernel_calls import make_calls
from falloff.bench.kernel_launch import KERNELS, LAUNCHES, Launch
from falloff.bench.kernel_meter import GpuState, Meter
from falloff.bench.kernel_shapes import KernelShape, kernels_of, most_used
from falloff.bench.kernel_timing import Timed, Unit, make_unit, synchronize, time_burst, time_window
from falloff.bench.rank import Rank, append_process_group, gpu_uuid
from falloff.spec.kernels_cell import KernelsCell

Mode = Literal["burst", "window", "sustained"]

# Tensors of a kernel are had several times over, until together they are this many times the GPU's second-level cache:
# a call then finds none of its inputs there. Between the calls of one set the others have passed through.
CACHE_FACTOR = 3
MAX_SETS = 64
CPU_SETS = 2
MAX_REASON = 300


@dataclass(frozen=True, kw_only=True)
class _Bench:
    """What measuring needs on one rank, and which kernels did not run there."""

    rank: Rank
    cell: KernelsCell
    meter: Meter
    gpu_uuid: str | None
    failed: set[KernelShape] = field(default_factory=set)

    def append(self, shape: KernelShape | Launch, mode: Mode | None, **fields: Any) -> None:
        """Append the event of one kernel in one mode, whichever rank this is."""
        rawlog.append_event(
            self.rank.run_dir,
            "kernel",
            rank=self.rank.index,
            gpu_uuid=self.gpu_uuid,
            **_identity(shape),
            mode=mode,
            **fields,
        )


def measure(rank: Rank) -> None:
    """Time every kernel of the cell on this rank's device and write an event for each and its modes.

    A kernel that the device has not, or that does not fit into its memory, is an event with its reason.
    """
    cell = rank.cell
    if not isinstance(cell, KernelsCell):
        raise ValueError(f"{rank.run_dir}: the cell is of kind {cell.kind!r}; this benchmark times kernels")
    append_process_group(rank, params=None, local_params=None)
    torch.manual_seed(cell.seed)
    uuid, ends_s = gpu_uuid(rank.device), time.monotonic() + cell.budget_s
    bench = _Bench(rank=rank, cell=cell, meter=Meter(uuid), gpu_uuid=uuid)
    shapes = kernels_of(cell)
    if "launch" in cell.operations:
        for launch in LAUNCHES:
            _measure_launch(bench, launch)
    kept_s = cell.sustained_kernels * cell.sustained_s
    for shape in shapes:
        _measure_kernel(bench, shape, ("burst", "window"), ends_s - kept_s)
    if cell.sustained_s > 0:
        for shape in most_used([s for s in shapes if s not in bench.failed], cell.sustained_kernels):
            _measure_kernel(bench, shape, ("sustained",), ends_s)


def _identity(shape: KernelShape | Launch) -> dict[str, Any]:
    if isinstance(shape, Launch):
        return {
            "kernel": shape.kernel,
            "operation": "launch",
            "shape": {"kernels": KERNELS},
            "dtype": "float32",
            "flops": None,
            "bytes": None,
        }
    return {
        "kernel": shape.kernel,
        "operation": shape.operation,
        "shape": shape.shape,
        "dtype": shape.dtype,
        "flops": shape.flops,
        "bytes": shape.bytes,
    }


def _measure_launch(bench: _Bench, launch: Launch) -> None:
    device = bench.rank.device
    if launch.needs_gpu and device.type != "cuda":
        bench.append(launch, None, outcome="refused", reason="it needs a GPU")
        return
    try:
        times_s = launch.times_s(device)
    except RuntimeError as error:
        _append_failure(bench, launch, error)
        return
    timed = Timed(times_s=times_s, calls=KERNELS, num_laps=len(times_s), state=GpuState())
    bench.append(launch, "burst", **_result(timed, asked_s=None, sets=1, is_graph=launch.kernel.startswith("graph")))


def _measure_kernel(bench: _Bench, shape: KernelShape, modes: tuple[Mode, ...], ends_s: float) -> None:
    """Time a kernel in some modes; what keeps it from running is its result, unless it took the device with it."""
    if time.monotonic() > ends_s:
        bench.failed.add(shape)
        reason = f"not measured: the cell's budget_s of {bench.cell.budget_s:g} s was spent"
        bench.append(shape, None, outcome="refused", reason=reason)
        return
    try:
        for mode, fields in _timed_modes(bench, shape, modes):
            bench.append(shape, mode, **fields)
    except (RuntimeError, MemoryError, ValueError, TypeError, AttributeError) as error:
        bench.failed.add(shape)
        _append_failure(bench, shape, error)
    # raises where a kernel has broken the device for all that follow
    synchronize(bench.rank.device)


def _append_failure(bench: _Bench, shape: KernelShape | Launch, error: Exception) -> None:
    outcome = "oom" if failure_kind(error) == "oom" else "refused"
    line = (str(error).strip().splitlines() or [""])[0]
    bench.append(shape, None, outcome=outcome, reason=f"{type(error).__name__}: {line}"[:MAX_REASON])


def _timed_modes(bench: _Bench, shape: KernelShape, modes: tuple[Mode, ...]) -> Iterator[tuple[Mode, dict[str, Any]]]:
    """Yield what each mode of a kernel gave; its tensors live no longer than this."""
    device, cell = bench.rank.device, bench.cell
    sets = num_sets(shape.bytes, _cache_bytes(device))
    with warnings.catch_warnings():
        # attention says in a warning each why a backend is not to be had, and then raises; the error is kept
        warnings.simplefilter("ignore")
        calls = make_calls(shape, device, sets)
        unit = make_unit(calls, device, graph=_is_short(shape))
        for mode in modes:
            asked_s = {"burst": cell.burst_s, "window": cell.window_s, "sustained": cell.sustained_s}[mode]
            timed = _time(bench, unit, mode, asked_s)
            yield mode, _result(timed, asked_s=asked_s, sets=len(calls), is_graph=unit.is_graph)


def _time(bench: _Bench, unit: Unit, mode: Mode, asked_s: float) -> Timed:
    if mode == "burst":
        return time_burst(unit, bench.rank.device, bench.meter, pause_s=bench.cell.pause_s, burst_s=asked_s)
    return time_window(unit, bench.rank.device, bench.meter, window_s=asked_s)


def _is_short(shape: KernelShape) -> bool:
    """Return whether a kernel may be over before the host has launched the next, and can be captured.

    Attention's backward runs on the stream of its forward, which lies outside of a capture; the optimizer's step
    refuses to be captured. Both last long.
    """
    return not shape.operation.startswith("attention") and shape.operation != "adamw"


def num_sets(set_bytes: int, cache_bytes: int | None) -> int:
    """Return how many sets of tensors a kernel needs so that its inputs are never found in a cache of that size.

    One is enough where its own tensors push each other out. None: the cache is not known.
    """
    if cache_bytes is None:
        return CPU_SETS
    return min(MAX_SETS, math.ceil(CACHE_FACTOR * cache_bytes / set_bytes))


def _cache_bytes(device: torch.device) -> int | None:
    if device.type != "cuda":
        return None
    return int(torch.cuda.get_device_properties(device).L2_cache_size)


def _result(timed: Timed, *, asked_s: float | None, sets: int, is_graph: bool) -> dict[str, Any]:
    return {
        "outcome": "ok",
        "reason": None,
        "asked_s": asked_s,
        # an event resolves half a microsecond, so that a tenth of a nanosecond says all there is
        "times_s": [round(seconds, 10) for seconds in timed.times_s],
        "calls": timed.calls,
        "laps": timed.num_laps,
        "sets": sets,
        "cuda_graph": is_graph,
        "draw_w": timed.state.draw_w,
        "sm_clock_mhz": timed.state.sm_clock_mhz,
        "temperature_c": timed.state.temperature_c,
    }
