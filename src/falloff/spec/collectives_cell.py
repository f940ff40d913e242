"""The cell of a sweep of collectives."""

from dataclasses import dataclass
from typing import Literal

from falloff.spec.reading import Dtype, ImpossibleLayoutError, require_positive

Collective = Literal["all_reduce", "all_gather", "reduce_scatter"]


@dataclass(frozen=True, kw_only=True)
class CollectivesCell:
    """A sweep of collectives over message sizes in one process group.

    message_bytes is nccl-tests' size: the input of AllReduce and ReduceScatter, the output of AllGather.
    """

    kind: Literal["collectives"] = "collectives"
    num_processes: int
    collectives: tuple[Collective, ...]
    message_bytes: tuple[int, ...]
    dtype: Dtype = "float32"
    threads_per_process: int = 1
    warmup_iterations: int = 3
    measured_iterations: int = 10

    def __post_init__(self) -> None:
        require_positive(self, "num_processes", "threads_per_process", "warmup_iterations", "measured_iterations")
        if not self.collectives or not self.message_bytes:
            raise ValueError("collectives and message_bytes must each name at least one")
        for name, values in (("collectives", self.collectives), ("message_bytes", self.message_bytes)):
            for value in values:
                if values.count(value) > 1:
                    raise ValueError(f"{name} names {value} twice")
        element = 4 if self.dtype == "float32" else 2
        for size in self.message_bytes:
            if size <= 0 or size % (element * self.num_processes):
                raise ValueError(
                    f"message_bytes {size} is not a positive multiple of {element} bytes times "
                    f"{self.num_processes} processes"
                )
        if self.num_processes < 2:
            raise ImpossibleLayoutError("num_processes is 1: a collective needs at least 2")
