"""Make the table and the coverage of figure h200 from the records of runs."""

import argparse
from pathlib import Path

from falloff.analysis.h200 import tabulate
from falloff.analysis.tables import write_tables
from falloff.records import RunRecord, read_records
from falloff.script import run
from falloff.spec.hardware import read_all_hardware


def main() -> None:
    """Read the records, write both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, nargs="*", default=[], metavar="RECORDS")
    parser.add_argument("--table", type=Path, required=True, metavar="OUT")
    parser.add_argument("--coverage", type=Path, required=True, metavar="OUT")
    parser.add_argument("--hardware", type=Path, default=Path("config/hardware"), metavar="DIR")
    arguments = parser.parse_args()
    runs = read_records(arguments.runs, RunRecord)
    write_tables(tabulate(runs, read_all_hardware(arguments.hardware)), arguments.table, arguments.coverage)


if __name__ == "__main__":
    run(main)
