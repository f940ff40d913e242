"""Make the table and the coverage of figure collectives from the records of collectives."""

import argparse
from pathlib import Path

from falloff.analysis.collectives import tabulate
from falloff.analysis.tables import write_tables
from falloff.records import CollectiveRecord, read_records
from falloff.script import run


def main() -> None:
    """Read the records, write both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--collectives", type=Path, nargs="*", default=[], metavar="RECORDS")
    parser.add_argument("--table", type=Path, required=True, metavar="OUT")
    parser.add_argument("--coverage", type=Path, required=True, metavar="OUT")
    arguments = parser.parse_args()
    collectives = read_records(arguments.collectives, CollectiveRecord)
    write_tables(tabulate(collectives), arguments.table, arguments.coverage)


if __name__ == "__main__":
    run(main)
