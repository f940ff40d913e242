"""Outputs are whole or absent."""

import json
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from falloff.outputs import whole_file

FULL_DISK = """
import resource, sys
from pathlib import Path
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
out = Path(sys.argv[1])
try:
    {write}
except ValueError as error:
    sys.exit(f"error: {{error}}")
"""
WRITERS = {
    "text": """
    from falloff.outputs import whole_file
    with whole_file(out / "big.txt") as path:
        path.write_text("x" * 100_000)
""",
    "records": """
    from falloff.records import RunRecord, write_records
    record = RunRecord(record_id="r", provenance="measured", source="s", source_ref="r", outcome="ok",
                       note="".join(chr(33 + (i * i * 31 + i // 7) % 90) for i in range(200_000)))
    write_records(out / "big.parquet", [record], RunRecord)
""",
    "figure": """
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from falloff.outputs import whole_file
    fig, ax = plt.subplots()
    ax.plot([(i * 7919) % 104729 for i in range(3000)])
    with whole_file(out / "big.png") as path:
        fig.savefig(path, dpi=300)
""",
}


def test_a_file_appears_once_its_block_has_ended(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "table.csv"
    with whole_file(target) as path:
        path.write_text("a,b\n")
        assert not target.exists()
        assert path.suffix == ".csv"
    assert target.read_text() == "a,b\n"
    assert [p.name for p in target.parent.iterdir()] == ["table.csv"]


def write_half_and_raise(target: Path, error: BaseException) -> None:
    with whole_file(target) as path:
        path.write_text("half")
        raise error


def test_an_error_leaves_the_old_file_and_nothing_beside_it(tmp_path: Path) -> None:
    target = tmp_path / "table.csv"
    target.write_text("old")
    with pytest.raises(ZeroDivisionError):
        write_half_and_raise(target, ZeroDivisionError())
    assert target.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["table.csv"]


def test_an_interruption_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        write_half_and_raise(tmp_path / "table.csv", KeyboardInterrupt())
    assert list(tmp_path.iterdir()) == []


def test_a_file_can_be_read_by_those_whom_the_umask_lets(tmp_path: Path) -> None:
    with whole_file(tmp_path / "table.csv") as path:
        path.write_text("a")
    (tmp_path / "usual").write_text("a")
    assert stat.S_IMODE((tmp_path / "table.csv").stat().st_mode) == stat.S_IMODE((tmp_path / "usual").stat().st_mode)


def test_a_folder_that_is_a_file_is_an_error_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    sentence = r"table.csv: not written, its folder cannot be written to"
    with pytest.raises(ValueError, match=sentence), whole_file(tmp_path / "taken" / "table.csv"):
        pass


@pytest.mark.parametrize("kind", WRITERS)
def test_a_full_disk_is_a_sentence_and_leaves_no_half_written_output(kind: str, tmp_path: Path) -> None:
    code = FULL_DISK.format(write=WRITERS[kind].strip())
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert done.stderr.startswith("error: ")
    assert "not written, no space left (File too large)" in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_the_output_of_before(tmp_path: Path) -> None:
    (tmp_path / "big.txt").write_text(json.dumps("before"))
    code = FULL_DISK.format(write=WRITERS["text"].strip())
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert json.loads((tmp_path / "big.txt").read_text()) == "before"
