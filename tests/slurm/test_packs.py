import dataclasses
from pathlib import Path

import pytest

from falloff.launch import Run
from falloff.slurm.packs import pack_id, packs_of
from falloff.spec.study import Limits
from tests.site_of_a_test import a_site
from tests.slurm.runs_of_a_test import a_run


def seeds(packs: list[tuple[Run, ...]]) -> list[list[str]]:
    return [[run.cell_id for run in pack] for pack in packs]


def test_a_job_measures_one_run_where_the_site_says_nothing_else() -> None:
    runs = [a_run(1, seed=seed) for seed in range(3)]
    assert packs_of(runs, a_site()) == [(run,) for run in runs]


def test_a_job_measures_as_many_runs_as_the_site_says() -> None:
    packs = packs_of([a_run(1, seed=seed) for seed in range(5)], a_site(runs_per_job=2))
    assert seeds(packs) == [["kernels-1-0", "kernels-1-1"], ["kernels-1-2", "kernels-1-3"], ["kernels-1-4"]]


def test_runs_of_another_study_repeat_or_size_are_another_job() -> None:
    runs = [a_run(1), a_run(1, repeat=2), a_run(1, study="other"), a_run(2), a_run(16)]
    assert packs_of(runs, a_site(runs_per_job=9)) == [(run,) for run in runs]


def test_runs_that_can_share_their_processes_are_neighbours() -> None:
    limited = Limits(timeout_s=60, process_memory_bytes=10**9)
    runs = [a_run(1, seed=seed) for seed in range(4)]
    runs[1] = dataclasses.replace(runs[1], limits=limited)
    runs[3] = dataclasses.replace(runs[3], limits=limited)
    (pack,) = packs_of(runs, a_site(runs_per_job=4))
    assert [run.place for run in pack] == [runs[0].place, runs[0].place, runs[1].place, runs[1].place]


def test_a_job_is_no_longer_than_the_partition_allows() -> None:
    packs = packs_of([a_run(1, seed=seed, timeout_s=60) for seed in range(5)], a_site(runs_per_job=5, max_time_s=450))
    assert [len(pack) for pack in packs] == [2, 2, 1]


def test_every_run_is_in_one_job() -> None:
    runs = [a_run(size, seed=seed, repeat=repeat) for size in (1, 2, 8) for seed in range(4) for repeat in (1, 2)]
    packed = [run for pack in packs_of(runs, a_site(runs_per_job=3)) for run in pack]
    assert sorted(str(run.run_dir) for run in packed) == sorted(str(run.run_dir) for run in runs)


def test_the_name_of_a_pack_is_of_its_runs_wherever_the_checkout_lies() -> None:
    runs = [a_run(1, seed=seed) for seed in range(2)]
    elsewhere = [dataclasses.replace(run, run_dir=Path("/home/me") / run.run_dir) for run in runs]
    assert pack_id(runs) == pack_id(elsewhere)
    assert pack_id(runs) != pack_id(runs[:1])
    assert pack_id(runs).startswith("study_")


def test_a_run_that_no_job_can_hold_is_an_error() -> None:
    with pytest.raises(ValueError, match="do not divide evenly"):
        packs_of([a_run(9)], a_site())
