import numpy as np
import pytest

from falloff.perfmodel.scores import confusion, interval_scores, regrets, spearman, step_errors, summarise


def test_an_exact_prediction_has_no_error():
    rates = np.array([10.0, 20.0])
    found = summarise(step_errors(rates, rates))
    assert (found.mape, found.bias, found.p90) == (0, 0, 0)


def test_the_error_is_of_step_time():
    # a rate predicted at half is a step predicted at twice its time
    assert step_errors(np.array([50.0]), np.array([100.0]))[0] == pytest.approx(1.0)


def test_the_bias_has_a_sign_and_the_mean_error_has_none():
    found = summarise(np.array([0.1, -0.1]))
    assert found.mape == pytest.approx(0.1)
    assert found.bias == pytest.approx(0.0)


def test_no_cells_have_no_score():
    assert np.isnan(summarise(np.array([])).mape)
    assert np.isnan(spearman([1.0], [2.0]))


def test_rank_correlation_sees_order_alone():
    values = np.array([1.0, 2.0, 3.0, 4.0])
    assert spearman(values, np.exp(values)) == pytest.approx(1.0)
    assert spearman(values, -values) == pytest.approx(-1.0)
    assert spearman([1, 1, 2, 3], [5, 5, 6, 7]) == pytest.approx(1.0)


def test_regret_is_what_the_pick_costs():
    real = np.array([10.0, 8.0, 4.0])
    groups = [np.array([0, 1, 2])]
    assert regrets(groups, np.array([3.0, 2.0, 1.0]), real)[0] == pytest.approx(0.0)
    assert regrets(groups, np.array([1.0, 2.0, 3.0]), real)[0] == pytest.approx(0.6)


def test_confusion_counts_those_that_ran_apart_from_those_that_failed():
    fits = np.array([True, True, False, True])
    found = confusion(fits, np.array([True, True, False, False]), np.array([False, False, True, True]))
    assert (found.specificity, found.recall, found.balanced_accuracy) == (1.0, 0.5, 0.75)


def test_a_wider_interval_covers_more_and_an_exact_one_scores_best():
    real = np.array([1.0, 1.2, 0.8])
    narrow = interval_scores(real * 0.99, real * 1.01, real)
    wide = interval_scores(real * 0.5, real * 2, real)
    missed = interval_scores(real * 1.5, real * 1.6, real)
    assert narrow.coverage == wide.coverage == 1.0
    assert narrow.score < wide.score < missed.score
    assert missed.coverage == 0.0
