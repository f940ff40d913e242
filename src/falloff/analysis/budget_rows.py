"""Days, dollars and MWh of a training to its tokens and to its loss, over GPUs and batches, as rows."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from falloff.analysis.batch_grid import BATCHES, Grid
from falloff.analysis.model_points import INTERVAL
from falloff.analysis.predicted_series import PREDICTED
from falloff.analysis.training_budget import batch_penalty, loss_of, usd_per_token
from falloff.perfmodel.prediction import Prediction
from falloff.spec.assumptions import CriticalBatch, LossLaws

_DAY_S, _MWH_J = 86400.0, 3.6e9


@dataclass(frozen=True)
class Budget:
    """What a network is trained for: tokens, the loss that it then has, its critical batch, and a GPU's price."""

    network: str
    tokens: float
    loss: float
    usd_h: float
    critical_batch: CriticalBatch

    @classmethod
    def of(cls, network: str, params: float, usd_h: float, laws: LossLaws) -> "Budget":
        """Return the budget of a network by the laws' tokens a parameter, and the loss that the first gives for it."""
        tokens = laws.tokens_per_param * params
        return cls(network, tokens, loss_of(laws.laws[0], params, tokens), usd_h, laws.critical_batch)

    def tokens_at(self, batch_tokens: float) -> float:
        """Return the tokens that the loss takes at a batch."""
        return self.tokens * batch_penalty(self.critical_batch, self.loss, batch_tokens)


def budget_rows(made: Mapping[str, Prediction], budget: Budget) -> Iterator[dict[str, Any]]:
    """Yield days, dollars and MWh of each series of predicted steps, with intervals where those of rates give one."""
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
                at = float(batch[place]), float(prediction.jobs.seq[place])
                row = _row(panel, series, float(gpus), float(y), *at, budget)
                yield {**row, **inner, "interval": INTERVAL if inner else None}


def _row(
    panel: str, series: str, gpus: float, y: float, batch_tokens: float, seq: float, budget: Budget
) -> dict[str, Any]:
    return {
        **PREDICTED,
        "panel": panel,
        "series": series,
        "kind": "predicted",
        "network": budget.network,
        "x": gpus,
        "y": y,
        "n": 1,
        "num_gpus": gpus,
        "global_batch": batch_tokens / seq,
        "loss": budget.loss,
        "critical_batch_tokens": budget.critical_batch.tokens_at(budget.loss),
        "record_id": f"{budget.network}, {series}, {gpus:g} GPUs",
    }


def best_batch_rows(grid: Grid, made: Mapping[str, Prediction], budget: Budget) -> Iterator[dict[str, Any]]:
    """Yield the least time to the loss at each count that fits, over the batches of a grid and of predicted series.

    The series are tried too since their layouts are not all among the grid's, which is of common ones.
    """
    for place, gpus in enumerate(grid.gpus):
        rates = {batch * grid.seq: rate for batch, rate in zip(BATCHES, grid.tokens_per_s[place], strict=True) if rate}
        tried = [*rates.items(), *(at for series in made.values() for at in _batches_on(series, gpus))]
        if not tried:
            continue
        days, batch_tokens = min((budget.tokens_at(batch) / rate / _DAY_S, batch) for batch, rate in tried)
        usd = days * 24 * gpus * budget.usd_h
        for panel, y in (("days_to_loss", days), ("usd_to_loss", usd)):
            yield _row(panel, "best batch", float(gpus), float(y), float(batch_tokens), float(grid.seq), budget)


def _batches_on(made: Prediction, gpus: int) -> Iterator[tuple[float, float]]:
    """Yield batches in tokens with tokens/s of all GPUs, of the steps on so many of them."""
    for place in np.flatnonzero(made.jobs.gpus == gpus):
        yield float(made.jobs.tokens[place]), float(made.tokens_per_gpu_s[place] * gpus)
