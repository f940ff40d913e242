"""What a kernel achieves, and how much of a training step its matrix products alone would take."""

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from falloff.analysis.efficiency import Row, number, tokens_per_gpu_s
from falloff.analysis.field_values import stated
from falloff.spec.gemms import PASSES, Gemm, gemm, weights
from falloff.spec.network import Network

# Of a kernel's modes the one that comes nearest to training, in which a GPU is at its power limit all the time.
STEADIEST = ("sustained", "window", "burst")


def call_s(kernel: Row) -> float:
    """Return the median seconds of a call, NaN for a kernel that did not run."""
    times_s = stated(kernel.get("call_s"))
    return statistics.median(times_s) if times_s is not None and len(times_s) else math.nan


def achieved_flops(kernel: Row) -> float:
    """Return FLOP/s, NaN where the kernel's FLOPs are not counted or it did not run."""
    return number(kernel, "flops") / call_s(kernel)


def achieved_bytes_s(kernel: Row) -> float:
    """Return bytes/s by the fewest bytes that the kernel must move: caches and more passes over memory lower it."""
    return number(kernel, "bytes") / call_s(kernel)


def intensity(kernel: Row) -> float:
    """Return FLOPs per byte by the fewest bytes (Williams et al. 2009, 10.1145/1498765.1498785)."""
    return number(kernel, "flops") / number(kernel, "bytes")


@dataclass(frozen=True, kw_only=True)
class GemmBound:
    """The seconds of one GPU that a token's matrix products would take alone, and those that the run took.

    missing names the products that the table of kernels has not; gemm_s and share are then None.
    """

    gemm_s: float | None
    measured_s: float
    missing: tuple[str, ...] = ()

    @property
    def share(self) -> float | None:
        """Return which share of the run its matrix products alone would have taken, 1 where nothing else took time."""
        return None if self.gemm_s is None else self.gemm_s / self.measured_s


def gemm_bound(run: Row, kernels: Iterable[Row]) -> GemmBound:
    """Return how near a run comes to the rate of plain matrix products of its shapes under the same power limit.

    Products of forward, dgrad and wgrad of every layer and the head, each at the run's own tokens and cut of tp, in
    the run's param_dtype, recomputation not counted. ValueError where the run does not state its network, its
    microbatch or its rate.
    """
    network, tokens = network_of(run), _tokens_of_microbatch(run)
    rate = tokens_per_gpu_s(run)
    if math.isnan(rate):
        raise ValueError(f"record {run.get('record_id')}: it has no rate to hold against its matrix products")
    tp = _degree(run, "tp")
    seconds = gemm_seconds(kernels, str(run.get("param_dtype")))
    products = [
        (gemm(weight, step_pass, tokens), weight.count) for weight in weights(network, tp) for step_pass in PASSES
    ]
    missing = tuple(dict.fromkeys(_words(product) for product, _ in products if product not in seconds))
    # tp ranks work on the same tokens, each on its part of the weights; pipeline stages share the layers
    whole_s = None if missing else sum(seconds[product] * count for product, count in products) * tp / tokens
    return GemmBound(gemm_s=whole_s, measured_s=1 / rate, missing=missing)


def gemm_seconds(kernels: Iterable[Row], dtype: str) -> Mapping[Gemm, float]:
    """Return the seconds of each matrix product of a table in one dtype, of its steadiest mode, the GPUs' median."""
    found: dict[Gemm, dict[str, list[float]]] = {}
    for row in kernels:
        if row["operation"] == "gemm" and row["dtype"] == dtype and row["outcome"] == "ok":
            found.setdefault(_gemm_of(row), {}).setdefault(row["mode"], []).append(call_s(row))
    return {
        product: statistics.median(next(modes[mode] for mode in STEADIEST if mode in modes))
        for product, modes in found.items()
    }


def _gemm_of(kernel: Row) -> Gemm:
    sizes = dict(zip(kernel["shape_names"], map(int, kernel["shape_sizes"]), strict=True))
    step_pass = next(name for name in PASSES if kernel["kernel"].startswith(f"gemm_{name}"))
    return Gemm(step_pass=step_pass, m=sizes["m"], n=sizes["n"], k=sizes["k"])


def _words(product: Gemm) -> str:
    return f"{product.step_pass} m={product.m} n={product.n} k={product.k}"


def network_of(run: Row) -> Network:
    """Return the network of a run: the one that its cell states, else one of its columns in the style of Llama.

    ValueError where neither is complete.
    """
    cell = stated(run.get("cell_json"))
    if cell is not None:
        return Network(**json.loads(cell)["network"])
    sizes = {name: number(run, name) for name in ("layers", "hidden", "heads", "kv_heads", "ffn", "vocab")}
    lacking: Sequence[str] = [name for name, size in sizes.items() if math.isnan(size)]
    if lacking:
        raise ValueError(f"record {run.get('record_id')}: {', '.join(lacking)} of its network must be stated")
    whole: dict[str, Any] = {name: int(size) for name, size in sizes.items()}
    return Network(name=str(run.get("network")), source="a record", **whole)


def _tokens_of_microbatch(run: Row) -> int:
    """Return the tokens of a microbatch on one rank: context parallelism cuts its sequences."""
    tokens = number(run, "microbatch") * number(run, "seq") / _degree(run, "cp")
    if math.isnan(tokens):
        raise ValueError(f"record {run.get('record_id')}: microbatch and seq must be stated")
    return int(tokens)


def _degree(run: Row, axis: str) -> int:
    degree = number(run, axis)
    return 1 if math.isnan(degree) else int(degree)
