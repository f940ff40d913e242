"""falloff's own raw logs: one sealed log in, records out."""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from falloff.ingest.native_choices import choice_flags, choices
from falloff.ingest.native_collectives import collective_records
from falloff.ingest.native_kernels import kernel_records
from falloff.ingest.native_log import (
    Event,
    Log,
    cpu_note,
    distinct,
    gpus_of_run,
    hardware_fields,
    identity,
    read_log,
    remarks,
    shortened,
)
from falloff.ingest.native_trace import trace_fields
from falloff.ingest.power import Power, no_power
from falloff.ingest.power_native import MeteredRun, power_of_log
from falloff.ingest.power_samples import Window
from falloff.ingest.stragglers import straggler
from falloff.records import CollectiveRecord, KernelRecord, RunRecord
from falloff.spec.cell import TrainCell
from falloff.spec.collectives_cell import CollectivesCell
from falloff.spec.hardware import Hardware
from falloff.spec.kernels_cell import KernelsCell
from falloff.spec.layout import Layout

# Windows end with a step, and their number of steps is set before they begin, by what the warm-up took.
FEWEST_OF_ASKED = 0.95


def read_native_log(
    events_path: Path, hardware: Mapping[str, Hardware] | None = None, *, anywhere: bool = False
) -> tuple[list[RunRecord], list[CollectiveRecord]]:
    """Return the records of a sealed log: one run, or one record for each collective and size; of kernels, neither.

    hardware are the known GPU types, to which the log's GPU is matched by name (None: it is left unmatched).
    anywhere: a log may stand in another directory than its own, which its records then say in a flag.

    A run that did not end well gives its outcome and reason, and no rates. ValueError, one sentence, for a log
    that is empty, cut, garbled, of another cell than its directory says, or not what a run that ended well has.
    """
    log, known = read_log(events_path, anywhere), hardware or {}
    with _naming(events_path):
        if isinstance(log.cell, TrainCell):
            return [_run_record(log, log.cell, known)], []
        if isinstance(log.cell, CollectivesCell):
            return [], collective_records(log, log.cell, known)
    return [], []


def read_native_kernels(
    events_path: Path, hardware: Mapping[str, Hardware] | None = None, *, anywhere: bool = False
) -> list[KernelRecord]:
    """Return the records of a log that is a table of kernels, none of any other; errors as of read_native_log."""
    log = read_log(events_path, anywhere)
    with _naming(events_path):
        return kernel_records(log, log.cell, hardware or {}) if isinstance(log.cell, KernelsCell) else []


