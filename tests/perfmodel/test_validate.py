import dataclasses

import numpy as np
import pytest

from falloff.perfmodel.baselines import naive_tokens
from falloff.perfmodel.choices import choice_of, groups_of
from falloff.perfmodel.claims import Claim
from falloff.perfmodel.families import FAMILIES, MPT
from falloff.perfmodel.goals import Goal, goals_of
from falloff.perfmodel.intervals import bounds_known, bounds_unseen, naive_bounds, whole_fit
from falloff.perfmodel.parameters import Parameter, by_name
from falloff.perfmodel.retention import losses, retention_of
from falloff.perfmodel.scoreboard import board_of
from falloff.perfmodel.scoreboard_text import text_of
from falloff.perfmodel.scores import step_errors, summarise
from falloff.perfmodel.shortfalls import reason
from falloff.perfmodel.validate import Model, known, read_table, scored_of, unseen
from falloff.perfmodel.widths import LEAST_REACH

# one number a generation and one a framework: enough to run the whole harness in seconds
PARAMETERS = by_name(
    [
        Parameter(
            name=f"share_{shared_by}",
            prior=1.0,
            spread=0.3,
            low=0.1,
            high=4.0,
            shared_by=shared_by,
            meaning="a share of the naive rule",
            source="a test",
        )
        for shared_by in ("generation", "framework")
    ]
)


def predict(jobs, values):
    return naive_tokens(jobs) * values.of("share_generation", jobs) * values.of("share_framework", jobs)


MODEL = Model(PARAMETERS, predict)


@pytest.fixture(scope="module")
def table():
    return read_table()


@pytest.fixture(scope="module")
def away(table):
    return unseen(table, MODEL)


@pytest.fixture(scope="module")
def near(table):
    return known(table, MODEL)


@pytest.mark.parametrize(
    ("name", "per_cent"),
    [
        ("Korthikanti 2022 table 5", 18),
        ("Megatron SC'21 table 1", 5.7),
        ("Megatron SC'21 PTD", 12),
        ("SC'21 ZeRO-3", 34),
        ("vTrain multi-node", 19),
        ("MPT FSDP, H100", 14),
    ],
)
def test_the_naive_rule_scores_what_it_scored_beside_the_peers(table, name, per_cent):
    mask = table.families[name]
    error = summarise(step_errors(naive_tokens(table.jobs)[mask], table.real[mask])).mape
    assert 100 * error == pytest.approx(per_cent, abs=0.8)


def test_every_family_has_cells_and_no_cell_is_in_two(table):
    counts = sum(mask.astype(int) for mask in table.families.values())
    assert counts.max() == 1
    assert all(mask.any() for mask in table.families.values())
    assert set(table.families) == {family.name for family in FAMILIES}


def test_torchtitans_rows_with_a_twin_are_not_scored(table):
    names = [table.cells[place].cell_id for place in np.flatnonzero(table.families["TorchTitan, fp8"])]
    assert "torchtitan-0023" not in names  # vanilla and async TP differ in their note alone
    assert names


def test_every_scored_cell_is_predicted_unseen(table, away):
    assert away.made[scored_of(table)].all()


def test_a_fit_that_predicts_a_source_did_not_see_it(table, away):
    for found, fold in zip(away.found, sorted(set(away.fold[away.fold >= 0])), strict=True):
        assert not set(found.sources) & set(table.sources[away.fold == fold])


def test_a_source_with_one_model_is_not_scored_as_known_by_models(table, near):
    llama = table.families["Llama 3 405B, the 8k rows"]
    assert not near["models"].made[llama].any()


def test_changing_a_held_out_source_changes_nothing_but_its_errors(table, away):
    own = table.sources == "korthikanti2022"
    rates = np.where(own, table.real * 3, table.real)
    changed = dataclasses.replace(table, measured=dataclasses.replace(table.measured, tokens_per_gpu_s=rates))
    assert unseen(changed, MODEL).tokens[own] == pytest.approx(away.tokens[own])


