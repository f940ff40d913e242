"""A raw log as the launcher and the ranks write one, through falloff's own writer."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from falloff import rawlog
from falloff.spec.cell import Cell, TrainCell, cell_to_json
from falloff.spec.collectives_cell import CollectivesCell
from falloff.spec.layout import Layout
from falloff.spec.network import Network

ROOT = Path(__file__).parents[2]
START_S = 1_800_000_000.0
NETWORK = Network(name="tiny", layers=2, hidden=8, heads=2, kv_heads=1, ffn=16, vocab=32, source="a test")

Event = dict[str, Any]


def train_cell() -> TrainCell:
    return TrainCell(
        network=NETWORK,
        layout=Layout(dp_shard=2),
        seq=16,
        global_batch=4,
        microbatch=1,
        warmup_steps=1,
        measured_steps=3,
        profiled_steps=1,
    )


def collectives_cell() -> CollectivesCell:
    return CollectivesCell(
        num_processes=2, collectives=("all_reduce", "all_gather"), message_bytes=(1024, 4096), measured_iterations=2
    )


def gpu(index: int) -> Event:
    return {
        "index": index,
        "name": "NVIDIA H200",
        "uuid": f"GPU-{index}",
        "board_part_number": "692-2G520-0282-000",
        "vbios": "96.00.A5.00.1A",
        "driver": "580.159.04",
        "memory_bytes": 150109880320,
        "power_limit_w": 700.0,
        "max_sm_clock_mhz": 1980,
        "nvlinks_active": 18,
    }


def first_event(cell: Cell, device: str, num_node_gpus: int) -> Event:
    node = {
        "host": "node-1",
        "kernel": "6.1",
        "cpu": "A CPU",
        "cores": 2,
        "memory_bytes": 2**34,
        "gpus": [gpu(index) for index in range(num_node_gpus)],
        "nics": [],
        "slurm_job_id": None,
        "site": None,
        "environment": {},
    }
    return {
        "event": "run_started",
        "schema": rawlog.SCHEMA,
        "study": "a_study",
        "cell_id": "tiny-dp_shard2-0123",
        "repeat": 1,
        "run_id": "abc",
        "cell": cell_to_json(cell),
        "limits": {"timeout_s": 60.0, "process_memory_bytes": None},
        "device": device,
        "backend": "nccl" if device == "cuda" else "gloo",
        "oversubscribed": False,
        "git": {"commit": None, "modified": None},
        "versions": {"python": "3.11.2", "falloff": "0.1.0", "torch": "2.13.0"},
        "nodes": [node],
        "command": ["python"],
    }


def train_events(device: str = "cpu", num_node_gpus: int = 0) -> list[Event]:
    """A run of one warm-up, three measured and one profiled step, ended well, without its outcome."""
    cell = train_cell()
    cuda = device == "cuda"
    process_group = {
        "event": "process_group",
        "backend": "nccl" if cuda else "gloo",
        "world_size": 2,
        "device_names": ["NVIDIA H200"] * 2 if cuda else ["cpu"] * 2,
        "gpu_uuids": ["GPU-1", "GPU-2"] if cuda else None,
        "torch": "2.13.0",
        "cuda": "13.0" if cuda else None,
        "nccl": "2.28.9" if cuda else None,
        "threads": 1,
        "params": NETWORK.params,
        "rank_params": [NETWORK.params // 2] * 2,
    }
    power = {
        "event": "power",
        "source": None,
        "reason": "no NVIDIA driver and no readable RAPL",
        "scope": "package",
        "devices": [],
        "period_s": 0.1,
        "file": None,
        "counter": False,
    }
    phases = ["warmup", "measured", "measured", "measured", "profiled"]
    steps = [
        {
            "event": "step",
            "step": number,
            "phase": phase,
            "start_time_s": START_S + number,
            "rank_step_s": [0.9, 0.8 + number / 100],
            "tokens": cell.tokens_per_step,
            "loss": 10.0 - number,
        }
        for number, phase in enumerate(phases, start=1)
    ]
    memory = {"event": "memory", "rank_peak_bytes": [1000, 2000], "kind": "process peak resident"}
    trace = {"event": "trace", "rank": 0, "file": "trace.rank0.json.gz", "steps": [5], "source": "kineto"}
    return [
        first_event(cell, device, num_node_gpus),
        power,
        process_group,
        *steps,
        memory,
        trace,
        {"event": "completed"},
    ]


def collective_events() -> list[Event]:
    cell = collectives_cell()
    group = {**train_events()[2], "params": None, "rank_params": None}
    results = [
        {
            "event": "collective",
            "collective": collective,
            "message_bytes": size,
            "num_ranks": 2,
            "dtype": "float32",
            "times_s": [0.001, 0.002],
            "correct": True,
        }
        for collective in cell.collectives
        for size in cell.message_bytes
    ]
    return [first_event(cell, "cpu", 0), group, *results, {"event": "completed"}]


OK: Event = {"event": "outcome", "outcome": "ok", "reason": None, "exit_code": 0, "wall_s": 9.0}


def write_native_log(root: Path, events: list[Event], outcome: Event = OK) -> Path:
    run_dir = root / "a_study" / "tiny-dp_shard2-0123" / "1"
    run_dir.mkdir(parents=True, exist_ok=True)
    for event in [*events, outcome]:
        rawlog.append_event(run_dir, **event)
    rawlog.seal(run_dir)
    return run_dir / rawlog.SEALED_NAME


@pytest.fixture(scope="module", autouse=True)
def _at_the_root() -> Iterator[None]:
    """Shipped folders are named relative to the root, as the workflow names them, wherever pytest is run from."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        yield


@pytest.fixture
def write_log(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that seals events as a log in its directory and returns the log's path."""
    return lambda events, outcome=OK: write_native_log(tmp_path, events, outcome)


@pytest.fixture
def begin() -> Callable[[Cell], list[Event]]:
    """Return the first events of a cell on a node's two GPUs, as a list."""
    group = {"event": "process_group", "backend": "nccl", "device_names": ["NVIDIA H200"] * 2, "torch": "2.11.0"}
    return lambda cell: [first_event(cell, "cuda", 2), {**group, "gpu_uuids": ["GPU-0", "GPU-1"]}]


@pytest.fixture
def cpu_run() -> list[Event]:
    return train_events()


@pytest.fixture
def cuda_run() -> list[Event]:
    """Two ranks on the second and third of a node's four GPUs."""
    return train_events("cuda", num_node_gpus=4)


@pytest.fixture
def sweep() -> list[Event]:
    return collective_events()


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes lines as a log and returns its path; `end` is what stands behind the last."""

    def write_lines(*lines: str, end: str = "\n") -> Path:
        path = tmp_path / "run.log"
        path.write_text("\n".join(lines) + end)
        return path

    return write_lines
