"""Sealed run directories as archives small enough to send."""

import tarfile
import zlib
from collections.abc import Sequence
from pathlib import Path

from falloff import rawlog
from falloff.units import MIB

PART_BYTES = 15 * MIB
# A header and padding of tar, before compression, and what gzip adds at the worst.
_MEMBER_BYTES = 2048


def pack(folders: Sequence[Path], root: Path, archive: Path, part_bytes: int = PART_BYTES) -> list[Path]:
    """Write the files of folders, named from `root`, into <name>.part<n>.tar.gz below part_bytes; return the parts.

    Each part unpacks by itself. A file that alone is larger has a part of its own, which is then larger too.
    """
    stem = archive.name.removesuffix(".gz").removesuffix(".tar").removesuffix(".tgz")
    archive.parent.mkdir(parents=True, exist_ok=True)
    parts = []
    for number, files in enumerate(_shared_out(_files_of(folders), part_bytes), start=1):
        parts.append(archive.with_name(f"{stem}.part{number}.tar.gz"))
        with tarfile.open(parts[-1], "w:gz") as part:
            for path in files:
                part.add(path, arcname=str(path.relative_to(root)))
    return parts


def _files_of(folders: Sequence[Path]) -> list[Path]:
    paths = [path for folder in folders for path in sorted(folder.rglob("*"))]
    # the second name of a sealed log would be its second copy
    return [path for path in paths if path.is_file() and path.name != rawlog.KEPT_NAME]


def _shared_out(files: Sequence[Path], part_bytes: int) -> list[list[Path]]:
    """Return the files in order, as many a part as its bytes allow."""
    parts: list[list[Path]] = []
    room = 0
    for path in files:
        # level 1 packs less well than the archive does, so a part never grows past this sum
        size = len(zlib.compress(path.read_bytes(), level=1)) + _MEMBER_BYTES
        if size > room or not parts:
            parts.append([])
            room = part_bytes
        parts[-1].append(path)
        room -= size
    return parts
