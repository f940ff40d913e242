import pytest

from falloff.analysis.fastest_layouts import fastest_layouts
from falloff.perfmodel.prediction import prior_fit

FIT = prior_fit()
MADE = fastest_layouts("llama2-70b", "h100-sxm-ib400", (8, 64, 512), global_batch=256, seq=4096, fit=FIT)


def test_counts_that_cannot_hold_the_network_are_left_out() -> None:
    assert list(MADE.jobs.gpus) == [64, 512]
    assert MADE.memory.fits.all()


def test_the_batch_is_the_same_at_every_count() -> None:
    assert set(MADE.jobs.tokens) == {256 * 4096}


def test_a_network_that_fits_nowhere_is_an_error() -> None:
    with pytest.raises(ValueError, match="llama3-405b fits on none of 8 GPUs at a batch of 256"):
        fastest_layouts("llama3-405b", "h100-sxm-ib400", (8,), global_batch=256, seq=4096, fit=FIT)
