"""From cells to ranks: what a run is, and the processes that one or many runs share.

batch.py starts them, outlives them, and writes how each run ended.
"""

import dataclasses
import itertools
import os
import resource
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from falloff import rawlog
from falloff.ownership import GRACE_S, RUN_ID_VARIABLE, end_processes
from falloff.provenance import find_nvml, git_revision, node_fingerprint, versions
from falloff.slurm.allocation import Allocation, SlurmJob, narrowed, shown_allocation, without_outer_step
from falloff.slurm.command import site_environment, srun_command
from falloff.slurm.placement import placement_of
from falloff.slurm.resources import resources_of
from falloff.slurm.step import end_step
from falloff.spec.cell import Cell, TrainCell, cell_to_json
from falloff.spec.site import Site
from falloff.spec.study import Limits

Device = Literal["auto", "cpu", "cuda"]

# A collective that is stuck must end its process, so that the log can say so. SkipCleanUp (3): to abort the
# communicators first may hang as well. No dump: it delays the end, and this run's is not looked into.
RANK_ENVIRONMENT = {
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "3",
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "0",
    # Without it a step near the GPU's memory frees and asks for whole segments, which takes longer than the step.
    "PYTORCH_ALLOC_CONF": "expandable_segments:True",
    # NCCL registers the buffers of a captured collective, and with segments that expand that ends in illegal memory
    # accesses on GPUs before Blackwell: Megatron-LM refuses the two together (core/transformer/cuda_graphs.py).
    "NCCL_GRAPH_REGISTER": "0",
}
# NCCL's watchdog says what it has to say several times over within this much output.
_READ_BYTES = 2**20


@dataclass(frozen=True, kw_only=True)
class Run:
    """One repeat of one cell, and the directory that takes its log; `gpu` is the only one that its process sees."""

    study: str
    cell_id: str
    repeat: int
    cell: Cell
    limits: Limits
    run_dir: Path
    device: Literal["cpu", "cuda"]
    gpu: int | None = None

    @property
    def place(self) -> tuple[object, ...]:
        """Return what neighbouring runs must agree in to share their processes.

        Repeats do not: launches of one cell differ by more than its steps, and that is what they are for.
        """
        cell, layout, alone = self.cell, None, None
        if isinstance(cell, TrainCell):
            # Symmetric memory is kept under a group's name and has no public way to forget it, and the threads of the
            # backward pass keep meshes, which in another layout of more than two ranks may be equal and have other
            # groups (torch 2.11 and 2.13).
            layout = cell.layout if cell.num_processes > 2 else None
            alone = self.run_dir if cell.async_tp else None
        started_with = (cell.num_processes, cell.threads_per_process, self.device, self.gpu)
        return *started_with, self.limits.process_memory_bytes, self.repeat, layout, alone


def num_attached_gpus(device: Device = "auto") -> int:
    """Return how many NVIDIA GPUs ranks may use here; 0 where there is none or `device` is cpu."""
    if device == "cpu":
        return 0
    nvml = find_nvml()
    count = 0 if nvml is None else int(nvml.nvmlDeviceGetCount())
    visible = _visible_gpus()
    if visible is not None:
        count = min(count, len(visible))
    if device == "cuda" and count == 0:
        raise ValueError("device is cuda, and NVML finds no NVIDIA GPU that ranks may use here; allowed: auto, cpu")
    return count


