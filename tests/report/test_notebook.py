import json
from pathlib import Path

import pytest

from falloff.report.notebook import execute

PARAMETERS = {"table": "t", "coverage": "c", "out": "o"}


def notebook_of(folder: Path, *cells: str) -> Path:
    path = folder / "figure.ipynb"
    code = [
        {"cell_type": "code", "id": f"c{i}", "metadata": {}, "execution_count": None, "outputs": [], "source": text}
        for i, text in enumerate(cells)
    ]
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    path.write_text(json.dumps({"cells": code, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}))
    return path


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("raise KeyError('panel')", "cell 2 failed with KeyError: 'panel'"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "cell 2 took its kernel down"),
    ],
)
# the kernel's own start-up is jupyter's affair
@pytest.mark.filterwarnings("ignore")
def test_a_failing_cell_is_named_with_its_notebook_and_the_executed_copy_kept(
    tmp_path: Path, cell: str, words: str
) -> None:
    notebook, executed = notebook_of(tmp_path, "x = 1", cell), tmp_path / "logs" / "figure.ipynb"
    with pytest.raises(ValueError, match=words) as error:
        execute(notebook, executed, PARAMETERS)
    assert str(error.value).startswith(f"{notebook}: ")
    assert len(json.loads(executed.read_text())["cells"]) >= 3


def test_what_is_no_notebook_is_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "figure.ipynb"
    path.write_text("hello")
    with pytest.raises(ValueError, match=r"figure\.ipynb: not a notebook"):
        execute(path, tmp_path / "executed.ipynb", PARAMETERS)
    assert not (tmp_path / "executed.ipynb").exists()