def test_intervals_hold_the_prediction_and_most_cells(table, away, near):
    for bounds, column in ((bounds_unseen(table, away), away), (bounds_known(table, near["models"]), near["models"])):
        made = column.made & table.measured.has_rate
        assert (bounds.low[made] < column.tokens[made]).all()
        assert (column.tokens[made] < bounds.high[made]).all()
        inside = (bounds.low[made] <= table.real[made]) & (table.real[made] <= bounds.high[made])
        sources = table.sources[made]
        # by source, as three hold most rows
        assert np.mean([inside[sources == name].mean() for name in np.unique(sources)]) > 0.7
    naive = naive_bounds(table)
    scored = scored_of(table)
    assert (naive.low[scored] < naive.high[scored]).all()


def test_a_perfect_prediction_picks_the_best_layout_everywhere(table):
    best = choice_of(table.cells, table.real, table.real, table.playbook)
    assert best.spearman == pytest.approx(1.0)
    assert best.mean_regret == 0
    assert all(len(group) >= 5 for group in groups_of(table.cells, table.playbook))


def test_a_rate_that_does_not_depend_on_gpus_loses_nothing(table):
    mask = (table.sources == MPT) & table.measured.has_rate
    found = losses(table.cells, table.jobs, table.real, naive_tokens(table.jobs), mask)
    assert {loss.gpus for loss in found} == {256, 512}
    assert all(loss.predicted == pytest.approx(0) for loss in found)
    assert all(loss.real < 0 for loss in found)
    perfect = losses(table.cells, table.jobs, table.real, table.real, mask)
    assert retention_of(perfect).points == 0


def test_a_goal_that_could_not_be_scored_is_not_met():
    assert Goal("error", 4.0, 5.0).is_met
    assert not Goal("error", float("nan"), 5.0).is_met
    assert Goal("rank", 0.9, 0.8, "", -1).is_met
    assert not Goal("rank", 0.7, 0.8, "", -1).is_met


def test_the_report_begins_with_the_table_then_says_what_falls_short_and_what_of_the_claims(table):
    board = board_of(table, MODEL)
    text = text_of(board, [Claim("C1", "a loss", -37.2, -41.0, "%", remark="as it falls")])
    head, _, rest = text.partition("goals are met. What falls short, and why:")
    short, _, claims = rest.partition("The study's claims")
    assert all(family.name in head for family in FAMILIES)
    for goal in goals_of(board):
        sentences = [line for line in short.splitlines() if line.startswith(f"- {goal.name}: ")]
        assert len(sentences) == (not goal.is_met)
        assert all(line.endswith(".") and ": " in line.partition("was the goal")[2] for line in sentences)
    assert "-41.0 %" in claims.partition("The same in detail")[0]
    assert max(map(len, head.splitlines())) < 200


def test_what_falls_short_is_said_with_the_side_of_its_errors(table):
    board = board_of(table, MODEL)
    goal = next(goal for goal in goals_of(board) if goal.name == "SC'21 ZeRO-3 (a)")
    words = reason(board, goal)
    bias = next(one for one in board.families if one.family.name == "SC'21 ZeRO-3").ours_unseen.bias
    assert f"{100 * bias:+.0f} %" in words


def test_the_fit_to_ship_knows_every_source_and_has_widths_from_held_out_errors(table, away, near):
    found = whole_fit(table, MODEL, away, list(near.values()))
    assert set(found.sources) == set(table.sources[table.learnable])
    assert set(found.widths.sources) == set(table.sources[near["models"].made | near["GPU counts"].made])
    assert all(reach.below >= LEAST_REACH for two in found.widths.sources.values() for reach in two)
    assert found.widths.unseen[0] != found.widths.unseen[1]


def test_an_interval_of_an_unseen_source_does_not_depend_on_its_own_rates(table, away):
    own = table.sources == "korthikanti2022"
    rates = np.where(own, table.real * 3, table.real)
    changed = dataclasses.replace(table, measured=dataclasses.replace(table.measured, tokens_per_gpu_s=rates))
    one, two = bounds_unseen(table, away), bounds_unseen(changed, away)
    assert (one.low[own & away.made] == two.low[own & away.made]).all()


def test_an_interval_of_a_fold_does_not_depend_on_the_rates_of_that_fold(table, near):
    column = near["models"]
    own = column.fold == 1
    rates = np.where(own, table.real * 3, table.real)
    changed = dataclasses.replace(table, measured=dataclasses.replace(table.measured, tokens_per_gpu_s=rates))
    one, two = bounds_known(table, column), bounds_known(changed, column)
    assert (one.high[own] == two.high[own]).all()
