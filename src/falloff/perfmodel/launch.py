"""Host seconds of starting a layer's kernels: the device never runs ahead of the host that feeds it.

Kernels are queued without waiting, so that a layer takes the longer of its kernels and their starts (Zhu et al.,
Daydream, 2020).
"""

from dataclasses import dataclass

import numpy as np

from falloff.perfmodel.jobs import Bools, Floats, Jobs
from falloff.perfmodel.parameters import Parameter, Values

# Kernels of one layer. Compiled: 9 joined kernels beside 7 products and attention forward, 31 backward (our H200 trace
# of Llama 3 8B). Eager: torch's operators of the same block counted one by one: norms 2 x 6, positions 2 x 7, silu,
# product, residuals, views. A GPT block has fewer: no positions, one product of up, fused bias and dropout.
_KERNELS = {
    "gated": {"compiled": (17.0, 31.0), "eager": (48.0, 75.0)},
    "ungated": {"compiled": (14.0, 26.0), "eager": (32.0, 56.0)},
}
# what hooks, buffers and collectives of sharded parameters take of the host, in kernels
_SHARD_KERNELS = 14.0
# Of FSDP2, which by the host's clock is two things: gathers in both passes, and what follows a layer's last backward
# pass, once a reduction (post_backward_reduce: 1.6 ms a layer as profiled). 1B on our H200s, compiled, takes 142 ms a
# step of one microbatch and 653 of eight on one rank, 155 and 428 of four on two: 73 and 91 ms a microbatch and 64 to
# 69 a step, of which optimizer and loop are 30 and ends 2 of each microbatch (data/raw/one_h200, data/raw/h200).
_GATHER_KERNELS = 9.5
_REDUCTION_KERNELS = 35.0
# what a compiled region takes beyond its kernels: guards, wrappers of autograd. 1B replicated on H200, 3.0 ms
_REGION_KERNELS = (12.0, 19.0)
# an expert's tokens are sorted, counted, copied; grouped products do not grow with experts
_EXPERT_KERNELS = 20.0
# from one kernel's start to the next within a graph: what two in a stream are apart at best (kernel launch_device)
_IN_GRAPH_S = 2.0e-6
# A DTensor finds its placements anew for each operator: 1B under TP 2 without compilation takes 2.7 s a step of 8
# microbatches and 24 layers, at 199 W, with kernels of a tenth of it (docs/lab.md).
_TENSOR_PARALLEL_HOST = 2.8
_DISTRIBUTED_TENSORS = ("torchtitan", "falloff")
# two collectives with their own kernels forward and backward, a layer
_TENSOR_PARALLEL_KERNELS = 6.0
# of DTensor within compiled regions, and of torch's context_parallel, whose ranks are shards too: 1B on two H200 takes
# 1,011 and 1,123 ms a step of eight microbatches where it takes 653 on one (data/raw/h200)
_COMPILED_TENSOR_KERNELS = 25.0
_CONTEXT_PARALLEL_KERNELS = 23.0
# Programs whose hosts wait for the device at each send of a pipeline (nanotron reads a tensor's shape from the device,
# _recv_meta of pipeline_parallel/p2p.py), while tensor parallelism has compute, collectives and sends take turns in one
# queue (CUDA_DEVICE_MAX_CONNECTIONS=1, asserted in its tensor_parallel/nn.py). Its published steps of more than one
# stage take 2.5 to 3 ms more a layer, microbatch and rank of tp, however few the tokens; those of one stage do not.
_DRAINS_QUEUE = ("nanotron",)
_FORWARD_SHARE = 1 / 3

PARAMETERS = (
    Parameter(
        name="host_s_per_kernel",
        prior=19.0e-6,
        spread=0.50,
        low=2e-6,
        high=60e-6,
        shared_by="framework",
        meaning="host seconds from one kernel's start to the next, through the framework",
        source="our H200's host: 9.6 us through torch's operators, 5.5 us bare (kernels launch_host and "
        "launch_host_bare), but 38 us within training, by autograd and modules (its 1B runs without compilation, 4.7 "
        "ms a layer of 123 kernels): a slow virtual host. The prior is their geometric mean; programs whose step is "
        "one graph (MaxText, OneFlow) start kernels from C++, near the bare figure",
        group_priors={"falloff": 38.0e-6, "maxtext": 4.0e-6, "oneflow": 4.0e-6},
    ),
    Parameter(
        name="drained_s_per_rank",
        prior=0.3e-3,
        spread=1.5,
        low=1e-6,
        high=20e-3,
        shared_by="framework",
        meaning="host seconds that each rank of a tensor-parallel group adds to a layer's start, in a pipeline whose "
        "hosts wait for the device at each send",
        source="eight collectives a layer and microbatch, at the time of one kernel's start by an idle host (38 us)",
    ),
)


