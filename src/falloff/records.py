"""Record: the one contract between what was measured, imported or published and everything computed from it.

A record holds raw quantities and identity. None and NaN mean "not stated", never zero. What can be computed
(MFU, efficiency, joules per token) is computed right of here, each metric defined once in docs/methods.md.
"""

import dataclasses
import math
import types
import typing
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from falloff.outputs import whole_file

Provenance = Literal["measured", "imported", "published", "predicted"]
Outcome = Literal["ok", "oom", "timeout", "crash", "killed", "unstable", "crash_or_oom", "refused"]

R = TypeVar("R", bound="RunRecord | CollectiveRecord | KernelRecord")


@dataclass(frozen=True, kw_only=True)
class Record:
    """What every record states: where it is from, what became of the run, and on what it ran."""

    positive: ClassVar[tuple[str, ...]] = ()  # fields that are above zero and finite where they are stated

    record_id: str
    provenance: Provenance
    source: str
    source_ref: str
    outcome: Outcome
    outcome_reason: str | None = None
    study: str | None = None
    cell_id: str | None = None
    repeat: int | None = None
    cell_json: str | None = None  # the whole cell as its log states it

    hardware: str | None = None  # a name in config/hardware; None for a CPU or where it cannot be told
    gpu_name: str | None = None  # as the log or table calls it
    device: str | None = None  # cuda, cpu
    cpu: str | None = None
    cores: int | None = None  # of one node, those that the run may use
    nodes: int | None = None
    interconnect: str | None = None
    oversubscribed: bool | None = None  # more processes than cores

    commit: str | None = None  # of the program that ran; '+modified' where its files were changed since
    torch: str | None = None
    nccl: str | None = None
    driver: str | None = None
    backend: str | None = None  # nccl, gloo
    environment: str | None = None  # NCCL's and torch's own settings as NAME=value; 'none set' where that is known
    threads_per_process: int | None = None
    placement: str | None = None  # which switch, rack or nodes it ran on, as its source names them
    num_cut_lines: int | None = None  # lines of its log that were cut or garbled and left out

    licence: str | None = None
    flags: tuple[str, ...] | None = None
    note: str | None = None

    def __post_init__(self) -> None:
        for name, allowed in (("provenance", Provenance), ("outcome", Outcome)):
            if getattr(self, name) not in typing.get_args(allowed):
                raise ValueError(
                    f"record {self.record_id}: {name} is {getattr(self, name)!r}; "
                    f"allowed: {', '.join(typing.get_args(allowed))}"
                )
        for name in self.positive:
            value = getattr(self, name)
            for number in value if isinstance(value, tuple) else (value,):
                if number is not None and not (math.isfinite(number) and number > 0):
                    raise ValueError(f"record {self.record_id}: {name} must be above zero and finite, found {number}")


