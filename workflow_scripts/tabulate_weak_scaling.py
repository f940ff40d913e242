"""Make the table and the coverage of figure weak_scaling from our runs, published cells and the calibration."""

import argparse
from pathlib import Path

from falloff.analysis.tables import write_tables
from falloff.analysis.weak_scaling import tabulate
from falloff.perfmodel.cells import read_cells
from falloff.perfmodel.prediction import CALIBRATION, shipped_fit
from falloff.records import RunRecord, read_records
from falloff.script import run
from falloff.spec.hardware import read_all_hardware


def main() -> None:
    """Read runs, cells and calibration, write both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, nargs="*", default=[], metavar="RECORDS")
    parser.add_argument("--cells", type=Path, required=True, metavar="CSV")
    parser.add_argument("--calibration", type=Path, default=CALIBRATION, metavar="JSON")
    parser.add_argument("--hardware", type=Path, default=Path("config/hardware"), metavar="DIR")
    parser.add_argument("--table", type=Path, required=True, metavar="OUT")
    parser.add_argument("--coverage", type=Path, required=True, metavar="OUT")
    arguments = parser.parse_args()
    runs = read_records(arguments.runs, RunRecord)
    fit, hardware = shipped_fit(arguments.calibration), read_all_hardware(arguments.hardware)
    found = tabulate(runs, read_cells(arguments.cells), fit, hardware)
    write_tables(found, arguments.table, arguments.coverage)


if __name__ == "__main__":
    run(main)
