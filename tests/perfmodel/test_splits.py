import numpy as np
import pytest

from falloff.perfmodel import splits

SOURCES = np.array(["a"] * 8 + ["b"] * 4)
MODELS = np.array(["s", "s", "m", "m", "l", "l", "x", "x", "one", "one", "one", "one"])
GPUS = np.array([8.0, 16, 8, 16, 8, 1024, 8, 16, 8, 16, 32, 64])
SCORED = np.ones(12, dtype=bool)


def every_split():
    yield from splits.by_source(SOURCES, SCORED)
    yield from splits.by_label("models", SOURCES, MODELS, SCORED)
    yield from splits.by_label("GPU counts", SOURCES, GPUS, SCORED)
    yield from splits.by_scale(GPUS, SCORED)
    yield from splits.by_generation(np.array(["h100"] * 6 + ["a100"] * 6), SCORED)


@pytest.mark.parametrize("split", list(every_split()), ids=lambda split: split.name)
def test_no_split_learns_from_a_cell_it_scores(split):
    assert not (split.train & split.test).any()


def test_an_unseen_source_has_no_cell_in_its_training():
    for split in splits.by_source(SOURCES, SCORED):
        assert not set(SOURCES[split.train]) & set(SOURCES[split.test])


def test_a_model_of_a_source_is_held_out_whole():
    for split in splits.by_label("models", SOURCES, MODELS, SCORED):
        own = set(zip(SOURCES[split.test], MODELS[split.test], strict=True))
        assert not own & set(zip(SOURCES[split.train], MODELS[split.train], strict=True))


def test_every_scored_cell_of_more_than_one_label_is_tested_once():
    tested = sum(split.test.astype(int) for split in splits.by_label("models", SOURCES, MODELS, SCORED))
    assert (tested[:8] == 1).all()
    assert (tested[8:] == 0).all()  # a single model cannot be held out and known


def test_a_scale_is_held_out_of_every_source():
    for split in splits.by_scale(GPUS, SCORED):
        assert not set(GPUS[split.test]) & set(GPUS[split.train])