@dataclass(frozen=True, kw_only=True)
class LaunchSeconds:
    """Host seconds of one layer for a microbatch, each [n]."""

    forward_s: Floats
    backward_s: Floats


def launch_seconds(jobs: Jobs, values: Values) -> LaunchSeconds:
    """Return the host seconds in which one layer's kernels are started, [n]."""
    kernel_s = values.of("host_s_per_kernel", jobs)
    kernel_s = np.where(jobs.replays_graphs, _IN_GRAPH_S, kernel_s)
    places = np.isin(jobs.framework, _DISTRIBUTED_TENSORS) & (jobs.tp > 1) & ~jobs.compiled
    kernel_s = kernel_s * np.where(places, _TENSOR_PARALLEL_HOST, 1.0)
    forward, backward = layer_launches(jobs)
    drains = np.isin(jobs.framework, _DRAINS_QUEUE) & (jobs.pp > 1) & (jobs.tp > 1)
    drained_s = np.where(drains, jobs.tp * values.of("drained_s_per_rank", jobs), 0.0)
    return LaunchSeconds(
        forward_s=forward * kernel_s + _FORWARD_SHARE * drained_s,
        backward_s=backward * kernel_s + (1 - _FORWARD_SHARE) * drained_s,
    )


def layer_launches(jobs: Jobs) -> tuple[Floats, Floats]:
    """Return what one layer takes of the host forward and backward, in starts of kernels, [n] each."""
    gated = jobs.mlp_matrices >= 3
    of_torch = np.isin(jobs.framework, _DISTRIBUTED_TENSORS)
    added = _gather_kernels(jobs, of_torch)
    regions = [np.where(jobs.compiled, kernels, 0.0) for kernels in _REGION_KERNELS]
    added = added + np.where(jobs.experts > 1, _EXPERT_KERNELS, 0.0)
    tensor_kernels = np.where(of_torch & jobs.compiled, _COMPILED_TENSOR_KERNELS, _TENSOR_PARALLEL_KERNELS)
    added = added + np.where(jobs.tp > 1, tensor_kernels, 0.0)
    added = added + np.where((jobs.cp > 1) & of_torch, _CONTEXT_PARALLEL_KERNELS, 0.0)
    forward, backward = (
        np.where(
            gated,
            np.where(jobs.compiled, _KERNELS["gated"]["compiled"][place], _KERNELS["gated"]["eager"][place]),
            np.where(jobs.compiled, _KERNELS["ungated"]["compiled"][place], _KERNELS["ungated"]["eager"][place]),
        )
        for place in (0, 1)
    )
    backward = backward + _reduction_kernels(jobs)
    return forward + regions[0] + added, backward + regions[1] + added


def _gather_kernels(jobs: Jobs, of_torch: Bools) -> Floats:
    """Return what gathering a layer's shards takes of the host in each pass, in kernels, [n]."""
    by_torch = np.where(jobs.dp_shard * jobs.cp > 1, _GATHER_KERNELS, 0.0)
    by_others = np.where(jobs.dp_shard > 1, _SHARD_KERNELS, 0.0)
    return np.where(jobs.zero_stage == 3, np.where(of_torch, by_torch, by_others), 0.0)


def _reduction_kernels(jobs: Jobs) -> Floats:
    """Return what FSDP2 takes of the host after a layer's backward pass, in kernels a microbatch, [n].

    falloff's benchmark wraps one rank and replicas as well (bench/fsdp.py).
    """
    of_shards = (jobs.framework == "torchtitan") & (jobs.zero_stage == 3) & (jobs.dp_shard * jobs.cp > 1)
    return np.where(of_shards | (jobs.framework == "falloff"), _REDUCTION_KERNELS * jobs.reductions, 0.0)
