"""falloff's own raw logs: one sealed log in, records out."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from falloff.ingest.exposure import exposure_fields
from falloff.ingest.native_collectives import collective_records
from falloff.ingest.native_log import (
    Event,
    Log,
    cpu_note,
    distinct,
    gpus_of_run,
    hardware_fields,
    identity,
    log_name,
    read_log,
    remarks,
    shortened,
)
from falloff.ingest.power import Power, no_power
from falloff.ingest.power_native import MeteredRun, power_of_log
from falloff.ingest.power_samples import Window
from falloff.ingest.stragglers import straggler
from falloff.records import CollectiveRecord, RunRecord
from falloff.spec.cell import TrainCell
from falloff.spec.collectives_cell import CollectivesCell
from falloff.spec.hardware import Hardware
from falloff.spec.layout import Layout

NO_EXPOSURE_ON_GLOO = (
    "exposed communication is not defined on gloo: its work runs on CPU threads that share the cores with compute"
)


def read_native_log(
    events_path: Path, hardware: Mapping[str, Hardware] | None = None, *, anywhere: bool = False
) -> tuple[list[RunRecord], list[CollectiveRecord]]:
    """Return the records of a sealed log: one run, or one record for each collective and size.

    hardware are the known GPU types, to which the log's GPU is matched by name (None: it is left unmatched).
    anywhere: a log may stand in another directory than its own, which its records then say in a flag.

    A run that did not end well gives its outcome and reason, and no rates. ValueError, one sentence, for a log
    that is empty, cut, garbled, of another cell than its directory says, or not what a run that ended well has.
    """
    log, known = read_log(events_path, anywhere), hardware or {}
    try:
        if isinstance(log.cell, TrainCell):
            return [_run_record(log, log.cell, known)], []
        if isinstance(log.cell, CollectivesCell):
            return [], collective_records(log, log.cell, known)
        raise ValueError(f"{events_path}: a table of kernels, which holds no run and no collective")
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise ValueError(f"{events_path}: an event lacks a field or holds another kind of value ({error!r})") from error
    except ValueError as error:
        if str(events_path) in str(error):
            raise
        # a text where a number belongs, or a record that refuses its values: neither knows the file
        raise ValueError(f"{events_path}: {error}") from error


def _run_record(log: Log, cell: TrainCell, hardware: Mapping[str, Hardware]) -> RunRecord:
    group, (named, flags) = log.one("process_group"), hardware_fields(log, hardware)
    network, layout = cell.network, cell.layout
    gpus = gpus_of_run(log) if log.first["device"] == "cuda" else []
    uuids = group.get("gpu_uuids")
    peaks = log.one("memory")
    limits = {gpu["power_limit_w"] for gpu in gpus}
    node_gpus = {len(node["gpus"]) for node in log.first["nodes"]}
    measured = _measured(log, cell) if log.last["outcome"] == "ok" else {}
    return RunRecord(
        record_id=log_name(log.first),
        **identity(log),
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
        site=distinct([node["site"] for node in log.first["nodes"]]),
        gpu_uuids=tuple(uuids) if uuids else None,
        board_part_number=distinct([gpu["board_part_number"] for gpu in gpus]),
        vbios=distinct([gpu["vbios"] for gpu in gpus]),
        power_limit_w=next(iter(limits)) if len(limits) == 1 else None,
        memory_bytes=max(peaks["rank_peak_bytes"]) if peaks else None,
        memory_kind=peaks.get("kind"),
        **{"note": cpu_note(log), **measured, "flags": (*flags, *remarks(log), *measured.get("flags", ())) or None},
    )


def _sharding(layout: Layout) -> str | None:
    if layout.dp_shard > 1:
        return "hsdp" if layout.dp_replicate > 1 else "fsdp"
    return "ddp" if layout.dp_replicate > 1 else None


def _measured(log: Log, cell: TrainCell) -> dict[str, Any]:
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


def _check_steps(log: Log, cell: TrainCell, steps: Sequence[Event], rank_step_s: Sequence[tuple[float, ...]]) -> None:
    asked = range(cell.warmup_steps + 1, cell.warmup_steps + cell.measured_steps + 1)
    found = [step["step"] for step in steps]
    if found != list(asked):
        raise ValueError(
            f"{log.path}: the outcome is ok and {len(found)} measured steps are in it, {shortened(found)}; "
            f"the cell asks for {asked[0]} to {asked[-1]}, each once and in order"
        )
    for step, seconds in zip(steps, rank_step_s, strict=True):
        if len(seconds) != cell.num_processes or not all(math.isfinite(s) and s > 0 for s in seconds):
            raise ValueError(
                f"{log.path}: step {step['step']} has the seconds {shortened(seconds)}; one above zero is needed for "
                f"each of {cell.num_processes} ranks"
            )
        if step["tokens"] != cell.tokens_per_step:
            raise ValueError(
                f"{log.path}: step {step['step']} has {step['tokens']} tokens; the cell has {cell.tokens_per_step}"
            )


def _power(log: Log, window: Window) -> Power:
    meter = log.one("power")
    if not meter:
        return no_power("the power sampler left no event")
    if meter["source"] is None or meter["file"] is None:
        return no_power(meter["reason"] or "no meter, and no reason stated")
    run = MeteredRun(
        uuids=tuple(log.one("process_group").get("gpu_uuids") or ()),
        num_processes=log.cell.num_processes,
        num_nodes=len(log.first["nodes"]),
        limits_w=tuple(gpu["power_limit_w"] for gpu in gpus_of_run(log)) if meter["scope"] == "gpu" else (),
    )
    return power_of_log(log.path.parent, meter, run, window)


def _trace(log: Log, cell: TrainCell) -> dict[str, Any]:
    """Return how the profiled steps divide on rank 0's GPU; nulls with the reason where that cannot be told."""
    if log.first["backend"] == "gloo":
        return {"trace_note": NO_EXPOSURE_ON_GLOO}
    event = next((e for e in log.all("trace") if e["rank"] == 0), None)
    if event is None:
        return {"trace_note": "no trace"}
    return exposure_fields(log.path.parent / event["file"], event["file"], cell.num_processes)
