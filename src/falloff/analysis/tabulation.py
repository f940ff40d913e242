"""What the script of each modelled figure does: read runs, published cells and the calibration, write tables."""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd

from falloff.analysis.tables import write_tables
from falloff.perfmodel.calibrate import Fit
from falloff.perfmodel.cells import Cell, read_cells
from falloff.perfmodel.prediction import CALIBRATION, shipped_fit
from falloff.records import RunRecord, read_records

Tabulate = Callable[[pd.DataFrame, Sequence[Cell], Fit], tuple[pd.DataFrame, pd.DataFrame]]


def tabulate_modelled(description: str | None, tabulate: Tabulate) -> None:
    """Parse the arguments of rule tabulate_modelled, and write the table and the coverage that `tabulate` returns.

    It is given the records of our runs, the published cells and the calibration.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--runs", type=Path, nargs="*", default=[], metavar="RECORDS")
    parser.add_argument("--cells", type=Path, required=True, metavar="CSV")
    parser.add_argument("--calibration", type=Path, default=CALIBRATION, metavar="JSON")
    parser.add_argument("--table", type=Path, required=True, metavar="OUT")
    parser.add_argument("--coverage", type=Path, required=True, metavar="OUT")
    arguments = parser.parse_args()
    found = tabulate(
        read_records(arguments.runs, RunRecord), read_cells(arguments.cells), shipped_fit(arguments.calibration)
    )
    write_tables(found, arguments.table, arguments.coverage)
