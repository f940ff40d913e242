"""Write docs/artifact.md: claims, our own results and figures, each with its command and what to expect of it."""

import argparse
from pathlib import Path

import pandas as pd

from falloff.analysis.results import tell
from falloff.outputs import whole_file
from falloff.report.artifact_text import FIGURES, artifact_page
from falloff.report.saving import counts_by_provenance
from falloff.script import run
from falloff.spec.claims import CLAIMS, read_claims
from falloff.spec.results import RESULTS, read_results


def main() -> None:
    """Read claims, results and the tables that the workflow built, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--claims", type=Path, default=CLAIMS, metavar="YAML")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="YAML")
    parser.add_argument("--tables", type=Path, default=Path("results/tables"), metavar="DIR")
    parser.add_argument("--copies", type=Path, default=Path("docs/figures"), metavar="DIR")
    parser.add_argument("--page", type=Path, default=Path("docs/artifact.md"))
    arguments = parser.parse_args()
    tables = {name: _table(arguments.tables, name) for name in (*FIGURES, "claims")}
    results = read_results(arguments.results)
    text = artifact_page(
        read_claims(arguments.claims),
        tables["claims"],
        [tell(result, tables) for result in results.results],
        {name: counts_by_provenance(tables[name]) for name in FIGURES},
        results.minutes,
        {path.stem for path in arguments.copies.glob("*.csv")},
    )
    with whole_file(arguments.page) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _table(folder: Path, name: str) -> pd.DataFrame:
    path = folder / f"{name}.parquet"
    if not path.is_file():
        raise ValueError(f"{path} is not built; `make figures` builds it")
    return pd.read_parquet(path)


if __name__ == "__main__":
    run(main)
