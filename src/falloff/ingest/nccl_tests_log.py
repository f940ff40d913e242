"""One run of nccl-tests or rccl-tests as it was printed: rows, devices, footers, before anything is made of them."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

# partial: its end is missing; not_multi_node: several programs that knew nothing of each other
Status = Literal["ok", "partial", "not_multi_node"]

MOST_RANKS = 1 << 17
# of an integer of a record; what is above it is no size, count or number of ranks
MOST_COUNT = 1 << 62

# bytes of an element by nccl-tests' name of its type, and what the records call it
DTYPES = {
    "int8": (1, "int8"),
    "char": (1, "int8"),
    "uint8": (1, "uint8"),
    "int32": (4, "int32"),
    "int": (4, "int32"),
    "uint32": (4, "uint32"),
    "int64": (8, "int64"),
    "uint64": (8, "uint64"),
    "half": (2, "float16"),
    "float16": (2, "float16"),
    "float": (4, "float32"),
    "float32": (4, "float32"),
    "double": (8, "float64"),
    "float64": (8, "float64"),
    "bfloat16": (2, "bfloat16"),
    "bf16": (2, "bfloat16"),
    "f8e4m3": (1, "float8_e4m3"),
    "f8e5m2": (1, "float8_e5m2"),
    "fp8_e4m3": (1, "float8_e4m3"),
    "fp8_e5m2": (1, "float8_e5m2"),
}


class Printed(NamedTuple):
    """A number as it was printed, in SI units, and half of its last digit."""

    value: float
    rounding: float

    @property
    def low(self) -> float:
        """The least that is printed so."""
        return max(self.value - self.rounding, 0.0)

    @property
    def high(self) -> float:
        """The most that is printed so."""
        return self.value + self.rounding


@dataclass(frozen=True, kw_only=True)
class Half:
    """The out-of-place or the in-place half of a row. None is 'N/A', or a column that is not there."""

    time_s: Printed | None
    is_cpu_time: bool = False  # -C 1: the time to enqueue, of which the bandwidths are not
    algbw_bytes_s: Printed | None = None
    busbw_bytes_s: Printed | None = None
    num_wrong: int | None = None
    deviation: float | None = None  # the largest, as versions before 2.13 print it: a tolerance and no count
    iterations_s: tuple[float, ...] = ()  # the slowest process of each iteration, which only JSON holds
    statistics: tuple[tuple[str, float | None], ...] = ()  # other columns, in their own units


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of a sweep. message_bytes is the column size; root is None or -1 where there is none."""

    message_bytes: int
    count: int
    dtype: str
    redop: str | None
    root: int | None
    out_of_place: Half | None
    in_place: Half | None
    choice: tuple[str, str, int | None] | None = (
        None  # algorithm, protocol, channels, which only rccl-tests prints (-A)
    )

    @property
    def halves(self) -> tuple[tuple[bool, Half], ...]:
        """Whether in place, and the half, for each that there is."""
        pairs = ((False, self.out_of_place), (True, self.in_place))
        return tuple((in_place, half) for in_place, half in pairs if half is not None)


class Device(NamedTuple):
    """What a line '# Rank' says."""

    rank: int
    group: int
    pid: int | None
    host: str
    gpu: str


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the line '# nThread' says; None where it says nothing."""

    threads: int = 1
    gpus: int = 1
    warmup_iterations: int | None = None
    iterations: int | None = None

    @property
    def process_ranks(self) -> int:
        """Ranks of one process."""
        return self.threads * self.gpus


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What NCCL chose for one call, as NCCL_DEBUG_SUBSYS=TUNING prints it."""

    collective: str | None  # None in the old form, which does not name it
    message_bytes: int
    algorithm: str
    protocol: str
    channels: int | None = None
    estimate_s: float | None = None  # NCCL's own, in the old form


class Link(NamedTuple):
    """A connection between two ranks, and what carries it: P2P, SHM, NET."""

    host: str | None
    sender: int
    receiver: int
    transport: str


@dataclass(frozen=True, kw_only=True)
class NcclTestsLog:
    """One run of one program: its rows, what it says of itself, and what is wrong with it.

    num_ranks and collective are None where nothing tells them; flags then say why. average_busbw_bytes_s and
    num_out_of_bounds are those that it prints at its end.
    """

    rows: tuple[Row, ...]
    status: Status
    library: Literal["nccl-tests", "rccl-tests"]
    library_version: str | None
    nccl: str | None
    collective: str | None
    num_ranks: int | None
    devices: tuple[Device, ...]
    stated_nodes: int | None  # where it lists no devices
    settings: Settings | None
    average_busbw_bytes_s: float | None
    num_out_of_bounds: int | None
    num_rank0_lines: int
    num_footers: int
    num_cut_lines: int
    environment: str | None
    choices: tuple[Choice, ...]
    links: tuple[Link, ...]
    flags: tuple[str, ...]

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts of its ranks, in the order of the ranks."""
        return distinct(device.host for device in self.devices)

    @property
    def nodes(self) -> int | None:
        """Hosts of one communicator: 1 where programs ran apart, None where the ranks are not all listed."""
        if self.status == "not_multi_node":
            return 1
        if self.stated_nodes is not None:
            return self.stated_nodes
        return len(self.hosts) if self.num_ranks and len(self.devices) == self.num_ranks else None

    @property
    def is_valid(self) -> bool:
        """Whether its results were right and something was communicated."""
        wrong = any(half.num_wrong for row in self.rows for _, half in row.halves)
        return not (wrong or self.num_out_of_bounds) and self.num_ranks != 1


def distinct(values: Iterable[str]) -> tuple[str, ...]:
    """Return each value once, in the order in which they come."""
    return tuple(dict.fromkeys(values))
