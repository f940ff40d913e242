"""The table of figure marginal_returns: what the next GPU buys in tokens, per watt and per dollar, and until where."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from falloff.analysis import points
from falloff.analysis.batch_grid import best_on_grid, isoefficiency
from falloff.analysis.budget_rows import Budget, best_batch_rows, budget_rows
from falloff.analysis.coverage import CoverageRow, coverage_frame
from falloff.analysis.fastest_layouts import fastest_layouts
from falloff.analysis.layout_choice import layout_of
from falloff.analysis.marginal import fairest_start, predicted_returns
from falloff.analysis.model_points import job, predicted_rows
from falloff.analysis.predicted_series import PREDICTED
from falloff.analysis.published_returns import metered, published_strong, published_weak
from falloff.analysis.return_rows import between, knee_row, returns_rows
from falloff.perfmodel.calibrate import Fit
from falloff.perfmodel.cells import Cell
from falloff.perfmodel.jobs import Job, stack
from falloff.perfmodel.prediction import Prediction, predict
from falloff.perfmodel.requests import find_network
from falloff.spec.assumptions import read_loss_laws, read_prices
from falloff.units import SECONDS_PER_HOUR

FIGURE = "marginal_returns"
CLUSTER, HARDWARE = "h100-sxm-ib400", "h100-sxm"
SEQ = 4096
GPUS = tuple(8 * 2**doubling for doubling in range(12))  # 8 to 16,384
NETWORKS = {"1B": "llama2-1b", "7B": "llama2-7b", "70B": "llama2-70b", "405B": "llama3-405b"}
GLOBAL_BATCH = 1024  # sequences, claim C14's; 4.2 million tokens
LOCAL_BATCH = 2  # of the weak series, as in the study's claims C1 and C2
LOSS_NETWORK = "7B"
REALISTIC_GPUS = 128  # on which eight sequences a GPU are GLOBAL_BATCH


def tabulate(_runs: pd.DataFrame, cells: Sequence[Cell], fit: Fit) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the figure's table and its coverage, from published cells and a calibration; our own runs are not in it.

    kind: published, same cells (predicted of these very cells) or predicted. Panels over GPUs:
    strong_returns, weak_returns: the marginal return between two counts (num_gpus is the larger, from_gpus the smaller,
    x their geometric mean) as a share of the average at the count that gives most a GPU; per_gpu_s in tokens/s.
    returns_per_joule: tokens per added joule, over tokens per joule at the start. returns_per_usd: tokens per added
    dollar, on demand. knee: GPUs (y) at which the return falls below KNEE_SHARE, with its interval; x is that share.
    tokens_per_s, tokens_per_gpu_s, tokens_per_joule, mfu: at a fixed batch, of the best layout (claim C14).
    isoefficiency: the batch in tokens that holds MFU_TARGET; its exponent is in `exponent`.
    days_to_tokens, days_to_loss, usd_to_loss, mwh_to_loss: of LOSS_NETWORK trained on 20 tokens a parameter, and until
    it reaches the loss that it then has by the loss law, with batches that count less above the critical one.
    realistic_batch: MFU of 7B on 128 GPUs at eight sequences a GPU, in ways that series names; x is the microbatch.
    """
    usd_h, laws = read_prices().of(HARDWARE).on_demand_usd_h, read_loss_laws()
    best = {
        name: fastest_layouts(network, CLUSTER, GPUS, global_batch=GLOBAL_BATCH, seq=SEQ, fit=fit)
        for name, network in NETWORKS.items()
    }
    weak = predict(stack([_weak_job(gpus) for gpus in GPUS]), fit)
    rows: list[dict[str, Any]] = []
    for name, made in best.items():
        rows += _strong(name, made, fit, usd_h)
    returns = predicted_returns(weak, fit)
    rows += returns_rows("weak_returns", f"{LOSS_NETWORK} FSDP", "predicted", weak, returns, {})
    rows.append(knee_row(f"{LOSS_NETWORK} FSDP, weak", returns))
    rows += [*published_strong(cells, fit, usd_h), *published_weak(cells, fit), *metered(cells)]
    grids = {name: best_on_grid(network, CLUSTER, GPUS, seq=SEQ, fit=fit) for name, network in NETWORKS.items()}
    for name, grid in grids.items():
        rows += isoefficiency(name, grid)
    series = {"batch fixed": best[LOSS_NETWORK], "batch grows": weak}
    budget = Budget.of(LOSS_NETWORK, find_network(NETWORKS[LOSS_NETWORK]).params, usd_h, laws)
    rows += [*budget_rows(series, budget), *best_batch_rows(grids[LOSS_NETWORK], series, budget)]
    rows += _realistic(fit)
    return points.points_frame(rows), coverage_frame(_coverage(rows))


