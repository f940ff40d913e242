"""Pack what an archive of papers' artifacts takes: code, logs, tables, figures, environment, checksums, RO-Crate."""

import argparse
import tempfile
from pathlib import Path

from falloff.archive import read_commit, write_archive
from falloff.outputs import whole_file
from falloff.script import run
from falloff.units import MEGA


def main() -> None:
    """Read the commit, write dist/falloff-<tag or commit>.zip."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, default=Path())
    parser.add_argument("--folder", type=Path, default=Path("dist"), help="where the archive goes")
    arguments = parser.parse_args()
    commit = read_commit(arguments.root)
    archive = arguments.folder / f"falloff-{commit.name}.zip"
    with tempfile.TemporaryDirectory() as scratch, whole_file(archive) as path:
        folder = Path(scratch) / archive.stem
        folder.mkdir()
        write_archive(arguments.root, commit, folder, path)
    print(f"{archive}: {archive.stat().st_size / MEGA:.1f} MB")


if __name__ == "__main__":
    run(main)
