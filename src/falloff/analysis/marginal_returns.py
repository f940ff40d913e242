"""The table of figure marginal_returns: what the next GPU buys in tokens, per watt and per dollar, and until where."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from falloff.analysis import points
from falloff.analysis.coverage import CoverageRow, coverage_frame
from falloff.analysis.fastest_layouts import fastest_layouts, layout_of
from falloff.analysis.marginal import (
    KNEE_SHARE,
    Returns,
    fairest_start,
    growth_exponent,
    isoefficient_batch,
    knee_of,
    predicted_returns,
    returns_of,
)
from falloff.analysis.model_points import INTERVAL, job, predicted_rows, published_row
from falloff.analysis.predicted_series import PREDICTED
from falloff.analysis.training_budget import batch_penalty, loss_of, usd_per_token
from falloff.perfmodel.calibrate import Fit
from falloff.perfmodel.cells import Cell
from falloff.perfmodel.counting import model_flops_per_token
from falloff.perfmodel.express import jobs_of
from falloff.perfmodel.jobs import Floats, Job, Jobs, stack
from falloff.perfmodel.memory import memory_bytes
from falloff.perfmodel.prediction import Prediction, predict
from falloff.perfmodel.requests import find_network
from falloff.perfmodel.search import Question, divisors, jobs_of_layouts, why_not_split
from falloff.perfmodel.step import predict_steps
from falloff.spec.assumptions import LossLaws, Prices, read_loss_laws, read_prices
from falloff.units import TERA

FIGURE = "marginal_returns"
CLUSTER, HARDWARE = "h100-sxm-ib400", "h100-sxm"
SEQ = 4096
GPUS = tuple(8 * 2**doubling for doubling in range(12))  # 8 to 16,384
NETWORKS = {"1B": "llama2-1b", "7B": "llama2-7b", "70B": "llama2-70b", "405B": "llama3-405b"}
GLOBAL_BATCH = 1024  # sequences, claim C14's; 4.2 million tokens
LOCAL_BATCH = 2  # of the weak series, as in the study's claims C1 and C2
MFU_TARGET = 0.35
LOSS_NETWORK = "7B"
REALISTIC_GPUS = 128  # on which eight sequences a GPU are GLOBAL_BATCH

_PLAYBOOK = {"1B": "nanotron-Llama-1B", "8B": "nanotron-Llama-8B", "80B": "nanotron-Llama-80B"}
# llm-foundry's weak series of three counts that keep the microbatch: network, GPU, sequences a GPU
_WEAK = (
    ("1B", "MPT-1b", "H100-80GB-SXM", 12),
    ("3B", "MPT-3b", "H100-80GB-SXM", 8),
    ("7B", "MPT-7b", "H100-80GB-SXM", 6),
    ("13B", "MPT-13b", "H100-80GB-SXM", 16),
    ("70B", "MPT-70b", "H100-80GB-SXM", 8),
    ("7B, A100", "MPT-7b", "A100-40GB-SXM", 18),
)
_METERED = ("Llama-2-70B LoRA (MLPerf)", "smc-dc-power")
# batches of the isoefficiency grid, sequences, and how a rank's part of them is run
_BATCHES = tuple(64 * 2**doubling for doubling in range(12))
_MICROBATCHES = (1, 2, 4, 8)
_STAGES = (1, 2, 4, 8, 16)
_DAY_S, _MWH_J = 86400.0, 3.6e9


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
    prices, laws = read_prices(), read_loss_laws()
    best = {
        name: fastest_layouts(network, CLUSTER, GPUS, global_batch=GLOBAL_BATCH, seq=SEQ, fit=fit)
        for name, network in NETWORKS.items()
    }
    weak = predict(stack([_weak_job(gpus) for gpus in GPUS]), fit)
    rows: list[dict[str, Any]] = []
    for name, made in best.items():
        rows += _strong(name, made, fit, prices)
    rows += _returns_rows("weak_returns", f"{LOSS_NETWORK} FSDP", "predicted", weak, predicted_returns(weak, fit), {})
    rows += _knee_rows(f"{LOSS_NETWORK} FSDP, weak", predicted_returns(weak, fit))
    rows += _published_strong(cells, fit, prices)
    rows += _published_weak(cells, fit)
    rows += _metered(cells)
    grids = {name: _best_on_grid(network, fit) for name, network in NETWORKS.items()}
    for name, grid in grids.items():
        rows += _isoefficiency(name, grid)
    budget = _Budget.of(prices, laws)
    rows += _budgets({"batch fixed": best[LOSS_NETWORK], "batch grows": weak}, budget)
    rows += _best_batches(grids[LOSS_NETWORK], budget)
    rows += _realistic(fit)
    return points.points_frame(rows), coverage_frame(_coverage(rows))


def _weak_job(gpus: int) -> Job:
    return job(NETWORKS[LOSS_NETWORK], CLUSTER, gpus, seq=SEQ, local_batch=LOCAL_BATCH)


def _strong(name: str, made: Prediction, fit: Fit, prices: Prices) -> Iterator[dict[str, Any]]:
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
    yield from _returns_rows("strong_returns", name, "predicted", made, returns, more)
    yield from _knee_rows(f"{name}, strong", returns)
    joules = np.diff(made.tokens_per_gpu_s * gpus) / np.diff(made.power.draw_w * gpus) / made.power.tokens_per_joule[0]
    per_usd = returns.per_gpu_s / prices.of(HARDWARE).on_demand_usd_h * 3600
    for panel, values in (("returns_per_joule", joules), ("returns_per_usd", per_usd)):
        for place, value in enumerate(values):
            # where more GPUs draw less in all, nothing was added that could be divided by
            if panel == "returns_per_usd" or np.diff(made.power.draw_w * gpus)[place] > 0:
                yield {
                    **_between(panel, name, "predicted", gpus, returns, place),
                    "y": float(value),
                    **PREDICTED,
                    **more,
                }


def _between(panel: str, series: str, kind: str, gpus: Floats, returns: Returns, place: int) -> dict[str, Any]:
    ends = gpus[place], gpus[place + 1]
    return {
        "panel": panel,
        "series": series,
        "kind": kind,
        "x": float(returns.at[place]),
        "from_gpus": float(ends[0]),
        "num_gpus": float(ends[1]),
        "n": 1,
        "record_id": f"{series}, {ends[0]:g} to {ends[1]:g}",
    }


def _returns_rows(
    panel: str, series: str, kind: str, made: Prediction, returns: Returns, more: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    gpus = made.jobs.gpus
    for place in range(len(returns.at)):
        yield {
            **_between(panel, series, kind, gpus, returns, place),
            **PREDICTED,
            "y": float(returns.share[place]),
            "y_low": float(returns.low[place]),
            "y_high": float(returns.high[place]),
            "interval": INTERVAL,
            "per_gpu_s": float(returns.per_gpu_s[place]),
            **more,
        }


def _knee_rows(series: str, returns: Returns) -> Iterator[dict[str, Any]]:
    knee = knee_of(returns)
    yield {
        "panel": "knee",
        "series": series,
        "kind": "predicted",
        "x": KNEE_SHARE,
        "y": knee.gpus,
        "y_low": knee.low,
        "y_high": knee.high,
        "interval": INTERVAL,
        "n": 1,
        "record_id": f"knee of {series}",
        **PREDICTED,
    }


@dataclass(frozen=True)
class _Published:
    """One published series: its cells by GPUs from the count that gives most a GPU on, their rates, and ours."""

    cells: tuple[Cell, ...]
    rates: Floats
    made: Prediction


def _published_series(cells: Sequence[Cell], fit: Fit) -> _Published | None:
    """Return cells that the model expresses as one series; rates of those that state FLOP/s are by model FLOPs."""
    ordered = sorted(cells, key=lambda cell: cell.number("gpus") or 0)
    if len(ordered) < 2:
        return None
    _, jobs, places = jobs_of(ordered)
    kept = [ordered[place] for place in places]
    flops = model_flops_per_token(jobs)
    rates = np.array(
        [
            cell.measured("tokens_per_s_per_gpu")
            or (cell.number("tflops_per_gpu_published") or 0) * TERA / flops[place]
            for place, cell in enumerate(kept)
        ]
    )
    start = fairest_start(jobs.gpus, rates * jobs.gpus)
    whole = np.arange(start, len(kept))
    if len(whole) < 2:
        return None
    return _Published(tuple(kept[start:]), rates[start:], predict(jobs.take(whole), fit))


def _published_returns(
    panel: str, series: str, found: _Published, fit: Fit, more: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    gpus = found.made.jobs.gpus
    real = returns_of(gpus, found.rates * gpus)
    for place in range(len(real.at)):
        yield {
            **_between(panel, series, "published", gpus, real, place),
            **_pair(found.cells[place], found.cells[place + 1]),
            "y": float(real.share[place]),
            "per_gpu_s": float(real.per_gpu_s[place]),
            **more,
        }
    ours = predicted_returns(found.made, fit)
    yield from _returns_rows(panel, series, "same cells", found.made, ours, more)


def _pair(first: Cell, second: Cell) -> dict[str, Any]:
    return {
        "provenance": "published",
        "source": second.source,
        "source_ref": second.text("source_url"),
        "record_id": f"{first.cell_id}; {second.cell_id}",
    }


def _published_strong(cells: Sequence[Cell], fit: Fit, prices: Prices) -> Iterator[dict[str, Any]]:
    for name, model in _PLAYBOOK.items():
        found = _published_series(_fastest(cells, model), fit)
        if found is None:
            continue
        series = f"playbook {name}"
        rows = list(_published_returns("strong_returns", series, found, fit, {"network": name, "global_batch": 256}))
        yield from rows
        usd_h = prices.of(HARDWARE).on_demand_usd_h
        for row in (row for row in rows if row["kind"] == "published"):
            yield {**row, "panel": "returns_per_usd", "y": row["per_gpu_s"] / usd_h * 3600}
        gpus = found.made.jobs.gpus
        for cell, rate, count in zip(found.cells, found.rates, gpus, strict=True):
            more: dict[str, Any] = {"kind": "published", "network": name, "global_batch": 256.0, "seq": SEQ}
            where: dict[str, Any] = {"series": series, "x": float(count)}
            yield published_row(cell, float(rate), panel="tokens_per_gpu_s", **where, **more)
            yield published_row(cell, float(rate * count), panel="tokens_per_s", **where, **more)
    llama = [cell for cell in cells if cell.source == "llama3-paper" and cell.text("seq") == "8192"]
    found = _published_series(llama, fit)
    if found is not None:
        more = {"network": "405B", "global_batch": 2048, "seq": 8192}
        yield from _published_returns("strong_returns", "Llama 3 405B", found, fit, more)


def _fastest(cells: Sequence[Cell], model: str) -> list[Cell]:
    """Return the playbook's fastest run of a network at each count."""
    best: dict[float, Cell] = {}
    for cell in cells:
        rate = cell.measured("tokens_per_s_per_gpu")
        if cell.source != "ultrascale-playbook" or cell.text("model") != model or not rate:
            continue
        if (cell.text("global_batch"), cell.text("seq")) not in {("256", "4096"), ("256.0", "4096.0")}:
            continue
        gpus = cell.number("gpus") or 0
        if gpus not in best or rate > (best[gpus].measured("tokens_per_s_per_gpu") or 0):
            best[gpus] = cell
    return list(best.values())