@dataclass(frozen=True, kw_only=True)
class RunRecord(Record):
    """One training run: what ran, where, with which software, and what was read off it.

    window_tokens over window_s is the throughput: the seconds are the slowest rank's over the whole window. step_s
    holds the steady steps, each its own slowest rank's seconds (mean over steps_per_sample steps where a log prints
    windows): ranks trade places, so these add up to more than the window and serve for the spread alone.
    `reported_*` are the source's own derived numbers, kept beside ours and never mixed in.
    """

    # losses may be anything finite, and a trace may have no idle or exposed time at all
    positive: ClassVar[tuple[str, ...]] = (
        "params",
        "active_params",
        "layers",
        "hidden",
        "heads",
        "seq",
        "microbatch",
        "global_batch",
        "tokens_per_step",
        "dp",
        "tp",
        "pp",
        "num_gpus",
        "nodes",
        "step_s",
        "window_s",
        "window_tokens",
        "cores",
        "threads_per_process",
        "memory_bytes",
        "reserved_memory_bytes",
        "draw_w",
        "energy_j",
        "power_limit_w",
        "trace_span_s",
        "reported_tokens_per_gpu_s",
        "reported_samples_per_s",
        "reported_step_s",
        "sm_clock_mhz",
    )

    network: str | None = None
    params: float | None = None
    active_params: float | None = None
    embedding_params: float | None = None
    layers: int | None = None
    hidden: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    ffn: int | None = None
    vocab: int | None = None
    arch: str | None = None  # dense, moe, ...
    task: str | None = None  # pretrain, sft, lora

    seq: int | None = None
    microbatch: int | None = None
    global_batch: int | None = None
    tokens_per_step: float | None = None

    dp: int | None = None
    dp_replicate: int | None = None
    dp_shard: int | None = None
    tp: int | None = None
    pp: int | None = None
    vpp: int | None = None
    cp: int | None = None
    ep: int | None = None
    sharding: str | None = None  # fsdp, hsdp, ddp, zero1, ... as the source names it
    sequence_parallel: bool | None = None
    # What a layout leaves open; None also where it has no such choice.
    async_tp: bool | None = None
    pp_schedule: str | None = None
    cp_method: str | None = None
    reshard: str | None = None  # when sharded parameters are let go of: 'after forward', 'to groups of 4', 'never'
    prefetch_forward: int | None = None  # layers gathered ahead
    prefetch_backward: int | None = None
    padded_share: float | None = None  # of the elements that ranks hold, those that only make the shards even
    # A control is no ordinary measurement: 'no communication' or 'delay'; None for every other run.
    control: str | None = None
    communication: str | None = None  # 'real', or 'none' where each collective is replaced by a local copy
    delay_factor: float | None = None  # by how many times itself each collective was lengthened
    base_communication_s: float | None = None  # of a step, all collectives one after the other and nothing beside them
    added_communication_s: float | None = None  # of a step, by how much a control lengthened them

    framework: str | None = None
    framework_version: str | None = None
    cuda: str | None = None
    python: str | None = None
    compile: bool | None = None
    attention: str | None = None
    recompute: str | None = None
    loss_chunks: str | None = None  # 'none', or how many tokens' logits there are at a time
    grad_clip: str | None = None  # 'none', or the norm to which gradients are cut
    param_dtype: str | None = None
    reduce_dtype: str | None = None
    seed: int | None = None
    warmup_steps: int | None = None
    launch_place: int | None = None  # runs that its processes had done before; 0 for processes of its own

    num_gpus: int | None = None  # ranks; processes on a CPU
    gpus_per_node: int | None = None  # that a node has, used or not
    site: str | None = None
    gpu_uuids: tuple[str, ...] | None = None
    board_part_number: str | None = None
    vbios: str | None = None
    power_limit_w: float | None = None

    step_s: tuple[float, ...] | None = None
    steps_per_sample: int | None = None
    rank_step_s: tuple[tuple[float, ...], ...] | None = None  # [step][rank]
    window: str | None = None  # which steps were kept, which left out, and why
    window_s: float | None = None  # of the slowest rank, all steps that were kept together
    window_tokens: float | None = None  # trained in window_s by all ranks
    tokens_are: str | None = None  # what its source counts as tokens: 'all', 'all, padding included', 'loss tokens'
    window_first_step: int | None = None  # of which losses and grad_norms are the first
    settled: bool | None = None  # whether step time and clock held still when the window began
    host_s: float | None = None  # what the host took to launch a step, on the slowest rank, not held up by a full queue
    data_s: float | None = None  # the same of waiting for data
    optimizer_s: float | None = None  # the same of the optimizer
    losses: tuple[float, ...] | None = None
    warmup_losses: tuple[float, ...] | None = None  # of all steps before them, from the first on
    grad_norms: tuple[float, ...] | None = None  # before they are cut
    memory_bytes: float | None = None
    memory_kind: str | None = None
    reserved_memory_bytes: float | None = None  # held by torch's allocator at its peak
    draw_w: float | None = None  # mean of one GPU over the window
    energy_j: float | None = None  # of all GPUs over the window
    energy_counter_j: float | None = None  # the same by the meters' energy counters
    energy_integral_j: float | None = None  # the same by integration of power readings
    power_scope: str | None = None  # gpu, module (CPU, GPU and memory together), package, node
    power_source: str | None = None  # meter and its averaging, or why there is none
    sm_clock_mhz: float | None = None  # mean of its GPUs over the window
    power_cap_share: float | None = None  # of the power samples, those in which the power limit held the clocks down
    thermal_share: float | None = None  # of the power samples, those in which heat did
    straggler: str | None = None  # ranks of one node that kept the others waiting
    trace_ref: str | None = None
    trace_span_s: float | None = None
    trace_compute_s: float | None = None
    trace_comm_s: float | None = None
    trace_exposed_comm_s: float | None = None
    trace_exposed_copy_s: float | None = None
    trace_idle_s: float | None = None
    trace_collectives: tuple[str, ...] | None = None  # as the kernels' names say, in one order for the two below
    trace_collective_s: tuple[float, ...] | None = None  # in which each runs; they may overlap one another
    trace_exposed_collective_s: tuple[float, ...] | None = None  # each one's part of trace_exposed_comm_s; they add up
    trace_num_steps: int | None = None  # of which the seconds above are the sums
    # Of each rank where all were traced, and matched over ranks: moving data in collectives, waiting in them for the
    # last to come, and communication beside which no compute runs.
    trace_rank_transfer_s: tuple[float, ...] | None = None
    trace_rank_wait_s: tuple[float, ...] | None = None
    trace_rank_exposed_comm_s: tuple[float, ...] | None = None
    trace_note: str | None = None  # what the trace covers, or why exposure is null

    reported_tokens_per_gpu_s: float | None = None
    reported_samples_per_s: float | None = None  # of all GPUs
    reported_step_s: float | None = None
    reported_mfu: float | None = None
    reported_hfu: float | None = None
    reported_tflops_per_gpu: float | None = None
    reported_peak_flops: float | None = None  # over which its MFU is reckoned
    reported_convention: str | None = None

    confidence: str | None = None


