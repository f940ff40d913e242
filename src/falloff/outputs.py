"""Outputs are written whole or not at all."""

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FULL_DISK = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a path beside `path` to write to; it becomes `path` by rename once the block has ended well.

    On any error nothing is left behind. Raises ValueError, one sentence, where the disk or a quota is full or the
    folder cannot be written to.
    """
    temporary = _empty_file_beside(path)
    try:
        yield temporary
        # mkstemp makes files private; what falloff makes is meant to be read by the group as usual
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        temporary.replace(path)
    except OSError as error:
        if error.errno in FULL_DISK:
            raise ValueError(f"{path}: not written, no space left ({os.strerror(error.errno)})") from error
        raise
    finally:
        temporary.unlink(missing_ok=True)


def _empty_file_beside(path: Path) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.stem}.", suffix=path.suffix, dir=path.parent)
    except OSError as error:
        raise ValueError(f"{path}: not written, its folder cannot be written to ({error.strerror})") from error
    os.close(handle)
    return Path(name)