def _published_weak(cells: Sequence[Cell], fit: Fit) -> Iterator[dict[str, Any]]:
    for name, model, gpu, microbatch in _WEAK:
        own = [
            cell
            for cell in cells
            if cell.source == "llm-foundry"
            and (cell.text("model"), cell.text("gpu"), cell.text("precision")) == (model, gpu, "bf16")
            and (cell.number("seq"), cell.number("micro_batch")) == (2048, microbatch)
            and cell.measured("tokens_per_s_per_gpu")
        ]
        found = _published_series(own, fit)
        if found is not None:
            yield from _published_returns("weak_returns", f"MPT {name}", found, fit, {"network": name, "seq": 2048})


def _metered(cells: Sequence[Cell]) -> Iterator[dict[str, Any]]:
    """Yield MLPerf's fine-tuning of 70B with the power of whole servers: the published tokens per joule on 8 to 512.

    The batch is 8 sequences on 8 and 64 GPUs, 64 on 512.
    """
    model, meter = _METERED
    own = [cell for cell in cells if cell.text("model") == model and cell.text("note").startswith(meter)]
    own = sorted((cell for cell in own if cell.measured("power_w_per_gpu")), key=lambda cell: cell.number("gpus") or 0)
    for cell in own:
        gpus, rate = cell.number("gpus") or 0, cell.measured("tokens_per_s_per_gpu") or 0
        watts = cell.measured("power_w_per_gpu") or np.nan
        batch = round(rate * gpus * (cell.number("step_time_s") or np.nan) / 8192)
        more: dict[str, Any] = {
            "kind": "published",
            "network": "70B",
            "global_batch": batch,
            "seq": 8192,
            "draw_w": watts,
        }
        where: dict[str, Any] = {"series": "MLPerf 70B LoRA", "x": gpus}
        for panel, y in (("tokens_per_gpu_s", rate), ("tokens_per_s", rate * gpus), ("tokens_per_joule", rate / watts)):
            yield published_row(cell, float(y), panel=panel, **where, **more)


