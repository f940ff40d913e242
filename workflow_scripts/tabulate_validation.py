"""Make the table and the coverage of figure validation from the cells that were held out."""

import argparse
from pathlib import Path

import pandas as pd

from falloff.analysis.tables import write_tables
from falloff.analysis.validation import tabulate
from falloff.script import run


def main() -> None:
    """Read the predictions, write both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--held-out", type=Path, required=True, metavar="CELLS")
    parser.add_argument("--table", type=Path, required=True, metavar="OUT")
    parser.add_argument("--coverage", type=Path, required=True, metavar="OUT")
    arguments = parser.parse_args()
    write_tables(tabulate(pd.read_parquet(arguments.held_out)), arguments.table, arguments.coverage)


if __name__ == "__main__":
    run(main)
