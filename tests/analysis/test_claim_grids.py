import pytest

from falloff.analysis.claim_grids import GRIDS, grid_by_name
from falloff.perfmodel.memory import memory_bytes
from falloff.perfmodel.prediction import prior_fit

FIT = prior_fit()
# the layouts over GPUs and the fleet are thousands of jobs
SMALL = sorted(GRIDS.keys() - {"layouts_by_gpus", "fleet"})


@pytest.mark.parametrize("name", SMALL)
def test_a_grid_tells_its_jobs_apart_and_they_fit(name: str) -> None:
    grid = grid_by_name(name, FIT)
    assert len(grid.frame) == len(grid.jobs) > 1
    assert not grid.frame.duplicated().any()
    assert (memory_bytes(grid.jobs, FIT.values).margin_bytes >= 0).all()


def test_the_papers_grid_has_every_split_of_its_degrees() -> None:
    grid = grid_by_name("layouts_of_256", FIT)
    assert set(zip(grid.frame["tp"], grid.frame["pp"], strict=True)) == {
        (tp, pp) for tp in (1, 2, 4, 8, 16) for pp in (1, 2, 4, 8, 16)
    }
    assert (grid.jobs.gpus == 256).all()
    assert (grid.jobs.tokens == 512 * 4096).all()
    # what a split gains is not what keeping parameters gains
    assert grid.jobs.reshard_after_forward.all()


def test_a_wider_nvlink_keeps_each_gpus_share_of_the_network() -> None:
    jobs = grid_by_name("node_sizes", FIT).jobs
    assert jobs.gpus_per_node.tolist() == [8, 16, 36, 72]
    assert len(set(jobs.nic_bandwidth.tolist())) == 1


def test_a_part_of_a_grid_has_the_jobs_of_its_rows() -> None:
    grid = grid_by_name("weak_7b", FIT)
    part = grid.where("machine == 'A100' and x >= 1024")
    assert part.frame["x"].tolist() == part.jobs.gpus.tolist() == [1024, 2048]
    assert grid.where("") is grid
    with pytest.raises(ValueError, match="leaves nothing of the grid"):
        grid.where("x > 4096")


def test_an_unknown_grid_is_named_with_those_that_there_are() -> None:
    with pytest.raises(ValueError, match="grid 'weak' is unknown; known: weak_7b, "):
        grid_by_name("weak", FIT)
