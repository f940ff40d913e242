"""Pipeline schedules: seconds of a step over stages, what of it is bubble, and what sends between stages expose.

One forward one backward (1F1B), interleaved by virtual stages, zero-bubble; stages may differ, the first by the
embedding and the last by the head.
"""

from dataclasses import dataclass

import numpy as np

from falloff.perfmodel.collectives import send_recv_s
from falloff.perfmodel.jobs import Bools, Floats, Jobs
from falloff.perfmodel.parameters import Parameter, Values

PARAMETERS = (
    Parameter(
        name="send_exposed",
        prior=0.7,
        spread=0.4,
        low=0.05,
        high=1.0,
        shared_by="framework",
        meaning="share of the sends between stages that no compute hides once the pipeline is full",
        source="Megatron-LM, schedules.py: without interleaving send and receive block; with it they are overlapped",
    ),
    Parameter(
        name="send_stall_s",
        prior=0.010,
        spread=2.0,
        low=1e-5,
        high=2.0,
        shared_by="framework",
        meaning="seconds that a stalling send takes longer, whatever its bytes, where hosts wait for each send",
        source="a guess, as wide as it is: some time-out of a network or a host, from one to a hundred milliseconds",
    ),
)


# Each of its sends is preceded by two that say the tensor's shape, which the receiving host reads one number after the
# other before it asks for the data (nanotron, pipeline_parallel/p2p.py, _send_meta and _recv_meta): 7 numbers and 4 to
# 6 of shape and stride read, copies to the device on the other side.
_DESCRIBES_MESSAGES = ("nanotron",)
_DESCRIPTION_BYTES = 56.0
_DESCRIPTION_KERNELS = 20.0
# The share of GPUs beside which every send of a run stalls: of nanotron's published pipelines on 16, 32, 64, 128, 256
# and 512 GPUs 5, 11, 15, 17, 39 and 80 % take half a second more a microbatch: 0.0015 to 0.0036 of GPUs by each count.
_STALLING_SHARE = 0.002
# A step is predicted as the likelier of two is, stalled or not, without a jump where both are as likely (347 GPUs).
_ODDS_POWER = 12.0


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """A step's pipeline, seconds on the slowest stage: work_s + imbalance_s + bubble_s + send_s are the whole.

    work_s is the mean stage's; imbalance_s what the slowest stage has above it; bubble_s filling and draining; send_s
    exposed sends and receives, of transfer_s in all.
    """

    work_s: Floats
    imbalance_s: Floats
    bubble_s: Floats
    send_s: Floats
    transfer_s: Floats

    @property
    def total_s(self) -> Floats:
        """Return the seconds [n] from the first microbatch to the last gradient."""
        return self.work_s + self.imbalance_s + self.bubble_s + self.send_s


def layers_of_stage(jobs: Jobs) -> Floats:
    """Return the layers of the fullest stage [n]: virtual stages hold whole layers."""
    stages = jobs.pp * jobs.vpp
    return np.ceil(jobs.layers / stages - 1e-9) * jobs.vpp


def message_bytes(jobs: Jobs) -> Floats:
    """Return the bytes [n] of one send: a microbatch's activations in 16 bits, a tensor-parallel rank's part.

    With sequence parallelism a rank holds 1/tp of them; without it Megatron sends such parts all the same and gathers
    them in the node (scatter/gather optimisation, Narayanan et al. 2021, arXiv 2104.04473, section 4.1).
    """
    return 2.0 * jobs.microbatch * jobs.seq / jobs.cp * jobs.hidden / jobs.tp


def stage_stride(jobs: Jobs) -> Floats:
    """Return how many ranks lie from one stage to the next [n]: the mesh's outermost axis, or next after tp and cp."""
    return np.where(jobs.stages_within, jobs.tp * jobs.cp, jobs.gpus / jobs.pp)


