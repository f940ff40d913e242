"""docs/artifact.md against what this tree generates."""

import subprocess
import sys
from pathlib import Path

from .workspace import REPOSITORY, Workspace


def test_the_page_of_claims_and_commands_is_what_this_tree_generates(built: Workspace, tmp_path: Path) -> None:
    """`make reference` renews it; whoever changes a number says so in CHANGELOG's section Numbers."""
    page = tmp_path / "artifact.md"
    subprocess.run(
        [sys.executable, "workflow_scripts/document_artifact.py", "--page", str(page)],
        cwd=built.folder,
        env=built.environment,
        timeout=120,
        check=True,
    )
    assert page.read_text() == (REPOSITORY / "docs/artifact.md").read_text()
