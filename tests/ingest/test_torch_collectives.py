from pathlib import Path

import pytest

from falloff.ingest.torch_collectives import is_collectives_file, read_torch_collectives

SAMPLE = Path("data/external/torchtitan-h200x2/collectives_gemm.txt")


def test_the_shipped_sweep_is_read() -> None:
    found = read_torch_collectives(SAMPLE, 2)
    assert len(found.times) == 33
    assert found.num_cut_lines == 0
    last = found.times[-1]
    assert (last.collective, last.message_bytes) == ("reduce_scatter", 2**30)
    assert last.time_s == pytest.approx(2095.6e-6)
    assert last.busbw_bytes_s == pytest.approx(256.2e9)


def test_the_bandwidths_tell_the_ranks() -> None:
    assert read_torch_collectives(SAMPLE).num_ranks == 2


def test_ranks_that_the_bandwidths_contradict_are_an_error() -> None:
    with pytest.raises(ValueError, match="its time on 4 ranks gives"):
        read_torch_collectives(SAMPLE, 4)


def test_a_cut_or_garbled_line_is_counted_and_not_guessed(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    good = "COLL all_reduce 1073741824 3237.4 331.7\n"
    path.write_text(good + "COLL all_reduce 268435456 899.6\nCOLL all_gather 1o24 41.6 0.0\nCOLL all_gat")
    found = read_torch_collectives(path)
    assert len(found.times) == 1
    assert found.num_cut_lines == 3


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "holds no line"),
        ("GEMM 4096 4096 4096 801.0 TFLOP/s\n", "holds no line"),
        ("COLL all_reduce 1073741824 3237.4 331.7\n" * 2, "stands there 2 times"),
        ("COLL all_reduce 1024 39.8 0.0\n", "state num_ranks"),
    ],
)
def test_a_file_that_tells_nothing_is_a_sentence(tmp_path: Path, content: str, words: str) -> None:
    path = tmp_path / "x.txt"
    path.write_text(content)
    with pytest.raises(ValueError, match=words):
        read_torch_collectives(path)


def test_the_format_is_told_by_its_lines() -> None:
    assert is_collectives_file(SAMPLE.read_text())
    assert not is_collectives_file("COLL something else\n")
