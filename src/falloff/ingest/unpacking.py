"""A file's bytes, unpacked where they begin as gzip's do whatever its name says, up to a bound."""

import zlib
from pathlib import Path
from typing import Any, BinaryIO

GZIP_MAGIC = b"\x1f\x8b"
_PACKED_BYTES = 1 << 16


class BombError(ValueError):
    """A file that unpacks to so much more than its size that it is made to exhaust memory: one sentence."""


class Unpacked:
    """The bytes of an open file in pieces.

    is_cut says, once read() gave none, that the file breaks off or is damaged there; damage is zlib's word for that.
    BombError past `freely_bytes` where it unpacks to more than `most_ratio` times its size; deflate's limit is 1,032.
    """

    def __init__(self, file: BinaryIO, path: Path, most_ratio: int, freely_bytes: int) -> None:
        self.is_cut = False
        self.damage: str | None = None
        self.num_unpacked = 0
        self._file, self._path = file, path
        self._most_ratio, self._freely_bytes = most_ratio, freely_bytes
        self._packed, self._num_packed = b"", 0
        head = file.read(len(GZIP_MAGIC))
        file.seek(0)
        self._unpacker: Any = _unpacker() if head == GZIP_MAGIC else None

    def read(self, size: int) -> bytes:
        """Return up to `size` further bytes, none at the end or where the file breaks off."""
        if self._unpacker is None:
            return self._file.read(size)
        while not self.is_cut:
            if not self._packed and not self._refill():
                return b""
            piece = self._unpack(size)
            if piece:
                self.num_unpacked += len(piece)
                self._refuse_bomb()
                return piece
        return b""

    def _refill(self) -> bool:
        self._packed = self._file.read(_PACKED_BYTES)
        self._num_packed += len(self._packed)
        self.is_cut = not self._packed and not self._unpacker.eof
        return bool(self._packed)

    def _unpack(self, size: int) -> bytes:
        if self._unpacker.eof:
            # gzip files may be joined, and padded with zeros as on tapes
            self._packed = self._packed.lstrip(b"\0")
            if not self._packed:
                return b""
            self._unpacker = _unpacker()
        before = self._unpacker.copy()
        try:
            piece: bytes = self._unpacker.decompress(self._packed, size)
        except zlib.error as error:
            self.is_cut, self.damage = True, str(error)
            return _whole_part(before, self._packed, size)
        self._packed = self._unpacker.unused_data if self._unpacker.eof else self._unpacker.unconsumed_tail
        return piece

    def _refuse_bomb(self) -> None:
        if self.num_unpacked > max(self._freely_bytes, self._most_ratio * self._num_packed):
            raise BombError(
                f"{self._path}: unpacks to more than {self._most_ratio} times its size, as no such file does"
            )


def _unpacker() -> Any:
    return zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)


def _whole_part(unpacker: Any, packed: bytes, size: int) -> bytes:
    """Return what stands before the damage, which the unpacker gives only where the damage is not in the same call."""
    whole = b""
    for i in range(len(packed)):
        try:
            whole += unpacker.decompress(packed[i : i + 1])
        except zlib.error:
            break
        if len(whole) >= size:
            break
    return whole
