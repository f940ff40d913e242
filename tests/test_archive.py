import hashlib
import json
import subprocess
import zipfile
from pathlib import Path

import pytest

from falloff.archive import CHECKSUMS, Commit, read_commit, write_archive

SOURCE = """title: Somebody's runs
address: example.org/runs
licence: CC-BY-4.0
retrieved: "2026-11-30"
"""
CITATION = """title: "a study"
version: 1.2.3
license: Apache-2.0
authors:
  - name: Its authors
keywords: [scaling]
"""


def git(root: Path, *arguments: str) -> None:
    who = ("-c", "user.name=x", "-c", "user.email=x@example.org")
    subprocess.run(["git", "-C", root, *who, *arguments], check=True, capture_output=True)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "checkout"
    files = {
        "CITATION.cff": CITATION,
        "Snakefile": "rule all:\n",
        "environment.yml": "name: x\n",
        ".gitignore": "/figures/\n/results/\n",
        "notebooks/one.ipynb": "{}",
        "data/external/runs/source.yaml": SOURCE,
        "data/raw/h200/cell/1/events.jsonl": "{}\n",
        "figures/one.json": json.dumps({"title": "One", "finding": "It falls."}),
        "figures/one.csv": "x,y\n1,2\n",
        "figures/one.pdf": "pdf",
        "figures/one.png": "png",
        "figures/index.html": "<html></html>",
        "results/tables/one.parquet": "table",
        "results/records/one.parquet": "made of the logs in seconds",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    git(root, "init", "--quiet")
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "one")
    return root


def archive_of(root: Path, name: str) -> Path:
    folder = root.parent / name / "falloff"
    folder.mkdir(parents=True)
    write_archive(root, read_commit(root), folder, folder.parent / "falloff.zip")
    return folder.parent / "falloff.zip"


def unpacked(archive: Path) -> Path:
    with zipfile.ZipFile(archive) as packed:
        packed.extractall(archive.parent / "out")
    return archive.parent / "out" / "falloff"


def test_an_archive_holds_the_tree_what_was_built_of_it_and_nothing_that_the_logs_give_again(root: Path) -> None:
    found = unpacked(archive_of(root, "a"))
    for name in ("Snakefile", "figures/one.pdf", "results/tables/one.parquet", "data/raw/h200/cell/1/events.jsonl"):
        assert (found / name).is_file(), name
    assert not (found / "results" / "records").exists()
    assert "rocrate==" in (found / "environment.txt").read_text()


def test_every_file_but_the_checksums_has_its_checksum(root: Path) -> None:
    found = unpacked(archive_of(root, "a"))
    stated = dict(reversed(line.split("  ")) for line in (found / CHECKSUMS).read_text().splitlines())
    files = {path.relative_to(found).as_posix(): path for path in found.rglob("*") if path.is_file()}
    assert set(stated) == set(files) - {CHECKSUMS}
    assert all(hashlib.sha256(files[name].read_bytes()).hexdigest() == digest for name, digest in stated.items())


def test_the_crate_names_each_dataset_with_its_licence_and_each_figure_with_its_finding(root: Path) -> None:
    found = unpacked(archive_of(root, "a"))
    graph = json.loads((found / "ro-crate-metadata.json").read_text())["@graph"]
    entities = {entity["@id"]: entity for entity in graph}
    assert entities["data/external/runs/"]["license"] == "CC-BY-4.0"
    assert entities["data/external/runs/"]["isBasedOn"] == "example.org/runs"
    assert entities["figures/one.csv"]["description"] == "It falls."
    assert entities["figures/one.csv"]["isBasedOn"] == {"@id": "notebooks/one.ipynb"}
    build = entities["#build"]
    assert {"@id": "data/raw/h200/"} in build["object"]
    assert {"@id": "figures/index.html"} in build["result"]
    for name in entities:
        local = not name.startswith(("#", "http", "./"))
        assert not local or (found / name).exists(), name


def test_the_same_commit_gives_the_same_bytes(root: Path) -> None:
    assert archive_of(root, "a").read_bytes() == archive_of(root, "b").read_bytes()


def test_an_archive_is_named_by_its_tag_and_else_by_its_commit(root: Path) -> None:
    commit = read_commit(root)
    assert commit.name == commit.revision[:12]
    git(root, "tag", "--annotate", "v1.2.3", "--message", "x")
    assert read_commit(root) == Commit(revision=commit.revision, tag="v1.2.3", made=commit.made)
    assert read_commit(root).name == "v1.2.3"


def test_a_changed_tree_is_refused_with_the_file_that_differs(root: Path) -> None:
    (root / "Snakefile").write_text("rule other:\n")
    with pytest.raises(ValueError, match="Snakefile differs from the commit"):
        read_commit(root)


def test_an_archive_without_figures_is_refused(root: Path) -> None:
    (root / "figures" / "one.csv").unlink()
    with pytest.raises(ValueError, match="no figure is built"):
        archive_of(root, "a")
