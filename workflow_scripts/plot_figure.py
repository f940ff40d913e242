"""Draw one figure by running its notebook; a failing cell is named with its notebook."""

import argparse
import re
import sys
from pathlib import Path

import papermill
from papermill.exceptions import PapermillExecutionError


def main() -> None:
    """Parse arguments, run the notebook, keep the executed copy."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--notebook", required=True)
    parser.add_argument("--table", required=True)
    parser.add_argument("--coverage", required=True)
    parser.add_argument("--out", required=True, help="path of the figure without its ending")
    parser.add_argument("--executed", required=True, type=Path, help="where the executed notebook goes")
    arguments = parser.parse_args()

    arguments.executed.parent.mkdir(parents=True, exist_ok=True)
    try:
        papermill.execute_notebook(
            arguments.notebook,
            str(arguments.executed),
            parameters={"table": arguments.table, "coverage": arguments.coverage, "out": arguments.out},
            kernel_name="python3",
            progress_bar=False,
        )
    except PapermillExecutionError as error:
        # the value may carry terminal colours and many lines; the executed notebook keeps all of it
        first_line = re.sub(r"\x1b\[[0-9;]*m", "", error.evalue).partition("\n")[0]
        raise ValueError(
            f"{arguments.notebook}: cell {error.cell_index} failed with {error.ename}: {first_line}; "
            f"see {arguments.executed}"
        ) from error


if __name__ == "__main__":
    try:
        main()
    except ValueError as error:
        sys.exit(f"error: {error}")
