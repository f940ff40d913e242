import pytest

from falloff.ingest.logtext import Line
from falloff.ingest.nemo_automodel import parse

TEXT = "2026-08-10 15:55:20 | INFO | root | step 9 | epoch 0 | loss 0.6974 | mem 24.90 GiB | tps 11278.56(1409.82/gpu)"


def test_a_line_without_the_rate_of_one_gpu_is_read() -> None:
    parsed = parse(Line(None, TEXT.replace("(1409.82/gpu)", ""), True))
    assert parsed is not None
    assert (parsed[0].tokens_per_s, parsed[0].tokens_per_gpu_s) == (11278.56, None)


@pytest.mark.parametrize("text", [TEXT[:-1], TEXT[:-5], TEXT.replace("tps 1", "tps x"), TEXT.partition(" | tps")[0]])
def test_a_line_that_is_cut_or_garbled_is_none(text: str) -> None:
    assert parse(Line(None, text, True)) is None


def test_a_line_that_is_not_ended_may_go_on() -> None:
    assert parse(Line(None, TEXT, False)) is None
