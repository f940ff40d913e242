"""A folder of others' logs and tables: source.yaml says what each file is and what the files leave out."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from falloff.ingest.allreduce_readoff import read_allreduce_readoff
from falloff.ingest.deepspeed_comms import deepspeed_comms_records
from falloff.ingest.exposure import exposure_fields
from falloff.ingest.frameworks import FRAMEWORKS, framework_of, read_framework_log
from falloff.ingest.logtext import HEAD_CHARS, clean, read_head
from falloff.ingest.nccl_tests import is_unknown_hardware, nccl_tests_records
from falloff.ingest.power import Power, no_power
from falloff.ingest.power_stated import power_of_run
from falloff.ingest.published import HARDWARE
from falloff.ingest.published_collectives import read_collectives
from falloff.ingest.steady import measured_windows, run_fields, with_defaults
from falloff.ingest.torch_collectives import read_torch_collectives
from falloff.ingest.torchtitan_tables import read_torchtitan_tables
from falloff.ingest.training_cells import read_training_cells
from falloff.ingest.training_log import LoggedStep, TrainingLog
from falloff.records import CollectiveRecord, RunRecord, joined_notes
from falloff.spec.hardware import Hardware, find_hardware, read_all_hardware
from falloff.spec.source import (
    SOURCE_NAME,
    CollectivesFile,
    ExternalSource,
    RunFiles,
    StatedOfRun,
    TableFormat,
    read_source,
)

Records = tuple[list[RunRecord], list[CollectiveRecord]]
LoggedSteps = tuple[LoggedStep, ...]

_TABLE_READERS: Mapping[TableFormat, Callable[[Path, Path], Records]] = {
    "falloff-training-cells": lambda path, hardware: (read_training_cells(path, hardware), []),
    "torchtitan-tables": lambda path, hardware: (read_torchtitan_tables(path, hardware), []),
    "falloff-collectives": lambda path, hardware: ([], read_collectives(path, hardware)),
    "nccl-allreduce-readoff": lambda path, hardware: ([], read_allreduce_readoff(path, hardware)),
}


def read_folder(folder: Path, hardware: Path = HARDWARE) -> Records:
    """Return the records of a folder's files. `hardware` is the folder in which GPU names are looked up.

    ValueError, one sentence, for what source.yaml or a file has wrong, a GPU stated that is unknown, and a fact
    that is stated otherwise than the log has it.
    """
    runs, collectives, _ = read_folder_and_steps(folder, hardware)
    return runs, collectives


def read_folder_and_steps(
    folder: Path, hardware: Path = HARDWARE
) -> tuple[list[RunRecord], list[CollectiveRecord], dict[str, LoggedSteps]]:
    """Return the records of a folder, and by record id what a run's own log prints; errors as of read_folder."""
    source, known = read_source(folder), read_all_hardware(hardware)
    runs: list[RunRecord] = []
    steps: dict[str, LoggedSteps] = {}
    for run in source.runs:
        log = _one_run(folder / run.log, run.framework)
        record = _run_record(folder, source, run, log, known)
        runs.append(record)
        steps[record.record_id] = log.steps
    collectives = [record for item in source.collectives for record in _collective_records(folder, source, item, known)]
    for table in source.tables:
        table_runs, table_collectives = _TABLE_READERS[table.format](folder / table.file, hardware)
        runs += table_runs
        collectives += table_collectives
    return runs, collectives, steps


def framework_records(path: Path, framework: str, known: Mapping[str, Hardware]) -> list[tuple[RunRecord, LoggedSteps]]:
    """Return the records of a framework's log that comes alone, one a run, each with the steps that it prints."""
    logs = read_framework_log(path, framework)
    names = [path.name] if len(logs) == 1 else [f"{path.name}/{number}" for number in range(1, len(logs) + 1)]
    return [(_record_of_log(name, path, log, known), log.steps) for name, log in zip(names, logs, strict=True)]


