"""Make the table and the coverage of figure attribution from our runs, TorchTitan's tables and the calibration."""

import argparse
from pathlib import Path

from falloff.analysis.attribution import tabulate
from falloff.analysis.tables import write_tables
from falloff.perfmodel.prediction import CALIBRATION, shipped_fit
from falloff.records import RunRecord, read_records
from falloff.script import run


def main() -> None:
    """Read both kinds of runs and the calibration, write both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, nargs="*", default=[], metavar="RECORDS")
    parser.add_argument("--published", type=Path, nargs="*", default=[], metavar="RECORDS")
    parser.add_argument("--calibration", type=Path, default=CALIBRATION, metavar="JSON")
    parser.add_argument("--table", type=Path, required=True, metavar="OUT")
    parser.add_argument("--coverage", type=Path, required=True, metavar="OUT")
    arguments = parser.parse_args()
    runs, published = (read_records(paths, RunRecord) for paths in (arguments.runs, arguments.published))
    write_tables(tabulate(runs, published, shipped_fit(arguments.calibration)), arguments.table, arguments.coverage)


if __name__ == "__main__":
    run(main)
