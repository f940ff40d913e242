"""Renew the tables of docs/perfmodel.md: parameters, the shipped calibration's values, habits of programs."""

import argparse
from pathlib import Path

from falloff.outputs import whole_file
from falloff.perfmodel.prediction import shipped_fit
from falloff.report.model_tables import filled_page
from falloff.script import run


def main() -> None:
    """Read the page, write it with its tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", type=Path, default=Path("docs/perfmodel.md"))
    arguments = parser.parse_args()
    text = filled_page(arguments.page.read_text(encoding="utf-8"), shipped_fit())
    with whole_file(arguments.page) as temporary:
        temporary.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    run(main)
