"""What a run is, and the processes that runs share."""

import dataclasses
import sys
from pathlib import Path

import pytest

from falloff import launch
from falloff.launch import Processes, Run, rank_command
from falloff.slurm.allocation import Allocation, SlurmJob
from falloff.spec.cell import TrainCell
from falloff.spec.collectives_cell import CollectivesCell
from falloff.spec.layout import Layout
from falloff.spec.network import Network
from falloff.spec.site import Container
from falloff.spec.study import Limits
from tests.site_of_a_test import a_site

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


JOB = Allocation(job_id="7", nodes=("n1", "n2", "n3"), addresses=("10.0.0.1", "10.0.0.2", "10.0.0.3"), port=20007)
FOUR = dataclasses.replace(RUN.cell, num_processes=4, threads_per_process=3)


def test_over_nodes_srun_starts_one_agent_a_node_and_they_meet_on_the_first() -> None:
    allocation = dataclasses.replace(JOB, nodes=JOB.nodes[:2], addresses=JOB.addresses[:2])
    command = rank_command([run_with(cell=FOUR), run_with("2", cell=FOUR)], allocation, a_site(gpus_per_node=2))
    assert command[0] == "srun"
    assert "--cpus-per-task=6" in command
    task = command[command.index("falloff.bench.node") + 1 :]
    assert task == [
        "--addresses",
        "10.0.0.1,10.0.0.2",
        "--max-restarts=0",
        "--nnodes=2",
        "--nproc-per-node=2",
        "--rdzv-backend=c10d",
        "--rdzv-endpoint=10.0.0.1:20007",
        "--rdzv-id=7",
        "-m",
        "falloff.bench.worker",
        "runs/1",
        "runs/2",
    ]


def test_an_image_brings_its_own_python_and_a_sites_lines_may() -> None:
    container = Container(image="/images/torch.sif", runtime="apptainer")
    allocation = dataclasses.replace(JOB, nodes=JOB.nodes[:1], addresses=JOB.addresses[:1])
    assert sys.executable in rank_command([RUN], allocation, a_site())
    assert sys.executable not in rank_command([RUN], allocation, a_site(container=container))
    script = rank_command([RUN], allocation, a_site(setup=("true",)))[-1].splitlines()
    assert script[1:3] == [f"export PATH={Path(sys.executable).parent}:$PATH", "true"]
    assert script[3].startswith(f"exec {Path(sys.executable).name} -m falloff.bench.node")


def test_ranks_in_a_job_have_the_sites_environment_and_none_of_an_outer_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SLURM_STEP_ID", "0")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("NCCL_DEBUG", "WARN")
    environment = launch._environment_of(RUN, "id", a_site(environment={"NCCL_DEBUG": "INFO"}))
    assert "SLURM_STEP_ID" not in environment
    assert (environment["SLURM_JOB_ID"], environment["FALLOFF_SITE"]) == ("7", "here")
    assert environment["NCCL_DEBUG"] == "INFO"


def test_a_log_names_neither_addresses_nor_paths_of_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    placement = {"job_id": "7", "nodes": ["n1", "n2"]}
    monkeypatch.setattr(launch, "placement_of", lambda _: placement)
    site = a_site(gpus_per_node=2, container=Container(image="/images/torch.sif", runtime="apptainer"))
    processes = Processes([run_with(cell=FOUR)], SlurmJob(allocation=JOB, site=site))
    first = launch.first_event(run_with(cell=FOUR), processes, 0)
    processes.close()
    assert first["placement"] == placement
    assert first["nodes"][0]["site"] == "here"
    assert first["command"][:5] == ["python", "-m", "falloff.bench.node", "--addresses", "NODE0,NODE1"]
    assert not [part for part in first["command"] if "10.0.0" in part or "/images" in part]
