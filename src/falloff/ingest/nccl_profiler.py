"""The JSON that NCCL's example profiler plugin writes: beginnings and ends of calls, operations and kernel channels."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from falloff.ingest.event_index import EventIndex
from falloff.ingest.event_times import LONGEST_NS, nanoseconds
from falloff.ingest.trace_file import ParsedEvents, TraceError, TraceFile, load

# what the plugin calls its events since NCCL 2.23 (GROUP, COLL, PROXY) and since 2.27 (..._API)
PLUGIN_CATEGORIES = frozenset(
    {"GROUP", "GROUP_API", "COLL", "COLL_API", "P2P", "P2P_API", "KERNEL_LAUNCH", "PROXY", "GPU", "NET"}
)


class PluginEvent(NamedTuple):
    """One complete event by the host's clock; gpu_ns is its length by the GPU's clock where it states one."""

    category: str
    name: str
    start_ns: int
    end_ns: int
    gpu_ns: int | None
    args: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class NcclProfile:
    """The complete events of a file in order of their ends, and how many incomplete ones were left out, by reason."""

    events: tuple[PluginEvent, ...]
    left_out: Mapping[str, int]
    is_cut: bool

    @property
    def num_incomplete(self) -> int:
        """How many events have no beginning, no end or no clock, so that their length is not known."""
        return sum(self.left_out.values())


def read_nccl_profile(path: Path) -> NcclProfile:
    """Return the events of a plugin's file; TraceError, one sentence, for a file that is none or is not JSON."""
    events: list[dict[str, Any]] = []
    try:
        with path.open("rb") as file:
            document = TraceFile(file, path)
            for block in document.blocks():
                try:
                    events += _parsed(block)
                except (json.JSONDecodeError, RecursionError) as error:
                    raise document.refusal(error) from error
    except OSError as error:
        raise TraceError("unreadable", f"{path}: cannot be read ({error.strerror})") from error
    if not any(str(event.get("cat")) in PLUGIN_CATEGORIES for event in events):
        raise TraceError(
            "not_a_trace", f"{path}: is no output of NCCL's profiler plugin, whose events are COLL, GPU, ..."
        )
    return _pair(events, document.is_cut)


def _parsed(block: EventIndex | ParsedEvents) -> list[dict[str, Any]]:
    if isinstance(block, ParsedEvents):
        return block.events
    bounds = zip(block.starts.tolist(), block.ends.tolist(), strict=True)
    return [load(block.data[start:end]) for start, end in bounds]


def _pair(events: Sequence[Mapping[str, Any]], is_cut: bool) -> NcclProfile:
    open_events: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    complete: list[PluginEvent] = []
    left_out: Counter[str] = Counter()
    for event in events:
        key = tuple(repr(event.get(name)) for name in ("cat", "name", "id", "pid", "tid"))
        if event.get("ph") == "b":
            open_events.setdefault(key, []).append(event)
        elif event.get("ph") == "e":
            begun = open_events.get(key)
            found = _complete(begun.pop(), event) if begun else "no beginning"
            if isinstance(found, str):
                left_out[found] += 1
            else:
                complete.append(found)
    left_out["no end"] += sum(map(len, open_events.values()))
    return NcclProfile(events=tuple(complete), left_out={k: n for k, n in left_out.items() if n}, is_cut=is_cut)


def _complete(begin: Mapping[str, Any], end: Mapping[str, Any]) -> PluginEvent | str:
    """Return the event, or why it has no length: the plugin writes zero for a time that it never took."""
    start, stop = nanoseconds(begin.get("ts")), nanoseconds(end.get("ts"))
    if not start or not stop:
        return "a time is zero or missing"
    args = begin.get("args")
    stated = args if isinstance(args, dict) else {}
    gpu_ns = _gpu_ns(stated)
    if gpu_ns is not None and not 0 < gpu_ns <= LONGEST_NS:
        return "the GPU's clock is zero"
    if not 0 <= stop - start <= LONGEST_NS:
        return "it runs backwards or for a day"
    return PluginEvent(str(begin.get("cat")), str(begin.get("name")), start, stop, gpu_ns, stated)


def _gpu_ns(args: Mapping[str, Any]) -> int | None:
    """Return the length by the GPU's clock, None where it is not stated; what is stated as zero gives no length."""
    start, stop = args.get("StartGpuClk"), args.get("StopGpuClk")
    if type(start) is not int or type(stop) is not int:
        return None
    return stop - start if start > 0 and stop > 0 else 0
