"""Seconds of computation on one rank, its parts kept apart: a layer, the ends of the network, the optimizer.

Collectives are not here. Everything is of one microbatch and one rank's share of it.
"""

from dataclasses import dataclass

import numpy as np

from falloff.perfmodel import attention, gemm, launch, memory_ops
from falloff.perfmodel.attention import attention_seconds
from falloff.perfmodel.gemm import Rates, gemm_seconds, product_rates
from falloff.perfmodel.jobs import Floats, Jobs
from falloff.perfmodel.launch import launch_seconds
from falloff.perfmodel.memory_ops import (
    accumulation_bytes,
    attention_params,
    effective_bandwidth,
    layer_params,
    layer_tokens,
    memory_seconds,
    split_tokens,
)
from falloff.perfmodel.parameters import Parameter, Values

# Programs that recompute by torch's checkpoint without reentry, which stops before the layer's last product: its output
# is nobody's input (torch/utils/checkpoint.py, early_stop).
_STOPS_EARLY = ("torchtitan", "falloff", "torchtune", "composer")
# selective by operator: every second product again, of wq wk wv wo w1 w3 w2 the second, fourth and sixth; attention
# kept (src/falloff/bench/recompute.py; torchtitan/parallelisms/parallelize_llama.py). Others recompute attention alone
# (Korthikanti et al. 2022, arXiv 2205.05198, section 5).
_SELECTS_OPERATORS = ("torchtitan", "falloff")

# Bytes a logit for the loss, beyond the product's: compiled, the kernels of our H200 trace take 3.3 ms for 1.05e9
# logits. Eager, a cast to float32 (2 + 4), log-softmax, whose rows fit no cache and are read three times (12 + 4;
# torch, aten/native/cuda/SoftMax.cu); back zeros (4), its gradient, which reads two twice (16 + 4), and the cast
# (4 + 2): 52. Our H200 takes 50 and 52 at 32,000 and 128,256 columns (cross_entropy of our kernel table); Megatron's
# own operators come to 52 to 54 (Megatron-LM v2.6, megatron/mpu/cross_entropy.py, and Core's).
_LOSS_BYTES = {"compiled": (7.0, 6.0), "eager": (22.0, 30.0)}
# llm-foundry takes flash-attn's loss, one kernel each way (13), and with its metrics of training two of torch's
# forward passes over the same logits (22 each; loss_fn and use_train_metrics of llmfoundry/models/mpt/modeling_mpt.py).
# Which of its runs had them is not stated: the geometric mean of both, 27.
_COMPOSER_LOSS_BYTES = (14.0, 13.0)
# Lookup: a row read and written forward; backward adds rows in float32 after sorting, and the table's gradient is
# filled with zeros first (traces: sum_and_scatter, compute_grad_weight, FillFunctor): 48 bytes' time a number, 1.0 ms
# of 16,384 rows of 4,096 without the table's own (embedding_forward_backward of our kernel table, two vocabularies).
_LOOKUP_BYTES = {"forward": 4.0, "backward": 48.0}

# AdamW reads the gradient, reads and writes weight and both moments: 28 bytes a parameter (docs/lab.md). The norm of
# the gradients reads them, scaling reads and writes them: three passes more.
_CLIPPING_PASSES = 3.0
# Tensors of one layer: norms, projections, feed-forward; multi-tensor kernels take them in groups.
_LAYER_TENSORS = 9.0
# Host time of a tensor in a step, in kernels: lists made up, norms, clipping, the fused update. 10 ms of 220 tensors of
# 1B at 38 us a kernel: 21 ms for 11 of kernels where the host is late (rank_optimizer_s, data/raw/one_h200).
_TENSOR_KERNELS = 1.2

