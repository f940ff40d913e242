import pytest

from falloff.analysis.fitting_jobs import fastest_layout, fastest_that_fits
from falloff.analysis.model_points import job
from falloff.perfmodel.memory import memory_bytes
from falloff.perfmodel.prediction import prior_fit
from falloff.perfmodel.search import Question

FIT = prior_fit()
H100 = "h100-sxm-ib400"


@pytest.mark.parametrize(("network", "gpus"), [("llama2-7b", 8), ("llama2-13b", 64), ("llama2-70b", 512)])
def test_what_is_chosen_fits_and_keeps_the_batch(network: str, gpus: int) -> None:
    found = fastest_that_fits(job(network, H100, gpus, local_batch=2), FIT)
    assert found is not None
    assert memory_bytes(found, FIT.values).margin_bytes[0] >= 0
    assert found.microbatch[0] * found.num_microbatches[0] == 2


def test_nothing_is_chosen_where_nothing_fits() -> None:
    assert fastest_that_fits(job("llama3-405b", H100, 8, local_batch=1), FIT) is None
    asked = Question(job=job("llama3-405b", H100, 8, local_batch=1), gpus=8, global_batch=8)
    assert fastest_layout(asked, FIT) is None


def test_a_layout_that_is_sought_has_no_context_parallelism_unless_asked() -> None:
    asked = Question(job=job("llama2-70b", "gb200-nvl72-ib400", 64, local_batch=2), gpus=64, global_batch=128)
    plain, free = fastest_layout(asked, FIT), fastest_layout(asked, FIT, most_cp=64)
    assert plain is not None
    assert free is not None
    assert plain.cp[0] == 1
    assert free.cp[0] >= 1
