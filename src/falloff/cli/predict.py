"""falloff predict: one training step taken apart, or a table of cells predicted row by row."""

import argparse
import collections
import dataclasses
from pathlib import Path
from typing import Any, cast

from falloff.cli.output import print_json
from falloff.perfmodel.breakdown import collectives_of, parts_of
from falloff.perfmodel.calibrate import Fit, read_fit
from falloff.perfmodel.cell_predictions import PredictedCell, read_and_predict, write_predictions
from falloff.perfmodel.jobs import Job, Recompute, stack
from falloff.perfmodel.memory import Memory
from falloff.perfmodel.own_cluster import with_own_values
from falloff.perfmodel.power import Power, label_of
from falloff.perfmodel.prediction import CALIBRATION, Prediction, predict, shipped_fit
from falloff.perfmodel.requests import Request, job_of_request, parse_layout, shape_by_name
from falloff.perfmodel.step import PARAMETERS
from falloff.report.prediction_text import prediction_lines
from falloff.spec.cluster import Cluster, find_cluster


def run(parsed: argparse.Namespace) -> int:
    """Print one step's prediction, or write those of a table's rows."""
    shipped = fit_of(parsed.calibration)
    if parsed.cells is not None:
        return _cells(parsed, shipped)
    if parsed.output is not None:
        raise ValueError("--output belongs to --cells")
    job = job_of_request(request_of(parsed, parsed.layout))
    fit = with_own_values(shipped, job.cluster)
    made = predict(stack([job]), fit)
    if parsed.json:
        print_json(json_of(job, made, fit))
        return 0
    print("\n".join(prediction_lines(job, made, fit.values)))
    print()
    print(calibration_words(fit, parsed.calibration, job.cluster))
    return 0


def fit_of(path: Path | None) -> Fit:
    """Return the calibration at a path, or the shipped one."""
    return shipped_fit() if path is None else read_fit(path, PARAMETERS)


def calibration_words(fit: Fit, path: Path | None, cluster: Cluster | None = None) -> str:
    """Return what a prediction's parameters rest on."""
    own = list(cluster.node.calibration) if cluster else []
    measured = f" Measured on {cluster.name} itself: {', '.join(own)}." if cluster and own else ""
    if not fit.rows:
        words = "Parameters are priors (data sheets, kernels, collectives): nothing was calibrated on training runs."
        return words + measured
    words = f"Calibrated on {fit.rows:,} published cells of {len(fit.sources)} sources ({path or CALIBRATION})."
    return words + measured


def request_of(parsed: argparse.Namespace, layout: str) -> Request:
    """Return what a command line asks for; ValueError names what is lacking."""
    for name in ("network", "hardware", "seq"):
        if getattr(parsed, name) is None:
            raise ValueError(f"--{name} is needed")
    for name in ("gpus", "seq", "local_batch", "global_batch", "microbatch", "accumulation"):
        value = getattr(parsed, name, None)
        if value is not None and value < 1:
            raise ValueError(f"--{name.replace('_', '-')} must be 1 or more, found {value}")
    reduce_bytes = getattr(parsed, "reduce_bytes", None)
    if reduce_bytes not in (None, 2.0, 4.0):
        raise ValueError(f"--reduce-bytes must be 2 or 4, found {reduce_bytes:g}")
    # a plan tries several modes, and its job states none of them
    recompute = cast(Recompute, parsed.recompute) if isinstance(parsed.recompute, str) else "none"
    cluster = find_cluster(parsed.hardware)
    return Request(
        shape=shape_by_name(parsed.network),
        cluster=cluster,
        layout=parse_layout(layout, parsed.gpus),
        seq=parsed.seq,
        local_batch=getattr(parsed, "local_batch", None),
        global_batch=parsed.global_batch,
        microbatch=getattr(parsed, "microbatch", None),
        accumulation=getattr(parsed, "accumulation", None),
        framework=parsed.framework,
        recompute=recompute,
        precision=parsed.precision or ("bfloat16" if "bfloat16" in cluster.gpu.peak_flops else "float16"),
        sharding=parsed.sharding,
        compiled=parsed.compile,
        flash_attention=parsed.fused_attention,
        reshard_after_forward=getattr(parsed, "reshard", None),
        reduce_bytes=reduce_bytes,
    )


def json_of(job: Job, made: Prediction, fit: Fit, place: int = 0) -> dict[str, Any]:
    """Return one job's prediction for programs, in SI units."""
    parts = {name: float(values[place]) for name, values in parts_of(made.steps).items()}
    steps, low, high = made.steps, float(made.low[place]), float(made.high[place])
    tokens = float(made.tokens_per_gpu_s[place])
    return {
        "job": {
            **{name: value for name, value in vars(job).items() if name not in ("shape", "cluster")},
            "shape": dataclasses.asdict(job.shape),
            "cluster": job.cluster.name,
            "hardware": job.cluster.gpu.name,
            "gpus": job.gpus,
        },
        "step_s": float(steps.step_s[place]),
        "parts_s": parts,
        "compute_s": float(steps.compute_s[place]),
        "exposed_s": float(steps.exposed_s[place]),
        "communication_s": float(steps.transfer_s[place]),
        "collectives": [dataclasses.asdict(row) for row in collectives_of(made.jobs, fit.values, place)],
        "memory": {
            **_numbers(made.memory, place),
            "fits": bool(made.memory.fits[place]),
            "is_tight": bool(made.memory.is_tight[place]),
        },
        "power": {**_numbers(made.power, place), "evidence": label_of(job.cluster.gpu.name)},
        "tokens_per_gpu_s": tokens,
        "tokens_per_s": tokens * job.gpus,
        "interval": {"level": 0.9, "low_tokens_per_gpu_s": low, "high_tokens_per_gpu_s": high},
        "mfu": float(made.mfu[place]),
        "peak_flops": job.cluster.peak_of(job.precision),
        "calibration": {
            "rows": fit.rows,
            "sources": list(fit.sources),
            "own": {name: dataclasses.asdict(own) for name, own in job.cluster.node.calibration.items()},
        },
    }


def _numbers(values: Memory | Power, place: int) -> dict[str, float]:
    return {field.name: float(getattr(values, field.name)[place]) for field in dataclasses.fields(values)}


def _cells(parsed: argparse.Namespace, fit: Fit) -> int:
    if parsed.output is None:
        raise ValueError("--output OUT.csv is needed beside --cells")
    rows = read_and_predict(parsed.cells, fit)
    write_predictions(rows, parsed.output)
    if parsed.json:
        print_json({"output": parsed.output, "cells": [dataclasses.asdict(row) for row in rows]})
        return 0
    print(f"{parsed.output}: {len(rows):,} rows, {sum(row.step_s is not None for row in rows):,} predicted.")
    for words, count in _notes(rows):
        print(f"  {count:,}: {words}")
    print(calibration_words(fit, parsed.calibration))
    return 0


def _notes(rows: list[PredictedCell], most: int = 8) -> list[tuple[str, int]]:
    """Return the commonest reasons why rows are not expressible."""
    return collections.Counter(row.note for row in rows if row.note).most_common(most)
