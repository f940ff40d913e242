"""What a user measured on a cluster, as points that its own values are fitted to: collectives, products, copies.

Read are nccl-tests' logs, falloff's sweeps of collectives and tables of kernels, lines 'COLL', and what
`falloff preflight --json` prints. What a training step never does, or what says nothing of the cluster, is left out,
and said.
"""

import collections
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from falloff.ingest.recognise import Reading, read_any
from falloff.perfmodel.calibrate_collectives import LEAST_BYTES, Point, bus_seconds
from falloff.perfmodel.collectives import Kind
from falloff.perfmodel.jobs import Job
from falloff.records import CollectiveRecord, KernelRecord
from falloff.spec.cluster import HARDWARE, Cluster, Fabric
from falloff.spec.hardware import find_hardware, read_all_hardware
from falloff.units import GIB, KIB, MIB

# Through torch, without a graph, a call takes the host 25 to 70 us whatever its size below 16 MiB (data/raw/h200,
# collectives-2-1287711d; by graphs, 9559ad96, 10 to 36).
HOST_BOUND_BYTES = 16 * MIB
# Products of fewer FLOPs are as much their launch and their tiles as the power limit; a window shorter than this ends
# before the limit bites.
_LEAST_FLOPS = 1e11
_LEAST_WINDOW_S = 0.2
_LEAST_COPY_BYTES = 256 * MIB

_KINDS: Mapping[str, Kind] = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "all_to_all": "all_to_all",
    "send_recv": "send_recv",
}
_UNITS = {"GiB": GIB, "MiB": MIB, "KiB": KIB, "B": 1}
_PREFLIGHT_HEAD = re.compile(r'\s*\{\s*"device"')
_PREFLIGHT_COLLECTIVE = re.compile(r"(?:pair )?(all_reduce|send_recv) ([\d.]+) (GiB|MiB|KiB|B)")
_PREFLIGHT_PRODUCT = re.compile(r"product (?:bfloat16|float16) (\d+), sustained")
_PREFLIGHT_COPY = re.compile(r"memory (?:copy|triad)")
_NET_SETTING = re.compile(r"\bnccl_net=(.*?)(?= \w+=|$)")
# how a source's own words of what joins its nodes begin
_FABRIC_WORDS: Sequence[tuple[Fabric, str]] = (
    ("efa", r"\befa\b|libfabric"),
    ("omnipath", r"omni-?path|\bopa\b"),
    ("roce", r"\broce"),
    ("infiniband", r"infiniband|\b(?:ib|edr|hdr|ndr|xdr)\b"),
    ("ethernet", r"ethernet|\btcp\b|\bsocket"),
)


@dataclass(frozen=True, kw_only=True)
class ProductPoint:
    """One 16-bit product [m, k] x [k, n], its seconds in a run long enough that the power limit holds the GPU down."""

    source: str
    m: int
    n: int
    k: int
    measured_s: float


@dataclass(frozen=True, kw_only=True)
class CopyPoint:
    """One large copy or like kernel: the bytes a second that it reads and writes."""

    source: str
    bytes_s: float


@dataclass(frozen=True)
class OwnPoints:
    """All that was measured on one cluster, and in words what of the logs was left out."""

    collectives: tuple[Point, ...]
    products: tuple[ProductPoint, ...]
    copies: tuple[CopyPoint, ...]
    left_out: tuple[str, ...]


def read_own_points(paths: Iterable[Path], cluster: Cluster, hardware: Path = HARDWARE) -> OwnPoints:
    """Return what logs and folders say of a cluster.

    ValueError, one sentence: for a log of another GPU, node or fabric than the cluster's, logs of two fabrics, and
    where nothing is left to fit to.
    """
    gathered = _Gathered(cluster, hardware)
    for path in paths:
        for found in _found_at(path):
            gathered.add(found, within=found != path)
    gathered.check_fabric()
    points = gathered.points()
    if not (points.collectives or points.products or points.copies):
        why = "; ".join(points.left_out) or "they hold neither collectives nor kernels"
        raise ValueError(f"no log has a point to calibrate {cluster.name} by: {why}")
    return points


