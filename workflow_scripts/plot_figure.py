"""Draw one figure by running its notebook; a failing cell is named with its notebook."""

import argparse
import json
import re
from pathlib import Path

import papermill
from nbclient.exceptions import DeadKernelError
from nbformat.reader import NotJSONError
from papermill.exceptions import PapermillExecutionError

from falloff.outputs import whole_file
from falloff.script import run


def main() -> None:
    """Parse arguments, run the notebook, keep the executed copy."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--notebook", required=True)
    parser.add_argument("--table", required=True)
    parser.add_argument("--coverage", required=True)
    parser.add_argument("--out", required=True, help="path of the figure without its ending")
    parser.add_argument("--executed", required=True, type=Path, help="where the executed notebook goes")
    arguments = parser.parse_args()

    # papermill writes the executed notebook as it goes; it takes its name when all is said, or is kept for a failing cell
    with whole_file(arguments.executed) as executed:
        failure = _failure(arguments, executed)
    if failure:
        raise ValueError(f"{arguments.notebook}: {failure}; see {arguments.executed}")


def _failure(arguments: argparse.Namespace, executed: Path) -> str | None:
    """Run the notebook; return which cell failed and how, None where all went well."""
    try:
        papermill.execute_notebook(
            arguments.notebook,
            str(executed),
            parameters={"table": arguments.table, "coverage": arguments.coverage, "out": arguments.out},
            kernel_name="python3",
            progress_bar=False,
        )
    except PapermillExecutionError as error:
        # the value may carry terminal colours and many lines; the executed notebook keeps all of it
        first_line = re.sub(r"\x1b\[[0-9;]*m", "", error.evalue).partition("\n")[0]
        return f"cell {error.cell_index} failed with {error.ename}: {first_line}"
    except DeadKernelError:
        return f"cell {_last_cell(executed)} took its kernel down, which is what running out of memory does"
    except NotJSONError as error:
        raise ValueError(f"{arguments.notebook}: not a notebook, it is not JSON") from error
    return None


def _last_cell(executed: Path) -> int:
    """Return the index of the last cell that began to run."""
    cells = json.loads(executed.read_text(encoding="utf-8"))["cells"]
    begun = [index for index, cell in enumerate(cells) if cell["metadata"].get("papermill", {}).get("start_time")]
    return begun[-1] if begun else 0


if __name__ == "__main__":
    run(main)
