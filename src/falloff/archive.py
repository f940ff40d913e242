"""What a deposit in an archive holds: the tree of a commit, what was built of it, its description and checksums.

The description is RO-Crate 1.1 or later (w3id.org/ro/crate), by the rocrate package: datasets with their licences and
addresses, figures, and the workflow that made the ones of the others. The same commit, figures and environment give
the same bytes.
"""

import hashlib
import importlib.metadata
import json
import platform
import shutil
import subprocess
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rocrate.model.entity import Entity
from rocrate.rocrate import ROCrate

from falloff.spec.reading import read_yaml

CHECKSUMS = "SHA256SUMS"
ENVIRONMENT = "environment.txt"
# what is built and belongs to the deposit; other results are made of the logs in seconds
_BUILT = ("figures", "results/tables", "results/perfmodel")
_FORMATS = {
    ".csv": "text/csv",
    ".html": "text/html",
    ".json": "application/json",
    ".pdf": "application/pdf",
    ".png": "image/png",
}


@dataclass(frozen=True, kw_only=True)
class Commit:
    """The commit that is archived: its hash, the tag at it (None without one), and when it was made."""

    revision: str
    tag: str | None
    made: datetime

    @property
    def name(self) -> str:
        """Return what the archive is called by: the tag, else the first digits of the hash."""
        return self.tag or self.revision[:12]


def read_commit(root: Path) -> Commit:
    """Return the commit of a checkout; ValueError where there is none or tracked files differ from it."""
    revision, when = _git(root, "log", "-1", "--format=%H %ct").split()
    if changed := _git(root, "status", "--porcelain", "--untracked-files=no"):
        name = changed.splitlines()[0].split()[-1]
        raise ValueError(f"{root}: {name} differs from the commit; an archive is of a commit, so commit or restore it")
    tags = _git(root, "tag", "--points-at", "HEAD").split()
    return Commit(revision=revision, tag=tags[0] if tags else None, made=datetime.fromtimestamp(int(when), UTC))


def write_archive(root: Path, commit: Commit, folder: Path, archive: Path) -> None:
    """Fill an empty folder with the deposit of a commit whose figures are built, and pack it into a zip file.

    ValueError where no figure is built.
    """
    unpack_tree(root, folder)
    copy_built(root, folder)
    (folder / ENVIRONMENT).write_text(environment_text(), encoding="utf-8")
    write_crate(folder, commit)
    (folder / CHECKSUMS).write_text(checksums_text(folder), encoding="utf-8")
    pack(folder, archive, commit.made)


def unpack_tree(root: Path, folder: Path) -> None:
    """Write the files of the commit that is checked out at `root` into a folder."""
    tar = folder / ".tree.tar"
    _git(root, "archive", "--format=tar", f"--output={tar}", "HEAD")
    with tarfile.open(tar) as tree:
        tree.extractall(folder, filter="data")
    tar.unlink()


def copy_built(root: Path, folder: Path) -> None:
    """Copy figures, their tables and predictions into the tree; ValueError where there are no figures."""
    if not list((root / "figures").glob("*.csv")):
        raise ValueError(f"{root / 'figures'}: no figure is built; `make figures` builds them")
    for name in _BUILT:
        if (root / name).is_dir():
            shutil.copytree(root / name, folder / name, dirs_exist_ok=True)


def environment_text() -> str:
    """Return what the figures were built with: Python, the platform and every installed package, one a line."""
    found = {
        f"{distribution.metadata['Name']}=={distribution.version}"
        for distribution in importlib.metadata.distributions()
    }
    heads = (f"# Python {platform.python_version()}", f"# {platform.platform()}")
    return "\n".join([*heads, *sorted(found, key=str.casefold)]) + "\n"


