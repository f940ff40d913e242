"""What is predicted: training steps, each a network, a machine, a layout and a batch; many at once as arrays.

A Job is one step as people state it. Jobs holds n of them as arrays of length n, so that a formula is written once
and works for one cell, a table of cells and a search over layouts alike.
"""

import dataclasses
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from falloff.spec.cluster import Cluster
from falloff.spec.network import Network
from falloff.spec.reading import require_positive

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

Recompute = Literal["none", "selective", "full"]
Precision = Literal["bfloat16", "float16", "float32", "float8", "float4"]
Sharding = Literal["none", "zero1", "zero2", "zero3"]

RECOMPUTES: tuple[Recompute, ...] = ("none", "selective", "full")
SHARDINGS: tuple[Sharding, ...] = ("none", "zero1", "zero2", "zero3")


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A transformer's shape as far as time and memory depend on it.

    mlp_matrices is 3 for gated feed-forward (SwiGLU) and 2 otherwise. With experts, each token passes active_experts
    feed-forwards of width ffn, of which each layer holds so many.
    """

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocab: int
    mlp_matrices: int = 3
    head_size: float = 0.0
    tied: bool = False
    experts: int = 1
    active_experts: int = 1

    def __post_init__(self) -> None:
        require_positive(self, "layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "experts", "active_experts")
        if not self.head_size:
            object.__setattr__(self, "head_size", self.hidden / self.heads)


def shape_of(network: Network) -> Shape:
    """Return the shape of a network of config/models."""
    return Shape(
        layers=network.layers,
        hidden=network.hidden,
        heads=network.heads,
        kv_heads=network.kv_heads,
        ffn=network.ffn,
        vocab=network.vocab,
        mlp_matrices=3 if network.style == "llama" else 2,
    )


@dataclass(frozen=True, kw_only=True)
class Job:
    """One training step: microbatch sequences of seq tokens, so many microbatches a step on each data-parallel rank.

    sharding: none is DDP; zero1 shards optimizer states, zero2 gradients too, zero3 is FSDP; over dp_shard ranks, with
    dp_replicate copies beside them. sequence_parallel shards activations between tensor-parallel regions over tp.
    framework names the program, by whose habits the fields that no source states are filled (frameworks.py).
    """

    shape: Shape
    cluster: Cluster
    seq: int
    microbatch: int
    num_microbatches: int
    dp_replicate: int = 1
    dp_shard: int = 1
    tp: int = 1
    pp: int = 1
    vpp: int = 1
    cp: int = 1
    ep: int = 1
    sharding: Sharding = "zero3"
    sequence_parallel: bool = True
    recompute: Recompute = "none"
    precision: Precision = "bfloat16"
    param_bytes: float = 2.0  # of a parameter as it is gathered and multiplied
    reduce_bytes: float = 4.0  # of a gradient as it is reduced
    state_bytes: float = 12.0  # of master weight and optimizer states, a parameter
    gradient_bytes: float = 4.0  # of a gradient as it is kept
    float8_gather: bool = False  # whether layers' parameters, multiplied in 8 bits, are gathered in 8 bits as well
    bucket_params: float = 0.0  # that are gathered and reduced together at least, of what is not FSDP; else by layer
    bucket_params_per_rank: float = 0.0  # the same of programs whose buckets grow with the ranks
    flash_attention: bool = True
    causal: bool = True  # whether attention skips the masked half
    compiled: bool = False
    loss_compiled: bool = True  # where layers are
    loss_in_place: bool = True  # of Megatron Core
    reshard_after_forward: bool = True
    reduce_every_microbatch: bool = True  # of FSDP and ZeRO-2; otherwise after the last one
    prefetch: int = 1
    distributed_overlap: bool = True  # whether data-parallel communication runs beside compute at all
    clips_gradients: bool = True  # by their norm over all parameters
    replays_graphs: bool = False  # CUDA graphs: the host starts a layer's kernels at once
    accumulates_in_product: bool = False  # weight gradients of a microbatch, added to float32 sums by the product
    stages_within: bool = False  # whether a pipeline's stages lie within data parallelism and not around it
    framework: str = "torchtitan"
    nccl_minor: int = 21  # of NCCL 2; from 23 on it has PAT
    task_factor: float = 1.0  # backward over forward cost where weights are frozen (LoRA): see cells.py
    # what a table leaves open is assumed in the fields above, and not held against a job's fitting in memory
    recompute_stated: bool = True
    microbatch_stated: bool = True
    layout_stated: bool = True

    def __post_init__(self) -> None:
        require_positive(
            self, "seq", "microbatch", "num_microbatches", "dp_replicate", "dp_shard", "tp", "pp", "vpp", "cp", "ep"
        )

    @property
    def gpus(self) -> int:
        """Return how many GPUs the step takes."""
        return self.dp_replicate * self.dp_shard * self.tp * self.pp * self.cp


@dataclass(frozen=True, kw_only=True)
class Jobs:
    """n jobs as arrays [n]; names are those of Job, Shape and Cluster. The cluster's numbers are per GPU, in SI units.

    peak_flops is of the job's own precision and peak_half_flops of 16 bits, both dense. Bandwidths are in bytes a
    second and one direction; latencies in seconds.
    """

    layers: Floats
    hidden: Floats
    heads: Floats
    kv_heads: Floats
    head_size: Floats
    ffn: Floats
    vocab: Floats
    mlp_matrices: Floats
    tied: Bools
    experts: Floats
    active_experts: Floats
    seq: Floats
    microbatch: Floats
    num_microbatches: Floats
    dp_replicate: Floats
    dp_shard: Floats
    tp: Floats
    pp: Floats
    vpp: Floats
    cp: Floats
    ep: Floats
    zero_stage: Floats  # 0, 1, 2, 3
    sequence_parallel: Bools
    recompute: Floats  # 0 none, 1 selective, 2 full
    param_bytes: Floats
    reduce_bytes: Floats
    state_bytes: Floats
    gradient_bytes: Floats
    float8_gather: Bools
    bucket_params: Floats
    bucket_params_per_rank: Floats
    flash_attention: Bools
    causal: Bools
    compiled: Bools
    loss_compiled: Bools
    loss_in_place: Bools
    reshard_after_forward: Bools
    reduce_every_microbatch: Bools
    prefetch: Floats
    distributed_overlap: Bools
    clips_gradients: Bools
    replays_graphs: Bools
    accumulates_in_product: Bools
    stages_within: Bools
    task_factor: Floats
    recompute_stated: Bools
    microbatch_stated: Bools
    layout_stated: Bools
    is_low_precision: Bools  # products in 8 or 4 bits
    peak_flops: Floats
    peak_half_flops: Floats
    memory_bandwidth: Floats
    memory_bytes: Floats
    power_limit_w: Floats
    sms: Floats
    gpus_per_node: Floats
    nvlink_bandwidth: Floats
    nvlink_latency_s: Floats
    nic_bandwidth: Floats  # of a GPU's share of its node's NICs
    node_bandwidth: Floats  # of all of its node's NICs
    nic_latency_s: Floats
    oversubscription: Floats
    pod_gpus: Floats  # above so many GPUs the fabric is oversubscribed
    nvls: Bools  # whether the switches in a node can multicast and reduce
    nccl_minor: Floats
    generation: npt.NDArray[np.str_]  # v100, a100, h100 ...: what effective rates are shared by
    fabric: npt.NDArray[np.str_]  # none, infiniband, efa, roce, omnipath, ethernet, nvlink, unknown
    framework: npt.NDArray[np.str_]

    def __len__(self) -> int:
        return len(self.layers)

    @property
    def gpus(self) -> Floats:
        """Return the GPUs of each job."""
        return self.dp_replicate * self.dp_shard * self.tp * self.pp * self.cp

    @property
    def dp(self) -> Floats:
        """Return over how many ranks each job's batch is split."""
        return self.dp_replicate * self.dp_shard

    @property
    def tokens(self) -> Floats:
        """Return the tokens of each job's step, over all GPUs."""
        return self.dp * self.microbatch * self.num_microbatches * self.seq

    @property
    def reductions(self) -> Floats:
        """Return how often each job reduces sharded gradients, a microbatch."""
        return np.where(self.reduce_every_microbatch, 1.0, 1 / self.num_microbatches)

    @functools.cached_property
    def groups(self) -> dict[str, tuple[list[str], npt.NDArray[np.intp]]]:
        """Return, for what parameters are shared by, the names that occur and each job's place among them [n].

        Kept, as every parameter of a prediction asks for them and sorting names takes longer than most formulas.
        """
        found = {}
        for name in ("generation", "framework", "fabric"):
            names, places = np.unique(getattr(self, name), return_inverse=True)
            found[name] = ([str(text) for text in names], places)
        return found

    def take(self, index: npt.ArrayLike) -> Self:
        """Return the jobs at an index or under a mask."""
        picked = np.asarray(index)
        fields = {field.name: getattr(self, field.name)[picked] for field in dataclasses.fields(self)}
        return dataclasses.replace(self, **fields)


