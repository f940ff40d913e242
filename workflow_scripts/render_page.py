"""Write figures/index.html from what the figures say of themselves, the claims, the questions, scores and a grid."""

import argparse
import json
from pathlib import Path

import pandas as pd

from falloff.analysis.model_scores import model_scores
from falloff.outputs import whole_file
from falloff.report.page import Study, page_html
from falloff.report.page_entries import read_entries
from falloff.report.page_panel import prices_of
from falloff.script import run
from falloff.spec.assumptions import read_prices


def main() -> None:
    """Parse arguments, read, write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--figures-json", required=True, nargs="+", type=Path, help="the .json beside each figure")
    parser.add_argument("--coverage", required=True, nargs="+", type=Path, help="coverage tables, Parquet")
    parser.add_argument("--sources", required=True, type=Path, help="folder of others' logs and tables")
    parser.add_argument("--claims", type=Path, help="table of claims, Parquet")
    parser.add_argument("--questions", type=Path, help="table of questions, Parquet")
    parser.add_argument(
        "--held-out", type=Path, help="published cells predicted by fits that had not seen them, Parquet"
    )
    parser.add_argument("--what-if", type=Path, help="the grid of the what-if panel, JSON")
    parser.add_argument("--assumptions", type=Path, help="folder of prices.yaml")
    parser.add_argument("--output", required=True, type=Path)
    arguments = parser.parse_args()

    grid = json.loads(arguments.what_if.read_text(encoding="utf-8")) if arguments.what_if else None
    study = Study(
        entries=read_entries(arguments.figures_json, arguments.coverage, arguments.sources),
        claims=pd.read_parquet(arguments.claims) if arguments.claims else None,
        questions=pd.read_parquet(arguments.questions) if arguments.questions else None,
        scores=model_scores(pd.read_parquet(arguments.held_out)) if arguments.held_out else None,
        grid=grid,
        prices=prices_of(grid, read_prices(arguments.assumptions)) if grid and arguments.assumptions else {},
    )
    with whole_file(arguments.output) as path:
        path.write_text(page_html(study, arguments.output), encoding="utf-8")


if __name__ == "__main__":
    run(main)
