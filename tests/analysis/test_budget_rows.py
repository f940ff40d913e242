import numpy as np
import pytest

from falloff.analysis.batch_grid import BATCHES, Grid
from falloff.analysis.budget_rows import Budget, best_batch_rows, budget_rows
from falloff.analysis.model_points import job
from falloff.perfmodel.jobs import stack
from falloff.perfmodel.prediction import predict, prior_fit
from falloff.spec.assumptions import read_loss_laws

USD_H, SEQ = 2.0, 4096
BUDGET = Budget.of("7B", 7e9, USD_H, read_loss_laws())
MADE = predict(
    stack([job("llama2-7b", "h100-sxm-ib400", gpus, seq=SEQ, local_batch=2) for gpus in (64, 128)]), prior_fit()
)
SERIES = {"grows": MADE}


def grid(tokens_per_s: float) -> Grid:
    rates = np.full((2, len(BATCHES)), tokens_per_s)
    return Grid((64, 128), SEQ, rates, rates)


def days_of(rows: list[dict[str, object]]) -> list[object]:
    return [row["y"] for row in rows if row["panel"] == "days_to_loss"]


def test_dollars_are_the_days_of_all_gpus_at_their_price() -> None:
    for rows in (list(budget_rows(SERIES, BUDGET)), list(best_batch_rows(grid(1e5), {}, BUDGET))):
        values = {(row["panel"], row["num_gpus"]): row["y"] for row in rows}
        for gpus in (64, 128):
            assert values["usd_to_loss", gpus] == pytest.approx(values["days_to_loss", gpus] * 24 * gpus * USD_H)


def test_a_loss_takes_its_tokens_and_what_the_batch_wastes() -> None:
    values = {(row["panel"], row["num_gpus"]): row["y"] for row in budget_rows(SERIES, BUDGET)}
    for place, gpus in enumerate((64, 128)):
        wasted = BUDGET.tokens_at(MADE.jobs.tokens[place]) / BUDGET.tokens
        assert values["days_to_loss", gpus] == pytest.approx(values["days_to_tokens", gpus] * wasted)


def test_the_best_batch_is_the_grids_smallest_where_all_are_as_fast() -> None:
    rows = list(best_batch_rows(grid(1e5), {}, BUDGET))
    assert {row["global_batch"] for row in rows} == {BATCHES[0]}
    assert days_of(rows)[0] == pytest.approx(BUDGET.tokens_at(BATCHES[0] * SEQ) / 1e5 / 86400)


def test_the_best_batch_is_a_series_own_where_the_grid_is_slower() -> None:
    rows = list(best_batch_rows(grid(1.0), SERIES, BUDGET))
    assert days_of(rows) == days_of(list(budget_rows(SERIES, BUDGET)))
    assert [row["global_batch"] for row in rows if row["panel"] == "days_to_loss"] == [128, 256]


def test_where_nothing_fits_there_is_no_best_batch() -> None:
    assert not list(best_batch_rows(grid(0.0), {}, BUDGET))