def _found_at(path: Path) -> Iterator[Path]:
    """Yield a path itself, or the runs in a folder of falloff's logs of which each holds its own."""
    sealed = sorted(path.glob("**/events.jsonl")) if path.is_dir() else []
    within = [log.parent for log in sealed if log.parent != path]
    yield from within or [path]


class _Gathered:
    """Points as they are read, log by log."""

    def __init__(self, cluster: Cluster, hardware: Path) -> None:
        self.cluster, self.hardware = cluster, hardware
        self.collectives: list[Point] = []
        self.products: list[ProductPoint] = []
        self.copies: list[CopyPoint] = []
        self.left: collections.Counter[tuple[str, str]] = collections.Counter()
        self.fabrics: dict[Fabric, str] = {}
        self.spans: str | None = None  # the first log with a group over nodes

    def add(self, path: Path, *, within: bool = False) -> None:
        """Add what one log holds; one of training is left out within a folder, and an error where it was named."""
        said = _preflight_of(path)
        if said is not None:
            self._add_preflight(path, said)
            return
        reading = read_any(path, self.hardware)
        if reading.kind == "deepspeed-comms":
            raise ValueError(f"{path}: times collectives within training, waiting for others included; run nccl-tests")
        if not reading.collectives and not reading.kernels:
            if within:
                self.left["runs", "they time neither collectives nor kernels"] += 1
                return
            raise ValueError(f"{path}: is of kind {reading.kind} and holds neither collectives nor kernels")
        for record in reading.collectives:
            self._add_collective(path, reading, record)
        for kernel in reading.kernels:
            self._add_kernel(path, kernel)

    def points(self) -> OwnPoints:
        """Return all of them."""
        left = tuple(f"{count} of {name}: {why}" for (name, why), count in self.left.items())
        return OwnPoints(tuple(self.collectives), tuple(self.products), tuple(self.copies), left)

    def check_fabric(self) -> None:
        """Raise ValueError where groups over nodes ran on several fabrics, or on another than the cluster's."""
        fabric = self.cluster.node.fabric
        if len(self.fabrics) > 1:
            (one, first), (other, second), *_ = self.fabrics.items()
            raise ValueError(
                f"{first} ran over {one} and {second} over {other}: fabrics are never pooled, so describe and "
                "calibrate each as a cluster of its own"
            )
        if self.spans is not None and fabric == "none":
            raise ValueError(f"{self.spans}: spans nodes, and {self.cluster.name} has fabric: none; state its fabric")
        for found, name in self.fabrics.items():
            if fabric not in (found, "unknown"):
                raise ValueError(f"{name}: ran over {found}, and the fabric of {self.cluster.name} is {fabric}")

    def _add_collective(self, path: Path, reading: Reading, record: CollectiveRecord) -> None:
        self._check_gpu(path, record.hardware)
        why = self._why_not(reading, record)
        if why:
            self.left[_label(path), why] += 1
            return
        assert record.num_ranks
        assert record.collective
        kind = _KINDS[record.collective]
        self.collectives.append(
            self._point(path, kind, record.num_ranks, self._here(path, record), record.message_bytes,
                        _seconds(kind, record), _minor(record.nccl))
        )  # fmt: skip
        if record.nodes and record.nodes > 1 and record.num_ranks > self.collectives[-1].ranks_per_node:
            self.spans = self.spans or str(path)
            fabric = fabric_of(record)
            if fabric is not None:
                self.fabrics.setdefault(fabric, str(path))

    def _why_not(self, reading: Reading, record: CollectiveRecord) -> str:
        """Return why a record is no point, '' where it is one."""
        if record.outcome != "ok":
            return record.outcome_reason or record.outcome
        if record.device == "cpu" or record.backend == "gloo":
            return "not of GPUs"
        if record.collective not in _KINDS:
            return f"{record.collective or 'an unknown collective'}, which no training step of the model has"
        if not record.num_ranks or record.num_ranks < 2 or not record.nodes:
            return "it does not say over how many nodes its ranks were"
        if record.times_s is None and record.reported_busbw_bytes_s is None:
            return "no time"
        words = f"{record.algorithm or ''} {record.environment or ''}".casefold()
        if "sharp" in words or "collnet" in words or re.search(r"nccl_(?:algo|proto)=", words):
            return "its algorithm or protocol was forced"
        if record.message_bytes < LEAST_BYTES:
            return f"below {LEAST_BYTES // KIB} KiB, the host's time"
        by_torch = reading.kind == "torch-collectives" or record.launch == "calls"
        # lines 'COLL' within a folder of data/external, where a publication's table has no host of its own
        by_torch = by_torch or (reading.kind == "external" and record.provenance != "published")
        if by_torch and record.message_bytes < HOST_BOUND_BYTES:
            return f"below {HOST_BOUND_BYTES // MIB} MiB, timed through torch: the host's time"
        return ""

    def _here(self, path: Path, record: CollectiveRecord) -> int:
        """Return how many ranks of a group NVLink joins; ValueError where a node has more GPUs than the cluster's."""
        assert record.num_ranks
        assert record.nodes
        here = record.ranks_per_node or -(-record.num_ranks // record.nodes)
        node, domain = self.cluster.node.gpus_per_node, self.cluster.nvlink_domain
        if here > domain:
            raise ValueError(
                f"{path}: has {here} ranks a node, and {self.cluster.name} {domain} GPUs that NVLink joins"
            )
        # a rack that NVLink joins is many hosts
        return min(record.num_ranks, domain) if domain > node else here

    def _point(
        self, path: Path, kind: Kind, ranks: int, here: int, message_bytes: float, seconds: float, minor: int
    ) -> Point:
        # the name of a sweep: points of one log and one way to place ranks
        return Point(
            source=f"{_label(path)}, {here} a node",
            kind=kind,
            cluster=self.cluster,
            ranks=ranks,
            ranks_per_node=here,
            message_bytes=float(message_bytes),
            measured_s=seconds,
            nccl_minor=minor,
        )

    def _add_kernel(self, path: Path, kernel: KernelRecord) -> None:
        self._check_gpu(path, kernel.hardware)
        sizes = dict(zip(kernel.shape_names, kernel.shape_sizes, strict=True))
        is_long = kernel.mode == "sustained" or (kernel.mode == "window" and (kernel.asked_s or 0) >= _LEAST_WINDOW_S)
        if kernel.outcome != "ok" or not kernel.call_s or kernel.device == "cpu":
            self.left[_label(path), "kernels that did not run on a GPU"] += 1
        elif kernel.operation == "gemm" and kernel.dtype in ("bfloat16", "float16") and is_long and (
            (kernel.flops or 0) >= _LEAST_FLOPS
        ):  # fmt: skip
            self.products.append(
                ProductPoint(source=_label(path), m=sizes["m"], n=sizes["n"], k=sizes["k"],
                             measured_s=median(kernel.call_s))
            )  # fmt: skip
        elif kernel.kernel in ("copy", "cast") and (kernel.bytes or 0) >= _LEAST_COPY_BYTES:
            assert kernel.bytes
            self.copies.append(CopyPoint(source=_label(path), bytes_s=kernel.bytes / median(kernel.call_s)))
        else:
            self.left[
                _label(path), "kernels that no value of a cluster follows from: short, small or of another kind"
            ] += 1

    def _add_preflight(self, path: Path, said: Mapping[str, Any]) -> None:
        if said.get("device") != "cuda":
            raise ValueError(f"{path}: is a preflight of CPU processes, which says nothing of {self.cluster.name}")
        for load in said["loads"]:
            if load.get("name"):
                self._check_gpu(path, find_hardware(load["name"], read_all_hardware(self.hardware)).name)
        for (measure, ranks), rates in _by_measure(said["rates"]).items():
            self._add_rate(path, measure, ranks, median(rates))

    def _add_rate(self, path: Path, measure: str, ranks: int, rate: float) -> None:
        domain = self.cluster.nvlink_domain
        if ranks > domain:
            raise ValueError(f"{path}: is of a node of {ranks} GPUs, and {self.cluster.name} has {domain}")
        if found := _PREFLIGHT_COLLECTIVE.fullmatch(measure):
            kind, size = _KINDS[found[1]], float(found[2]) * _UNITS[found[3]]
            if size < HOST_BOUND_BYTES:
                self.left[
                    _label(path), f"below {HOST_BOUND_BYTES // MIB} MiB, timed through torch: the host's time"
                ] += 1
                return
            seconds = bus_seconds(kind, size, ranks, rate)
            self.collectives.append(self._point(path, kind, ranks, ranks, size, seconds, Job.nccl_minor))
        elif found := _PREFLIGHT_PRODUCT.fullmatch(measure):
            size = int(found[1])
            self.products.append(
                ProductPoint(source=_label(path), m=size, n=size, k=size, measured_s=2.0 * size**3 / rate)
            )
        elif _PREFLIGHT_COPY.fullmatch(measure):
            self.copies.append(CopyPoint(source=_label(path), bytes_s=rate))
        else:
            self.left[_label(path), "bursts, which no value of a cluster follows from"] += 1

    def _check_gpu(self, path: Path, hardware: str | None) -> None:
        """Raise ValueError where a log states another GPU than the cluster's; one that states none may be of any."""
        if hardware is not None and hardware != self.cluster.gpu.name:
            raise ValueError(f"{path}: ran on {hardware}, and {self.cluster.name} is of {self.cluster.gpu.name}")


def fabric_of(record: CollectiveRecord) -> Fabric | None:
    """Return what a record says that its nodes were joined by; None where it says nothing."""
    settings = (record.environment or "").casefold()
    words = " ".join([(record.interconnect or "").casefold(), *_NET_SETTING.findall(settings)])
    for fabric, pattern in _FABRIC_WORDS:
        if re.search(pattern, words):
            return fabric
    return "ethernet" if "nccl_ib_disable=1" in settings else None


def _preflight_of(path: Path) -> Mapping[str, Any] | None:
    """Return what `falloff preflight --json` printed into a file; None where it is another's."""
    if not path.is_file():
        return None
    with path.open(encoding="utf-8", errors="replace") as file:
        if not _PREFLIGHT_HEAD.match(file.read(64)):
            return None
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: is no whole output of falloff preflight --json ({error})") from error
    return said if {"device", "rates", "loads"} <= set(said) else None


def _by_measure(rates: Sequence[Mapping[str, Any]]) -> dict[tuple[str, int], list[float]]:
    """Return each measure's rates, of all GPUs and repeats, by how many GPUs took part."""
    found: dict[tuple[str, int], list[float]] = {}
    for rate in rates:
        found.setdefault((rate["measure"], len(rate["devices"])), []).append(median(rate["repeats"]))
    return found


def _label(path: Path) -> str:
    """Return a log's name; falloff's runs are folders of repeats, named by numbers."""
    return f"{path.parent.name}/{path.name}" if path.name.isdigit() else path.name


def _seconds(kind: Kind, record: CollectiveRecord) -> float:
    if record.times_s:
        return median(record.times_s)
    assert record.reported_busbw_bytes_s
    assert record.num_ranks
    return bus_seconds(kind, record.message_bytes, record.num_ranks, record.reported_busbw_bytes_s)


def _minor(version: str | None) -> int:
    found = re.match(r"2\.(\d+)", version or "")
    return int(found[1]) if found else Job.nccl_minor
