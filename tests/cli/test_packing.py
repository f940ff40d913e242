import random
import tarfile
from pathlib import Path

from falloff.cli.packing import pack


def run_dir(root: Path, name: str, num_bytes: int) -> Path:
    folder = root / "s" / name / "1"
    folder.mkdir(parents=True)
    (folder / "events.jsonl").write_bytes(random.Random(name).randbytes(num_bytes))
    (folder / ".sealed").write_bytes(b"its second name")
    return folder


def test_parts_stay_below_their_size_and_hold_every_file_once(tmp_path: Path) -> None:
    folders = [run_dir(tmp_path, name, 40_000) for name in "abcde"]
    parts = pack(folders, tmp_path, tmp_path / "out" / "h200.tar.gz", part_bytes=100_000)
    assert [part.name for part in parts] == ["h200.part1.tar.gz", "h200.part2.tar.gz", "h200.part3.tar.gz"]
    assert all(part.stat().st_size < 100_000 for part in parts)
    names = []
    for part in parts:
        with tarfile.open(part) as archive:
            names += archive.getnames()
            archive.extractall(tmp_path / "there", filter="data")
    assert names == [f"s/{name}/1/events.jsonl" for name in "abcde"]
    for name in "abcde":
        file = Path("s") / name / "1" / "events.jsonl"
        assert (tmp_path / "there" / file).read_bytes() == (tmp_path / file).read_bytes()


def test_a_file_larger_than_a_part_has_one_of_its_own(tmp_path: Path) -> None:
    folders = [run_dir(tmp_path, "small", 100), run_dir(tmp_path, "large", 50_000), run_dir(tmp_path, "tiny", 10)]
    parts = pack(folders, tmp_path, tmp_path / "h200.tgz", part_bytes=20_000)
    assert len(parts) == 3
    with tarfile.open(parts[1]) as archive:
        assert archive.getnames() == ["s/large/1/events.jsonl"]


def test_nothing_measured_is_no_archive(tmp_path: Path) -> None:
    assert pack([], tmp_path, tmp_path / "h200.tar.gz") == []
