"""MFU as a product of three shares: how fast products run, what else a step computes, and what communication leaves."""

from dataclasses import dataclass

import numpy as np

from falloff.perfmodel.counting import layer_params, model_flops_per_token
from falloff.perfmodel.jobs import Floats
from falloff.perfmodel.prediction import Prediction
from falloff.perfmodel.step import Steps


@dataclass(frozen=True, kw_only=True)
class MfuFactors:
    """The factors of MFU of predicted steps, fractions [n] each.

    gemm_share is the rate of the products of weights over the dense peak of their precision; other_compute_share the
    seconds of these products over those of the step without communication; kept_share the seconds of the step without
    communication over those of the step. product_flops_share is the share of the products of weights in the FLOPs that
    MFU counts, the rest being attention's.
    """

    gemm_share: Floats
    other_compute_share: Floats
    kept_share: Floats
    product_flops_share: Floats

    @property
    def mfu(self) -> Floats:
        """Return MFU by falloff's convention, [n]: the product of the three shares over product_flops_share."""
        return self.gemm_share * self.other_compute_share * self.kept_share / self.product_flops_share


def mfu_factors(made: Prediction) -> MfuFactors:
    """Return the factors of MFU of predicted steps [n].

    With N parameters that a token multiplies with, T tokens a GPU and step, and the seconds of products, of the step
    without communication and of the step: 6 N T / (step peak) = (6 N T / (products peak)) (products / silent)
    (silent / step). The left side is MFU times product_flops_share. Pipeline bubbles, waiting for the host, for slower
    GPUs and the rest of the loop stand in the second factor, as a step without communication has them too; what
    recomputation repeats does as well.
    """
    jobs, steps = made.jobs, made.steps
    product_flops = 6 * (layer_params(jobs) + jobs.hidden * jobs.vocab)
    tokens = jobs.tokens / jobs.gpus
    silent_s = silent_step_s(steps)
    return MfuFactors(
        gemm_share=product_flops * tokens / (steps.gemm_s * jobs.peak_flops),
        other_compute_share=steps.gemm_s / silent_s,
        kept_share=silent_s / steps.step_s,
        product_flops_share=product_flops / model_flops_per_token(jobs),
    )


def silent_step_s(steps: Steps) -> Floats:
    """Return the seconds of steps without communication [n]: neither waiting for it nor slowed beside it.

    A pipeline's bubble keeps what its stages wait for tensor-parallel collectives while it fills.
    """
    return np.asarray(steps.step_s - steps.exposed_s - steps.data_parallel.slowed_s, dtype=float)
