"""The table `runs`: every run with a rate that was measured, imported or published, and the series that it is of."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from falloff.analysis import points
from falloff.analysis.controls import ordinary
from falloff.analysis.efficiency import Row, mfu, number, tokens_per_gpu_s
from falloff.ingest.published import UNVERIFIED
from falloff.ingest.training_cells import BATCH_MISMATCH
from falloff.spec.hardware import Hardware
from falloff.units import TERA

_COPIED = (
    "record_id",
    "provenance",
    "source",
    "source_ref",
    "network",
    "params",
    "arch",
    "task",
    "gpu_name",
    "hardware",
    "interconnect",
    "num_gpus",
    "seq",
    "microbatch",
    "global_batch",
    "tokens_per_step",
    "dp",
    "tp",
    "pp",
    "vpp",
    "cp",
    "ep",
    "sharding",
    "recompute",
    "param_dtype",
    "framework",
    "framework_version",
    "compile",
    "reported_mfu",
    "draw_w",
    "power_scope",
    "confidence",
)
# Runs of a series agree in these, and in what their batch is held to; the rest follows from the number of GPUs.
SERIES = (
    "source",
    "gpu_name",
    "hardware",
    "interconnect",
    "network",
    "task",
    "seq",
    "microbatch",
    "tp",
    "pp",
    "vpp",
    "cp",
    "ep",
    "sharding",
    "recompute",
    "param_dtype",
    "framework",
    "framework_version",
    "compile",
)


def tabulate(runs: pd.DataFrame, known: Mapping[str, Hardware]) -> pd.DataFrame:
    """Return one row a run that ended well and states a rate or an MFU, from records of runs; controls are left out.

    tokens_per_gpu_s and tokens_per_s (of all GPUs) are rates; mfu is falloff's, as a fraction, NaN where a peak or a
    shape is not known; reported_mfu is the source's own, blank where it is not verified, and tflops_share its own
    TFLOP/s over the dense peak; label says it for people. weak_series and strong_series name the runs that agree in all
    of SERIES and in the tokens of a step, a GPU's or all of them; None where the batch is not stated.
    """
    rows = [_row(row, known) for row in points.rows_of(ordinary(runs)) if _counts(row)]
    more = ("tokens_per_gpu_s", "tokens_per_s", "tokens_of_gpu", "mfu", "tflops_share", "label")
    series = ("weak_series", "strong_series")
    found = pd.DataFrame(rows, columns=[*_COPIED, *more, *series])
    stated = (found[["tokens_per_gpu_s", "reported_mfu", "tflops_share"]] > 0).any(axis=1)
    table = found[stated].sort_values("record_id").reset_index(drop=True)
    for name in series:
        counts = table.groupby(name)["num_gpus"].transform("nunique")
        table[name.replace("series", "counts")] = counts.reindex(table.index).fillna(0)
        table[name.replace("series", "most")] = table.groupby(name)["num_gpus"].transform("max")
    return table


def _counts(row: Row) -> bool:
    # a rate that is not verified is none; an MFU that is not may stand beside TFLOP/s that are
    doubtful = _is_flagged(row, BATCH_MISMATCH) or (_is_flagged(row, UNVERIFIED) and tokens_per_gpu_s(row) > 0)
    return row["outcome"] == "ok" and not doubtful


def _is_flagged(row: Row, flag: str) -> bool:
    return any(text.startswith(flag) for text in points.flag_texts(row["flags"]))


def _tflops_share(row: Row, known: Mapping[str, Hardware]) -> float:
    hardware = known.get(str(row["hardware"]))
    peak = hardware.peak_flops.get(str(row["param_dtype"]), math.nan) if hardware else math.nan
    return number(row, "reported_tflops_per_gpu") * TERA / peak


def _row(row: dict[str, Any], known: Mapping[str, Hardware]) -> dict[str, Any]:
    rate, gpus, tokens = tokens_per_gpu_s(row), number(row, "num_gpus"), number(row, "tokens_per_step")
    return {
        **{name: row.get(name) for name in _COPIED},
        "tokens_per_gpu_s": rate,
        "tokens_per_s": rate * gpus,
        "tokens_of_gpu": tokens / gpus,
        "mfu": mfu(row, known),
        "tflops_share": _tflops_share(row, known),
        "reported_mfu": math.nan if _is_flagged(row, UNVERIFIED) else number(row, "reported_mfu"),
        "label": ", ".join(str(row.get(name)) for name in ("network", "gpu_name", "param_dtype", "source")),
        "weak_series": _series(row, tokens / gpus),
        "strong_series": _series(row, tokens),
    }


def _series(row: Row, tokens: float) -> str | None:
    if not tokens > 0:
        return None
    return " ".join([*map(str, _shared(row, SERIES)), f"{tokens:g}"])


def _shared(row: Row, names: Sequence[str]) -> list[Any]:
    return [row.get(name) for name in names]
