import gzip
import io
import math
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falloff.ingest import logtext
from falloff.ingest.logtext import Line, clean, moment_of, number_of, read_head, read_lines, read_text, split_prefix

WORDS = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Zl", "Zp")), min_size=1).map(str.strip)


def lines_of(tmp_path: Path, content: bytes) -> list[Line]:
    path = tmp_path / "a.log"
    path.write_bytes(content)
    return list(read_lines(path))


@pytest.mark.parametrize(
    "escape",
    [
        *("\x1b[31m", "\x1b[39m", "\x1b[38;2;180;60;0m", "\x1b[2K", "\x1b[?25l"),
        *("\x1b]8;;file:///x\x07", "\x1b]0;a\x1b\\", "\x1bM", "\x1b7", "\x1b(B", "\x1b="),
        *("\x07", "\x00", "\x7f", "\ufeff"),
    ],
)
def test_escapes_and_controls_are_taken_off(escape: str) -> None:
    assert clean(f"step: 10  {escape}loss{escape}: 1") == "step: 10  loss: 1"


@pytest.mark.parametrize(
    ("prefix", "rank"),
    [
        ("[rank3]:", 3),
        ("[default12]:", 12),
        ("[trainer55|7]:", 55),
        ("[7]:", 7),
        ("[1,4]<stdout>:", 4),
        ("[1,0]<stderr>: ", 0),
        ("Thu Mar 12 11:10:21 2026<stdout>: ", None),
        ("12: ", 12),
        (" 2: ", 2),
        ("0: [rank5]:", 5),
        ("[pod/train-0/main] ", None),
        ("2025-11-20T14:55:23.123456789Z ", None),
        ("[2025-11-20T14:55:23+08:00] pretraining/0 [default3]:", 3),
        ("[rank3]: ", 3),
        ("trainer-1  | ", None),
        ("May 01 12:00:07 ", None),
        ("May 01 12:00:07 gpu-node-3 python3[12345]: ", None),
        ("2024-05-01T12:00:07+0000 gpu-node-3 torchrun[12345]: ", None),
        ("train (8xH100)\tRun training\t2024-05-01T12:00:07.1234567Z ", None),
        ("(RayTrainWorker pid=12345, ip=10.0.0.5) ", None),
        ("(worker1, rank=1, pid=1234, ip=10.0.0.4) ", 1),
        ("gpu-node-3: ", None),
        ("10.0.0.5: ", None),
        ("10.0.0.5: [rank9]:", 9),
    ],
)
def test_what_launchers_put_before_a_line_is_taken_off(prefix: str, rank: int | None) -> None:
    assert split_prefix(f"{prefix}step: 1  loss: 2") == (rank, "step: 1  loss: 2")


@pytest.mark.parametrize(
    "text",
    [
        *("[titan] 2025-03-12 x", "[0] 2025-06-25 x", "step: 1", "[batch=1/100]:", "12:55:32 x", "00004/21400 (0.02%)"),
        *(
            "Step 1 | loss:2.1",
            "40 | loss 6.6",
            "beta2: 0.95",
            "[Rank 0] step=40",
            "(min, max) time across ranks (ms):",
        ),
    ],
)
def test_what_belongs_to_a_line_stays(text: str) -> None:
    assert split_prefix(text) == (None, text)


def test_carriage_returns_end_lines_and_empty_ones_are_passed_over(tmp_path: Path) -> None:
    found = lines_of(tmp_path, b" 10%|# | 1/10\r 20%|## | 2/10\r\n\n   \nlast")
    assert [line.text for line in found] == [" 10%|# | 1/10", " 20%|## | 2/10", "last"]
    assert [line.is_ended for line in found] == [True, True, False]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-8-sig"])
