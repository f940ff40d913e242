"""A training step from its parts: computation, collectives in the critical path, pipeline, data parallelism, optimizer.

Ranks are laid out as Megatron and TorchTitan do: tp innermost, then cp, then data parallelism, pp outermost.
"""

from dataclasses import dataclass

import numpy as np

from falloff.perfmodel import collectives, compute, effects, memory, overlap, pipeline, traffic
from falloff.perfmodel.attention import attention_seconds
from falloff.perfmodel.compute import HeadSeconds, LayerSeconds, head_seconds, layer_seconds, optimizer_seconds
from falloff.perfmodel.effects import ALL, Effects
from falloff.perfmodel.jobs import Floats, Jobs
from falloff.perfmodel.launch import launch_seconds
from falloff.perfmodel.overlap import DataParallel, exposed_data_parallel
from falloff.perfmodel.parameters import Parameter, Values, by_name
from falloff.perfmodel.pipeline import Pipeline, layers_of_stage, schedule
from falloff.perfmodel.traffic import DataParallelSeconds
from falloff.units import MILLI

PARAMETERS = by_name(
    (
        *compute.PARAMETERS,
        *memory.PARAMETERS,
        *collectives.PARAMETERS,
        *overlap.PARAMETERS,
        *pipeline.PARAMETERS,
        *effects.PARAMETERS,
        Parameter(
            name="tensor_exposed",
            prior=0.9,
            spread=0.3,
            low=0.2,
            high=1.5,
            shared_by="framework",
            meaning="share of the collectives of tensor parallelism that compute waits for, above 1 where kernels on "
            "either side of them wait too",
            source="they stand between products that need them (Shoeybi et al. 2019, arXiv 1909.08053, section 3); "
            "Megatron-Core overlaps gathers with products (tp_comm_overlap)",
            # Core's recipes overlap them (tp_comm_overlap of NeMo, Bridge and MLPerf), its plain examples do not
            group_priors={"megatron": 0.75},
            # by it a layer of 22B under tp 8 takes on A100, forward and backward and without recomputation, 19.4 ms,
            # and 18.3 with sequence parallelism; timed by itself it took 19.6 and 19.0 (Korthikanti et al. 2022, arXiv
            # 2205.05198, table 4). Megatron-DeepSpeed has the same collectives.
            group_spreads={"megatron-v2": 0.1, "megatron-deepspeed": 0.1},
        ),
        Parameter(
            name="step_overhead_s",
            prior=15.0 * MILLI,
            spread=0.8,
            low=0.5 * MILLI,
            high=400.0 * MILLI,
            shared_by="framework",
            meaning="what a step takes beside all that: data, logging, reading of the loss and the gradient's norm",
            source="10 to 25 ms between steps of TorchTitan and falloff on two H200 as their profiles begin (traces of "
            "data/raw/h200); from one optimizer's end to the next's falloff's device idles for 4.3 to 9.3 ms of steps "
            "that are not bound by the host (seven such traces, one and two GPUs, median 5.6)",
            group_priors={"falloff": 6.0 * MILLI},
        ),
    )
)

# Products and attention share the power limit with what runs beside them: their share of the step is found by turns,
# of which the second changes a step by under 1 % (gemm.product_rates).
_TURNS = 2


@dataclass(frozen=True, kw_only=True)
class Steps:
    """Predicted steps, [n] each, in seconds on the slowest rank; the parts sum to step_s.

    gemm_s to recompute_s are computation of all layers and ends on a mean stage; transfer_s is all communication,
    hidden or not, exposed_s what compute waits for.
    """

    step_s: Floats
    gemm_s: Floats
    attention_s: Floats
    memory_bound_s: Floats
    launch_s: Floats
    recompute_s: Floats
    optimizer_s: Floats
    tensor_parallel_s: Floats
    context_parallel_s: Floats
    expert_parallel_s: Floats
    send_s: Floats
    bubble_s: Floats
    imbalance_s: Floats
    data_parallel: DataParallel
    slowest_gpu_s: Floats
    jitter_s: Floats
    overhead_s: Floats
    transfer_s: Floats
    tokens_per_gpu_s: Floats

    @property
    def compute_s(self) -> Floats:
        """Return the seconds of computation: what a single GPU would do of the step's work, [n]."""
        return (
            self.gemm_s + self.attention_s + self.memory_bound_s + self.launch_s + self.recompute_s + self.optimizer_s
        )

    @property
    def exposed_s(self) -> Floats:
        """Return the seconds in which compute waits for communication, [n]."""
        return (
            self.data_parallel.exposed_s
            + self.tensor_parallel_s
            + self.context_parallel_s
            + self.expert_parallel_s
            + self.send_s
        )


