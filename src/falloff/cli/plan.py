"""falloff plan: the best layouts of a network on so many GPUs, and why the others lose."""

import argparse
import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from falloff.cli.output import print_json
from falloff.cli.predict import calibration_words, fit_of, request_of
from falloff.perfmodel.jobs import RECOMPUTES, Floats
from falloff.perfmodel.own_cluster import with_own_values
from falloff.perfmodel.power import label_of
from falloff.perfmodel.prediction import Prediction
from falloff.perfmodel.requests import job_of_request
from falloff.perfmodel.search import (
    Found,
    Question,
    chances,
    fastest_that_do_not_fit,
    predicted,
    reasons_of_losers,
    search,
    shown,
    tied,
    why_it_loses,
)
from falloff.report.plan_text import loser_lines, plan_lines
from falloff.units import GIB


def run(parsed: argparse.Namespace) -> int:
    """Print the best layouts; 1 where none fits."""
    question = _question(parsed)
    cluster = question.job.cluster
    fit = with_own_values(fit_of(parsed.calibration), cluster)
    found = search(question, fit)
    places = shown(found, parsed.top)
    made, odds = predicted(found, places, fit), chances(found, places, fit)
    reasons = reasons_of_losers(found)
    if parsed.json:
        print_json(_json(found, places, made, odds, reasons))
    else:
        print("\n".join((*plan_lines(found, places, made, odds), *loser_lines(reasons, dict(found.refused)))))
        print()
        print(f"Watts: {label_of(cluster.gpu.name)}. {calibration_words(fit, parsed.calibration, cluster)}")
    return 0 if len(places) else 1


def _question(parsed: argparse.Namespace) -> Question:
    if parsed.gpus is None or parsed.global_batch is None:
        raise ValueError("--gpus and --global-batch are needed")
    for name in ("top", "max_tp", "memory_limit"):
        value = getattr(parsed, name)
        if value is not None and not value > 0:
            raise ValueError(f"--{name.replace('_', '-')} must be above zero, found {value:g}")
    # the layout is what is sought: any one serves to state the rest
    request = dataclasses.replace(
        request_of(argparse.Namespace(**{**vars(parsed), "gpus": None}), ""), local_batch=1, global_batch=None
    )
    if parsed.gpus < 1:
        raise ValueError(f"--gpus must be 1 or more, found {parsed.gpus}")
    return Question(
        job=job_of_request(request),
        gpus=parsed.gpus,
        global_batch=parsed.global_batch,
        recomputes=tuple(parsed.recompute),
        memory_limit_bytes=None if parsed.memory_limit is None else parsed.memory_limit * GIB,
        most_tp=parsed.max_tp,
    )


def _json(
    found: Found, places: npt.NDArray[np.intp], made: Prediction, odds: Floats, reasons: dict[str, int]
) -> dict[str, Any]:
    rows = []
    for number, (place, why) in enumerate(zip(places, why_it_loses(found, places), strict=True)):
        rows.append(
            {
                **_layout(found, int(place)),
                "tokens_per_gpu_s": float(made.tokens_per_gpu_s[number]),
                "low_tokens_per_gpu_s": float(made.low[number]),
                "high_tokens_per_gpu_s": float(made.high[number]),
                "step_s": float(made.steps.step_s[number]),
                "mfu": float(made.mfu[number]),
                "draw_w": float(made.power.draw_w[number]),
                "energy_per_token_j": float(made.power.energy_per_token_j[number]),
                "margin_bytes": -float(found.lack_bytes[place]),
                "chance_to_beat_the_first": float(odds[number]),
                "why": why,
            }
        )
    too_large = fastest_that_do_not_fit(found, 10)
    return {
        "layouts": len(found.jobs),
        "fit": int(found.fits.sum()),
        "fit_too_tightly": int((found.is_tight & ~found.fits).sum()),
        "tied_by_cp": tied(found, places),
        "best": rows,
        "too_large": [
            {**_layout(found, int(place)), "tokens_per_gpu_s": float(found.steps.tokens_per_gpu_s[place]),
             "lack_bytes": float(found.lack_bytes[place])}
            for place in too_large
        ],
        "losers": reasons,
        "refused": dict(found.refused),
        "power_evidence": label_of(found.question.job.cluster.gpu.name),
    }  # fmt: skip


def _layout(found: Found, place: int) -> dict[str, Any]:
    axes = ("dp_replicate", "dp_shard", "tp", "cp", "pp", "vpp", "microbatch", "num_microbatches")
    degrees = {axis: int(getattr(found.jobs, axis)[place]) for axis in axes}
    return {**degrees, "recompute": RECOMPUTES[int(found.jobs.recompute[place])]}