def write_crate(folder: Path, commit: Commit) -> None:
    """Write ro-crate-metadata.json beside what it describes."""
    about = read_yaml(folder / "CITATION.cff")
    crate = ROCrate()
    crate.name, crate.license = about["title"], about["license"]
    crate.description = "Logs, published tables, code and figures of a study of how training language models scales"
    crate.keywords = list(about["keywords"])
    crate.datePublished = commit.made
    crate.root_dataset["version"] = commit.tag or str(about["version"])
    crate.root_dataset["identifier"] = commit.revision
    authors = [{"@type": "Organization", "name": author["name"]} for author in about["authors"]]
    crate.creator = [_add(crate, f"#author-{place}", author) for place, author in enumerate(authors, start=1)]
    workflow = crate.add_workflow("Snakefile", "Snakefile", main=True, lang="snakemake")
    data = [*_external(crate, folder), *_raw(crate, folder)]
    made = list(_figures(crate, folder))
    for name, words in ((ENVIRONMENT, "what the figures were built with"), ("environment.yml", "the environment")):
        crate.add_file(dest_path=name, properties={"name": words, "encodingFormat": "text/plain"})
    crate.add_action(
        workflow,
        "#build",
        object=data,
        result=made,
        properties={"name": "snakemake figures/", "endTime": commit.made.isoformat()},
    )
    crate.metadata.write(folder)


def _add(crate: ROCrate, identifier: str, properties: Mapping[str, Any]) -> Any:
    return crate.add(Entity(crate, identifier, properties=dict(properties)))


def _external(crate: ROCrate, folder: Path) -> Iterator[Any]:
    """Yield a dataset a folder of others' logs and tables, with what its source.yaml says."""
    for path in sorted((folder / "data" / "external").glob("*/source.yaml")):
        about = read_yaml(path)
        properties = {
            "name": about["title"],
            "license": about["licence"],
            "isBasedOn": about["address"],
            "dateModified": str(about["retrieved"]),
        }
        yield crate.add_dataset(dest_path=f"{path.parent.relative_to(folder)}/", properties=properties)


def _raw(crate: ROCrate, folder: Path) -> Iterator[Any]:
    """Yield a dataset a study whose raw logs ship."""
    for path in sorted((folder / "data" / "raw").glob("*/")):
        properties = {"name": f"raw logs of study {path.name}", "license": "Apache-2.0"}
        yield crate.add_dataset(dest_path=f"{path.relative_to(folder)}/", properties=properties)


def _figures(crate: ROCrate, folder: Path) -> Iterator[Any]:
    """Yield the files of each figure and the page; a figure's are based on its notebook."""
    for about in sorted((folder / "figures").glob("*.json")):
        told = json.loads(about.read_text(encoding="utf-8"))
        notebook = crate.add_file(dest_path=f"notebooks/{about.stem}.ipynb", properties={"name": f"draws {about.stem}"})
        for kind in (".pdf", ".png", ".csv"):
            path = about.with_suffix(kind)
            properties = {
                "name": f"{told['title']} ({kind[1:].upper()})",
                "description": told["finding"],
                "encodingFormat": _FORMATS[kind],
            }
            file = crate.add_file(dest_path=path.relative_to(folder).as_posix(), properties=properties)
            file["isBasedOn"] = notebook
            yield file
    if (folder / "figures" / "index.html").is_file():
        page = {"name": "all figures", "encodingFormat": _FORMATS[".html"]}
        yield crate.add_file(dest_path="figures/index.html", properties=page)


def checksums_text(folder: Path) -> str:
    """Return the SHA-256 of every file of a folder in the form of sha256sum, sorted by name."""
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(folder)}" for path in _files(folder)]
    return "\n".join(lines) + "\n"


def pack(folder: Path, archive: Path, made: datetime) -> None:
    """Write a folder's files as a zip file, all under the archive's name and of one time."""
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for path in _files(folder):
            entry = zipfile.ZipInfo(f"{folder.name}/{path.relative_to(folder)}", made.timetuple()[:6])
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (path.stat().st_mode & 0xFFFF) << 16
            packed.writestr(entry, path.read_bytes())


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(f"{root}: git {arguments[0]} failed: {done.stderr.strip().splitlines()[-1]}")
    return done.stdout.strip()