def test_what_powershell_writes_is_read(encoding: str, tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes("step: 1\r\nstep: 2\r\n".encode(encoding))
    assert list(read_lines(path)) == [Line(None, "step: 1", True), Line(None, "step: 2", True)]


def test_a_compressed_log_is_told_by_content(tmp_path: Path) -> None:
    plain = b"step: 1\nstep: 2\n"
    assert lines_of(tmp_path, gzip.compress(plain)) == lines_of(tmp_path, plain)
    joined = gzip.compress(plain) + gzip.compress(plain)
    assert [line.text for line in lines_of(tmp_path, joined)] == ["step: 1", "step: 2"] * 2


def test_a_compressed_log_that_is_cut_gives_what_is_whole(tmp_path: Path) -> None:
    packed = gzip.compress(b"".join(b"step: %d\n" % number for number in range(10_000)))
    found = lines_of(tmp_path, packed[: len(packed) // 2])
    assert 100 < len(found) < 10_000
    assert [line.text for line in found[:-1]] == [f"step: {number}" for number in range(len(found) - 1)]


def test_a_file_that_unpacks_without_end_is_a_sentence(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with gzip.open(buffer, "wb") as stream:
        for _ in range(1 << 4):
            stream.write(b"\n" * (1 << 23))
    with pytest.raises(ValueError, match="unpacks to more than 200 times its size"):
        lines_of(tmp_path, buffer.getvalue())


def test_a_line_without_end_is_cut_and_the_next_one_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logtext, "LONGEST_LINE_CHARS", 100)
    monkeypatch.setattr(logtext, "CHUNK_BYTES", 50)
    found = lines_of(tmp_path, b"x" * 1_000 + b"\nstep: 1\n")
    assert [(len(line.text), line.is_ended) for line in found] == [(100, False), (7, True)]


@given(parts=st.lists(WORDS.filter(bool), max_size=20), size=st.integers(1, 30))
def test_lines_do_not_depend_on_how_a_file_is_read(
    tmp_path_factory: pytest.TempPathFactory, parts: list[str], size: int
) -> None:
    path = tmp_path_factory.mktemp("log") / "a.log"
    path.write_text("\n".join(parts), encoding="utf-8", newline="")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logtext, "CHUNK_BYTES", size)
        pieces = list(read_text(path))
        in_pieces = list(read_lines(path))
    assert "".join(pieces) == "\n".join(parts)
    assert in_pieces == list(read_lines(path))


def test_a_head_is_no_longer_than_asked(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(gzip.compress(b"abc" * 100))
    assert read_head(path, 4) == ("abca", True)
    path.write_text("abc")
    assert read_head(path, 4) == ("abc", False)


def test_a_file_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"gone\.log: cannot be read"):
        list(read_lines(tmp_path / "gone.log"))


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1,234.5", 1234.5),
        ("-1.0000", -1.0),
        ("9.600E-08", 9.6e-8),
        ("11.5K", 11_500.0),
        ("85.8G", 85.8e9),
        ("85.8B", 85.8e9),
        ("441.0T", 441e12),
        ("89.56P", 89.56e15),
        (" 7 ", 7.0),
        ("inf", math.inf),
    ],
)
def test_a_field_holds_a_number(text: str, number: float) -> None:
    assert number_of(text) == pytest.approx(number)


def test_missing_none_and_zero_are_three_things() -> None:
    assert [number_of(text) for text in ("", "N/A", "[N/A]", "none", "0", "0.0")] == [None, None, None, None, 0.0, 0.0]
    assert math.isnan(number_of("nan") or 0.0)


@pytest.mark.parametrize("text", ["1,23", "12,3456", "1.2.3", "5,9x0", "12ms", "K", ".", "+", "1 2"])
def test_half_a_number_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="is no number"):
        number_of(text)


@given(st.integers(-(10**15), 10**15))
def test_thousands_may_be_grouped(value: int) -> None:
    assert number_of(f"{value:,}") == number_of(str(value)) == value


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_any_number_that_python_prints_is_read_back(value: float) -> None:
    assert number_of(repr(value)) == value


@pytest.mark.parametrize("text", ["2024-01-31 23:59:59,123", "2024-01-31T23:59:59.123", "20240131 23:59:59.123"])
def test_a_stamp_is_a_moment_whatever_stands_before_its_fraction(text: str) -> None:
    assert moment_of(text) == datetime(2024, 1, 31, 23, 59, 59, 123_000)


@pytest.mark.parametrize("text", ["2024-13-31 23:59:59", "23:59", ""])
def test_what_is_no_stamp_is_no_moment(text: str) -> None:
    assert moment_of(text) is None