def _record_of_log(name: str, path: Path, log: TrainingLog, known: Mapping[str, Hardware]) -> RunRecord:
    return RunRecord(
        record_id=name,
        provenance="imported",
        source=FRAMEWORKS[log.framework].title,
        source_ref=path.name,
        trace_note="no trace",
        **_with_power_source(_with_hardware(with_defaults(run_fields(log)), known)),
    )


def _with_power_source(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields with a reason for no power where the log itself prints none."""
    return {"power_source": "no power samples", **{name: value for name, value in fields.items() if value is not None}}


def collective_records(path: Path) -> list[CollectiveRecord]:
    """Return the records of a file of collectives that comes alone, its ranks told by its bandwidths."""
    return _records_of_times(path, None, {"source": "torch.distributed collectives", "source_ref": path.name})


def _run_record(
    folder: Path, source: ExternalSource, run: RunFiles, log: TrainingLog, known: Mapping[str, Hardware]
) -> RunRecord:
    where = f"{folder / SOURCE_NAME}: run {run.name}"
    try:
        fields = _with_stated(run_fields(log, run.left_out_steps), run.stated)
        fields = _with_hardware(with_defaults(fields), known)
        power = _power(folder, run, log, fields)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error
    return RunRecord(
        record_id=f"{folder.name}/{run.name}",
        provenance="imported",
        source=source.title,
        source_ref=_reference(folder, run.log),
        licence=source.licence,
        **{
            **fields,
            **({} if power is None else _with_power(fields, power)),
            **_trace_fields(folder, run, fields.get("num_gpus")),
        },
    )


def _one_run(path: Path, framework: str) -> TrainingLog:
    """Return the run of a log; ValueError where it holds several, since what is stated beside it is one run's."""
    name = framework_of(clean(read_head(path, HEAD_CHARS)[0])) if framework == "auto" else framework
    if name is None:
        raise ValueError(f"{path}: is of no framework that falloff knows; known are {', '.join(FRAMEWORKS)}")
    logs = read_framework_log(path, name)
    if len(logs) > 1:
        raise ValueError(f"{path}: holds {len(logs)} runs and {SOURCE_NAME} states one; split the file")
    return logs[0]


def _with_power(fields: Mapping[str, Any], power: Power) -> dict[str, Any]:
    flags = (*(fields.get("flags") or ()), *power.flags)
    return {**power.fields(), "note": joined_notes(fields.get("note"), power.throttling), "flags": flags or None}


def _with_stated(fields: Mapping[str, Any], stated: StatedOfRun) -> dict[str, Any]:
    """Return the log's fields and those stated; ValueError where the two disagree."""
    merged = dict(fields)
    for name, value in dataclasses.asdict(stated).items():
        if value is None:
            continue
        of_log = fields.get(name)
        if of_log is not None and of_log != value and name != "note":
            raise ValueError(f"stated.{name} is {value!r}; the log says {of_log!r}")
        merged[name] = value
    return merged


def _with_hardware(fields: dict[str, Any], known: Mapping[str, Hardware]) -> dict[str, Any]:
    """Return the fields with the hardware that the GPU's name tells; an unknown name is flagged, not replaced."""
    stated, gpu = fields.get("hardware"), fields.get("gpu_name")
    if stated is not None:
        return {**fields, "hardware": find_hardware(stated, dict(known)).name}
    if gpu is None:
        return fields
    try:
        return {**fields, "hardware": find_hardware(gpu, dict(known)).name}
    except ValueError as error:
        return {**fields, "flags": (*(fields.get("flags") or ()), str(error))}


def _power(folder: Path, run: RunFiles, log: TrainingLog, fields: Mapping[str, Any]) -> Power | None:
    """Return the power of a run, None where no samples are named and the log itself tells of its power."""
    if run.power is None:
        return None if fields.get("power_source") else no_power("no power samples")
    if run.timezone is None:
        return no_power("the time zone of the log's time stamps is not stated")
    num_gpus, key = fields.get("num_gpus"), "gpus" if run.power.gpus else "uuids"
    found = len(set(getattr(run.power, key)))
    if found != num_gpus:
        raise ValueError(f"power.{key} names {found} GPUs; the run has {num_gpus}")
    windows = measured_windows(log, run.left_out_steps, run.timezone)
    limit_w, gpu_name = fields.get("power_limit_w"), fields.get("gpu_name")
    return power_of_run(folder, run.power, windows, gpu_name=gpu_name, limit_w=limit_w)


def _trace_fields(folder: Path, run: RunFiles, num_gpus: int | None) -> dict[str, Any]:
    if run.trace is None:
        return {"trace_note": "no trace"}
    fields = exposure_fields(folder / run.trace, run.trace, num_gpus or 1)
    return {**fields, "trace_note": joined_notes(fields["trace_note"], run.trace_note)}


def _collective_records(
    folder: Path, source: ExternalSource, item: CollectivesFile, known: Mapping[str, Hardware]
) -> list[CollectiveRecord]:
    stated = {name: value for name, value in dataclasses.asdict(item.stated).items() if value is not None}
    num_ranks = stated.pop("num_ranks", None)
    try:
        stated = _with_hardware(stated, known)
    except ValueError as error:
        raise ValueError(f"{folder / SOURCE_NAME}: {item.file}: {error}") from error
    path, reference = folder / item.file, _reference(folder, item.file)
    identity = {"source": source.title, "licence": source.licence, "source_ref": reference}
    if item.format == "torch-collectives":
        return _records_of_times(path, num_ranks, {**stated, **identity})
    records = (
        nccl_tests_records(path, known, num_ranks=num_ranks)
        if item.format == "nccl-tests"
        else deepspeed_comms_records(path, num_ranks)
    )
    return [_with_identity(record, stated, identity, path) for record in records]


def _with_identity(
    record: CollectiveRecord, stated: Mapping[str, Any], identity: Mapping[str, Any], path: Path
) -> CollectiveRecord:
    """Return a record under its folder's name, with what is stated of its file; ValueError where the two disagree."""
    note = joined_notes(record.note, stated.get("note"))
    for name, value in stated.items():
        of_log = getattr(record, name)
        if name != "note" and of_log is not None and of_log != value:
            raise ValueError(f"{path}: stated.{name} is {value!r}; the log says {of_log!r}")
    name = record.record_id.removeprefix(f"{record.source_ref}/")
    flags = tuple(flag for flag in record.flags or () if not ("hardware" in stated and is_unknown_hardware(flag)))
    return dataclasses.replace(
        record,
        **{**stated, **identity, "note": note, "record_id": f"{identity['source_ref']}/{name}", "flags": flags or None},
    )


def _records_of_times(path: Path, num_ranks: int | None, identity: Mapping[str, Any]) -> list[CollectiveRecord]:
    found = read_torch_collectives(path, num_ranks)
    cut = f"{found.num_cut_lines} lines were cut or garbled and left out" if found.num_cut_lines else None
    return [
        CollectiveRecord(
            **{
                **identity,
                "record_id": f"{identity['source_ref']}/{time.collective}/{time.message_bytes}",
                "provenance": "imported",
                "outcome": "ok",
                "device": "cuda",
                "collective": time.collective,
                "message_bytes": time.message_bytes,
                "num_ranks": found.num_ranks,
                "times_s": (time.time_s,),
                # printed to 0.1 GB/s: what rounds to none is not known, rather than none
                "reported_busbw_bytes_s": time.busbw_bytes_s or None,
                "note": joined_notes(identity.get("note"), cut),
            }
        )
        for time in found.times
    ]


def _reference(folder: Path, file: str) -> str:
    """Return the file's path as given where that is relative, else its last parts: no machine's own path."""
    path = folder / file
    return path.as_posix() if not path.is_absolute() else f"{folder.name}/{file}"
