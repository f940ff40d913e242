"""What kernels achieve, and a run held against its matrix products alone."""

import dataclasses
import json
import math
from typing import Any

import pytest

from falloff.analysis.kernels import (
    achieved_bytes_s,
    achieved_flops,
    call_s,
    gemm_bound,
    gemm_seconds,
    intensity,
    network_of,
)
from falloff.spec.gemms import PASSES, gemm, weights
from falloff.spec.network import Network

NETWORK = Network(name="small", layers=2, hidden=4, heads=2, kv_heads=1, ffn=6, vocab=8, source="a test")
TOKENS = 16
RUN = {
    "record_id": "a run",
    "network": "small",
    "layers": 2,
    "hidden": 4,
    "heads": 2,
    "kv_heads": 1,
    "ffn": 6,
    "vocab": 8,
    "param_dtype": "bfloat16",
    "microbatch": 2,
    "seq": 8,
    "num_gpus": 1,
    "window_tokens": 1000.0,
    "window_s": 10.0,
}


def row(kernel: str, sizes: dict[str, int], seconds: float, **changes: Any) -> dict[str, Any]:
    return {
        "kernel": kernel,
        "operation": "gemm",
        "outcome": "ok",
        "dtype": "bfloat16",
        "mode": "window",
        "shape_names": tuple(sizes),
        "shape_sizes": tuple(sizes.values()),
        "call_s": (seconds,),
        "flops": 2 * math.prod(sizes.values()),
        "bytes": 100.0,
        **changes,
    }


def table(tokens: int = TOKENS, tp: int = 1, rate: float = 1e4, **changes: Any) -> list[dict[str, Any]]:
    """Return every product of the network, each at `rate` FLOP/s."""
    products = {gemm(weight, step_pass, tokens) for weight in weights(NETWORK, tp) for step_pass in PASSES}
    return [
        row(f"gemm_{p.step_pass}", {"m": p.m, "n": p.n, "k": p.k}, p.flops / rate, **changes)
        for p in sorted(products, key=repr)
    ]


def test_a_kernels_rates_are_over_the_median_call() -> None:
    kernel = row("gemm_forward", {"m": 2, "n": 3, "k": 4}, 1.0, call_s=(2.0, 1.0, 30.0))
    assert (call_s(kernel), achieved_flops(kernel), achieved_bytes_s(kernel)) == (2.0, 24.0, 50.0)
    assert intensity(kernel) == 0.48


@pytest.mark.parametrize("changes", [{"call_s": None}, {"call_s": ()}, {"call_s": math.nan}])
def test_a_kernel_that_did_not_run_has_no_rate(changes: dict[str, Any]) -> None:
    kernel = row("gemm_forward", {"m": 2, "n": 3, "k": 4}, 1.0, **changes)
    assert math.isnan(call_s(kernel))
    assert math.isnan(achieved_flops(kernel))


def test_an_operator_bound_by_memory_has_bytes_and_no_flops() -> None:
    kernel = row("copy", {"elements": 25}, 2.0, flops=None)
    assert math.isnan(achieved_flops(kernel))
    assert achieved_bytes_s(kernel) == 50.0


def test_a_run_is_bound_by_the_flops_of_its_weights_at_the_rate_of_its_products() -> None:
    bound = gemm_bound(RUN, table())
    multiplied = sum(weight.inputs * weight.outputs * weight.count for weight in weights(NETWORK))
    assert bound.gemm_s == pytest.approx(6 * multiplied / 1e4)
    assert bound.measured_s == 0.01
    assert bound.share == pytest.approx(6 * multiplied / 1e4 / 0.01)
    assert bound.missing == ()


def test_ranks_of_tensor_parallelism_share_the_products_of_their_tokens() -> None:
    split = dataclasses.replace(NETWORK, kv_heads=2)
    run = {**RUN, "kv_heads": 2, "tp": 2, "num_gpus": 2}
    products = {gemm(weight, p, TOKENS) for weight in weights(split, 2) for p in PASSES}
    kernels = [row(f"gemm_{p.step_pass}", {"m": p.m, "n": p.n, "k": p.k}, p.flops / 1e4) for p in products]
    multiplied = sum(weight.inputs * weight.outputs * weight.count for weight in weights(split))
    bound = gemm_bound(run, kernels)
    assert bound.gemm_s == pytest.approx(6 * multiplied / 1e4)
    assert bound.measured_s == 0.02  # GPU-seconds of a token: two GPUs take 10 s each for 1000 tokens


def test_context_parallelism_cuts_the_tokens_of_a_product() -> None:
    assert gemm_bound({**RUN, "cp": 2}, table(TOKENS // 2)).share is not None
    assert gemm_bound({**RUN, "cp": 2}, table(TOKENS)).share is None


def test_a_product_that_was_not_timed_is_named_and_gives_no_share() -> None:
    kernels = [kernel for kernel in table() if kernel["shape_sizes"] != (TOKENS, 8, 4)]
    bound = gemm_bound(RUN, kernels)
    assert bound.missing == ("forward m=16 n=8 k=4",)
    assert (bound.gemm_s, bound.share) == (None, None)
    lost = [{**kernel, "outcome": "oom", "call_s": None} for kernel in table()]
    assert len(gemm_bound(RUN, lost).missing) == len(table())


def test_the_steadiest_mode_counts_and_of_several_gpus_the_median() -> None:
    sizes = {"m": 16, "n": 8, "k": 4}
    kernels = [
        row("gemm_forward", sizes, 1.0, mode="burst"),
        row("gemm_forward", sizes, 2.0),
        row("gemm_forward", sizes, 4.0),
        row("gemm_forward", sizes, 3.0, dtype="float32"),
    ]
    assert list(gemm_seconds(kernels, "bfloat16").values()) == [3.0]
    sustained = row("gemm_forward", sizes, 5.0, mode="sustained")
    assert list(gemm_seconds([*kernels, sustained], "bfloat16").values()) == [5.0]


def test_a_cells_own_network_goes_before_the_columns() -> None:
    cell = {"network": {**dataclasses.asdict(NETWORK), "style": "gpt", "positions": 32}}
    assert network_of({**RUN, "cell_json": json.dumps(cell)}).style == "gpt"
    assert network_of(RUN).style == "llama"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"hidden": None, "vocab": math.nan}, "record a run: hidden, vocab of its network must be stated"),
        ({"seq": None}, "record a run: microbatch and seq must be stated"),
        ({"window_s": None}, "record a run: it has no rate to hold against its matrix products"),
    ],
)
def test_a_run_that_does_not_state_enough_is_refused(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{sentence}$"):
        gemm_bound({**RUN, **changes}, table())
