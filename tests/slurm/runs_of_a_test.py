"""Runs for tests that start none."""

from pathlib import Path

from falloff.launch import Run
from falloff.spec.kernels_cell import KernelsCell
from falloff.spec.network import Network
from falloff.spec.study import Limits

NETWORK = Network(name="tiny", layers=2, hidden=32, heads=2, kv_heads=2, ffn=64, vocab=128, source="a test's own")


def a_run(
    num_processes: int,
    *,
    timeout_s: float = 60,
    processes_per_node: int | None = None,
    threads: int = 1,
    seed: int = 0,
    repeat: int = 1,
    study: str = "study",
) -> Run:
    """Return a run of as many processes; another seed is another cell."""
    cell = KernelsCell(networks=(NETWORK,), num_processes=num_processes, threads_per_process=threads, seed=seed)
    cell_id = f"kernels-{num_processes}-{seed}"
    return Run(
        study=study,
        cell_id=cell_id,
        repeat=repeat,
        cell=cell,
        limits=Limits(timeout_s=timeout_s, processes_per_node=processes_per_node),
        run_dir=Path("data/raw") / study / cell_id / str(repeat),
        device="cpu",
    )