# what Jobs takes over as the Job has it
_JOB_FIELDS = sorted(
    {field.name for field in dataclasses.fields(Job)}
    & {field.name for field in dataclasses.fields(Jobs)} - {"recompute"}
)


def stack(jobs: Sequence[Job]) -> Jobs:
    """Return jobs as arrays, in their order; ValueError where a GPU has no peak of a job's precision."""
    rows = [_row(job) for job in jobs]
    return Jobs(**{field.name: _column([row[field.name] for row in rows]) for field in dataclasses.fields(Jobs)})


def joined(*parts: Jobs) -> Jobs:
    """Return jobs one after the other; ValueError without any."""
    if not parts:
        raise ValueError("no jobs to put together")
    fields = [field.name for field in dataclasses.fields(Jobs)]
    return Jobs(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in fields})


def _column(values: list[Any]) -> npt.NDArray[Any]:
    kinds = {bool: np.bool_, str: np.str_}
    return np.array(values, dtype=kinds.get(type(values[0]), np.float64) if values else np.float64)


def _row(job: Job) -> dict[str, object]:
    shape, cluster = job.shape, job.cluster
    return {
        **{field.name: getattr(shape, field.name) for field in dataclasses.fields(Shape)},
        **{name: getattr(job, name) for name in _JOB_FIELDS},
        "zero_stage": SHARDINGS.index(job.sharding),
        "recompute": RECOMPUTES.index(job.recompute),
        "is_low_precision": job.precision in ("float8", "float4"),
        "peak_flops": cluster.peak_of(job.precision),
        "peak_half_flops": cluster.half_peak,
        **cluster.numbers(),
    }
