"""Marginal returns of published series, and what the model says of these very cells."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from falloff.analysis.marginal import fairest_start, predicted_returns, returns_of
from falloff.analysis.model_points import published_row
from falloff.analysis.return_rows import between, returns_rows
from falloff.perfmodel.calibrate import Fit
from falloff.perfmodel.cells import Cell
from falloff.perfmodel.counting import model_flops_per_token
from falloff.perfmodel.express import jobs_of
from falloff.perfmodel.jobs import Floats
from falloff.perfmodel.prediction import Prediction, predict
from falloff.units import SECONDS_PER_HOUR, TERA

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


@dataclass(frozen=True)
class _Published:
    """One published series: its cells by GPUs from the count that gives most a GPU on, their rates, and ours."""

    cells: tuple[Cell, ...]
    rates: Floats
    made: Prediction


def _published_series(cells: Sequence[Cell], fit: Fit) -> _Published | None:
    """Return cells that the model expresses as one series; rates of those that state FLOP/s are by model FLOPs.

    Cells with neither are left out; None where fewer than two are left.
    """
    rated = [cell for cell in cells if cell.measured("tokens_per_s_per_gpu") or cell.number("tflops_per_gpu_published")]
    ordered = sorted(rated, key=lambda cell: cell.number("gpus") or 0)
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
            **between(panel, series, "published", gpus, real, place),
            **_pair(found.cells[place], found.cells[place + 1]),
            "y": float(real.share[place]),
            "per_gpu_s": float(real.per_gpu_s[place]),
            **more,
        }
    ours = predicted_returns(found.made, fit)
    yield from returns_rows(panel, series, "same cells", found.made, ours, more)


def _pair(first: Cell, second: Cell) -> dict[str, Any]:
    return {
        "provenance": "published",
        "source": second.source,
        "source_ref": second.text("source_url"),
        "record_id": f"{first.cell_id}; {second.cell_id}",
    }


def published_strong(cells: Sequence[Cell], fit: Fit, usd_h: float) -> Iterator[dict[str, Any]]:
    """Yield the playbook's fastest layouts and Llama 3's two rows at a fixed batch, with the model's of these cells.

    Of the playbook also rates, and returns a dollar at a price of an hour of a GPU.
    """
    for name, model in _PLAYBOOK.items():
        found = _published_series(_fastest(cells, model), fit)
        if found is None:
            continue
        series = f"playbook {name}"
        rows = list(_published_returns("strong_returns", series, found, fit, {"network": name, "global_batch": 256}))
        yield from rows
        for row in (row for row in rows if row["kind"] == "published"):
            yield {**row, "panel": "returns_per_usd", "y": row["per_gpu_s"] / usd_h * SECONDS_PER_HOUR}
        gpus = found.made.jobs.gpus
        for cell, rate, count in zip(found.cells, found.rates, gpus, strict=True):
            more: dict[str, Any] = {"kind": "published", "network": name, "global_batch": 256.0, "seq": 4096}
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


def published_weak(cells: Sequence[Cell], fit: Fit) -> Iterator[dict[str, Any]]:
    """Yield the returns of llm-foundry's series whose batch grows with the GPUs, with the model's of these cells."""
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


def metered(cells: Sequence[Cell]) -> Iterator[dict[str, Any]]:
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
