"""The cell of a table of kernels."""

from dataclasses import dataclass
from typing import Literal

from falloff.spec.network import Network
from falloff.spec.reading import require_positive


@dataclass(frozen=True, kw_only=True)
class KernelsCell:
    """The kernels of which the steps of some networks are made, each timed by itself on every process's own GPU."""

    kind: Literal["kernels"] = "kernels"
    networks: tuple[Network, ...]
    num_processes: int = 1
    threads_per_process: int = 1

    def __post_init__(self) -> None:
        require_positive(self, "num_processes", "threads_per_process")