PARAMETERS = (
    *gemm.PARAMETERS,
    *attention.PARAMETERS,
    *memory_ops.PARAMETERS,
    *launch.PARAMETERS,
    Parameter(
        name="optimizer_traffic",
        prior=1.25,
        spread=0.30,
        low=0.5,
        high=5.0,
        shared_by="framework",
        meaning="bytes that optimizer and clipping move over those of one fused pass and one norm, at the bandwidth of "
        "other kernels",
        source="H200: 54 ms of multi-tensor kernels for 6.7e9 parameters at 28 bytes, 44 at full rate "
        "(data/raw/h200, llama2-7b-dp_shard1-b5e9d05f); falloff: AdamW of 1e9 parameters 8.09 ms and clipping 3.51, "
        "1.18 and 1.19 times their 28 and 12 bytes (kernel table of data/raw/one_h200)",
        group_priors={"falloff": 1.19, "deepspeed": 1.5, "deepspeed-v0.3": 1.5, "composer": 1.5, "maxtext": 1.1},
    ),
)


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Seconds of one pass, each [n]. launch_s is only what the host keeps the device waiting, so that parts add up."""

    gemm_s: Floats
    attention_s: Floats
    memory_s: Floats
    launch_s: Floats

    @property
    def total_s(self) -> Floats:
        """Return the pass's seconds."""
        return self.gemm_s + self.attention_s + self.memory_s + self.launch_s

    def __add__(self, other: "Parts") -> "Parts":
        return Parts(
            gemm_s=self.gemm_s + other.gemm_s,
            attention_s=self.attention_s + other.attention_s,
            memory_s=self.memory_s + other.memory_s,
            launch_s=self.launch_s + other.launch_s,
        )

    def times(self, factor: Floats | float) -> "Parts":
        """Return the parts of so many passes."""
        return Parts(
            gemm_s=self.gemm_s * factor,
            attention_s=self.attention_s * factor,
            memory_s=self.memory_s * factor,
            launch_s=self.launch_s * factor,
        )


@dataclass(frozen=True, kw_only=True)
class LayerSeconds:
    """One layer and one microbatch on one rank. recompute is what backward computes again, apart from it."""

    forward: Parts
    backward: Parts
    recompute: Parts

    @property
    def forward_s(self) -> Floats:
        """Return the seconds of the forward pass, [n]."""
        return self.forward.total_s

    @property
    def backward_s(self) -> Floats:
        """Return the seconds of the backward pass without recomputation, [n]."""
        return self.backward.total_s

    @property
    def recompute_s(self) -> Floats:
        """Return the seconds of recomputation, [n]."""
        return self.recompute.total_s


@dataclass(frozen=True, kw_only=True)
class HeadSeconds:
    """The network's ends for one microbatch: embedding on the first stage; norm, LM head and loss on the last."""

    embedding_forward: Parts
    embedding_backward: Parts
    head_forward: Parts
    head_backward: Parts

    @property
    def forward_s(self) -> Floats:
        """Return both ends' forward seconds, [n]."""
        return self.embedding_forward.total_s + self.head_forward.total_s

    @property
    def backward_s(self) -> Floats:
        """Return both ends' backward seconds, [n]."""
        return self.embedding_backward.total_s + self.head_backward.total_s


@dataclass(frozen=True, kw_only=True)
class _Products:
    """Seconds of a layer's products, [n]: last_s of the last one forward, selected_s what selective does again."""

    forward_s: Floats
    backward_s: Floats
    last_s: Floats
    selected_s: Floats


def layer_seconds(jobs: Jobs, values: Values, duty: Floats | float = 1.0) -> LayerSeconds:
    """Return the seconds of one layer for one microbatch on one rank: tp, cp, ep and sequence parallelism applied.

    duty is the share of the step in which products and attention run (gemm.product_rates); 1 where it is not known.
    """
    products = _layer_products(jobs, product_rates(jobs, values, duty=duty))
    scores = attention_seconds(jobs, values)
    others = memory_seconds(jobs, values)
    host = launch_seconds(jobs, values)
    forward = _parts(products.forward_s, scores.forward_s, others.forward_s, host.forward_s)
    again = _parts(products.forward_s, scores.forward_s, others.again_s, host.forward_s)
    backward = _parts(products.backward_s, scores.backward_s, others.backward_s, host.backward_s)
    return LayerSeconds(forward=forward, backward=backward, recompute=_recompute(jobs, again, products))


