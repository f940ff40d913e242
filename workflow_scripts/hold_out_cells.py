"""Predict every published cell by fits that have not seen it: source, model, GPU count or scale held out."""

import argparse
from pathlib import Path

from falloff.analysis.held_out import held_out
from falloff.outputs import whole_file
from falloff.perfmodel.prediction import CALIBRATION, shipped_fit
from falloff.perfmodel.validate import our_model, read_table
from falloff.script import run


def main() -> None:
    """Read the cells, fit and predict, write the predictions."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=Path, required=True, metavar="CSV")
    parser.add_argument("--calibration", type=Path, default=CALIBRATION, metavar="JSON")
    parser.add_argument("--output", type=Path, required=True, metavar="OUT")
    arguments = parser.parse_args()
    values = shipped_fit(arguments.calibration).values
    found = held_out(read_table(arguments.cells), our_model(), values)
    with whole_file(arguments.output) as temporary:
        found.to_parquet(temporary, index=False)


if __name__ == "__main__":
    run(main)
