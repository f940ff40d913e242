import numpy as np
import pytest

from falloff.analysis.mfu_factors import mfu_factors, silent_step_s
from falloff.analysis.model_points import job
from falloff.perfmodel.jobs import Job, stack
from falloff.perfmodel.prediction import Prediction, predict, prior_fit
from falloff.perfmodel.step import predict_steps

FIT = prior_fit()
LAYOUTS = {
    "one GPU": ("llama2-1b", 1, ""),
    "sharded": ("llama2-7b", 64, ""),
    "tensor parallel": ("llama2-7b", 64, "tp=8"),
    "pipelined": ("llama2-70b", 256, "tp=8,pp=4"),
    "context parallel": ("llama2-7b", 64, "cp=4"),
}
CLUSTERS = ("v100-32gb-sxm2-ib100", "a100-80gb-sxm-ib200", "h100-sxm-ib400", "b200-ib400")


def made_of(*jobs: Job) -> Prediction:
    return predict(stack(list(jobs)), FIT, intervals=False)


def job_of(name: str, cluster: str = "h100-sxm-ib400", **more: object) -> Job:
    network, gpus, layout = LAYOUTS[name]
    precision = "float16" if cluster.startswith("v100") else "bfloat16"
    return job(network, cluster, gpus, layout=layout, local_batch=8, precision=precision, **more)


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("cluster", CLUSTERS)
def test_the_product_of_the_factors_is_mfu_times_the_share_of_products_in_its_flops(name: str, cluster: str) -> None:
    made = made_of(job_of(name, cluster), job_of(name, cluster, recompute="full"))
    found = mfu_factors(made)
    product = found.gemm_share * found.other_compute_share * found.kept_share
    np.testing.assert_allclose(product, made.mfu * found.product_flops_share, rtol=1e-12)
    np.testing.assert_allclose(found.mfu, made.mfu, rtol=1e-12)


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("cluster", CLUSTERS)
def test_every_factor_is_a_share(name: str, cluster: str) -> None:
    found = mfu_factors(made_of(job_of(name, cluster)))
    for share in (found.gemm_share, found.other_compute_share, found.kept_share, found.product_flops_share):
        assert ((share > 0) & (share <= 1)).all()


def test_one_gpu_keeps_all_of_its_step() -> None:
    assert mfu_factors(made_of(job_of("one GPU"))).kept_share[0] == 1


def test_a_step_without_communication_is_the_control_of_the_model_under_full_sharding() -> None:
    jobs = stack([job_of("sharded")])
    made = predict(jobs, FIT, intervals=False)
    # products share the power limit with what runs beside them, so that the control runs at a slightly other clock
    control = predict_steps(jobs, FIT.values, stretch=0.0)
    np.testing.assert_allclose(silent_step_s(made.steps), control.step_s, rtol=0.02)


def test_recomputation_lowers_the_second_factor_alone() -> None:
    plain, again = (mfu_factors(made_of(job_of("sharded", recompute=mode))) for mode in ("none", "full"))
    assert again.other_compute_share < plain.other_compute_share
    np.testing.assert_allclose(again.gemm_share, plain.gemm_share, rtol=0.02)
