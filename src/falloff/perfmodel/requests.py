"""What a person asks of the model, as a job: names, a layout in words, a batch; the rest follows the program."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from falloff.perfmodel.frameworks import BY_NAME, NAMES, Habits
from falloff.perfmodel.jobs import Job, Precision, Recompute, Shape, Sharding, shape_of
from falloff.spec.cluster import Cluster
from falloff.spec.network import Network, read_network
from falloff.spec.reading import build, check_keys, read_yaml

NETWORKS = Path("config", "models")
AXES = ("dp_replicate", "dp_shard", "tp", "cp", "pp", "vpp", "ep")
_MESH = ("dp_replicate", "dp_shard", "tp", "cp", "pp")  # the product of these is the GPUs
FRAMEWORKS = tuple(sorted({*NAMES, "falloff"}))


@dataclass(frozen=True, kw_only=True)
class Request:
    """A step as it is asked for; None is left to the program's habits (frameworks.py).

    local_batch counts the sequences of a data-parallel rank in a step, global_batch those of all; one is needed. They
    are run in `accumulation` microbatches of `microbatch` sequences.
    """

    shape: Shape
    cluster: Cluster
    layout: Mapping[str, int]
    seq: int
    local_batch: int | None = None
    global_batch: int | None = None
    microbatch: int | None = None
    accumulation: int | None = None
    framework: str = "torchtitan"
    recompute: Recompute = "none"
    precision: Precision = "bfloat16"
    sharding: Sharding | None = None
    compiled: bool | None = None
    flash_attention: bool | None = None
    reshard_after_forward: bool | None = None
    reduce_bytes: float | None = None


def find_network(name: str, folder: Path = NETWORKS) -> Network:
    """Return a network of config/models by name, or the one that a YAML file describes."""
    if name.endswith((".yaml", ".yml")):
        return build(Network, read_yaml(Path(name)), name)
    return read_network(name, folder)


def parse_layout(text: str, gpus: int | None) -> dict[str, int]:
    """Return the degrees that a text such as 'dp_shard=64,tp=8' states, the rest of the GPUs as dp_shard.

    ValueError where an axis is unknown, stated twice or not a whole number, or the product is not the GPUs.
    """
    degrees: dict[str, int] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = (word.strip() for word in part.partition("="))
        check_keys({name: value}, AXES, "layout")
        if name in degrees:
            raise ValueError(f"layout: {name} is stated twice")
        if not (value.isdecimal() and int(value) > 0):
            raise ValueError(f"layout: {name} must be a whole number from 1 on, found {value!r}")
        degrees[name] = int(value)
    product = math.prod(degrees.get(name, 1) for name in _MESH)
    if gpus is not None and "dp_shard" not in degrees and "dp_replicate" not in degrees and gpus % product == 0:
        degrees["dp_shard"], product = gpus // product, gpus
    if gpus is not None and product != gpus:
        raise ValueError(f"layout: {' x '.join(_MESH)} is {product}, --gpus says {gpus}")
    return {name: degrees.get(name, 1) for name in AXES}


def habits_by_name(name: str) -> Habits:
    """Return a program's defaults by its name in FRAMEWORKS; ValueError names those that there are."""
    if name not in FRAMEWORKS:
        raise ValueError(f"framework {name!r} is unknown; known: {', '.join(FRAMEWORKS)}")
    if name == "falloff":
        # falloff's benchmark shards as TorchTitan does, reduces in the last microbatch alone (bench/parallelize.py) and
        # states everything else itself
        return dataclasses.replace(BY_NAME["torchtitan"], name="falloff", reduces_every_microbatch=False)
    return BY_NAME[name]