@dataclass(frozen=True, kw_only=True)
class CollectiveRecord(Record):
    """One collective at one message size in one group. message_bytes is nccl-tests' size.

    nccl-tests' size is the input of AllReduce, ReduceScatter, AllToAll and SendRecv, the output of AllGather.
    times_s holds each iteration, the slowest rank's seconds; where a source gives only a bandwidth it is empty. Where
    iterations_per_lap calls were timed at once, each is their mean.
    """

    positive: ClassVar[tuple[str, ...]] = (
        "message_bytes",
        "num_ranks",
        "times_s",
        "nodes",
        "channels",
        "iterations_per_lap",
    )

    collective: str | None  # None where its source does not tell it
    message_bytes: int
    num_ranks: int | None  # None where its source does not tell them
    ranks_per_node: int | None = None
    num_groups: int | None = None  # of so many ranks each that ran at once
    group_across: bool | None = None  # a group's ranks lie apart, with those of the other groups between them
    dtype: str | None = None
    algorithm: str | None = None  # ring, tree, nvls, ...
    protocol: str | None = None  # ll, ll128, simple
    channels: int | None = None
    in_place: bool | None = None
    launch: str | None = None  # calls: by the host, one by one; graph: as a CUDA graph
    iterations_per_lap: int | None = None
    num_wrong: int | None = None  # elements that came out wrong; None where nothing was checked
    times_s: tuple[float, ...] | None = None
    reported_algbw_bytes_s: float | None = None
    reported_busbw_bytes_s: float | None = None
    warmup_iterations: int | None = None


