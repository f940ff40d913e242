"""Make the table and the coverage of figure this_machine from the records of the study that ran here."""

import argparse
from pathlib import Path

from falloff.analysis.tables import write_tables
from falloff.analysis.this_machine import tabulate
from falloff.launch import num_attached_gpus
from falloff.records import CollectiveRecord, RunRecord, read_records
from falloff.script import run
from falloff.spec.study import read_study


def main() -> None:
    """Read the study and its records, write both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, nargs="*", default=[], metavar="RECORDS")
    parser.add_argument("--collectives", type=Path, nargs="*", default=[], metavar="RECORDS")
    parser.add_argument("--study", type=Path, required=True, metavar="YAML")
    parser.add_argument("--networks", type=Path, default=Path("config/models"), metavar="DIR")
    parser.add_argument("--table", type=Path, required=True, metavar="OUT")
    parser.add_argument("--coverage", type=Path, required=True, metavar="OUT")
    arguments = parser.parse_args()
    runs = read_records(arguments.runs, RunRecord)
    collectives = read_records(arguments.collectives, CollectiveRecord)
    # a study measured on processes refuses nothing for want of GPUs
    on_gpus = "cuda" in {*runs["device"], *collectives["device"]}
    study = read_study(arguments.study, arguments.networks, num_attached_gpus() if on_gpus else 0)
    write_tables(tabulate(study, runs, collectives), arguments.table, arguments.coverage)


if __name__ == "__main__":
    run(main)
