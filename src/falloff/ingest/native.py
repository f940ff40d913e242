"""falloff's own raw logs: one sealed log in, records out."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from falloff import rawlog
from falloff.ingest.exposure import exposure_fields
from falloff.ingest.power import Power, no_power
from falloff.ingest.power_native import MeteredRun, power_of_log
from falloff.ingest.power_samples import Window
from falloff.ingest.stragglers import straggler
from falloff.records import CollectiveRecord, RunRecord
from falloff.spec.cell import Cell, TrainCell, cell_from_json
from falloff.spec.collectives_cell import CollectivesCell
from falloff.spec.hardware import Hardware, find_hardware
from falloff.spec.layout import Layout

SOURCE = "falloff bench"
NO_EXPOSURE_ON_GLOO = (
    "exposed communication is not defined on gloo: its work runs on CPU threads that share the cores with compute"
)

# Idle virtual machines here show 1 to 4 %; a test suite beside a launch, 40 % and more.
MAX_OTHER_CPU_SHARE = 0.1
BUSY = "busy machine"  # what the flag of such a run begins with
NO_SETTINGS = "none set"

Event = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class _Log:
    """A sealed log whose events were sorted out."""

    path: Path
    first: Event
    last: Event
    cell: Cell
    events: tuple[Event, ...]
    elsewhere: str | None  # which log it is, where its directory does not say so

    def all(self, event: str) -> list[Event]:
        return [e for e in self.events if e["event"] == event]

    def one(self, event: str) -> Event:
        """Return the first event of that name, or an empty one: a run that failed early lacks many."""
        return next(iter(self.all(event)), {})


def read_native_log(
    events_path: Path, hardware: Mapping[str, Hardware] | None = None, *, anywhere: bool = False
) -> tuple[list[RunRecord], list[CollectiveRecord]]:
    """Return the records of a sealed log: one run, or one record for each collective and size.

    hardware are the known GPU types, to which the log's GPU is matched by name (None: it is left unmatched).
    anywhere: a log may stand in another directory than its own, which its records then say in a flag.

    A run that did not end well gives its outcome and reason, and no rates. ValueError, one sentence, for a log
    that is empty, cut, garbled, of another cell than its directory says, or not what a run that ended well has.
    """
    log, known = _read_log(events_path, anywhere), hardware or {}
    try:
        if isinstance(log.cell, TrainCell):
            return [_run_record(log, log.cell, known)], []
        if isinstance(log.cell, CollectivesCell):
            return [], _collective_records(log, log.cell, known)
        raise ValueError(f"{events_path}: a table of kernels, which holds no run and no collective")
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise ValueError(f"{events_path}: an event lacks a field or holds another kind of value ({error!r})") from error
    except ValueError as error:
        if str(events_path) in str(error):
            raise
        # a text where a number belongs, or a record that refuses its values: neither knows the file
        raise ValueError(f"{events_path}: {error}") from error


def _read_log(path: Path, anywhere: bool) -> _Log:
    events = rawlog.read_events(path)
    first = events[0]
    if any(not isinstance(event.get("event"), str) for event in events):
        raise ValueError(f"{path}: a line has no event name")
    stated, found = _name(first), "/".join(path.absolute().parts[-4:-1])
    if stated != found and not anywhere:
        raise ValueError(f"{path}: a log of another cell, its first event says {stated}, its directory {found}")
    if type(first.get("repeat")) is not int:
        raise ValueError(f"{path}: repeat must be a whole number, found {first.get('repeat')!r}")
    cell = cell_from_json(first.get("cell"), f"{path}: cell")
    elsewhere = None if stated == found else f"read from elsewhere: it is the log of {stated}"
    return _Log(path=path, first=first, last=events[-1], cell=cell, events=tuple(events), elsewhere=elsewhere)


def _name(first: Event) -> str:
    return "/".join(str(first.get(key)) for key in ("study", "cell_id", "repeat"))


def _identity(log: _Log) -> dict[str, Any]:
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
        "nodes": len(first["nodes"]),
        "cpu": _distinct([node["cpu"] for node in first["nodes"]]),
        "cores": cores.pop() if len(cores) == 1 else None,
        "threads_per_process": log.cell.threads_per_process,
        "commit": _commit(first["git"]),
        "torch": group.get("torch") or first["versions"].get("torch"),
        "nccl": group.get("nccl"),
        "environment": _distinct([_settings(node["environment"]) for node in first["nodes"]]),
    }


def _commit(git: Event) -> str | None:
    return f"{git['commit']}+modified" if git["commit"] and git["modified"] else git["commit"]


def _settings(environment: Mapping[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in sorted(environment.items())) or NO_SETTINGS


def _reference(path: Path) -> str:
    """Return the log's path as given where that is relative, else its last parts: no machine's own path."""
    return path.as_posix() if not path.is_absolute() else "/".join(path.parts[-4:])


def _hardware(log: _Log, known: Mapping[str, Hardware]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return what the log says of the GPUs that ran the cell, and flags; on a CPU neither."""
    if log.first["device"] != "cuda":
        return {}, ()
    names = _distinct(log.one("process_group").get("device_names") or [])
    gpus = _gpus_of_run(log)
    fields = {
        "gpu_name": names or _distinct([gpu["name"] for gpu in gpus]),
        "driver": _distinct([gpu["driver"] for gpu in gpus]),
    }
    if fields["gpu_name"] is None or not known:
        return fields, ()
    try:
        return {**fields, "hardware": find_hardware(fields["gpu_name"], dict(known)).name}, ()
    except ValueError as error:
        return fields, (str(error),)