@dataclass(frozen=True, kw_only=True)
class KernelRecord(Record):
    """One kernel at one size on one GPU, timed in one mode; shape_names and shape_sizes are in one order.

    call_s are the seconds of a call, each the mean over a lap of `calls` calls. bytes are the fewest that it must move:
    each input read once, each output written once. mode is None for a kernel that did not run, whose outcome is oom or
    refused.
    """

    positive: ClassVar[tuple[str, ...]] = (
        "shape_sizes", "call_s", "calls", "flops", "bytes", "asked_s", "draw_w", "sm_clock_mhz", "num_gpus",
    )  # fmt: skip

    kernel: str  # with its variant: gemm_dgrad, attention_forward_flash, rms_norm_forward
    operation: str  # whatever its variant: gemm, attention_forward, rms_norm_forward
    shape_names: tuple[str, ...]
    shape_sizes: tuple[int, ...]
    dtype: str
    mode: str | None = None  # burst: after a pause; window: for asked_s without one; sustained: the same for seconds
    asked_s: float | None = None
    call_s: tuple[float, ...] | None = None
    calls: int | None = None
    cuda_graph: bool | None = None  # replayed as a graph, without the host's launches between the calls
    flops: float | None = None
    bytes: float | None = None
    draw_w: float | None = None  # in the later half of a window; a burst is too short for a meter
    sm_clock_mhz: float | None = None
    temperature_c: float | None = None
    rank: int | None = None
    num_gpus: int | None = None  # that measured at the same time
    gpu_uuid: str | None = None
    power_limit_w: float | None = None


def write_records(path: Path, records: Sequence[R], kind: type[R]) -> None:
    """Write records of one kind as Parquet, whole or not at all; an empty list keeps the columns."""
    columns = {field.name: [getattr(record, field.name) for record in records] for field in dataclasses.fields(kind)}
    table = pa.table(columns, schema=_schema(kind))
    with whole_file(path) as temporary:
        pq.write_table(table, temporary)


def joined_notes(*notes: str | None) -> str | None:
    """Return the notes that are there as one, None for none."""
    return "; ".join(note for note in notes if note) or None


def records_in(path: Path, kind: type[R]) -> list[R]:
    """Return the records of one file as they were written; errors as of read_records."""
    columns = _read_table(path, kind).to_pylist()
    return [kind(**{name: _as_tuples(value) for name, value in row.items()}) for row in columns]


def records_of_either_kind(path: Path) -> list[RunRecord] | list[CollectiveRecord]:
    """Return the records of one file, whichever kind its columns tell; errors as of read_records."""
    try:
        columns = pq.read_schema(path).names
    except (OSError, pa.ArrowException) as error:
        raise ValueError(f"{path}: not a readable Parquet file ({error})") from error
    return records_in(path, CollectiveRecord) if "collective" in columns else records_in(path, RunRecord)


def _as_tuples(value: Any) -> Any:
    return tuple(_as_tuples(item) for item in value) if isinstance(value, list) else value


def read_records(paths: Iterable[Path], kind: type[R]) -> pd.DataFrame:
    """Return the records of all files as one frame, a row each, in the order given.

    ValueError names a file that cannot be read or holds other columns.
    """
    tables = [_schema(kind).empty_table(), *(_read_table(path, kind) for path in paths)]
    return typing.cast(pd.DataFrame, pa.concat_tables(tables).to_pandas())


def _read_table(path: Path, kind: type[Any]) -> pa.Table:
    schema = _schema(kind)
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise ValueError(f"{path}: not a readable Parquet file ({error})") from error
    if table.schema.names != schema.names:
        raise ValueError(f"{path}: its columns are not those of {kind.__name__}; ingest it again")
    try:
        return table.cast(schema)
    except pa.ArrowException as error:
        raise ValueError(
            f"{path}: its columns are not of {kind.__name__}'s types ({error}); ingest it again"
        ) from error


def _schema(kind: type[Any]) -> pa.Schema:
    hints = typing.get_type_hints(kind)
    return pa.schema([(field.name, _arrow_type(hints[field.name])) for field in dataclasses.fields(kind)])


def _arrow_type(hint: Any) -> pa.DataType:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return _arrow_type(next(a for a in arguments if a is not type(None)))
    if origin is tuple:
        return pa.list_(_arrow_type(arguments[0]))
    if origin is Literal:
        return pa.string()
    return {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}[hint]