def send_s(jobs: Jobs, values: Values) -> Floats:
    """Return the seconds [n] of one send to the next stage."""
    stride = stage_stride(jobs)
    neighbours = np.where(stride * jobs.pp <= jobs.gpus_per_node, jobs.pp, 1.0)
    seconds = send_recv_s(message_bytes(jobs), jobs.pp, neighbours, jobs, values)
    described = _describes(jobs)
    if not described.any():
        return seconds
    small_s = send_recv_s(np.full(len(jobs), _DESCRIPTION_BYTES), jobs.pp, neighbours, jobs, values)
    host_s = _DESCRIPTION_KERNELS * values.of("host_s_per_kernel", jobs)
    return seconds + np.where(described, 2 * small_s + host_s, 0.0)


def stall_s(jobs: Jobs, values: Values) -> Floats:
    """Return by how many seconds [n] a send of a typical run stalls, for programs whose hosts wait for each send.

    All ranks of a pipeline wait for the slowest, so that one stalling GPU of any stage or replica is enough: of N GPUs
    with a share q of such, a run has one with the chance 1 - exp(-q N).
    """
    # a negative power, since the odds of 100,000 GPUs to the twelfth are beyond what a float holds
    typical = 1 / (1 + np.expm1(_STALLING_SHARE * jobs.gpus) ** -_ODDS_POWER)
    return np.where(_describes(jobs), values.of("send_stall_s", jobs) * typical, 0.0)


def _describes(jobs: Jobs) -> Bools:
    """Return which jobs have a pipeline whose hosts describe, and wait for, each message [n]."""
    found: Bools = np.isin(jobs.framework, _DESCRIBES_MESSAGES) & (jobs.pp > 1)
    return found


def schedule(
    jobs: Jobs,
    values: Values,
    *,
    layer_forward_s: Floats,
    layer_backward_s: Floats,
    first_s: Floats,
    last_s: Floats,
    weight_gradient_s: Floats | float = 0.0,
) -> Pipeline:
    """Return a step's pipeline from seconds of one layer and one microbatch [n] each.

    first_s and last_s are forward and backward of what the first and the last stage hold beside layers. The first
    microbatch passes all stages, the others keep the slowest busy: (m - 1) max t + sum t, of which interleaving by v
    divides the filling (Narayanan et al. 2021, section 2.2: bubble share (p - 1) / (v m)). Zero-bubble schedules fill
    it with weight_gradient_s of each microbatch and stage (Qi et al. 2023, arXiv 2401.10241: ZB-H1, the bubble less
    a third where both gradients cost the same); 0 is none.
    """
    pp, vpp, count = jobs.pp, jobs.vpp, jobs.num_microbatches
    layer = layer_forward_s + layer_backward_s
    full = layers_of_stage(jobs)
    mean_stage = (jobs.layers * layer + first_s + last_s) / pp
    # the stage with an end holds what is left of the layers where they do not divide; never fewer than none
    ends = np.where(pp > 1, np.maximum(jobs.layers - full * (pp - 1), 0.0), jobs.layers)
    slowest = np.where(
        pp > 1,
        np.maximum(
            np.where(pp > 2, full * layer, 0.0),
            np.maximum(full * layer + first_s, np.where(full * pp > jobs.layers, ends, full) * layer + last_s),
        ),
        jobs.layers * layer + first_s + last_s,
    )
    filling = np.maximum(pp * mean_stage - slowest, 0.0) / vpp
    filled = np.minimum(np.asarray(weight_gradient_s) * (pp - 1), filling)
    sends = np.where(pp > 1, 2.0 * vpp * count, 0.0)
    crossings = np.where(pp > 1, 2.0 * (pp - 1), 0.0)
    one, stall = send_s(jobs, values), stall_s(jobs, values)
    hidden = np.where(vpp > 1, 0.5, 1.0)  # interleaved schedules send beside compute
    handled = np.where(pp > 2, 2.0, 1.0) * sends  # a stage in the middle has neighbours on both sides
    return Pipeline(
        work_s=count * mean_stage,
        imbalance_s=count * (slowest - mean_stage),
        bubble_s=filling - filled,
        send_s=one * (sends * values.of("send_exposed", jobs) * hidden + crossings) + stall * (handled + crossings),
        transfer_s=one * (sends + crossings),
    )