def job_of_request(request: Request) -> Job:
    """Return the job that is asked for; ValueError, one sentence, where it is none."""
    habits, layout = habits_by_name(request.framework), request.layout
    sharding = request.sharding or habits.sharding
    dp = layout["dp_replicate"] * layout["dp_shard"]
    microbatch, count = _batch(request, dp)
    _check_splits(request, count)
    return Job(
        shape=request.shape,
        cluster=request.cluster,
        seq=request.seq,
        microbatch=microbatch,
        num_microbatches=count,
        **_data_axes(layout, sharding),
        tp=layout["tp"],
        pp=layout["pp"],
        vpp=layout["vpp"],
        cp=layout["cp"],
        ep=layout["ep"],
        sharding=sharding,
        recompute=request.recompute,
        precision=request.precision,
        framework=habits.name,
        **_choices(request, habits),
    )


def _data_axes(layout: Mapping[str, int], sharding: Sharding) -> dict[str, Any]:
    """Return the data-parallel axes; what shards nothing has replicas alone."""
    if sharding == "none":
        return {"dp_replicate": layout["dp_replicate"] * layout["dp_shard"], "dp_shard": 1}
    return {"dp_replicate": layout["dp_replicate"], "dp_shard": layout["dp_shard"]}


def _choices(request: Request, habits: Habits) -> dict[str, Any]:
    def stated(value: Any, habit: Any) -> Any:
        return habit if value is None else value

    return {
        "param_bytes": 4.0 if request.precision == "float32" else habits.param_bytes,
        "reduce_bytes": stated(request.reduce_bytes, habits.reduce_bytes),
        "state_bytes": habits.state_bytes,
        "gradient_bytes": habits.gradient_bytes,
        "bucket_params": habits.bucket_params,
        "bucket_params_per_rank": habits.bucket_params_per_rank,
        "sequence_parallel": habits.splits_sequence(request.layout["tp"]),
        "compiled": stated(request.compiled, habits.compiled),
        "flash_attention": stated(request.flash_attention, habits.flash_attention),
        "causal": stated(request.flash_attention, habits.flash_attention),
        "reshard_after_forward": stated(request.reshard_after_forward, habits.reshards(request.layout["pp"])),
        "reduce_every_microbatch": habits.reduces_every_microbatch,
        "distributed_overlap": habits.overlaps,
        "replays_graphs": habits.replays_graphs,
        "accumulates_in_product": habits.accumulates_in_product,
    }


def _batch(request: Request, dp: int) -> tuple[int, int]:
    """Return the microbatch and how many of them a rank runs."""
    local = request.local_batch
    if (local is None) == (request.global_batch is None):
        raise ValueError("one of --local-batch and --global-batch is needed, in sequences")
    if request.global_batch is not None:
        if request.global_batch % dp:
            raise ValueError(f"a global batch of {request.global_batch} does not split over dp {dp}")
        local = request.global_batch // dp
    assert local is not None
    micro, count = request.microbatch, request.accumulation
    if micro is None:
        # over pipeline stages one sequence at a time fills the pipeline best
        count = count or (local if request.layout["pp"] > 1 else 1)
        micro = local // count
    count = count or local // micro
    if micro * count != local:
        raise ValueError(f"{count} microbatches of {micro} are not the {local} sequences of a data-parallel rank")
    return micro, count


def _check_splits(request: Request, num_microbatches: int) -> None:
    shape, layout = request.shape, request.layout
    for what, size in (("heads", shape.heads), ("ffn", shape.ffn), ("seq", request.seq)):
        if size % layout["tp"]:
            raise ValueError(f"{what} {size} is not divisible by tp {layout['tp']}")
    if request.seq % layout["cp"]:
        raise ValueError(f"seq {request.seq} is not divisible by cp {layout['cp']}")
    if layout["vpp"] > 1 and layout["pp"] == 1:
        raise ValueError(f"vpp {layout['vpp']} needs pp above 1")
    if layout["pp"] * layout["vpp"] > shape.layers:
        raise ValueError(
            f"pp {layout['pp']} times vpp {layout['vpp']} has more stages than the network has layers ({shape.layers})"
        )
    if num_microbatches < layout["pp"]:
        raise ValueError(f"{num_microbatches} microbatches are too few for pp {layout['pp']} stages")


def shape_by_name(name: str) -> Shape:
    """Return the shape of a network by name or path."""
    return shape_of(find_network(name))