def predict_steps(jobs: Jobs, values: Values, effects_on: Effects = ALL, stretch: Floats | float = 1.0) -> Steps:
    """Return the predicted steps of jobs [n] under parameter values; effects.py's terms can be switched off.

    Data-parallel collectives take `stretch` times their seconds: 0 is the control without communication, 1 + f the one
    in which each is lengthened by f times itself (controls.py).
    """
    duty: Floats = np.ones(len(jobs))
    waits = _waits(jobs, values)
    gathers = traffic.data_parallel_seconds(jobs, values, effects_on).times(stretch)
    steps = _predict(jobs, values, effects_on, duty, waits, gathers)
    for _ in range(_TURNS - 1):
        share = (steps.gemm_s + steps.attention_s + steps.recompute_s) / steps.step_s
        steps = _predict(jobs, values, effects_on, np.clip(share, 0.05, 1.0), waits, gathers)
    return steps


def _predict(
    jobs: Jobs, values: Values, effects_on: Effects, duty: Floats, waits: "_Waits", gathers: DataParallelSeconds
) -> Steps:
    layer, ends = layer_seconds(jobs, values, duty), head_seconds(jobs, values, duty)
    optimizer_s, started_s = _optimizer_s(jobs, values, effects_on, layer)
    pipe = _pipeline(jobs, values, layer, ends, waits)
    parallel = _data_parallel(jobs, values, layer, ends, waits, gathers, effects_on)
    count, layers = jobs.num_microbatches, jobs.layers / jobs.pp
    passes = (layer.forward + layer.backward).times(layers * count) + (
        ends.embedding_forward + ends.embedding_backward + ends.head_forward + ends.head_backward
    ).times(count / jobs.pp)
    recompute_s = layer.recompute_s * layers * count
    computed_s = passes.total_s + recompute_s + optimizer_s + started_s
    slowest_s = computed_s * effects.slowest_gpu(jobs, values, effects_on)
    jitter_s = computed_s * effects.jitter(jobs, values, effects_on)
    overhead_s = values.of("step_overhead_s", jobs)
    updated_s = optimizer_s + started_s
    step_s = pipe.total_s + parallel.exposed_s + parallel.slowed_s + updated_s + slowest_s + jitter_s + overhead_s
    return Steps(
        step_s=step_s,
        gemm_s=passes.gemm_s,
        attention_s=passes.attention_s,
        memory_bound_s=passes.memory_s,
        launch_s=passes.launch_s + started_s,
        recompute_s=recompute_s,
        optimizer_s=optimizer_s,
        tensor_parallel_s=count * (layers * waits.tensor_s + (waits.first_s + waits.last_s) / jobs.pp),
        context_parallel_s=count * layers * waits.context_s,
        expert_parallel_s=count * layers * waits.expert_s,
        send_s=pipe.send_s,
        bubble_s=pipe.bubble_s,
        imbalance_s=pipe.imbalance_s,
        data_parallel=parallel,
        slowest_gpu_s=slowest_s,
        jitter_s=jitter_s,
        overhead_s=overhead_s,
        transfer_s=parallel.transfer_s + pipe.transfer_s + count * layers * waits.transfer_s,
        tokens_per_gpu_s=jobs.tokens / jobs.gpus / step_s,
    )