def _gpus_of_run(log: _Log) -> list[dict[str, Any]]:
    """Return the fingerprints of the GPUs of this run alone, told by UUID: an index counts otherwise in a job."""
    gpus = [gpu for node in log.first["nodes"] for gpu in node["gpus"]]
    uuids = log.one("process_group").get("gpu_uuids")
    return [gpu for gpu in gpus if gpu["uuid"] in uuids] if uuids else gpus


def _distinct(values: Sequence[Any]) -> str | None:
    """Return the one value, or all that differ, joined; None where nothing is stated."""
    stated = sorted({str(value) for value in values if value is not None})
    return " / ".join(stated) or None


def _run_record(log: _Log, cell: TrainCell, hardware: Mapping[str, Hardware]) -> RunRecord:
    group, (named, flags) = log.one("process_group"), _hardware(log, hardware)
    network, layout = cell.network, cell.layout
    gpus = _gpus_of_run(log) if log.first["device"] == "cuda" else []
    uuids = group.get("gpu_uuids")
    peaks = log.one("memory")
    limits = {gpu["power_limit_w"] for gpu in gpus}
    node_gpus = {len(node["gpus"]) for node in log.first["nodes"]}
    measured = _measured(log, cell) if log.last["outcome"] == "ok" else {}
    return RunRecord(
        record_id=_name(log.first),
        **_identity(log),
        **named,
        network=network.name,
        params=group.get("params") or network.params,
        embedding_params=network.embedding_params,
        layers=network.layers,
        hidden=network.hidden,
        heads=network.heads,
        kv_heads=network.kv_heads,
        ffn=network.ffn,
        vocab=network.vocab,
        arch="dense",
        task="pretrain",
        seq=cell.seq,
        microbatch=cell.microbatch,
        global_batch=cell.global_batch,
        tokens_per_step=cell.tokens_per_step,
        dp=layout.dp,
        dp_replicate=layout.dp_replicate,
        dp_shard=layout.dp_shard,
        tp=layout.tp,
        pp=layout.pp,
        cp=layout.cp,
        sharding=_sharding(layout),
        sequence_parallel=True if layout.tp > 1 else None,
        framework="falloff",
        framework_version=log.first["versions"].get("falloff"),
        cuda=group.get("cuda"),
        python=log.first["versions"].get("python"),
        recompute=cell.recompute,
        param_dtype=cell.param_dtype,
        reduce_dtype=cell.reduce_dtype,
        seed=cell.seed,
        warmup_steps=cell.warmup_steps,
        num_gpus=cell.num_processes,
        gpus_per_node=node_gpus.pop() if gpus and len(node_gpus) == 1 else None,
        site=_distinct([node["site"] for node in log.first["nodes"]]),
        gpu_uuids=tuple(uuids) if uuids else None,
        board_part_number=_distinct([gpu["board_part_number"] for gpu in gpus]),
        vbios=_distinct([gpu["vbios"] for gpu in gpus]),
        power_limit_w=next(iter(limits)) if len(limits) == 1 else None,
        memory_bytes=max(peaks["rank_peak_bytes"]) if peaks else None,
        memory_kind=peaks.get("kind"),
        **{"note": _note(log), **measured, "flags": (*flags, *_remarks(log), *measured.get("flags", ())) or None},
    )


