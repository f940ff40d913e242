"""One of falloff's own raw logs, read and sorted out, and what runs and collectives state alike."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from falloff import rawlog
from falloff.spec.cell import Cell, cell_from_json
from falloff.spec.hardware import Hardware, find_hardware

SOURCE = "falloff bench"

# Idle virtual machines here show 1 to 4 %; a test suite beside a launch, 40 % and more.
MAX_OTHER_CPU_SHARE = 0.1
BUSY = "busy machine"  # what the flag of such a run begins with
NO_SETTINGS = "none set"
# Later logs name CUDA's and torch's variables too, among them which GPUs a job has, which is no difference of its work.
_NCCL_VARIABLES = ("NCCL_", "TORCH_NCCL_")

Event = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Log:
    """A sealed log whose events were sorted out."""

    path: Path
    name: str  # study/cell/run: its folders, or what it says of itself where it stands elsewhere
    first: Event
    last: Event
    cell: Cell
    events: tuple[Event, ...]
    elsewhere: str | None  # which log it is, where its directory does not say so

    @property
    def num_nodes(self) -> int:
        """Return on how many nodes it ran, or was to run, whether or not each came so far as to say who it is."""
        placement = self.first.get("placement") or {}
        return len(placement.get("nodes") or self.first["nodes"]) or int(placement["num_nodes"])

    def all(self, event: str) -> list[Event]:
        """Return the events of that name, in the log's order."""
        return [e for e in self.events if e["event"] == event]

    def one(self, event: str) -> Event:
        """Return the first event of that name, or an empty one: a run that failed early lacks many."""
        return next(iter(self.all(event)), {})


def read_log(path: Path, anywhere: bool) -> Log:
    """Return a sealed log sorted out; ValueError where it is no log, or (unless anywhere) of another directory."""
    events = rawlog.read_events(path)
    if any(not isinstance(event.get("event"), str) for event in events):
        raise ValueError(f"{path}: a line has no event name")
    first = {**events[0], "nodes": _nodes(events, path)}
    stated, folders = log_name(first), path.absolute().parts[-4:-1]
    found = "/".join(folders)
    at_home = _is_home(folders, first)
    if not at_home and not anywhere:
        raise ValueError(f"{path}: a log of another cell, its first event says {stated}, its directory {found}")
    if type(first.get("repeat")) is not int:
        raise ValueError(f"{path}: repeat must be a whole number, found {first.get('repeat')!r}")
    cell = cell_from_json(first.get("cell"), f"{path}: cell")
    elsewhere = None if at_home else f"read from elsewhere: it is the log of {stated}"
    name, of_run = (found if at_home else stated), (first, *events[1:])
    return Log(path=path, name=name, first=first, last=events[-1], cell=cell, events=of_run, elsewhere=elsewhere)


def _nodes(events: Sequence[Event], path: Path) -> list[Event]:
    """Return the nodes of a run in their order: as each says of itself, else as the launcher says of the first."""
    stated = events[0].get("nodes") or []
    if not isinstance(stated, list):
        raise ValueError(f"{path}: nodes must be a list, found {stated!r}")
    by_number = dict(enumerate(stated))
    for event in events:
        if event["event"] == "node":
            number, fingerprint = event.get("node"), event.get("fingerprint")
            if type(number) is not int or not isinstance(fingerprint, Mapping):
                raise ValueError(f"{path}: a node's event needs its number and its fingerprint, found {number!r}")
            by_number[number] = dict(fingerprint)
    return [by_number[number] for number in sorted(by_number)]


def _is_home(folders: Sequence[str], first: Event) -> bool:
    """Return whether the folders study/cell/run are a log's own.

    A run's folder is its repeat, or that, a hyphen and a name: the same repeat, measured on another loan of GPUs as
    well, is a launch like the first and stands beside it.
    """
    repeat, _, _ = folders[-1].partition("-")
    return "/".join((*folders[:-1], repeat)) == log_name(first)


def log_name(first: Event) -> str:
    """Return study/cell/repeat as a log's first event states them."""
    return "/".join(str(first.get(key)) for key in ("study", "cell_id", "repeat"))


