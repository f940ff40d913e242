import numpy as np
import pytest

from falloff.perfmodel.cells import Cell
from falloff.perfmodel.floors import floor_of, twins


def cells(*gpus):
    return [Cell({"source": "s", "gpus": str(count), "note": str(place)}) for place, count in enumerate(gpus)]


def test_rows_that_differ_in_their_note_alone_are_twins():
    assert [group.tolist() for group in twins(cells(8, 8, 16))] == [[0, 1]]


def test_equal_twins_have_a_floor_of_nothing_and_no_twins_have_none():
    assert floor_of(cells(8, 8), np.array([5.0, 5.0])).mape == 0
    assert np.isnan(floor_of(cells(8, 16), np.array([5.0, 5.0])).mape)


def test_no_single_prediction_is_below_the_floor():
    rates = np.array([100.0, 80.0, 130.0])
    floor = floor_of(cells(8, 8, 8), rates)
    guesses = np.linspace(1 / 200, 1 / 50, 2000)
    best = np.abs(guesses[:, None] * rates[None, :] - 1).mean(axis=1).min()
    assert floor.mape <= best + 1e-9
    assert floor.mape == pytest.approx(best, abs=1e-3)
