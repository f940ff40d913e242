"""The cell of a sweep of collectives."""

from dataclasses import dataclass
from typing import Literal

from falloff.spec.reading import Dtype, ImpossibleLayoutError, require_positive

Collective = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv"]

# torch takes one tensor for AllReduce, and gloo and NCCL both leave AllToAll and SendRecv in place undefined
# (nccl-tests times those and reports no errors of theirs). What remains has both forms.
ALWAYS_IN_PLACE: tuple[Collective, ...] = ("all_reduce",)
EITHER_WAY: tuple[Collective, ...] = ("all_gather", "reduce_scatter")


@dataclass(frozen=True, kw_only=True)
class SweepPoint:
    """What a sweep times at once: a collective of one size in one form, so many calls between two events."""

    collective: Collective
    message_bytes: int
    in_place: bool
    iterations_per_lap: int


@dataclass(frozen=True, kw_only=True)
class CollectivesCell:
    """A sweep of collectives over message sizes, in all groups of one shape at once.

    message_bytes is nccl-tests' size: the input of AllReduce, ReduceScatter, AllToAll and SendRecv, the output of
    AllGather.
    """

    kind: Literal["collectives"] = "collectives"
    num_processes: int
    collectives: tuple[Collective, ...]
    message_bytes: tuple[int, ...]
    dtype: Dtype = "float32"

    # AllGather whose input is its part of the output, ReduceScatter the reverse, or buffers of their own.
    in_place: tuple[bool, ...] = (False,)

    # Ranks of a group, None: all. A group is of neighbours (tp inside a node), or across: one rank in every
    # num_processes / group_size (dp over groups of tp).
    group_size: int | None = None
    group_across: bool = False
    threads_per_process: int = 1

    # measured_iterations laps are timed. Up to looped_bytes (None: always) a lap is iterations_per_lap calls, whose
    # mean counts. graph: a lap is one CUDA graph, which leaves out what it takes the host to launch each call.
    warmup_iterations: int = 3
    measured_iterations: int = 10
    iterations_per_lap: int = 1
    looped_bytes: int | None = None
    launch: Literal["calls", "graph"] = "calls"

    def __post_init__(self) -> None:
        require_positive(
            self,
            "num_processes",
            "threads_per_process",
            "warmup_iterations",
            "measured_iterations",
            "iterations_per_lap",
            "looped_bytes",
        )
        _check_lists(self)
        if self.num_processes < 2:
            raise ImpossibleLayoutError("num_processes is 1: a collective needs at least 2")
        _check_groups(self)
        element = 4 if self.dtype == "float32" else 2
        for size in self.message_bytes:
            if size <= 0 or size % (element * self.num_ranks):
                raise ValueError(
                    f"message_bytes {size} is not a positive multiple of {element} bytes times {self.num_ranks} ranks"
                )

    @property
    def num_ranks(self) -> int:
        """Return the ranks of one group."""
        return self.group_size or self.num_processes

    @property
    def num_groups(self) -> int:
        """Return how many groups run at once."""
        return self.num_processes // self.num_ranks

    @property
    def points(self) -> tuple[SweepPoint, ...]:
        """Return what is timed, in order: collective by collective, each by size."""
        return tuple(
            SweepPoint(
                collective=collective,
                message_bytes=size,
                in_place=in_place,
                iterations_per_lap=self._iterations_per_lap(size),
            )
            for collective in self.collectives
            for in_place in self._forms(collective)
            for size in sorted(self.message_bytes)
        )

    def _forms(self, collective: Collective) -> tuple[bool, ...]:
        return self.in_place if collective in EITHER_WAY else (collective in ALWAYS_IN_PLACE,)

    def _iterations_per_lap(self, message_bytes: int) -> int:
        is_looped = self.looped_bytes is None or message_bytes <= self.looped_bytes
        return self.iterations_per_lap if is_looped else 1


def _check_lists(cell: CollectivesCell) -> None:
    lists = {"collectives": cell.collectives, "message_bytes": cell.message_bytes, "in_place": cell.in_place}
    if not all(lists.values()):
        raise ValueError(f"{', '.join(lists)} must each name at least one")
    for name, values in lists.items():
        for value in values:
            if values.count(value) > 1:
                raise ValueError(f"{name} names {value} twice")


def _check_groups(cell: CollectivesCell) -> None:
    size = cell.group_size
    if size is not None and (size < 2 or cell.num_processes % size):
        raise ImpossibleLayoutError(
            f"group_size {size} must be 2 or more and divide num_processes {cell.num_processes}"
        )
    if cell.group_across and cell.num_groups == 1:
        raise ValueError("group_across needs a group_size below num_processes: one group of all has no ranks between")
