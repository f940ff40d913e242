"""Make the table and the coverage of figure slurm_smoke from the records of the study that ran on the cluster."""

import argparse
from pathlib import Path

from falloff.analysis.slurm_smoke import tabulate
from falloff.analysis.tables import write_tables
from falloff.records import RunRecord, read_records
from falloff.script import run
from falloff.spec.study import read_study


def main() -> None:
    """Read the study and its records, write both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, nargs="*", default=[], metavar="RECORDS")
    parser.add_argument("--study", type=Path, required=True, metavar="YAML")
    parser.add_argument("--networks", type=Path, default=Path("config/models"), metavar="DIR")
    parser.add_argument("--table", type=Path, required=True, metavar="OUT")
    parser.add_argument("--coverage", type=Path, required=True, metavar="OUT")
    arguments = parser.parse_args()
    study = read_study(arguments.study, arguments.networks)
    runs = read_records(arguments.runs, RunRecord)
    write_tables(tabulate(study, runs), arguments.table, arguments.coverage)


if __name__ == "__main__":
    run(main)
