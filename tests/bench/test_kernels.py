"""A table of kernels of a tiny network, measured whole on the CPU, and what is done about kernels that do not run."""

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from falloff import rawlog
from falloff.bench import kernels
from falloff.bench.kernel_shapes import kernels_of
from falloff.bench.rank import Rank
from falloff.spec.kernels_cell import KernelsCell
from falloff.spec.network import Network

TINY = Network(name="tiny", layers=2, hidden=32, heads=4, kv_heads=2, ffn=48, vocab=64, source="a test")
CELL = KernelsCell(
    networks=(TINY,),
    tokens=(32, 64),
    sequences=(32,),
    attention_tokens=64,
    dtypes=("float32",),
    optimizer_params=(1000,),
    compile=False,
    pause_s=0.0,
    burst_s=0.0005,
    window_s=0.002,
    sustained_s=0.01,
    sustained_kernels=2,
)


@pytest.fixture(scope="module")
def one_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Hold a process group of this process alone, on one thread as ranks are on CPUs."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    store = dist.FileStore(str(tmp_path_factory.mktemp("store") / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1, timeout=datetime.timedelta(seconds=20))
    yield
    torch.set_num_threads(threads)
    dist.destroy_process_group()


def measured(folder: Path, cell: KernelsCell) -> list[dict[str, Any]]:
    kernels.measure(Rank(run_dir=folder, cell=cell, cpu_name="a CPU", device=torch.device("cpu"), index=0, size=1))
    return [event for event in rawlog.read_open_events(folder) if event["event"] == "kernel"]


