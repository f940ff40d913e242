"""A file's bytes, unpacked where they begin as gzip's do."""

import gzip
from pathlib import Path

import pytest

from falloff.ingest.unpacking import BombError, Unpacked

TEXT = b"".join(b"step: %d\n" % number for number in range(20_000))


def read_all(path: Path, content: bytes, size: int = 1 << 12) -> tuple[bytes, Unpacked]:
    path.write_bytes(content)
    with path.open("rb") as file:
        source = Unpacked(file, path, most_ratio=100, freely_bytes=1 << 20)
        found = b"".join(iter(lambda: source.read(size), b""))
    return found, source


@pytest.mark.parametrize("size", [1, 100, 1 << 20])
@pytest.mark.parametrize("content", [b"", b"\x1f", b"plain", gzip.compress(b"plain")])
def test_what_is_read_does_not_depend_on_the_size_of_pieces(tmp_path: Path, content: bytes, size: int) -> None:
    found, source = read_all(tmp_path / "x", content, size)
    assert found == (gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content)
    assert not source.is_cut


def test_joined_files_with_zeros_between_and_behind_them_are_whole(tmp_path: Path) -> None:
    packed = gzip.compress(TEXT)
    found, source = read_all(tmp_path / "x", packed + bytes(512) + packed + bytes(1 << 18))
    assert found == TEXT * 2
    assert not source.is_cut


def test_a_file_that_is_cut_gives_what_is_whole(tmp_path: Path) -> None:
    packed = gzip.compress(TEXT)
    found, source = read_all(tmp_path / "x", packed[: len(packed) // 2])
    assert source.is_cut
    assert source.damage is None
    assert TEXT.startswith(found)
    assert len(found) > 10_000


def test_a_file_that_is_damaged_gives_what_stands_before_the_damage(tmp_path: Path) -> None:
    packed = gzip.compress(TEXT)
    half = len(packed) // 2
    found, source = read_all(tmp_path / "x", packed[:half] + b"\xff" * 1000 + packed[half:])
    assert source.is_cut
    assert source.damage
    assert found[:10_000] == TEXT[:10_000]


def test_a_file_that_unpacks_without_end_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(BombError, match="unpacks to more than 100 times its size"):
        read_all(tmp_path / "x", gzip.compress(bytes(1 << 22)))
