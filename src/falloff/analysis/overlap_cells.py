"""Runs that tell of overlap: our sharded runs on GPUs, controls among them, each with what it is alike to others in."""

import json
from typing import Any

import pandas as pd

from falloff.analysis import points
from falloff.analysis.efficiency import Row, mean_step_s, number, tokens_per_gpu_s
from falloff.analysis.field_values import stated

# How long and how closely a cell was watched changes nothing that runs in its window.
_WATCHED = (
    "warmup_steps", "settle_s", "measured_steps", "window_s", "profiled_steps", "traced_ranks", "threads_per_process",
)  # fmt: skip
# as ingest.native_choices flags it
NOT_IN_FORCE = "the log does not say that it was in force"
# ... and that a run's warm-up did not come to rest
NOT_SETTLED = "not settled after"
CONTROLLED = ("communication", "delay_factor")
AHEAD = ("prefetch_forward", "prefetch_backward", "reshard_after_forward", "reshard_group")
# of a launch, without which two runs are of two machines
_MACHINE = ("gpu_name", "driver", "torch", "nccl", "power_limit_w", "site", "environment")

COLUMNS = (
    "record_id", "network", "layout", "prefetch_forward", "prefetch_backward", "reshard", "delay_factor",
    "communication", "step_s", "exposed_s", "exposed_share", "draw_w", "memory_bytes", "tokens_per_gpu_s",
    "added_communication_s", "base_communication_s", "control", "num_gpus", "seq", "microbatch", "params",
    "provenance", "source", "source_ref", "flags", "study", "device", "hardware", "gpu_name", "cpu", "backend",
    "oversubscribed", "settled", "trace_note", "power_source", "window", "note", "power_limit_w", "recompute",
    "compile", "alike_but_control", "alike_but_ahead",
)  # fmt: skip


def overlap_runs(runs: pd.DataFrame) -> pd.DataFrame:
    """Return a row a run of dp_shard alone that ended well on our own GPUs, in COLUMNS, controls in force included.

    step_s is the window's mean, exposed_s the seconds of it in which communication runs exposed (NaN without a trace).
    alike_but_control is the same text in two runs that differ in the control alone, alike_but_ahead in two ordinary
    ones that differ in prefetching and resharding alone: on the very same GPUs, with the same software.
    """
    kept = [row for row in points.rows_of(runs) if _tells(row)]
    return pd.DataFrame([_row(row) for row in kept], columns=list(COLUMNS))


def _tells(row: Row) -> bool:
    sharded = number(row, "dp_shard")
    ours = row["provenance"] == "measured" and row["device"] == "cuda" and row["outcome"] == "ok"
    knows = all(stated(row[name]) is not None for name in ("communication", "prefetch_forward", "prefetch_backward"))
    return ours and sharded > 1 and sharded == number(row, "num_gpus") and knows and not _is_doubtful(row)


def _is_doubtful(row: Row) -> bool:
    """Return whether a control was asked for and the log does not say that it was in force."""
    return any(NOT_IN_FORCE in flag for flag in points.flag_texts(row["flags"]))


def _row(row: Row) -> dict[str, Any]:
    return {
        **{name: row[name] for name in COLUMNS if name in row},
        "layout": points.layout_words(row),
        "step_s": mean_step_s(row),
        "exposed_s": points.exposed_s(row),
        "exposed_share": points.exposed_share(row),
        "tokens_per_gpu_s": tokens_per_gpu_s(row),
        "alike_but_control": _alike(row, CONTROLLED),
        "alike_but_ahead": _alike(row, AHEAD),
    }


def _alike(row: Row, but: tuple[str, ...]) -> str:
    cell = {name: value for name, value in json.loads(row["cell_json"]).items() if name not in (*_WATCHED, *but)}
    machine = {name: str(stated(row[name])) for name in _MACHINE}
    uuids = sorted(map(str, stated(row["gpu_uuids"]) or ()))
    return json.dumps({"cell": cell, "machine": machine, "gpus": uuids}, sort_keys=True)
