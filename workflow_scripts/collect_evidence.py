"""Make the tables by which claims are decided where no figure has it: of all runs, and of the model."""

import argparse
from pathlib import Path

from falloff.analysis.claim_ablation import model_table
from falloff.analysis.evidence_runs import tabulate
from falloff.analysis.tables import write_tables
from falloff.perfmodel.prediction import CALIBRATION, shipped_fit
from falloff.records import RunRecord, read_records
from falloff.script import run
from falloff.spec.hardware import read_all_hardware


def main() -> None:
    """Read records and calibration, write both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, nargs="*", default=[], metavar="RECORDS")
    parser.add_argument("--hardware", type=Path, default=Path("config/hardware"), metavar="DIR")
    parser.add_argument("--calibration", type=Path, default=CALIBRATION, metavar="JSON")
    parser.add_argument("--table", type=Path, required=True, metavar="OUT", help="of runs")
    parser.add_argument("--model", type=Path, required=True, metavar="OUT", help="of the model")
    arguments = parser.parse_args()
    found = tabulate(read_records(arguments.runs, RunRecord), read_all_hardware(arguments.hardware))
    write_tables((found, model_table(shipped_fit(arguments.calibration))), arguments.table, arguments.model)


if __name__ == "__main__":
    run(main)
