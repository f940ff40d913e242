"""What a run is, and the processes that runs share."""

import dataclasses
from pathlib import Path

import pytest

from falloff import launch
from falloff.launch import Processes, Run, rank_command
from falloff.spec.cell import TrainCell
from falloff.spec.collectives_cell import CollectivesCell
from falloff.spec.layout import Layout
from falloff.spec.network import Network
from falloff.spec.study import Limits

NETWORK = Network(name="tiny", layers=2, hidden=32, heads=4, kv_heads=2, ffn=64, vocab=64, source="a test")
TRAIN = TrainCell(network=NETWORK, layout=Layout(tp=2), seq=16, global_batch=4, microbatch=2)
RUN = Run(
    study="s",
    cell_id="c",
    repeat=1,
    cell=CollectivesCell(num_processes=2, collectives=("all_reduce",), message_bytes=(1024,)),
    limits=Limits(),
    run_dir=Path("runs/1"),
    device="cuda",
)


def run_with(name: str = "1", **changes: object) -> Run:
    return dataclasses.replace(RUN, run_dir=Path("runs") / name, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(("visible", "count"), [(None, 8), ("0,2", 2), ("", 0), ("-1", 0), ("1,-1,2", 1)])
def test_only_the_gpus_that_cuda_shows_count(monkeypatch: pytest.MonkeyPatch, visible: str | None, count: int) -> None:
    class Nvml:
        @staticmethod
        def nvmlDeviceGetCount() -> int:  # noqa: N802 (NVML's own name)
            return 8

    monkeypatch.setattr(launch, "find_nvml", lambda: Nvml)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert launch.num_attached_gpus() == count


def test_runs_of_like_processes_share_them_whatever_their_cells_are() -> None:
    assert RUN.place == run_with("2", cell=TRAIN).place == run_with("3", cell=replace_layout(dp_shard=2)).place


def test_layouts_of_more_than_two_ranks_have_processes_of_their_own() -> None:
    places = [
        run_with(cell=replace_layout(**axes)).place
        for axes in ({"dp_shard": 4}, {"tp": 2, "dp_shard": 2}, {"dp_shard": 4})
    ]
    assert places[0] == places[2] != places[1]


def replace_layout(**axes: int) -> TrainCell:
    return dataclasses.replace(TRAIN, layout=Layout(**axes), global_batch=8)


@pytest.mark.parametrize(
    "changes",
    [
        {"repeat": 2},
        {"gpu": 0},
        {"device": "cpu"},
        {"limits": Limits(process_memory_bytes=2**30)},
        {"cell": dataclasses.replace(RUN.cell, num_processes=4)},
        {"cell": dataclasses.replace(RUN.cell, threads_per_process=2)},
    ],
)
def test_runs_that_differ_in_what_a_process_is_started_with_do_not(changes: dict[str, object]) -> None:
    assert RUN.place != run_with("2", **changes).place


def test_a_run_with_symmetric_memory_has_processes_to_itself() -> None:
    cell = dataclasses.replace(TRAIN, async_tp=True, compile=True)
    assert run_with("1", cell=cell).place != run_with("2", cell=cell).place


def test_the_command_starts_a_rank_a_process_with_every_run() -> None:
    command = rank_command([RUN, run_with("2")])
    assert "--nproc-per-node=2" in command
    assert command[-4:] == ["-m", "falloff.bench.worker", "runs/1", "runs/2"]


@pytest.mark.parametrize(("visible", "shown"), [(None, "1"), ("4,6", "6"), ("GPU-a,GPU-b", "GPU-b")])
def test_a_run_on_one_gpu_sees_that_one_of_those_shown(
    monkeypatch: pytest.MonkeyPatch, visible: str | None, shown: str
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert launch._environment_of(run_with(gpu=1), "id")["CUDA_VISIBLE_DEVICES"] == shown
    assert launch._environment_of(RUN, "id").get("CUDA_VISIBLE_DEVICES") == visible


def test_a_user_who_sets_nccls_watchdog_is_heeded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", raising=False)
    assert launch._environment_of(RUN, "id")["TORCH_NCCL_ASYNC_ERROR_HANDLING"] == "3"
    monkeypatch.setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1")
    assert launch._environment_of(RUN, "id")["TORCH_NCCL_ASYNC_ERROR_HANDLING"] == "1"


def test_captured_collectives_keep_their_buffers_unregistered_where_segments_expand(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("PYTORCH_ALLOC_CONF", "NCCL_GRAPH_REGISTER"):
        monkeypatch.delenv(name, raising=False)
    environment = launch._environment_of(RUN, "id")
    assert environment["PYTORCH_ALLOC_CONF"] == "expandable_segments:True"
    assert environment["NCCL_GRAPH_REGISTER"] == "0"


def test_what_the_agent_prints_goes_to_one_run_once(tmp_path: Path) -> None:
    processes = Processes([RUN])
    first, second = tmp_path / "1", tmp_path / "2"
    for folder in (first, second):
        folder.mkdir()
    processes._output.write(b"one\n")
    processes._output.flush()
    assert processes.take_output(first) == "one\n"
    processes._output.write(b"two\n")
    processes._output.flush()
    assert processes.take_output(second) == "two\n"
    assert processes.exit_code is None
    processes.close()