def head_seconds(jobs: Jobs, values: Values, duty: Floats | float = 1.0) -> HeadSeconds:
    """Return the seconds of embedding, LM head and loss for one microbatch on one rank, the vocabulary split by tp."""
    rates = product_rates(jobs, values, half=True, duty=duty)  # the head stays at 16 bits in float8 recipes
    bandwidth = effective_bandwidth(jobs, values)
    tokens, columns = layer_tokens(jobs), jobs.vocab / jobs.tp
    host_s = values.of("host_s_per_kernel", jobs)
    forward_s = gemm_seconds(tokens, columns, jobs.hidden, rates)
    dgrad_s = gemm_seconds(tokens, jobs.hidden, columns, rates)
    wgrad_s = gemm_seconds(columns, jobs.hidden, tokens, rates, result_bytes=_gradient_bytes(jobs))
    zero = np.zeros(len(jobs))
    loss, norm = _loss_bytes(jobs), 2 * jobs.hidden * split_tokens(jobs)
    looked_up = jobs.hidden * split_tokens(jobs)
    # the gradient of a table is as large as the table
    table_s = 2 * columns * jobs.hidden / bandwidth
    return HeadSeconds(
        embedding_forward=_parts(zero, zero, _LOOKUP_BYTES["forward"] * looked_up / bandwidth, 4 * host_s),
        embedding_backward=_parts(zero, zero, _LOOKUP_BYTES["backward"] * looked_up / bandwidth + table_s, 8 * host_s),
        head_forward=_parts(forward_s, zero, (loss[0] * tokens * columns + 2 * norm) / bandwidth, 12 * host_s),
        head_backward=_parts(
            (dgrad_s + wgrad_s) * jobs.task_factor,
            zero,
            (loss[1] * tokens * columns + 3 * norm + accumulation_bytes(jobs) * columns * jobs.hidden) / bandwidth,
            20 * host_s,
        ),
    )


def optimizer_seconds(jobs: Jobs, values: Values) -> Parts:
    """Return the seconds of clipping and the optimizer's step on the rank with the most parameters, [n].

    memory_s shrinks with shards: over dp_shard from stage 1 on, as each rank updates its own shard alone. launch_s is
    all of the host's time, which step.py holds against what the device still has to do.
    """
    bandwidth = effective_bandwidth(jobs, values)
    params = sharded_params(jobs, from_stage=1)
    moved = 2 * jobs.state_bytes + (1 + _CLIPPING_PASSES * jobs.clips_gradients) * jobs.gradient_bytes
    # a separate 16-bit copy is written anew
    moved = moved + np.where(jobs.zero_stage < 3, jobs.param_bytes, 0.0)
    moved_s = values.of("optimizer_traffic", jobs) * params * moved / bandwidth
    tensors = _LAYER_TENSORS * np.ceil(jobs.layers / jobs.pp) + 4
    host_s = values.of("host_s_per_kernel", jobs) * tensors * _TENSOR_KERNELS
    zero = np.zeros(len(jobs))
    trained = np.where(jobs.task_factor < 1, 0.01, 1.0)  # adapters are a hundredth of the network
    # lists are made up before the large kernels start, so that the host's time comes before the device's
    return Parts(gemm_s=zero, attention_s=zero, memory_s=moved_s * trained, launch_s=host_s)


def stage_params(jobs: Jobs) -> Floats:
    """Return the parameters of the rank with the most of them, before sharding over data parallelism, [n].

    The last pipeline stage has the LM head, the first the embedding; with one stage a rank has both, once where tied.
    """
    table = jobs.vocab * jobs.hidden / jobs.tp
    tables = np.where((jobs.pp > 1) | jobs.tied, 1.0, 2.0)
    return np.ceil(jobs.layers / jobs.pp) * layer_params(jobs) + tables * table


def sharded_params(jobs: Jobs, *, from_stage: int) -> Floats:
    """Return a rank's share of its stage's parameters where ZeRO shards them from a stage on, all elsewhere, [n].

    Experts are on 1 / ep of the ranks already, so that so many fewer ranks share them.
    """
    experts = np.ceil(jobs.layers / jobs.pp) * np.where(
        jobs.experts > 1, layer_params(jobs) - attention_params(jobs), 0
    )
    shards = np.where(jobs.zero_stage >= from_stage, optimizer_shards(jobs), 1.0)
    share: Floats = (stage_params(jobs) - experts) / shards + experts / np.maximum(shards / jobs.ep, 1.0)
    return share


