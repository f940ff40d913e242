"""Make the table and the coverage of figure overlap from the records of runs and the calibration."""

import argparse
from pathlib import Path

from falloff.analysis.overlap_figure import tabulate
from falloff.analysis.tables import write_tables
from falloff.perfmodel.prediction import CALIBRATION, shipped_fit
from falloff.records import RunRecord, read_records
from falloff.script import run


def main() -> None:
    """Read the records and the calibration, write both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, nargs="*", default=[], metavar="RECORDS")
    parser.add_argument("--calibration", type=Path, default=CALIBRATION, metavar="JSON")
    parser.add_argument("--table", type=Path, required=True, metavar="OUT")
    parser.add_argument("--coverage", type=Path, required=True, metavar="OUT")
    arguments = parser.parse_args()
    runs = read_records(arguments.runs, RunRecord)
    write_tables(tabulate(runs, shipped_fit(arguments.calibration)), arguments.table, arguments.coverage)


if __name__ == "__main__":
    run(main)
