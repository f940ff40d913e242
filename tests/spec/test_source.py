"""source.yaml: what a folder of others' files holds, read the same by the ingest and by the workflow."""

import dataclasses
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from falloff.spec.source import (
    CollectivesFile,
    ExternalSource,
    LeftOut,
    PowerFile,
    RunFiles,
    StatedOfCollectives,
    StatedOfRun,
    TableFile,
    TableFormat,
    read_source,
)

ROOT = Path(__file__).parents[2]
EXTERNAL = ROOT / "data" / "external"
SHIPPED = sorted(path.parent for path in EXTERNAL.glob("*/source.yaml"))
KNOWN = yaml.safe_load((EXTERNAL / "torchtitan-h200x2" / "source.yaml").read_text())
RUN = KNOWN["runs"][0]
TABLE = {"file": "collectives_gemm.txt", "format": "falloff-collectives"}


def write_source(tmp_path: Path, source: Any) -> Path:
    folder = Path(shutil.copytree(EXTERNAL / "torchtitan-h200x2", tmp_path / "folder"))
    (folder / "source.yaml").write_text(yaml.safe_dump(source))
    return folder


@pytest.mark.parametrize("folder", SHIPPED, ids=lambda folder: folder.name)
def test_every_shipped_folder_says_what_it_holds(folder: Path) -> None:
    assert read_source(folder).contents


def test_the_contents_are_kinds_of_logs_and_formats_of_tables(tmp_path: Path) -> None:
    assert read_source(EXTERNAL / "torchtitan-h200x2").contents == {"runs", "collectives"}
    assert read_source(EXTERNAL / "published-collectives").contents == {"falloff-collectives"}
    folder = write_source(tmp_path, {**KNOWN, "collectives": [], "tables": [TABLE]})
    assert read_source(folder).contents == {"runs", "falloff-collectives"}


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (None, "a mapping is needed, found None"),
        (["a"], r"a mapping is needed, found ['a']"),
        ("text", "a mapping is needed, found 'text'"),
        ({**KNOWN, "tables": ["a"]}, "tables: a mapping is needed, found 'a'"),
        ({**KNOWN, "tables": [{"file": "a"}]}, "tables: format must be stated"),
        ({**KNOWN, "tables": None}, "tables: a list is needed, found None"),
        ({**KNOWN, "tables": [{**TABLE, "format": "csv"}]}, "tables: format is 'csv'; allowed: falloff-training-cells"),
        ({**KNOWN, "tables": [TABLE, TABLE]}, "the table 'collectives_gemm.txt' is stated twice"),
        ({**KNOWN, "runs": [RUN, RUN]}, "the run 'compile_bs2' is stated twice"),
        (
            {**KNOWN, "collectives": KNOWN["collectives"] * 2},
            "the file of collectives 'collectives_gemm.txt' is stated",
        ),
        ({**KNOWN, "runs": [], "collectives": []}, "one of them must name a file"),
        ({**KNOWN, "runs": [{**RUN, "log": "../x.log"}]}, "names the file '../x.log'; a file within"),
        ({**KNOWN, "runs": [{**RUN, "log": "/etc/hostname"}]}, "names the file '/etc/hostname'; a file within"),
        ({**KNOWN, "runs": [{**RUN, "log": "none.log"}]}, "names the file 'none.log', which is not in"),
        ({**KNOWN, "runs": [{**RUN, "stated": {"gpu": 2}}]}, "stated: unknown key 'gpu'"),
        ({**KNOWN, "runs": [{**RUN, "stated": {"nodes": 0}}]}, "stated: nodes must be above zero and finite, found 0"),
        ({**KNOWN, "lisence": "MIT"}, "unknown key 'lisence' (did you mean 'licence'?)"),
    ],
)
def test_each_mistake_is_one_sentence_that_names_the_file(tmp_path: Path, source: Any, words: str) -> None:
    folder = write_source(tmp_path, source)
    with pytest.raises(ValueError) as error:
        read_source(folder)
    assert words in str(error.value)
    assert str(error.value).startswith(f"{folder / 'source.yaml'}: ")
    assert "\n" not in str(error.value)


def test_all_missing_keys_are_named_at_once(tmp_path: Path) -> None:
    folder = write_source(
        tmp_path, {"title": "t", "runs": [{"name": "a", "power": {"file": "p.csv"}}, {"log": "b.log"}]}
    )
    with pytest.raises(ValueError) as error:
        read_source(folder)
    assert str(error.value) == (
        f"{folder / 'source.yaml'}: address, version, licence, retrieved; runs 1: log; "
        "runs 1: power: format; runs 2: name must be stated"
    )


def test_all_missing_files_are_named_at_once(tmp_path: Path) -> None:
    folder = write_source(tmp_path, KNOWN)
    (folder / "power.csv").unlink()
    (folder / "eager_bs2.log").unlink()
    with pytest.raises(ValueError, match=r"names the files 'power.csv', 'eager_bs2.log', which are not in "):
        read_source(folder)


@pytest.mark.parametrize("document", ["README.md", "docs/source.md"])
def test_the_written_examples_are_valid(tmp_path: Path, document: str) -> None:
    """Each block that begins with a title is one whole source.yaml."""
    blocks = re.findall(r"^    title:.*(?:\n(?:    .*)?)*", (ROOT / document).read_text(), re.MULTILINE)
    assert blocks
    for block in blocks:
        (tmp_path / "source.yaml").write_text(textwrap.dedent(block))
        for file in set(re.findall(r"(?:log|trace|file): ([\w.-]+)", block)):
            (tmp_path / file).touch()
        assert read_source(tmp_path).contents


def test_every_key_is_documented() -> None:
    text = (ROOT / "docs" / "source.md").read_text()
    classes = (
        ExternalSource,
        RunFiles,
        PowerFile,
        LeftOut,
        CollectivesFile,
        TableFile,
        StatedOfRun,
        StatedOfCollectives,
    )
    keys = {field.name for cls in classes for field in dataclasses.fields(cls)}
    assert [key for key in sorted(keys) if f"`{key}`" not in text] == []
    assert [name for name in get_args(TableFormat) if f"`{name}`" not in text] == []


def test_the_workflow_reads_a_source_without_pandas() -> None:
    code = "import sys, falloff.spec.source; print({'pandas', 'pyarrow', 'numpy', 'torch'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