def _optimizer_s(jobs: Jobs, values: Values, effects_on: Effects, layer: LayerSeconds) -> tuple[Floats, Floats]:
    """Return the optimizer's seconds, and those for which its device waits to be started, [n] each.

    The host starts it while the device is still at the last backward pass.
    """
    parts = optimizer_seconds(jobs, values)
    ahead_s = layers_of_stage(jobs) * np.maximum(layer.backward_s - launch_seconds(jobs, values).backward_s, 0.0)
    waits_s = np.maximum(parts.launch_s - ahead_s, 0.0)
    if effects_on.shrinking_optimizer:
        return parts.memory_s, waits_s
    # as if there were eight shards, however many there are
    shards = np.where(jobs.zero_stage >= 1, compute.optimizer_shards(jobs), 1.0)
    more = shards / np.minimum(shards, 8.0)
    return parts.memory_s * more, waits_s * more


@dataclass(frozen=True, kw_only=True)
class _Waits:
    """Seconds [n] for which a microbatch's compute waits: of a layer by axis, forward and backward, and of the ends."""

    tensor_s: Floats
    context_s: Floats
    expert_s: Floats
    forward_s: Floats  # of them in a layer's forward pass
    backward_s: Floats
    first_s: Floats
    last_s: Floats
    transfer_s: Floats  # a layer's collectives, hidden or not


def _waits(jobs: Jobs, values: Values) -> _Waits:
    line, scores = traffic.in_line(jobs, values), attention_seconds(jobs, values)
    ring_s = traffic.exposed_ring_s(jobs, values, scores.forward_s, scores.backward_s)
    exposed = values.of("tensor_exposed", jobs)
    tensor_s = line.tp_layer_s * exposed
    both_s = tensor_s + line.ep_layer_s + ring_s
    whole_s = line.layer_forward_s + line.layer_backward_s
    # forward's share of the bytes; a ring's way back carries gradients too
    share = np.divide(line.layer_forward_s, whole_s, out=np.full(len(jobs), 1 / 3), where=whole_s > 0)
    return _Waits(
        tensor_s=tensor_s,
        context_s=ring_s,
        expert_s=line.ep_layer_s,
        forward_s=both_s * share,
        backward_s=both_s * (1 - share),
        first_s=line.first_s * exposed,
        last_s=line.last_s * exposed,
        transfer_s=line.tp_layer_s + line.ep_layer_s + traffic.ring_s(jobs, values),
    )


def _pipeline(jobs: Jobs, values: Values, layer: LayerSeconds, ends: HeadSeconds, waits: _Waits) -> Pipeline:
    return schedule(
        jobs,
        values,
        layer_forward_s=layer.forward_s + waits.forward_s,
        layer_backward_s=layer.backward_s + layer.recompute_s + waits.backward_s,
        first_s=ends.embedding_forward.total_s + ends.embedding_backward.total_s + waits.first_s,
        last_s=ends.head_forward.total_s + ends.head_backward.total_s + waits.last_s,
    )


def _data_parallel(
    jobs: Jobs,
    values: Values,
    layer: LayerSeconds,
    ends: HeadSeconds,
    waits: _Waits,
    gathers: DataParallelSeconds,
    effects_on: Effects,
) -> DataParallel:
    """Return what data parallelism exposes on the last stage, which has the head; a single stage has both ends."""
    alone, half_s = jobs.pp == 1, waits.last_s / 2
    forward = overlap.Parts(
        first=np.where(alone, ends.embedding_forward.total_s, 0.0),
        layer=layer.forward_s + waits.forward_s,
        last=ends.head_forward.total_s + half_s,
    )
    backward = overlap.Parts(
        first=np.where(alone, ends.embedding_backward.total_s, 0.0),
        layer=layer.backward_s + layer.recompute_s + waits.backward_s,
        last=ends.head_backward.total_s + half_s,
    )
    together, beside = traffic.layers_together(jobs), overlap.microbatches_beside(jobs)
    return exposed_data_parallel(
        jobs,
        values,
        layers=layers_of_stage(jobs) / together,
        forward=forward.by_layers(together).times(beside),
        backward=backward.by_layers(together).times(beside),
        gather=gathers.gather.by_layers(together),
        reduce=gathers.reduce.by_layers(together),
        replicate=gathers.replicate.by_layers(together),
        effects=effects_on,
    )
