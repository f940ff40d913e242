from pathlib import Path

from falloff.slurm.client import Job
from falloff.slurm.in_flight import job_comment, jobs_in_flight, packed_otherwise


def job(job_id: str, comment: str, folder: Path, state: str = "RUNNING") -> Job:
    return Job(job_id=job_id, state=state, nodes="", comment=comment, folder=str(folder))


def test_a_job_is_known_by_the_comment_that_the_executor_gives_it() -> None:
    assert job_comment("measure_run", ["study/cell/1"]) == "rule_measure_run_wildcards_study_cell_1"
    assert job_comment("measure_pack_x", []) == "rule_measure_pack_x"


def test_jobs_of_this_checkout_that_wait_or_run_are_in_flight(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    found = jobs_in_flight(
        [
            job("1", "a", tmp_path),
            job("2", "b", tmp_path / "link", "PENDING"),
            job("3", "c", tmp_path, "COMPLETED"),
            job("4", "d", tmp_path / "other"),
        ],
        tmp_path,
    )
    assert found == {"a": "1", "b": "2"}


def test_of_two_jobs_for_one_run_the_later_is_meant(tmp_path: Path) -> None:
    assert jobs_in_flight([job("10", "a", tmp_path), job("9", "a", tmp_path)], tmp_path) == {"a": "10"}


def test_a_job_in_a_state_of_a_newer_slurm_is_not_submitted_beside(tmp_path: Path) -> None:
    assert jobs_in_flight([job("1", "a", tmp_path, "DREAMING")], tmp_path) == {"a": "1"}


def test_jobs_whose_runs_are_packed_otherwise_now_are_found() -> None:
    in_flight = {"rule_measure_pack_s_1": "1", "rule_measure_pack_s_2": "2", "rule_measure_run_wildcards_s_c_1": "3"}
    assert packed_otherwise(in_flight, {"measure_pack_s_1": ["s/d/1"]}) == ["2"]


def test_a_job_of_one_run_that_is_in_a_pack_now_is_found() -> None:
    """runs_per_job was raised while it waited: the pack would hold its nodes until that job has ended."""
    in_flight = {"rule_measure_run_wildcards_s_c_1": "3", "rule_measure_run_wildcards_s_e_1": "4"}
    assert packed_otherwise(in_flight, {"measure_pack_s_1": ["s/c/1", "s/d/1"]}) == ["3"]