@contextmanager
def _naming(events_path: Path) -> Iterator[None]:
    """Make whatever is wrong with a log's events one sentence that names the log."""
    try:
        yield
    except (KeyError, TypeError, IndexError, AttributeError, OverflowError) as error:
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
    own = (*remarks(log), *choice_flags(log, cell))
    measured = _measured(log, cell) if log.last["outcome"] == "ok" else {}
    return RunRecord(
        record_id=log.name,
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
        reduce_dtype=cell.reduce_dtype,
        seed=cell.seed,
        warmup_steps=cell.warmup_steps,
        launch_place=log.first.get("launch_place"),
        **choices(log, cell),
        num_gpus=cell.num_processes,
        gpus_per_node=node_gpus.pop() if gpus and len(node_gpus) == 1 else None,
        site=distinct([node["site"] for node in log.first["nodes"]]),
        gpu_uuids=tuple(uuids) if uuids else None,
        board_part_number=distinct([gpu["board_part_number"] for gpu in gpus]),
        vbios=distinct([gpu["vbios"] for gpu in gpus]),
        power_limit_w=next(iter(limits)) if len(limits) == 1 else None,
        memory_bytes=max(peaks["rank_peak_bytes"]) if peaks else None,
        memory_kind=peaks.get("kind"),
        reserved_memory_bytes=max(peaks["rank_reserved_bytes"]) if peaks.get("rank_reserved_bytes") else None,
        **{"note": cpu_note(log), **measured, "flags": (*flags, *own, *measured.get("flags", ())) or None},
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
    step_s = tuple(max(ranks) for ranks in rank_step_s)
    # Nothing stops the ranks between measured steps, and they trade places: the slowest ranks of all steps add up to
    # as much as 4 % more than any rank took (HSDP 2 x 2 on two cores), and to nothing more on one rank.
    window_s = max(math.fsum(seconds) for seconds in zip(*rank_step_s, strict=True))
    begin_s = steps[0]["start_time_s"]
    power = _power(log, (begin_s, begin_s + window_s))
    return {
        "step_s": step_s,
        "steps_per_sample": 1,
        "rank_step_s": tuple(rank_step_s),
        "straggler": straggler(rank_step_s, cell.num_processes // log.num_nodes),
        "window": _window_words(log, cell, steps),
        "window_s": window_s,
        "window_tokens": cell.tokens_per_step * len(steps),
        "window_first_step": steps[0]["step"],
        "settled": _settling(log, cell).get("settled"),
        "losses": _finite([step["loss"] for step in steps]),
        "warmup_losses": _warmup_losses(log, steps[0]["step"]),
        "grad_norms": _finite([step.get("grad_norm") for step in steps]),
        "host_s": _slowest_median(_unhindered(log, steps), "rank_host_s"),
        **{f"{part}_s": _slowest_median(steps, f"rank_{part}_s") for part in ("data", "optimizer")},
        **power.fields(),
        "flags": (*power.flags, *_window_flags(log, cell, window_s)),
        **({"note": power.throttling} if power.throttling else {}),
        **trace_fields(log, step_s, cell.num_processes),
    }


def _finite(values: Sequence[float | None]) -> tuple[float, ...] | None:
    """Return the values where every step has one, else None: a gap would move those behind it."""
    known = tuple(value for value in values if value is not None)
    return known if len(known) == len(values) else None


def _warmup_losses(log: Log, first_step: int) -> tuple[float, ...] | None:
    """Return the losses of all steps before the window, None where the log lacks one or there is none."""
    before = [event for event in log.all("step") if event["phase"] == "warmup"]
    if [event["step"] for event in before] != list(range(1, first_step)):
        return None
    return _finite([event.get("loss") for event in before]) or None


def _unhindered(log: Log, steps: Sequence[Event]) -> Sequence[Event]:
    """Return the steps that the host issued at its own pace.

    Ahead of a GPU it is held up once the queue of launches is full, save in the step that begins after a pause.
    """
    if log.first["device"] != "cuda":
        return steps
    first = steps[0]["step"] - log.one("window").get("lead_steps", 0)
    return [event for event in log.all("step") if event["step"] == first]


def _slowest_median(steps: Sequence[Event], field: str) -> float | None:
    """Return the median over steps of the slowest rank's seconds, None where a step does not state them."""
    slowest = _finite([max(step[field]) if step.get(field) else None for step in steps])
    return statistics.median(slowest) if slowest else None


def _settling(log: Log, cell: TrainCell) -> Event:
    """Return how the warm-up came to rest, empty where the cell did not ask for it."""
    return log.one("settled") if cell.settle_s > 0 else {}


def _window_words(log: Log, cell: TrainCell, steps: Sequence[Event]) -> str:
    """Return what the window is. Where it waited for rest, which steps those are is chance and no difference."""
    asked_s, settling, first = log.one("window").get("asked_s"), _settling(log, cell), steps[0]["step"]
    length = f"{asked_s:g} s or more" if asked_s else f"steps {first}-{steps[-1]['step']}"
    if not settling:
        return f"{length}; left out: the {first - 1} before (warm-up)"
    length = length if asked_s else f"{len(steps)} steps"
    still = "held still" if settling["settled"] else f"were given {cell.settle_s:g} s to hold still and did not"
    return f"{length} once step time and clock {still}"


def _window_flags(log: Log, cell: TrainCell, window_s: float) -> tuple[str, ...]:
    settling, asked_s = _settling(log, cell), log.one("window").get("asked_s") or 0.0
    flags = []
    if settling and not settling["settled"]:
        drifts = {"step time": settling["step_drift_share"], "clock": settling["clock_drift_share"]}
        known = [f"{name} {share:+.2%}" for name, share in drifts.items() if share is not None]
        words = ", ".join(known) or "too few points"
        flags.append(f"not settled after {settling['steps']} steps, {settling['seconds']:.0f} s of warm-up ({words})")
    if window_s < FEWEST_OF_ASKED * asked_s:
        flags.append(f"the window of {window_s:.3g} s is shorter than the {asked_s:g} s asked for")
    return tuple(flags)


def _asked_steps(log: Log, cell: TrainCell) -> tuple[range, str]:
    """Return the steps that the window must hold, and who says so: the log's window, in older logs the cell."""
    window = log.one("window")
    if not window:
        return range(cell.warmup_steps + 1, cell.warmup_steps + cell.measured_steps + 1), "the cell asks for"
    return range(window["first_step"], window["first_step"] + window["steps"]), "its window is"


def _check_steps(log: Log, cell: TrainCell, steps: Sequence[Event], rank_step_s: Sequence[tuple[float, ...]]) -> None:
    asked, who = _asked_steps(log, cell)
    if len(asked) < cell.measured_steps:
        raise ValueError(f"{log.path}: a window of {len(asked)} steps; the cell asks for {cell.measured_steps} or more")
    found = [step["step"] for step in steps]
    if found != list(asked):
        raise ValueError(
            f"{log.path}: the outcome is ok and {len(found)} measured steps are in it, {shortened(found)}; "
            f"{who} {asked[0]} to {asked[-1]}, each once and in order"
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
    meters = log.all("power")
    if not meters:
        return no_power("the power sampler left no event")
    for meter in meters:
        if meter["source"] is None or meter["file"] is None:
            return no_power(meter["reason"] or "no meter, and no reason stated")
    run = MeteredRun(
        uuids=tuple(log.one("process_group").get("gpu_uuids") or ()),
        num_processes=log.cell.num_processes,
        num_nodes=log.num_nodes,
        limits_w=tuple(gpu["power_limit_w"] for gpu in gpus_of_run(log)) if meters[0]["scope"] == "gpu" else (),
    )
    return power_of_log(log.path.parent, meters, run, window)
