"""What a training cell states of how it computes and communicates, as a record says it."""

import math
from typing import Any

from falloff.ingest.native_log import Log
from falloff.ingest.torchtitan_facts import FLOAT8_FLAG, FLOAT8_LINEAR
from falloff.spec.cell import TrainCell

NO_COMMUNICATION = "no communication"
DELAY = "delay"
# what the event of each control calls it
_CONTROL_KINDS = {NO_COMMUNICATION: "no_communication", DELAY: "delay"}


def choices(log: Log, cell: TrainCell) -> dict[str, Any]:
    """Return a record's fields of what its log's cell states and its layout has a use for; what it leaves out is null.

    A log from before a choice was there does not state it, and what ran then is not known to be today's default.
    """
    layout = cell.layout
    sharded = layout.dp_shard * layout.cp > 1  # by FSDP, over context-parallel ranks too
    found = {
        "compile": ("compile", cell.compile),
        "loss_chunks": ("loss_chunk_tokens", _loss_chunks(cell)),
        "grad_clip": ("grad_clip", "none" if cell.grad_clip is None else f"norm {cell.grad_clip:g}"),
        "async_tp": ("async_tp", cell.async_tp if layout.tp > 1 else None),
        "pp_schedule": ("pp_schedule", cell.pp_schedule if layout.pp > 1 else None),
        "vpp": ("vpp", cell.vpp if layout.pp > 1 else None),
        "cp_method": ("cp_method", cell.cp_method if layout.cp > 1 else None),
        "reshard": ("reshard_after_forward", _reshard(cell) if sharded else None),
        "prefetch_forward": ("prefetch_forward", cell.prefetch_forward if sharded else None),
        "prefetch_backward": ("prefetch_backward", cell.prefetch_backward if sharded else None),
        "communication": ("communication", cell.communication),
        "delay_factor": ("delay_factor", cell.delay_factor),
    }
    stated = log.first["cell"]
    return {
        **{field: value for field, (name, value) in found.items() if name in stated},
        "attention": log.one("attention").get("backend"),
        "padded_share": log.one("sharding").get("padded_share"),
        "param_dtype": FLOAT8_LINEAR if cell.float8 else cell.param_dtype,
        "control": control(cell),
        "base_communication_s": _of_a_step(log, "base_s"),
        "added_communication_s": _of_a_step(log, "delay_s"),
    }


def control(cell: TrainCell) -> str | None:
    """Return which control a cell is, None for an ordinary one."""
    if cell.communication == "none":
        return NO_COMMUNICATION
    return DELAY if cell.delay_factor > 0 else None


def choice_flags(log: Log, cell: TrainCell) -> tuple[str, ...]:
    """Return flags: a precision without a peak of its own, and a control that its log does not say was in force."""
    kind = control(cell)
    lacking = kind and log.last["outcome"] == "ok" and log.one("control").get("kind") != _CONTROL_KINDS[kind]
    return (
        *((FLOAT8_FLAG,) * cell.float8),
        *((f"the cell asks for the control {kind!r}, and the log does not say that it was in force",) * bool(lacking)),
    )


def _of_a_step(log: Log, seconds: str) -> float | None:
    """Return the sum over a step's collectives of what the control says of each, None where it does not."""
    calls = log.one("control").get("calls") or []
    if not calls or any(call[seconds] is None for call in calls):
        return None
    return math.fsum(call["num"] * call[seconds] for call in calls)


def _loss_chunks(cell: TrainCell) -> str:
    return "none" if cell.loss_chunk_tokens is None else f"{cell.loss_chunk_tokens} tokens"


def _reshard(cell: TrainCell) -> str:
    if not cell.reshard_after_forward:
        return "never"
    return f"to groups of {cell.reshard_group}" if cell.reshard_group else "after forward"
