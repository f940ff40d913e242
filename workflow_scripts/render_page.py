"""Write figures/index.html from what the figures say of themselves and what their grids lack."""

import argparse
from pathlib import Path

from falloff.outputs import whole_file
from falloff.report.page import page_html, read_entries
from falloff.script import run


def main() -> None:
    """Parse arguments, read, write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--figures-json", required=True, nargs="+", type=Path, help="the .json beside each figure")
    parser.add_argument("--coverage", required=True, nargs="+", type=Path, help="coverage tables, Parquet")
    parser.add_argument("--sources", required=True, type=Path, help="folder of others' logs and tables")
    parser.add_argument("--output", required=True, type=Path)
    arguments = parser.parse_args()

    entries = read_entries(arguments.figures_json, arguments.coverage, arguments.sources)
    with whole_file(arguments.output) as path:
        path.write_text(page_html(entries, arguments.output), encoding="utf-8")


if __name__ == "__main__":
    run(main)
