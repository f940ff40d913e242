"""Predict every published cell with the shipped calibration: one row a cell, as falloff predict --cells writes it."""

import argparse
from pathlib import Path

from falloff.perfmodel.cell_predictions import read_and_predict, write_predictions
from falloff.perfmodel.prediction import CALIBRATION, shipped_fit
from falloff.script import run


def main() -> None:
    """Read the cells, write their predictions."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=Path, required=True, metavar="CSV")
    parser.add_argument("--calibration", type=Path, default=CALIBRATION, metavar="JSON")
    parser.add_argument("--output", type=Path, required=True, metavar="OUT")
    arguments = parser.parse_args()
    write_predictions(read_and_predict(arguments.cells, shipped_fit(arguments.calibration)), arguments.output)


if __name__ == "__main__":
    run(main)
