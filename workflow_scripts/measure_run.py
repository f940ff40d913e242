"""Measure one repeat of one cell of a study and seal its log; any outcome of the cell ends well."""

import argparse
from pathlib import Path

from falloff.batch import measure
from falloff.launch import Run, num_attached_gpus
from falloff.script import run
from falloff.spec.study import read_study


def main() -> None:
    """Parse arguments, launch, say how it ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--study", required=True, help="name of a file in config/studies")
    parser.add_argument("--cell", required=True, help="id of one of its cells")
    parser.add_argument("--repeat", required=True, type=int)
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--output", required=True, type=Path, help="the sealed log, RUN_DIR/events.jsonl")
    arguments = parser.parse_args()

    num_gpus = num_attached_gpus(arguments.device)
    study = read_study(Path(f"config/studies/{arguments.study}.yaml"), Path("config/models"), num_gpus)
    for refused in study.refused:
        if refused.cell_id == arguments.cell:
            raise ValueError(f"cell {arguments.cell} is refused: {refused.reason}")
    cells = {cell.cell_id: cell.cell for cell in study.cells}
    if arguments.cell not in cells:
        raise ValueError(f"study {study.name} has no cell {arguments.cell!r}; it has: {', '.join(cells)}")
    outcome = measure(
        Run(
            study=study.name,
            cell_id=arguments.cell,
            repeat=arguments.repeat,
            cell=cells[arguments.cell],
            limits=study.limits,
            run_dir=arguments.output.parent,
            device="cuda" if num_gpus else "cpu",
        )
    )
    print(f"{arguments.output.parent}: {outcome}")


if __name__ == "__main__":
    run(main)
