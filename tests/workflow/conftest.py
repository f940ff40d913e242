"""Workspaces: one built whole once, copies of it, and one with nothing measured."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from .workspace import Workspace, copy_repository, make_tiny


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A workspace in which everything has been measured and drawn once. Tests take copies of it."""
    workspace = make_tiny(copy_repository(tmp_path_factory.mktemp("built")))
    workspace.snakemake("figures/")
    return workspace


@pytest.fixture
def workspace(built: Workspace, tmp_path: Path) -> Iterator[Workspace]:
    """A copy of the built workspace, times and Snakemake's memory included."""
    folder = tmp_path / "falloff"
    shutil.copytree(built.folder, folder, symlinks=True)
    yield Workspace(folder)
    shutil.rmtree(folder)


@pytest.fixture
def unmeasured(tmp_path: Path) -> Iterator[Workspace]:
    """A workspace with the tiny study and nothing measured or drawn."""
    workspace = make_tiny(copy_repository(tmp_path / "falloff"))
    yield workspace
    shutil.rmtree(workspace.folder)
