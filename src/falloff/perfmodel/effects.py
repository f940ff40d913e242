"""Four effects that grow with the number of GPUs, each a named term that can be switched off.

Padding of shards; optimizer and clipping that shrink with shards (in compute.py, switched here); gathers and reductions
that take turns on one communicator (in overlap.py); GPUs that differ in speed, for good and from step to step.
"""

import statistics
from dataclasses import dataclass

import numpy as np

from falloff.perfmodel.jobs import Floats, Jobs
from falloff.perfmodel.parameters import Parameter, Values

PARAMETERS = (
    Parameter(
        name="speed_spread",
        prior=0.008,
        spread=0.5,
        low=0.0005,
        high=0.05,
        shared_by="generation",
        meaning="standard deviation of GPUs' sustained compute rates over their mean, the same at every step",
        source="Sinha et al., Not All GPUs Are Created Equal, SC 2022 (arXiv 2208.11035): 8 % between the fastest and "
        "the slowest of hundreds of V100s under GEMM, 2 % a quartile; less once slow ones are weeded out",
    ),
    Parameter(
        name="step_jitter",
        prior=0.004,
        spread=0.7,
        low=0.0002,
        high=0.05,
        shared_by="fabric",
        meaning="standard deviation of a rank's compute seconds between synchronisations of a step, over the step's",
        source="data/raw/h200: steps of one GPU vary by 0.2 to 0.6 %; hosts and networks of clusters add to it",
    ),
)


@dataclass(frozen=True, kw_only=True)
class Effects:
    """Which effects are on; all are unless a question is asked of one of them."""

    padding: bool = True
    shrinking_optimizer: bool = True
    serialisation: bool = True
    speed_spread: bool = True
    jitter: bool = True


ALL = Effects()


def padded(size: Floats, ranks: Floats) -> Floats:
    """Return a dimension [n] as it is gathered from `ranks` shards of equal size: 11008 over 2,048 is 12288.

    FSDP2 shards each parameter's dim 0 by chunks of ceil(size / ranks) and pads the last ones (torch,
    _fsdp_param.py), so that a rank count near or above the dimension wastes bytes.
    """
    whole: Floats = np.ceil(size / ranks - 1e-9) * ranks
    return whole


def expected_maximum(ranks: Floats) -> Floats:
    """Return how many standard deviations the largest of `ranks` normal numbers lies above their mean [n].

    Blom 1958: the quantile at (N - 0.375) / (N + 0.25); 1.42 for 8, 3.3 for 2,048.
    """
    counts, places = np.unique(ranks, return_inverse=True)
    normal = statistics.NormalDist()
    found = [normal.inv_cdf((count - 0.375) / (count + 0.25)) if count > 1 else 0.0 for count in counts.tolist()]
    return np.array(found, dtype=float)[places]


def slowest_gpu(jobs: Jobs, values: Values, effects: Effects = ALL) -> Floats:
    """Return by how much the slowest GPU's compute is longer than the mean GPU's, as a share [n].

    All wait for it at every step, so that it does not average out over steps as jitter does.
    """
    if not effects.speed_spread:
        return np.zeros(len(jobs))
    return values.of("speed_spread", jobs) * expected_maximum(jobs.gpus)


def jitter(jobs: Jobs, values: Values, effects: Effects = ALL) -> Floats:
    """Return by how much a step's compute is prolonged by waiting for whoever is late in this step, as a share [n]."""
    if not effects.jitter:
        return np.zeros(len(jobs))
    return values.of("step_jitter", jobs) * expected_maximum(jobs.gpus)