@dataclass(frozen=True)
class _Grid:
    """The best MFU and tokens/s of all GPUs by count and batch [GPUS, _BATCHES] in common layouts; 0: none fits."""

    mfu: Floats
    tokens_per_s: Floats


def _best_on_grid(network: str, fit: Fit) -> _Grid:
    jobs, places = _batch_grid(network)
    rate = predict_steps(jobs, fit.values).tokens_per_gpu_s
    rate = np.where(memory_bytes(jobs, fit.values).margin_bytes >= 0, rate, 0.0)
    mfu, total = np.zeros((len(GPUS), len(_BATCHES))), np.zeros((len(GPUS), len(_BATCHES)))
    where = (places[:, 0], places[:, 1])
    np.maximum.at(mfu, where, model_flops_per_token(jobs) * rate / jobs.peak_flops)
    np.maximum.at(total, where, rate * jobs.gpus)
    return _Grid(mfu, total)


def _isoefficiency(name: str, grid: _Grid) -> Iterator[dict[str, Any]]:
    found = [isoefficient_batch(_BATCHES, row, MFU_TARGET) * SEQ for row in np.maximum(grid.mfu, 1e-9)]
    # what the smallest batch of the grid already holds says nothing of growth
    grown = np.where(np.array(found) > _BATCHES[0] * SEQ, found, np.nan)
    exponent = growth_exponent(np.array(GPUS, dtype=float), grown)
    for gpus, tokens in zip(GPUS, found, strict=True):
        if np.isfinite(tokens):
            yield {
                **PREDICTED,
                "panel": "isoefficiency",
                "series": name,
                "kind": "predicted",
                "network": name,
                "x": float(gpus),
                "y": float(tokens),
                "n": 1,
                "num_gpus": gpus,
                "record_id": f"{name} at {100 * MFU_TARGET:.0f} % MFU, {gpus:g} GPUs",
                "exponent": exponent,
                "seq": SEQ,
            }


