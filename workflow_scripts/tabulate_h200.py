"""Make the table and the coverage of figure h200 from the records of runs."""

import argparse
from pathlib import Path

from falloff.analysis.h200 import tabulate
from falloff.outputs import whole_file
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
    table, coverage = tabulate(runs, read_all_hardware(arguments.hardware))
    for path, frame in ((arguments.table, table), (arguments.coverage, coverage)):
        with whole_file(path) as temporary:
            frame.to_parquet(temporary, index=False)


if __name__ == "__main__":
    run(main)