@pytest.fixture(scope="module")
def events(one_process: None, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return measured(tmp_path_factory.mktemp("run"), CELL)


def key(event: dict[str, Any]) -> tuple[Any, ...]:
    return event["kernel"], tuple(event["shape"].items()), event["dtype"]


def test_each_kernel_has_a_burst_and_a_window_or_a_reason(events: list[dict[str, Any]]) -> None:
    modes: dict[tuple[Any, ...], list[str | None]] = {}
    for event in events:
        modes.setdefault(key(event), []).append(event["mode"])
    asked = {(shape.kernel, shape.sizes, shape.dtype) for shape in kernels_of(CELL)}
    assert asked == {name for name in modes if not name[0].startswith(("launch", "graph"))}
    for name in asked:
        assert modes[name] in ([None], ["burst", "window"], ["burst", "window", "sustained"]), name


def test_what_ran_states_laps_calls_and_work(events: list[dict[str, Any]]) -> None:
    ran = [event for event in events if event["outcome"] == "ok"]
    assert len(ran) > 60
    for event in ran:
        assert 1 <= len(event["times_s"]) <= 50
        assert all(seconds > 0 for seconds in event["times_s"])
        assert event["laps"] >= len(event["times_s"])
        assert event["calls"] >= 1
        assert event["rank"] == 0
        assert event["gpu_uuid"] is event["draw_w"] is event["sm_clock_mhz"] is event["temperature_c"] is None
    (gemm,) = [
        event
        for event in ran
        if key(event)[:2] == ("gemm_wgrad", (("m", 48), ("n", 32), ("k", 64))) and event["mode"] == "window"
    ]
    assert (gemm["operation"], gemm["flops"], gemm["sets"]) == ("gemm", 2 * 48 * 32 * 64, 2)
    assert gemm["bytes"] == 4 * (48 * 64 + 64 * 32 + 48 * 32)


def test_a_window_lasts_as_long_as_asked(events: list[dict[str, Any]]) -> None:
    lasted = [sum(e["times_s"]) * e["laps"] / len(e["times_s"]) for e in events if e["mode"] == "sustained"]
    assert len(lasted) == 2
    for seconds in lasted:
        # what is asked, less what stands between laps
        assert seconds > 0.5 * CELL.sustained_s


def test_what_steps_spend_most_flops_on_is_sustained(events: list[dict[str, Any]]) -> None:
    sustained = {event["kernel"] for event in events if event["mode"] == "sustained"}
    assert sustained == {"attention_backward_flash", "gemm_forward"} or sustained < {
        "gemm_forward",
        "gemm_dgrad",
        "gemm_wgrad",
    }


def test_a_kernel_that_the_device_has_not_says_why(events: list[dict[str, Any]]) -> None:
    reasons = {event["kernel"]: event["reason"] for event in events if event["outcome"] == "refused"}
    assert reasons["launch_device"] == "it needs a GPU"
    assert "No viable backend" in reasons["attention_forward_cudnn"]
    assert "attention_forward_flash" not in reasons
    assert all(event["mode"] is None for event in events if event["outcome"] == "refused")


def test_a_kernel_for_which_memory_runs_out_is_oom_and_the_next_one_runs(
    one_process: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_calls = kernels.make_calls

    def make_some(shape: Any, device: torch.device, sets: int) -> Any:
        if shape.kernel == "gemm_dgrad":
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 8 GiB\nand more")
        return make_calls(shape, device, sets)

    monkeypatch.setattr(kernels, "make_calls", make_some)
    cell = KernelsCell(
        networks=(TINY,), operations=("gemm",), tokens=(32,), dtypes=("float32",), burst_s=1e-4, window_s=1e-4,
        pause_s=0.0, sustained_s=1e-4, sustained_kernels=9,
    )  # fmt: skip
    events = measured(tmp_path, cell)
    lost = [event for event in events if event["outcome"] == "oom"]
    assert {event["kernel"] for event in lost} == {"gemm_dgrad"}
    assert lost[0]["reason"] == "OutOfMemoryError: CUDA out of memory. Tried to allocate 8 GiB"
    assert [event["kernel"] for event in events if event["mode"] == "sustained"] == ["gemm_forward", "gemm_wgrad"]


def test_what_the_budget_does_not_reach_is_not_measured_and_says_so(one_process: None, tmp_path: Path) -> None:
    cell = KernelsCell(
        networks=(TINY,), operations=("gemm",), tokens=(32,), dtypes=("float32",), sustained_s=0.0, budget_s=1e-9
    )
    events = measured(tmp_path, cell)
    assert {event["reason"] for event in events} == {"not measured: the cell's budget_s of 1e-09 s was spent"}
    assert {event["outcome"] for event in events} == {"refused"}


def test_every_rank_writes_its_own_events(one_process: None, tmp_path: Path) -> None:
    cell = KernelsCell(
        networks=(TINY,), operations=("gemm",), tokens=(32,), dtypes=("float32",), num_processes=2, burst_s=1e-4,
        window_s=1e-4, pause_s=0.0, sustained_s=0.0,
    )  # fmt: skip
    kernels.measure(Rank(run_dir=tmp_path, cell=cell, cpu_name="a CPU", device=torch.device("cpu"), index=1, size=2))
    events = rawlog.read_open_events(tmp_path)
    assert {(event["event"], event["rank"]) for event in events} == {("kernel", 1)}


def test_another_cell_is_refused(tmp_path: Path) -> None:
    from falloff.spec.collectives_cell import CollectivesCell

    cell = CollectivesCell(num_processes=2, collectives=("all_reduce",), message_bytes=(64,))
    rank = Rank(run_dir=tmp_path, cell=cell, cpu_name="a CPU", device=torch.device("cpu"), index=0, size=1)
    with pytest.raises(ValueError, match="the cell is of kind 'collectives'; this benchmark times kernels"):
        kernels.measure(rank)


@pytest.mark.parametrize(
    ("set_bytes", "cache_bytes", "sets"), [(10, None, 2), (10, 100, 30), (1, 100, 64), (1000, 100, 1)]
)
def test_so_many_sets_that_none_is_found_in_the_cache(set_bytes: int, cache_bytes: int | None, sets: int) -> None:
    assert kernels.num_sets(set_bytes, cache_bytes) == sets