def _sharding(layout: Layout) -> str | None:
    if layout.dp_shard > 1:
        return "hsdp" if layout.dp_replicate > 1 else "fsdp"
    return "ddp" if layout.dp_replicate > 1 else None


def _remarks(log: _Log) -> tuple[str, ...]:
    """Return flags: a log read from elsewhere, and cores of which others took a share that step times would show."""
    share = log.last.get("other_cpu_share") or 0.0
    busy = f"{BUSY}: other processes used {share * 100:.0f} % of the cores" if share > MAX_OTHER_CPU_SHARE else None
    return tuple(flag for flag in (log.elsewhere, busy) if flag)


def _note(log: _Log) -> str | None:
    """Return on which CPU it ran, where that is what was measured."""
    if log.first["device"] == "cuda":
        return None
    return _distinct([f"CPU {node['cpu']}, {node['cores']} cores" for node in log.first["nodes"]])


def _measured(log: _Log, cell: TrainCell) -> dict[str, Any]:
    """Return what the measured steps of a run that ended well give: seconds, losses, power and the trace's split."""
    steps = [event for event in log.all("step") if event["phase"] == "measured"]
    rank_step_s = [tuple(float(seconds) for seconds in step["rank_step_s"]) for step in steps]
    _check_steps(log, cell, steps, rank_step_s)
    losses = [step["loss"] for step in steps]
    # Nothing stops the ranks between measured steps, and they trade places: the slowest ranks of all steps add up to
    # as much as 4 % more than any rank took (HSDP 2 x 2 on two cores), and to nothing more on one rank.
    window_s = max(math.fsum(seconds) for seconds in zip(*rank_step_s, strict=True))
    begin_s = steps[0]["start_time_s"]
    power = _power(log, (begin_s, begin_s + window_s))
    return {
        "step_s": tuple(max(ranks) for ranks in rank_step_s),
        "steps_per_sample": 1,
        "rank_step_s": tuple(rank_step_s),
        "straggler": straggler(rank_step_s, cell.num_processes // len(log.first["nodes"])),
        "window": f"steps {steps[0]['step']}-{steps[-1]['step']}; left out: the {cell.warmup_steps} before (warm-up)",
        "window_s": window_s,
        "window_tokens": cell.tokens_per_step * len(steps),
        "losses": tuple(losses) if None not in losses else None,
        **power.fields(),
        "flags": power.flags,
        **({"note": power.throttling} if power.throttling else {}),
        **_trace(log, cell),
    }


def _check_steps(log: _Log, cell: TrainCell, steps: Sequence[Event], rank_step_s: Sequence[tuple[float, ...]]) -> None:
    asked = range(cell.warmup_steps + 1, cell.warmup_steps + cell.measured_steps + 1)
    found = [step["step"] for step in steps]
    if found != list(asked):
        raise ValueError(
            f"{log.path}: the outcome is ok and {len(found)} measured steps are in it, {_some(found)}; "
            f"the cell asks for {asked[0]} to {asked[-1]}, each once and in order"
        )
    for step, seconds in zip(steps, rank_step_s, strict=True):
        if len(seconds) != cell.num_processes or not all(math.isfinite(s) and s > 0 for s in seconds):
            raise ValueError(
                f"{log.path}: step {step['step']} has the seconds {_some(seconds)}; one above zero is needed for each "
                f"of {cell.num_processes} ranks"
            )
        if step["tokens"] != cell.tokens_per_step:
            raise ValueError(
                f"{log.path}: step {step['step']} has {step['tokens']} tokens; the cell has {cell.tokens_per_step}"
            )


def _some(values: Sequence[Any]) -> str:
    """Return values for a sentence, of many the first."""
    more = f" and {len(values) - 12:,} more" if len(values) > 12 else ""
    return ", ".join(map(str, values[:12])) + more


def _power(log: _Log, window: Window) -> Power:
    meter = log.one("power")
    if not meter:
        return no_power("the power sampler left no event")
    if meter["source"] is None or meter["file"] is None:
        return no_power(meter["reason"] or "no meter, and no reason stated")
    run = MeteredRun(
        uuids=tuple(log.one("process_group").get("gpu_uuids") or ()),
        num_processes=log.cell.num_processes,
        num_nodes=len(log.first["nodes"]),
        limits_w=tuple(gpu["power_limit_w"] for gpu in _gpus_of_run(log)) if meter["scope"] == "gpu" else (),
    )
    return power_of_log(log.path.parent, meter, run, window)


def _trace(log: _Log, cell: TrainCell) -> dict[str, Any]:
    """Return how the profiled steps divide on rank 0's GPU; nulls with the reason where that cannot be told."""
    if log.first["backend"] == "gloo":
        return {"trace_note": NO_EXPOSURE_ON_GLOO}
    event = next((e for e in log.all("trace") if e["rank"] == 0), None)
    if event is None:
        return {"trace_note": "no trace"}
    return exposure_fields(log.path.parent / event["file"], event["file"], cell.num_processes)


def _collective_records(log: _Log, cell: CollectivesCell, hardware: Mapping[str, Hardware]) -> list[CollectiveRecord]:
    """Return a record for each collective and size of the cell; without times where the run did not end well."""
    named, flags = _hardware(log, hardware)
    found: dict[tuple[str, int], Event] = {}
    for event in log.all("collective"):
        key = (event["collective"], event["message_bytes"])
        if key in found:
            raise ValueError(f"{log.path}: {key[0]} of {key[1]} bytes is in it twice")
        found[key] = event
    ok = log.last["outcome"] == "ok"
    return [
        CollectiveRecord(
            record_id=f"{_name(log.first)}/{collective}/{size}",
            **{**_identity(log), **(_collective_result(log, cell, found, collective, size) if ok else {})},
            **named,
            collective=collective,
            message_bytes=size,
            num_ranks=cell.num_processes,
            ranks_per_node=cell.num_processes // len(log.first["nodes"]),
            dtype=cell.dtype,
            warmup_iterations=cell.warmup_iterations,
            flags=(*flags, *_remarks(log)) or None,
            note=_note(log),
        )
        for collective in cell.collectives
        for size in cell.message_bytes
    ]


def _collective_result(
    log: _Log, cell: CollectivesCell, found: Mapping[tuple[str, int], Event], collective: str, size: int
) -> dict[str, Any]:
    event = found.get((collective, size))
    if event is None:
        raise ValueError(f"{log.path}: the outcome is ok, and {collective} of {size} bytes is not in it")
    if event["correct"] is False:
        return {"outcome": "crash", "outcome_reason": "the collective's result was wrong"}
    times_s = tuple(float(seconds) for seconds in event["times_s"])
    if len(times_s) != cell.measured_iterations or event["num_ranks"] != cell.num_processes:
        raise ValueError(
            f"{log.path}: {collective} of {size} bytes has {len(times_s)} times on {event['num_ranks']} ranks; "
            f"the cell asks for {cell.measured_iterations} on {cell.num_processes}"
        )
    return {"times_s": times_s}
