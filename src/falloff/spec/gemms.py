"""The matrix products of which a network's step is made, by its shape alone."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from falloff.spec.network import Network

Pass = Literal["forward", "dgrad", "wgrad"]
PASSES: tuple[Pass, ...] = ("forward", "dgrad", "wgrad")


@dataclass(frozen=True, kw_only=True)
class Weight:
    """A matrix [outputs, inputs] as one rank of tp holds it, and how many of its shape and name the network has."""

    name: str
    inputs: int
    outputs: int
    count: int


@dataclass(frozen=True, kw_only=True)
class Gemm:
    """A product [m, k] x [k, n]. Which of its sides lie transposed in memory follows from the pass."""

    step_pass: Pass
    m: int
    n: int
    k: int

    @property
    def flops(self) -> int:
        """Return its FLOPs, a multiplication and an addition each."""
        return 2 * self.m * self.n * self.k


def weights(network: Network, tp: int = 1) -> Iterator[Weight]:
    """Yield the matrices that multiply, cut as tensor parallelism cuts them.

    Outputs are cut of wq, wk, wv, w1, w3 and the head, inputs of wo and w2 (Shoeybi et al. 2019, arXiv 1909.08053,
    section 3). The embedding looks up and multiplies nothing.
    """
    kv_width = network.kv_heads * network.head_size
    cut_outputs = {"wq": network.hidden, "wk": kv_width, "wv": kv_width, "w1": network.ffn}
    if network.style == "llama":
        cut_outputs["w3"] = network.ffn
    for name, outputs in cut_outputs.items():
        yield Weight(name=name, inputs=network.hidden, outputs=outputs // tp, count=network.layers)
    for name, inputs in (("wo", network.hidden), ("w2", network.ffn)):
        yield Weight(name=name, inputs=inputs // tp, outputs=network.hidden, count=network.layers)
    yield Weight(name="head", inputs=network.hidden, outputs=network.vocab // tp, count=1)


def gemm(weight: Weight, step_pass: Pass, tokens: int) -> Gemm:
    """Return the product of one weight in one pass over so many tokens.

    forward: x [tokens, inputs] with the weight's transpose. dgrad: the gradient [tokens, outputs] with the weight.
    wgrad: the transposed gradient [outputs, tokens] with x.
    """
    m, n, k = {
        "forward": (tokens, weight.outputs, weight.inputs),
        "dgrad": (tokens, weight.inputs, weight.outputs),
        "wgrad": (weight.outputs, weight.inputs, tokens),
    }[step_pass]
    return Gemm(step_pass=step_pass, m=m, n=n, k=k)