def identity(log: Log) -> dict[str, Any]:
    """Return the fields that runs and collectives share: which run it is, how it ended, on what it ran."""
    first, group = log.first, log.one("process_group")
    cores = {node["cores"] for node in first["nodes"]}
    return {
        "provenance": "measured",
        "source": SOURCE,
        "source_ref": _reference(log.path),
        "outcome": log.last["outcome"],
        "outcome_reason": log.last.get("reason"),
        "study": first["study"],
        "cell_id": first["cell_id"],
        "repeat": first["repeat"],
        "cell_json": json.dumps(first["cell"], sort_keys=True),
        "device": first["device"],
        "backend": group.get("backend") or first["backend"],
        "oversubscribed": first["oversubscribed"],
        "nodes": log.num_nodes,
        **_placement(log),
        "cpu": distinct([node["cpu"] for node in first["nodes"]]),
        "cores": cores.pop() if len(cores) == 1 else None,
        "threads_per_process": log.cell.threads_per_process,
        "commit": _commit(first["git"]),
        "torch": group.get("torch") or first["versions"].get("torch"),
        "nccl": group.get("nccl"),
        "environment": distinct([_settings(node["environment"]) for node in first["nodes"]]),
    }


def _placement(log: Log) -> dict[str, Any]:
    """Return under how many leaf switches the nodes were; nothing where the log does not say it of each.

    Not under which: jobs of one cell land under others each time, and what differs is the way between the nodes.
    """
    placement = log.first.get("placement")
    if not placement:
        return {}
    told = {event["node"]: event.get("switch") for event in log.all("node")}
    known = placement.get("switches") or [None] * log.num_nodes
    switches = {told.get(number) or known[number] for number in range(log.num_nodes)}
    if None in switches:
        return {}
    return {"placement": f"{len(switches)} leaf switch{'es' if len(switches) > 1 else ''}"}


def _commit(git: Event) -> str | None:
    return f"{git['commit']}+modified" if git["commit"] and git["modified"] else git["commit"]


def _settings(environment: Mapping[str, str]) -> str:
    of_nccl = {name: value for name, value in environment.items() if name.startswith(_NCCL_VARIABLES)}
    return " ".join(f"{name}={value}" for name, value in sorted(of_nccl.items())) or NO_SETTINGS


def _reference(path: Path) -> str:
    """Return the log's path as given where that is relative, else its last parts: no machine's own path."""
    return path.as_posix() if not path.is_absolute() else "/".join(path.parts[-4:])


def hardware_fields(log: Log, known: Mapping[str, Hardware]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return what the log says of the GPUs that ran the cell, and flags; on a CPU neither."""
    if log.first["device"] != "cuda":
        return {}, ()
    names = distinct(log.one("process_group").get("device_names") or [])
    gpus = gpus_of_run(log)
    fields = {
        "gpu_name": names or distinct([gpu["name"] for gpu in gpus]),
        "driver": distinct([gpu["driver"] for gpu in gpus]),
    }
    if fields["gpu_name"] is None or not known:
        return fields, ()
    try:
        return {**fields, "hardware": find_hardware(fields["gpu_name"], dict(known)).name}, ()
    except ValueError as error:
        return fields, (str(error),)


def gpus_of_run(log: Log) -> list[dict[str, Any]]:
    """Return the fingerprints of the GPUs of this run alone, told by UUID: an index counts otherwise in a job."""
    gpus = [gpu for node in log.first["nodes"] for gpu in node["gpus"]]
    uuids = log.one("process_group").get("gpu_uuids")
    return [gpu for gpu in gpus if gpu["uuid"] in uuids] if uuids else gpus


def distinct(values: Sequence[Any]) -> str | None:
    """Return the one value, or all that differ, joined; None where nothing is stated."""
    stated = sorted({str(value) for value in values if value is not None})
    return " / ".join(stated) or None


def remarks(log: Log) -> tuple[str, ...]:
    """Return flags: a log read from elsewhere, cores of which others took a share, ranks that did not end well."""
    share = log.last.get("other_cpu_share") or 0.0
    busy = f"{BUSY}: other processes used {share * 100:.0f} % of the cores" if share > MAX_OTHER_CPU_SHARE else None
    teardown = log.last.get("reason") if log.last["outcome"] == "ok" else None
    return tuple(flag for flag in (log.elsewhere, busy, teardown) if flag)


def cpu_note(log: Log) -> str | None:
    """Return on which CPU it ran, where that is what was measured."""
    if log.first["device"] == "cuda":
        return None
    return distinct([f"CPU {node['cpu']}, {node['cores']} cores" for node in log.first["nodes"]])


def shortened(values: Sequence[Any]) -> str:
    """Return values for a sentence, of many the first."""
    more = f" and {len(values) - 12:,} more" if len(values) > 12 else ""
    return ", ".join(map(str, values[:12])) + more
