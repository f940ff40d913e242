"""Predict the grid of the page's what-if panel."""

import argparse
import json
from pathlib import Path

from falloff.analysis.what_if import what_if
from falloff.outputs import whole_file
from falloff.perfmodel.prediction import CALIBRATION, shipped_fit
from falloff.script import run


def main() -> None:
    """Read the calibration, predict, write the grid as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calibration", type=Path, default=CALIBRATION, metavar="JSON")
    parser.add_argument("--output", type=Path, required=True, metavar="OUT")
    arguments = parser.parse_args()
    found = what_if(shipped_fit(arguments.calibration))
    with whole_file(arguments.output) as temporary:
        temporary.write_text(json.dumps(found, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    run(main)
