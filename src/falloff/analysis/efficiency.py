"""Throughput and model FLOPs utilisation of one record; each is defined in docs/methods.md."""

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from falloff.spec.hardware import Hardware
from falloff.spec.network import model_flops_per_token

Row = Mapping[str, Any] | pd.Series


def number(row: Row, name: str) -> float:
    """Return a number of a record, NaN where it is not stated."""
    value = row.get(name)
    return math.nan if value is None else float(value)


def mean_step_s(row: Row) -> float:
    """Return the mean seconds of a step in the window, the source's own step time where there is no window, or NaN."""
    in_window = number(row, "window_s") * number(row, "tokens_per_step") / number(row, "window_tokens")
    return number(row, "reported_step_s") if math.isnan(in_window) else in_window


def tokens_per_gpu_s(row: Row) -> float:
    """Return tokens per second and GPU (or CPU process) of a record, NaN where it cannot be told.

    Tokens of the window over its seconds and the ranks where a record holds a window, else the rate that its source
    states, else the rate that follows from the step time that its source states.
    """
    rates = (
        number(row, "window_tokens") / number(row, "window_s") / number(row, "num_gpus"),
        number(row, "reported_tokens_per_gpu_s"),
        number(row, "tokens_per_step") / number(row, "reported_step_s") / number(row, "num_gpus"),
    )
    return next((rate for rate in rates if not math.isnan(rate)), math.nan)


def tokens_per_s(row: Row) -> float:
    """Return tokens per second of all GPUs of a record together, NaN where it cannot be told."""
    return tokens_per_gpu_s(row) * number(row, "num_gpus")


def configured_tokens_per_step(*, microbatch: int, seq: int, replicas: int, accumulation: int = 1) -> int:
    """Return the tokens of one optimiser step by its configuration.

    replicas are the ranks that read data of their own (data parallel ranks, not those of tp, cp or pp). Without the
    micro-batches that are accumulated it is what programs print by mistake.
    """
    return microbatch * seq * replicas * accumulation


def flops_per_token(row: Row) -> float:
    """Return the model FLOPs of one token in falloff's convention, NaN where the record lacks its shape.

    embedding_params must be stated (0 where the embedding is the LM head too): vocabulary times width would drop
    the head of a tied network. For mixtures of experts the parameters that one token meets count.
    """
    active = number(row, "active_params")
    return model_flops_per_token(
        params=number(row, "params") if math.isnan(active) else active,
        embedding_params=number(row, "embedding_params"),
        layers=number(row, "layers"),  # type: ignore[arg-type]  # NaN stands for a shape that is not stated
        hidden=number(row, "hidden"),  # type: ignore[arg-type]
        seq=number(row, "seq"),  # type: ignore[arg-type]
    )


def peak_flops(row: Row, known: Mapping[str, Hardware]) -> float:
    """Return the dense peak in FLOP/s of one GPU in the record's dtype, NaN where hardware or dtype is not known."""
    hardware, dtype = row.get("hardware"), row.get("param_dtype")
    if not isinstance(hardware, str) or not isinstance(dtype, str) or hardware not in known:
        return math.nan
    return known[hardware].peak_flops.get(dtype, math.nan)


def model_flops_per_gpu_s(row: Row) -> float:
    """Return the model FLOP/s of one GPU in falloff's convention, NaN where shape or rate is not stated."""
    return flops_per_token(row) * tokens_per_gpu_s(row)


def mfu(row: Row, known: Mapping[str, Hardware]) -> float:
    """Return model FLOPs utilisation as a fraction of the dense peak of the record's dtype.

    NaN on a CPU, where the hardware or its peak for that dtype is not known, and where the shape is not stated.
    """
    return model_flops_per_gpu_s(row) / peak_flops(row, known)
