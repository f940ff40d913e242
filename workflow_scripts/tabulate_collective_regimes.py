"""Make the table and the coverage of figure collective_regimes from records of collectives and a fit to them."""

import argparse
from pathlib import Path

from falloff.analysis.collective_regimes import tabulate
from falloff.analysis.tables import write_tables
from falloff.perfmodel.calibrate_collectives import fit_collectives, read_points
from falloff.perfmodel.prediction import shipped_fit
from falloff.records import CollectiveRecord, read_records
from falloff.script import run


def main() -> None:
    """Read the records, fit the collectives, write both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--collectives", type=Path, nargs="*", default=[], metavar="RECORDS")
    parser.add_argument("--external", type=Path, required=True, metavar="DIR")
    parser.add_argument("--table", type=Path, required=True, metavar="OUT")
    parser.add_argument("--coverage", type=Path, required=True, metavar="OUT")
    arguments = parser.parse_args()
    records = read_records(arguments.collectives, CollectiveRecord)
    fit = fit_collectives(read_points(arguments.external))
    write_tables(tabulate(records, fit, shipped_fit()), arguments.table, arguments.coverage)


if __name__ == "__main__":
    run(main)
