from pathlib import Path

import pytest

from falloff import rawlog
from falloff.launch import Run
from falloff.schedule import Budget, Choice, Lane, schedule
from falloff.spec.collectives_cell import CollectivesCell
from falloff.spec.kernels_cell import KernelsCell
from falloff.spec.network import Network
from falloff.spec.study import Limits, Study, StudyCell

NETWORK = Network(name="tiny", layers=2, hidden=32, heads=4, kv_heads=2, ffn=64, vocab=64, source="a test")


def study_cell(cell_id: str, num_processes: int, repeats: int = 1) -> StudyCell:
    cell = (
        KernelsCell(networks=(NETWORK,))
        if num_processes == 1
        else CollectivesCell(num_processes=num_processes, collectives=("all_reduce",), message_bytes=(1024,))
    )
    return StudyCell(
        cell_id=cell_id, cell=cell, repeats=repeats, stated={"note": f"about {cell_id}", "compile": cell_id == "d"}
    )


def study_of(*cells: StudyCell) -> Study:
    return Study(
        name="s", question="?", scaling="none", measure_on=(), limits=Limits(timeout_s=100), cells=cells, refused=()
    )


STUDY = study_of(study_cell("a", 1, 2), study_cell("b", 2), study_cell("c", 1), study_cell("d", 2, 3))


def labels(stages: list[list[Lane]]) -> list[list[list[str]]]:
    return [
        [[f"{run.cell_id}{run.repeat}" + ("" if run.gpu is None else f"@{run.gpu}") for run in lane] for lane in lanes]
        for lanes in stages
    ]


def test_repeats_are_outermost_and_like_process_counts_stand_together(tmp_path: Path) -> None:
    assert labels(schedule(STUDY, tmp_path, "cpu", Choice())) == [[["a1", "c1", "b1", "d1"]], [["a2", "d2"]], [["d3"]]]


def test_what_has_a_sealed_log_is_not_planned_again(tmp_path: Path) -> None:
    folder = tmp_path / "s" / "c" / "1"
    folder.mkdir(parents=True)
    (folder / rawlog.SEALED_NAME).touch()
    assert labels(schedule(STUDY, tmp_path, "cpu", Choice()))[0] == [["a1", "b1", "d1"]]


def test_only_takes_cells_by_id_or_by_what_is_stated(tmp_path: Path) -> None:
    assert labels(schedule(STUDY, tmp_path, "cpu", Choice(only=("about a", "c ")))) == [[["a1", "c1"]], [["a2"]]]
    assert labels(schedule(STUDY, tmp_path, "cpu", Choice(only=("compile: true",))))[0] == [["d1"]]


def test_one_repeat_of_each_cell_may_be_asked_for(tmp_path: Path) -> None:
    assert labels(schedule(STUDY, tmp_path, "cpu", Choice(repeat=5))) == [[["a5", "c5", "b5", "d5"]]]


def test_one_process_cells_run_on_every_gpu_at_once_as_repeats(tmp_path: Path) -> None:
    assert labels(schedule(STUDY, tmp_path, "cuda", Choice(gpus_apart=2))) == [
        [["a1@0", "c1@0"], ["a2@1", "c2@1"]],
        [["b1", "d1"]],
        [["d2"]],
        [["d3"]],
    ]
    assert labels(schedule(STUDY, tmp_path, "cuda", Choice(gpus_apart=2, repeat=3, only=("about a",)))) == [
        [["a3@0"], ["a4@1"]]
    ]


def a_run(tmp_path: Path) -> Run:
    ((lane,), *_) = schedule(STUDY, tmp_path, "cpu", Choice())
    return lane[0]


def test_a_run_whose_like_took_longer_than_what_is_left_is_not_started(tmp_path: Path) -> None:
    run, budget = a_run(tmp_path), Budget(until_s=50)
    assert budget.may_start(run)
    budget.note(run, 30)
    assert budget.may_start(run)
    budget.note(run, 90)
    assert budget.expected_s(run) == 60
    assert not budget.may_start(run)


def test_no_run_is_expected_to_pass_its_limit(tmp_path: Path) -> None:
    run, budget = a_run(tmp_path), Budget(until_s=150)
    budget.note(run, 1000)
    assert budget.expected_s(run) == 100
    assert budget.may_start(run)


def test_nothing_starts_once_the_time_is_over(tmp_path: Path) -> None:
    assert not Budget(until_s=0).may_start(a_run(tmp_path))


def test_a_run_unlike_all_so_far_is_expected_to_take_their_mean(tmp_path: Path) -> None:
    (lane,) = schedule(STUDY, tmp_path, "cpu", Choice())[0]
    budget = Budget(until_s=150)
    budget.note(lane[0], 10)
    assert budget.expected_s(lane[2]) == pytest.approx(10)
