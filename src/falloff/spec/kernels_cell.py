"""The cell of a table of kernels."""

import math
from dataclasses import dataclass
from typing import Literal

from falloff.spec.network import Network
from falloff.spec.reading import ImpossibleLayoutError, require_positive

Operations = Literal["launch", "gemm", "attention", "memory", "optimizer"]
KernelDtype = Literal["float32", "bfloat16", "float8"]


@dataclass(frozen=True, kw_only=True)
class KernelsCell:
    """The kernels of which the steps of some networks are made, each timed by itself on every process's own GPU.

    tokens are those of a microbatch, which all ranks of tp see; each of tp cuts the weights as tensor parallelism
    does. Attention runs on as many sequences as attention_tokens hold, and on one at least. float8 is timed at the
    most tokens, and so is what is compiled.
    """

    kind: Literal["kernels"] = "kernels"
    networks: tuple[Network, ...]
    num_processes: int = 1
    threads_per_process: int = 1

    operations: tuple[Operations, ...] = ("launch", "gemm", "attention", "memory", "optimizer")
    tokens: tuple[int, ...] = (4096, 16384)
    tp: tuple[int, ...] = (1,)
    sequences: tuple[int, ...] = (2048, 8192, 32768)
    attention_tokens: int = 16384
    dtypes: tuple[KernelDtype, ...] = ("bfloat16", "float8")
    optimizer_params: tuple[int, ...] = (100_000_000, 1_000_000_000)
    compile: bool = True  # operators bound by memory also compiled
    seed: int = 0

    # How it is measured: burst_s of work after an idle pause_s, then a window of window_s without a pause; of the
    # largest kernels a window of sustained_s more, for which time is kept. What budget_s does not reach is left out.
    pause_s: float = 0.15
    burst_s: float = 0.005
    window_s: float = 0.25
    sustained_s: float = 5.0
    sustained_kernels: int = 6
    budget_s: float = 480.0

    def __post_init__(self) -> None:
        require_positive(
            self,
            "num_processes", "threads_per_process", "attention_tokens", "burst_s", "window_s", "budget_s",
        )  # fmt: skip
        for name in ("seed", "pause_s", "sustained_s", "sustained_kernels"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) >= 0):
                raise ValueError(f"{name} must not be negative and be finite, found {getattr(self, name)}")
        for name in ("networks", "operations", "tokens", "tp", "sequences", "dtypes", "optimizer_params"):
            _check_list(name, getattr(self, name))
        if "float8" in self.dtypes and len(self.dtypes) == 1:
            raise ValueError("dtypes must name one beside float8, in which the other operators run")
        if self.budget_s <= self.sustained_kernels * self.sustained_s:
            raise ValueError(
                f"budget_s must be more than sustained_kernels {self.sustained_kernels} times sustained_s "
                f"{self.sustained_s:g}, found {self.budget_s:g}"
            )
        reasons = [reason for network in self.networks for degree in self.tp for reason in _why_not(network, degree)]
        if reasons:
            raise ImpossibleLayoutError("; ".join(reasons))


def _check_list(name: str, values: tuple[object, ...]) -> None:
    if not values:
        raise ValueError(f"{name} must name at least one")
    for value in values:
        if isinstance(value, int) and value <= 0:
            raise ValueError(f"{name} must be above zero, found {value}")
        if values.count(value) > 1:
            raise ValueError(f"{name} names {value.name if isinstance(value, Network) else value} twice")


def _why_not(network: Network, tp: int) -> list[str]:
    """Return each reason why a network's weights are not cut by a degree of tensor parallelism."""
    return [
        f"{network.name}: {what} {getattr(network, what)} is not divisible by tp {tp}"
        for what in ("heads", "kv_heads", "ffn", "vocab")
        if getattr(network, what) % tp
    ]
