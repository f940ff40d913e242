"""What the scripts of figures that belong together do alike: read what their rule gives, write table and coverage."""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd

from falloff.analysis.tables import write_tables
from falloff.perfmodel.calibrate import Fit
from falloff.perfmodel.cells import Cell, read_cells
from falloff.perfmodel.prediction import CALIBRATION, shipped_fit
from falloff.records import RunRecord, read_records

Tables = tuple[pd.DataFrame, pd.DataFrame]
Tabulate = Callable[[pd.DataFrame, Sequence[Cell], Fit], Tables]


def tabulate_modelled(description: str | None, tabulate: Tabulate) -> None:
    """Parse the arguments of rule tabulate_modelled, and write the table and the coverage that `tabulate` returns.

    It is given the records of our runs, the published cells and the calibration.
    """
    parser = _parser(description)
    _add_runs(parser)
    parser.add_argument("--cells", type=Path, required=True, metavar="CSV")
    arguments = parser.parse_args()
    found = tabulate(
        read_records(arguments.runs, RunRecord), read_cells(arguments.cells), shipped_fit(arguments.calibration)
    )
    write_tables(found, arguments.table, arguments.coverage)


def tabulate_predicted(description: str | None, tabulate: Callable[[pd.DataFrame, Fit], Tables]) -> None:
    """Do the same for rule tabulate_predicted, whose figures take our runs and the calibration alone."""
    parser = _parser(description)
    _add_runs(parser)
    arguments = parser.parse_args()
    found = tabulate(read_records(arguments.runs, RunRecord), shipped_fit(arguments.calibration))
    write_tables(found, arguments.table, arguments.coverage)


def tabulate_held_out(description: str | None, tabulate: Callable[[pd.DataFrame], Tables]) -> None:
    """Do the same for rule tabulate_held_out, whose figures take the predictions of cells that were held out."""
    parser = _parser(description)
    parser.add_argument("--held-out", type=Path, required=True, metavar="CELLS")
    arguments = parser.parse_args()
    write_tables(tabulate(pd.read_parquet(arguments.held_out)), arguments.table, arguments.coverage)


def _parser(description: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--table", type=Path, required=True, metavar="OUT")
    parser.add_argument("--coverage", type=Path, required=True, metavar="OUT")
    return parser


def _add_runs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=Path, nargs="*", default=[], metavar="RECORDS")
    parser.add_argument("--calibration", type=Path, default=CALIBRATION, metavar="JSON")
