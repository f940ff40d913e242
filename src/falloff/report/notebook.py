"""One notebook run: executed to its end, or a sentence that names the notebook and the cell."""

import json
import re
from collections.abc import Mapping
from pathlib import Path

import papermill
from nbclient.exceptions import DeadKernelError
from nbformat.reader import NotJSONError
from papermill.exceptions import PapermillExecutionError

from falloff.outputs import whole_file


def execute(notebook: Path, executed: Path, parameters: Mapping[str, str]) -> None:
    """Run the notebook with its parameters and keep the executed copy, also of one that failed.

    ValueError names the notebook, the failing cell and its error.
    """
    # papermill writes the copy as it goes; a copy that is cut short by a full disk is not kept
    with whole_file(executed) as copy:
        failure = _failure(notebook, copy, parameters)
    if failure:
        raise ValueError(f"{notebook}: {failure}; see {executed}")


def _failure(notebook: Path, copy: Path, parameters: Mapping[str, str]) -> str | None:
    """Run the notebook; return which cell failed and how, None where all went well."""
    try:
        papermill.execute_notebook(
            str(notebook),
            str(copy),
            parameters=dict(parameters),
            kernel_name="python3",
            progress_bar=False,
            # the kernel calls its being shut down an error
            extra_arguments=["--IPKernelApp.log_level=50"],
        )
    except PapermillExecutionError as error:
        # the value may carry terminal colours and many lines; the executed notebook keeps all of it
        first_line = re.sub(r"\x1b\[[0-9;]*m", "", error.evalue).partition("\n")[0]
        return f"cell {_number(copy, error.cell_index)} failed with {error.ename}: {first_line}"
    except DeadKernelError:
        return f"cell {_number(copy, None)} took its kernel down, which is what running out of memory does"
    except NotJSONError as error:
        raise ValueError(f"{notebook}: not a notebook, it is not JSON") from error
    return None


def _number(copy: Path, index: int | None) -> int:
    """Return which cell of the notebook, counted from 1, stands at `index` of its executed copy.

    None asks for the last one that began. The cell of parameters that papermill puts in does not count.
    """
    cells = json.loads(copy.read_text(encoding="utf-8"))["cells"]
    if index is None:
        begun = [i for i, cell in enumerate(cells) if cell["metadata"].get("papermill", {}).get("start_time")]
        index = begun[-1] if begun else 0
    return sum("injected-parameters" not in cell["metadata"].get("tags", []) for cell in cells[: index + 1])