def _weak_job(gpus: int) -> Job:
    return job(NETWORKS[LOSS_NETWORK], CLUSTER, gpus, seq=SEQ, local_batch=LOCAL_BATCH)


def _strong(name: str, made: Prediction, fit: Fit, usd_h: float) -> Iterator[dict[str, Any]]:
    more: dict[str, Any] = {"kind": "predicted", "network": name, "global_batch": GLOBAL_BATCH, "seq": SEQ}
    counts = list(made.jobs.gpus)
    for panel in ("tokens_per_s", "tokens_per_gpu_s", "tokens_per_joule", "mfu"):
        found = predicted_rows(made, panel, panel=panel, series=[name] * len(counts), xs=counts, **more)
        for place, row in enumerate(found):
            yield {**row, "layout": layout_of(made.jobs, place), "draw_w": float(made.power.draw_w[place])}
    # at the fewest GPUs memory leaves poor layouts alone, beside which everything after looks well
    start = fairest_start(made.jobs.gpus, made.tokens_per_gpu_s * made.jobs.gpus)
    made = predict(made.jobs.take(np.arange(start, len(counts))), fit)
    gpus = made.jobs.gpus
    returns = predicted_returns(made, fit)
    yield from returns_rows("strong_returns", name, "predicted", made, returns, more)
    yield knee_row(f"{name}, strong", returns)
    joules = np.diff(made.tokens_per_gpu_s * gpus) / np.diff(made.power.draw_w * gpus) / made.power.tokens_per_joule[0]
    per_usd = returns.per_gpu_s / usd_h * SECONDS_PER_HOUR
    for panel, values in (("returns_per_joule", joules), ("returns_per_usd", per_usd)):
        for place, value in enumerate(values):
            # where more GPUs draw less in all, nothing was added that could be divided by
            if panel == "returns_per_usd" or np.diff(made.power.draw_w * gpus)[place] > 0:
                yield {
                    **between(panel, name, "predicted", gpus, returns, place),
                    "y": float(value),
                    **PREDICTED,
                    **more,
                }


def _realistic(fit: Fit) -> Iterator[dict[str, Any]]:
    local = GLOBAL_BATCH // REALISTIC_GPUS
    ways: dict[str, dict[str, Any]] = {
        "2 a GPU, as in the study": {"local_batch": LOCAL_BATCH},
        "8 at once, full recomputation": {"local_batch": local, "recompute": "full"},
        "8 at once, selective recomputation": {"local_batch": local, "recompute": "selective"},
        "2 at once, 4 accumulated": {"local_batch": local, "accumulation": 4},
        "1 at once, 8 accumulated": {"local_batch": local, "accumulation": 8},
    }
    jobs = stack([job(NETWORKS["7B"], CLUSTER, REALISTIC_GPUS, seq=SEQ, **more) for more in ways.values()])
    made = predict(jobs, fit)
    found = predicted_rows(made, "mfu", panel="realistic_batch", series=list(ways), xs=list(jobs.microbatch))
    for place, row in enumerate(found):
        fits = bool(made.memory.fits[place])
        yield {**row, "kind": "predicted", "network": "7B", "fits": fits, "layout": layout_of(jobs, place)}


def _coverage(rows: Sequence[Mapping[str, Any]]) -> Iterator[CoverageRow]:
    counted: dict[tuple[str, str], int] = {}
    for row in rows:
        if row["kind"] == "published":
            key = (str(row["panel"]), str(row["series"]))
            counted[key] = counted.get(key, 0) + 1
    for (panel, series), count in counted.items():
        yield CoverageRow(figure=FIGURE, cell=f"{panel.replace('_', ' ')}, {series}", status="published", n=count)
    for cell, reason in (
        ("strong scaling at a global batch of 1,024 sequences, any network", "the playbook has 256 alone; predicted"),
        ("counts above 512 GPUs, but for Llama 3's two", "no source has a series of them; predicted"),
        ("watts of pre-training against GPUs at a fixed batch", "MLPerf meters fine-tuning alone; predicted"),
        ("a loss against GPUs or batch", "nobody trains one network to a loss on many machines; by published laws"),
    ):
        yield CoverageRow(figure=FIGURE, cell=cell, status="missing", reason=reason, n=0)
