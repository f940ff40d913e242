"""Measure one repeat of cells of a study, one after the other, and seal their logs; any outcome of a cell ends well."""

import argparse
import os
from pathlib import Path

from falloff.batch import measure_batch
from falloff.launch import Run, num_attached_gpus
from falloff.script import run
from falloff.slurm.allocation import SlurmJob, current_allocation
from falloff.spec.site import read_site
from falloff.spec.study import read_study


def main() -> None:
    """Parse arguments, launch, say how each ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--study", required=True, help="name of a file in config/studies")
    parser.add_argument("--cell", required=True, nargs="+", help="ids of its cells")
    parser.add_argument("--repeat", required=True, type=int)
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--site", type=Path, help="the file of the cluster whose job this is")
    parser.add_argument("--output", required=True, nargs="+", type=Path, help="the sealed logs, RUN_DIR/events.jsonl")
    arguments = parser.parse_args()

    num_gpus = num_attached_gpus(arguments.device)
    job = None
    if arguments.site and (allocation := current_allocation(os.environ)):
        job = SlurmJob(allocation=allocation, site=read_site(arguments.site))
    # the GPUs of this node are not all that a job has
    study = read_study(Path(f"config/studies/{arguments.study}.yaml"), Path("config/models"), 0 if job else num_gpus)
    cells = {cell.cell_id: cell.cell for cell in study.cells}
    for refused in study.refused:
        if refused.cell_id in arguments.cell:
            raise ValueError(f"cell {refused.cell_id} is refused: {refused.reason}")
    runs = []
    for cell_id, output in zip(arguments.cell, arguments.output, strict=True):
        if cell_id not in cells:
            raise ValueError(f"study {study.name} has no cell {cell_id!r}; it has: {', '.join(cells)}")
        runs.append(
            Run(
                study=study.name,
                cell_id=cell_id,
                repeat=arguments.repeat,
                cell=cells[cell_id],
                limits=study.limits,
                run_dir=output.parent,
                device="cuda" if num_gpus else "cpu",
            )
        )
    for done, outcome in measure_batch(runs, job=job):
        print(f"{done.run_dir}: {outcome}", flush=True)


if __name__ == "__main__":
    run(main)