def _batch_grid(network: str) -> tuple[Jobs, np.ndarray]:
    """Return jobs of a network for each count and batch in common layouts, and each one's place in that grid [n, 2]."""
    base = job(network, CLUSTER, GPUS[0], seq=SEQ, local_batch=1)
    question = Question(job=base, gpus=GPUS[0], global_batch=GLOBAL_BATCH)
    meshes = [
        mesh for mesh in itertools.product((1, 2, 4, 8), (1, 2, 4, 8), _STAGES) if not why_not_split(question, *mesh)
    ]
    rows, places = [], []
    for (row, gpus), (column, batch) in itertools.product(enumerate(GPUS), enumerate(_BATCHES)):
        for tp, cp, pp in meshes:
            dp, left = divmod(gpus, tp * cp * pp)
            # a sequence is split only where there are fewer of them than GPUs
            if left or not dp or batch % dp or batch // dp < pp or (cp > 1 and batch >= gpus):
                continue
            local = batch // dp
            shards = [shard for shard in divisors(dp) if shard in (1, min(dp, 8), min(dp, 32), dp)]
            for micro, shard, mode in itertools.product(_MICROBATCHES, shards, (0, 2)):
                if local % micro == 0 and local // micro >= pp:
                    rows.append((dp // shard, shard, tp, cp, pp, 1, micro, local // micro, mode))
                    places.append((row, column))
    names = ("dp_replicate", "dp_shard", "tp", "cp", "pp", "vpp", "microbatch", "num_microbatches", "recompute")
    table = np.array(rows, dtype=np.int64)
    columns = {name: table[:, place] for place, name in enumerate(names)}
    return jobs_of_layouts(base, columns, reshards=True), np.array(places, dtype=np.intp)


@dataclass(frozen=True)
class _Budget:
    """What LOSS_NETWORK is trained for: tokens, the loss that it then has, its critical batch, and a GPU's price."""

    tokens: float
    loss: float
    usd_h: float
    laws: LossLaws

    @classmethod
    def of(cls, prices: Prices, laws: LossLaws) -> "_Budget":
        """Return the budget of 20 tokens a parameter, and the loss that the first loss law gives for it."""
        params = find_network(NETWORKS[LOSS_NETWORK]).params
        tokens = laws.tokens_per_param * params
        return cls(tokens, loss_of(laws.laws[0], params, tokens), prices.of(HARDWARE).on_demand_usd_h, laws)

    def tokens_at(self, batch_tokens: float) -> float:
        """Return the tokens that the loss takes at a batch."""
        return self.tokens * batch_penalty(self.laws.critical_batch, self.loss, batch_tokens)


def _budgets(made: Mapping[str, Prediction], budget: _Budget) -> Iterator[dict[str, Any]]:
    for series, prediction in made.items():
        rate = prediction.tokens_per_gpu_s
        batch = prediction.jobs.tokens
        for place, gpus in enumerate(prediction.jobs.gpus):
            needed = budget.tokens_at(float(batch[place]))
            found = {
                "days_to_tokens": budget.tokens / rate[place] / gpus / _DAY_S,
                "days_to_loss": needed / rate[place] / gpus / _DAY_S,
                "usd_to_loss": needed * usd_per_token(float(rate[place]), budget.usd_h),
                "mwh_to_loss": needed * prediction.power.energy_per_token_j[place] / _MWH_J,
            }
            bounds = prediction.low[place] / rate[place], prediction.high[place] / rate[place]
            for panel, y in found.items():
                inner = {} if panel == "mwh_to_loss" else {"y_low": y / bounds[1], "y_high": y / bounds[0]}
                row = _budget_row(panel, series, float(gpus), float(y), float(batch[place]), budget)
                yield {**row, **inner, "interval": INTERVAL if inner else None}


def _budget_row(panel: str, series: str, gpus: float, y: float, batch: float, budget: _Budget) -> dict[str, Any]:
    return {
        **PREDICTED,
        "panel": panel,
        "series": series,
        "kind": "predicted",
        "network": LOSS_NETWORK,
        "x": gpus,
        "y": y,
        "n": 1,
        "num_gpus": gpus,
        "global_batch": batch / SEQ,
        "loss": budget.loss,
        "critical_batch_tokens": budget.laws.critical_batch.tokens_at(budget.loss),
        "record_id": f"{LOSS_NETWORK}, {series}, {gpus:g} GPUs",
    }


def _best_batches(grid: _Grid, budget: _Budget) -> Iterator[dict[str, Any]]:
    """Yield the least time to the loss at each count, over all batches of the grid."""
    for place, gpus in enumerate(GPUS):
        days = [
            budget.tokens_at(batch * SEQ) / rate / _DAY_S if rate else np.inf
            for batch, rate in zip(_BATCHES, grid.tokens_per_s[place], strict=True)
        ]
        best = int(np.argmin(days))
        usd = days[best] * 24 * gpus * budget.usd_h
        for panel, y in (("days_to_loss", days[best]), ("usd_to_loss", usd)):
            yield _budget_row(panel, "best batch", float(gpus), float(y), float(_BATCHES[best] * SEQ), budget)


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
