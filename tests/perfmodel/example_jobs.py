"""Jobs that several tests share: Llama 2 7B on H100s, with what a test changes."""

from typing import Any

from falloff.perfmodel import compute, memory
from falloff.perfmodel.jobs import Job, Jobs, Shape, stack
from falloff.perfmodel.parameters import Values, by_name
from falloff.spec.cluster import find_cluster

LLAMA2_7B = Shape(layers=32, hidden=4096, heads=32, kv_heads=32, ffn=11008, vocab=32000)
LLAMA3_8B = Shape(layers=32, hidden=4096, heads=32, kv_heads=8, ffn=14336, vocab=128256)
GPT_22B = Shape(layers=48, hidden=6144, heads=64, kv_heads=64, ffn=24576, vocab=51200, mlp_matrices=2, tied=True)
PRIORS = Values(parameters=by_name([*compute.PARAMETERS, *memory.PARAMETERS]))


def job(**changes: Any) -> Job:
    """Return the example job with some fields changed."""
    fields: dict[str, Any] = {
        "shape": LLAMA2_7B,
        "cluster": find_cluster("h100-sxm-ib400"),
        "seq": 4096,
        "microbatch": 2,
        "num_microbatches": 1,
        "dp_shard": 8,
    }
    return Job(**(fields | changes))


def jobs(*changes: dict[str, Any]) -> Jobs:
    """Return one example job for each set of changes."""
    return stack([job(**change) for change in changes])