def optimizer_shards(jobs: Jobs) -> Floats:
    """Return over how many ranks states are split where they are: dp_shard and, as FSDP folds it in, cp, [n]."""
    return jobs.dp_shard * jobs.cp


def _layer_products(jobs: Jobs, rates: Rates) -> _Products:
    inputs, outputs, tokens, count = _weights(jobs)
    written = _gradient_bytes(jobs)
    forward = gemm_seconds(tokens, outputs, inputs, rates, count=count)
    dgrad = gemm_seconds(tokens, inputs, outputs, rates, count=count)
    wgrad = gemm_seconds(outputs, inputs, tokens, rates, count=count, result_bytes=written)
    qkv, out, up, down = forward
    kv_share = jobs.kv_heads / (jobs.heads + 2 * jobs.kv_heads)
    return _Products(
        forward_s=forward.sum(axis=0),
        backward_s=(dgrad + wgrad).sum(axis=0) * jobs.task_factor,
        last_s=down,
        selected_s=qkv * kv_share + out + np.where(jobs.mlp_matrices >= 3, up / 2, 0.0),
    )


def _weights(jobs: Jobs) -> tuple[Floats, Floats, Floats, Floats]:
    """Return inputs, outputs, tokens and count of qkv, wo, up (with gate) and down, each [4, n].

    Experts: a rank of ep holds experts / ep of them, each with its share of the tokens of all ranks of ep.
    """
    tokens = layer_tokens(jobs)
    heads, kv = jobs.heads * jobs.head_size / jobs.tp, jobs.kv_heads * jobs.head_size / jobs.tp
    ffn = jobs.ffn / jobs.tp
    local = np.maximum(jobs.experts / jobs.ep, 1.0)
    expert_tokens = tokens * jobs.active_experts / local
    one = np.ones(len(jobs))
    return (
        np.stack([jobs.hidden, heads, jobs.hidden, ffn]),
        np.stack([heads + 2 * kv, jobs.hidden, (jobs.mlp_matrices - 1) * ffn, jobs.hidden]),
        np.stack([tokens, tokens, expert_tokens, expert_tokens]),
        np.stack([one, one, local, local]),
    )


def _gradient_bytes(jobs: Jobs) -> Floats:
    """Return the bytes that a weight gradient's product moves for each output, [n]."""
    return np.where(jobs.accumulates_in_product, 2 * jobs.gradient_bytes, 2.0)


def _loss_bytes(jobs: Jobs) -> tuple[Floats, Floats]:
    composer = jobs.framework == "composer"
    forward, backward = (
        np.select([jobs.compiled, composer], [_LOSS_BYTES["compiled"][place], _COMPOSER_LOSS_BYTES[place]], eager)
        for place, eager in enumerate(_LOSS_BYTES["eager"])
    )
    return forward, backward


def _recompute(jobs: Jobs, forward: Parts, products: _Products) -> Parts:
    operators = np.isin(jobs.framework, _SELECTS_OPERATORS)
    full, selective = jobs.recompute == 2, jobs.recompute == 1
    whole_gemm_s = forward.gemm_s - np.where(np.isin(jobs.framework, _STOPS_EARLY), products.last_s, 0.0)
    zero = np.zeros(len(jobs))
    by_operator = selective & operators
    return Parts(
        gemm_s=np.select([full, by_operator], [whole_gemm_s, products.selected_s], zero),
        attention_s=np.select([full, selective & ~operators], [forward.attention_s, forward.attention_s], zero),
        memory_s=np.select([full, by_operator], [forward.memory_s, forward.memory_s], zero),
        launch_s=np.select([full, by_operator], [forward.launch_s, forward.launch_s], zero),
    )


def _parts(gemm_s: Floats, attention_s: Floats, memory_s: Floats, host_s: Floats) -> Parts:
    device_s = gemm_s + attention_s + memory_s
    return Parts(
        gemm_s=gemm_s,
        attention_s=attention_s,
        memory_s=memory_s,
        launch_s=np.maximum(host_s - device_s, 0.0),
    )
