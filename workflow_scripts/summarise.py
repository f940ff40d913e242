"""Say what `make figures` made, what each grid lacks and why, and how long it took."""

import argparse
import time
from pathlib import Path

from falloff.report.page_entries import read_coverage
from falloff.report.summary import summary
from falloff.script import run


def main() -> None:
    """Parse arguments, look at what is there, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--started-s", required=True, type=float, help="when make began, in unix seconds")
    parser.add_argument("--figures", type=Path, default=Path("figures"))
    parser.add_argument("--notebooks", type=Path, default=Path("notebooks"), help="one of these is one figure")
    parser.add_argument("--studies", type=Path, default=Path("config/studies"))
    parser.add_argument("--raw", type=Path, default=Path("data/raw"), help="logs, a folder a study")
    parser.add_argument("--tables", type=Path, default=Path("results/tables"))
    arguments = parser.parse_args()

    # a figure that is named as a study is of its logs alone, and is not asked for without them
    unmeasured = {path.stem for path in arguments.studies.glob("*.yaml") if not (arguments.raw / path.stem).is_dir()}
    names = sorted({path.stem for path in arguments.notebooks.glob("*.ipynb")} - unmeasured)
    tables = {name: arguments.tables / f"{name}.coverage.parquet" for name in names}
    coverage = {name: read_coverage([path]) for name, path in tables.items() if path.is_file()}
    print(summary(arguments.figures, names, coverage, time.time() - arguments.started_s))


if __name__ == "__main__":
    run(main)