def _visible_gpus() -> list[str] | None:
    """Return the GPUs that CUDA_VISIBLE_DEVICES names, None where it is not set."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return None
    # CUDA reads the list up to the first entry that is no device
    return list(itertools.takewhile(lambda entry: entry not in ("", "-1"), map(str.strip, visible.split(","))))


def rank_command(runs: Sequence[Run], allocation: Allocation | None = None, site: Site | None = None) -> list[str]:
    """Return the command that starts all ranks of runs that share their processes.

    On this machine, or on all nodes of a Slurm job as its site wants it.
    """
    if allocation is None or site is None:
        agent = [sys.executable, "-m", "falloff.bench.agent", "--standalone", "--max-restarts=0"]
        return [*agent, f"--nproc-per-node={runs[0].cell.num_processes}", *_worker(runs)]
    # an image brings its own Python
    python = sys.executable if site.container is None else "python"
    num_cpus = resources_of(runs, site).cpus_per_node
    return srun_command(allocation, site, num_cpus, [python, *_node_task(runs, allocation)])


def _worker(runs: Sequence[Run]) -> list[str]:
    return ["-m", "falloff.bench.worker", *(str(run.run_dir) for run in runs)]


def _node_task(runs: Sequence[Run], allocation: Allocation) -> list[str]:
    """Return what Python is told on every node: one agent a node, which meet on the first one."""
    num_nodes = len(allocation.nodes)
    return [
        "-m",
        "falloff.bench.node",
        "--addresses",
        ",".join(allocation.addresses),
        "--max-restarts=0",
        f"--nnodes={num_nodes}",
        f"--nproc-per-node={runs[0].cell.num_processes // num_nodes}",
        "--rdzv-backend=c10d",
        f"--rdzv-endpoint={allocation.addresses[0]}:{allocation.port}",
        f"--rdzv-id={allocation.job_id}",
        *_worker(runs),
    ]


def first_event(run: Run, processes: "Processes", launch_place: int) -> dict[str, Any]:
    """Return the fields of run_started; launch_place counts the runs that its processes have done before."""
    node = processes.node
    threads = run.cell.num_processes // processes.num_nodes * run.cell.threads_per_process
    return {
        **_planned(run),
        "run_id": processes.run_id,
        "launch_place": launch_place,
        "oversubscribed": run.device == "cpu" and threads > node["cores"],
        "nodes": [node],
        **({"placement": processes.placement} if processes.placement else {}),
        "command": ["RUN_DIR" if part == str(run.run_dir) else part for part in _logged_command(run, processes)],
    }


def event_of_unlaunched(run: Run, job_id: str | None, num_nodes: int) -> dict[str, Any]:
    """Return the fields of run_started of a run whose launcher never began: it is known what was to be measured.

    job_id is its Slurm job's, None where Slurm did not take it; num_nodes is how many it was to have.
    """
    placement = {"job_id": job_id, "nodes": None, "num_nodes": num_nodes}
    return {**_planned(run), "run_id": None, "oversubscribed": False, "nodes": [], "placement": placement}


def _planned(run: Run) -> dict[str, Any]:
    """Return the fields of run_started that say what is to be measured, and by which code."""
    return {
        "schema": rawlog.SCHEMA,
        "study": run.study,
        "cell_id": run.cell_id,
        "repeat": run.repeat,
        "cell": cell_to_json(run.cell),
        "limits": dataclasses.asdict(run.limits),
        "device": run.device,
        "gpu": run.gpu,
        "backend": "nccl" if run.device == "cuda" else "gloo",
        "git": git_revision(Path(__file__).parent),
        "versions": versions(),
    }


def _logged_command(run: Run, processes: "Processes") -> list[str]:
    """Return the ranks' command for the log; paths and addresses are the machine's own affair."""
    if processes.job is None:
        return ["python", *rank_command([run])[1:]]
    return ["python", *_node_task([run], shown_allocation(processes.num_nodes))]


class Processes:
    """The ranks of runs that share them, told from all others by their run id in the environment."""

    def __init__(self, runs: Sequence[Run], job: SlurmJob | None = None) -> None:
        self.run_id = uuid.uuid4().hex
        # once a launch: a node with eight GPUs answers a hundred questions
        self.node = node_fingerprint()
        self.job = None if job is None else narrowed(job, resources_of(runs, job.site).nodes)
        self.placement = None if self.job is None else placement_of(self.job.allocation)
        if job is not None:
            self.node["site"] = job.site.label
        self._runs = runs
        self._environment = _environment_of(runs[0], self.run_id, None if job is None else job.site)
        self._ranks: subprocess.Popen[bytes] | None = None
        # What the agent prints is of no single run; ranks write into their runs' own files.
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the ranks)
        self._taken_bytes = 0

    @property
    def num_nodes(self) -> int:
        """Return over how many nodes the ranks are spread."""
        return 1 if self.job is None else len(self.job.allocation.nodes)

    def start_sampler(self, run_dir: Path) -> "subprocess.Popen[bytes]":
        """Start the process that samples power while a run is measured."""
        command = [sys.executable, "-m", "falloff.bench.power", str(run_dir)]
        return subprocess.Popen(command, env=self._environment, start_new_session=True)

    def start(self) -> None:
        """Start the ranks, unless they are at work."""
        if self._ranks is None:
            # on the nodes of a job each node's task sets the limit: srun itself must not have it
            memory_bytes = self._runs[0].limits.process_memory_bytes if self.job is None else None
            self._ranks = subprocess.Popen(
                self._command(),
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_limiter(memory_bytes),
            )

    def _command(self) -> list[str]:
        if self.job is None:
            return rank_command(self._runs)
        command = rank_command(self._runs, self.job.allocation, self.job.site)
        # the step's name, by which it is found to be ended on all of its nodes
        return [command[0], f"--job-name={self.run_id}", *command[1:]]

    @property
    def exit_code(self) -> int | None:
        """Return the exit code of the ranks, None while they are at work."""
        return None if self._ranks is None else self._ranks.poll()

    def end(self, but: int | None = None, *, by_step: bool = True) -> None:
        """End the ranks and what they have started, `but` one process.

        by_step: on all nodes of a job, which Slurm itself does where the job ends.
        """
        if by_step and self.job is not None and self._ranks is not None and self._ranks.poll() is None:
            end_step(self.job.allocation.job_id, self.run_id, self._ranks, GRACE_S)
        end_processes(self.run_id, but=but)
        if self._ranks is not None:
            self._ranks.wait()

    def close(self) -> None:
        """End whatever is left."""
        self.end()
        self._output.close()

    def take_output(self, run_dir: Path) -> str:
        """Move what the agent has printed since the last call to a run's output; return the end of that."""
        # by place, since the agent moves the position of the file that both have open
        new = os.pread(self._output.fileno(), _READ_BYTES, self._taken_bytes)
        self._taken_bytes += len(new)
        with (run_dir / rawlog.OUTPUT_NAME).open("a+b") as output:
            output.write(new)
            output.seek(max(0, output.tell() - _READ_BYTES))
            return output.read().decode("utf-8", errors="replace")


def _environment_of(run: Run, run_id: str, site: Site | None = None) -> dict[str, str]:
    environment = {
        **RANK_ENVIRONMENT,
        **(os.environ if site is None else {**without_outer_step(os.environ), **site_environment(site)}),
        RUN_ID_VARIABLE: run_id,
        "OMP_NUM_THREADS": str(run.cell.threads_per_process),
        "PYTHONUNBUFFERED": "1",
    }
    if run.gpu is not None:
        visible = _visible_gpus()
        environment["CUDA_VISIBLE_DEVICES"] = str(run.gpu) if visible is None else visible[run.gpu]
    return environment


def _limiter(memory_bytes: int | None) -> Callable[[], None]:
    """Return what a process does to itself before it becomes the ranks' agent."""

    def limit() -> None:
        # NCCL's watchdog aborts its process, and a core of that takes minutes and tens of GB to write
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        if memory_bytes is not None:
            resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))

    return limit
