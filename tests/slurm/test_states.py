"""What a state of a job means, over and while it ends."""

import pytest

from falloff.slurm.states import classify, classify_ending, is_stuck, out_of_host_memory, own_exit_code

# as scontrol showed them of jobs that were being ended (Slurm 22.05)
TIMES = {"StartTime": "2026-11-30T14:49:19", "RunTime": "00:00:02", "TimeLimit": "00:05:00", "Reason": "None"}
CANCELLED = {**TIMES, "JobState": "COMPLETING", "EndTime": "2026-11-30T14:49:21", "ExitCode": "0:0"}
REQUEUED = {**TIMES, "JobState": "COMPLETING", "EndTime": "2026-11-30T14:54:19", "ExitCode": "0:0"}


@pytest.mark.parametrize("state", ["PENDING", "REQUEUED", "SUSPENDED", "COMPLETING", "running", "REQUEUE_HOLD"])
def test_a_job_that_waits_or_waits_again_is_not_over(state: str) -> None:
    assert classify(state) == "running"


@pytest.mark.parametrize(
    ("state", "exit_code", "meaning"),
    [
        ("PREEMPTED", None, "retry"),
        ("NODE_FAIL", "1:0", "retry"),
        ("TIMEOUT", "0:15", "failed_timeout"),
        ("DEADLINE", None, "failed_timeout"),
        ("CANCELLED by 1000", "0:15", "failed_cancelled"),
        ("CANCELLED+", None, "failed_cancelled"),
        ("OUT_OF_MEMORY", "0:125", "failed_oom"),
        ("FAILED", "0:125", "failed_oom"),
        ("FAILED", "1:0", "failed"),
        ("COMPLETED", "0:0", "ok"),
    ],
)
def test_a_job_that_is_over_says_whose_fault_it_was(state: str, exit_code: str | None, meaning: str) -> None:
    assert classify(state, exit_code) == meaning


@pytest.mark.parametrize("state", ["", "ASLEEP"])
def test_a_state_that_slurm_does_not_have_is_an_error(state: str) -> None:
    with pytest.raises(ValueError, match=f"found '{state}'; allowed: PENDING, "):
        classify(state)


@pytest.mark.parametrize(
    ("facts", "meaning"),
    [
        ({"JobState": "RUNNING", **TIMES}, "running"),
        ({}, "running"),
        (CANCELLED, "failed_cancelled"),
        ({**CANCELLED, "RunTime": "1-00:00:02", "EndTime": "2026-12-01T14:49:21"}, "failed_cancelled"),
        ({**CANCELLED, "Reason": "TimeLimit"}, "failed_timeout"),
        (REQUEUED, "retry"),
        ({**REQUEUED, "EndTime": "Unknown"}, "retry"),
        ({**CANCELLED, "PreemptTime": "2026-11-30T14:49:20"}, "retry"),
        ({**CANCELLED, "Reason": "NodeDown"}, "retry"),
        ({"JobState": "PENDING", **TIMES}, "retry"),
        ({"JobState": "NODE_FAIL", **TIMES}, "retry"),
    ],
)
def test_a_job_that_is_being_ended_says_why(facts: dict[str, str], meaning: str) -> None:
    assert classify_ending(facts) == meaning


@pytest.mark.parametrize(
    ("cause", "meaning"),
    [
        (" DUE TO TIME LIMIT", "failed_timeout"),
        (" DUE TO JOB REQUEUE", "retry"),
        (" DUE TO PREEMPTION", "retry"),
        (" DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS", "retry"),
        ("", "failed_cancelled"),
    ],
)
def test_what_slurm_writes_into_the_output_goes_before_what_the_controller_says(cause: str, meaning: str) -> None:
    line = f"slurmstepd-node1: error: *** STEP 4.1 ON node1 CANCELLED AT 2026-11-30T14:49:21{cause} ***"
    assert classify_ending(CANCELLED, f"said before\n{line}\nsaid after") == meaning


@pytest.mark.parametrize(
    "line",
    [
        "slurmstepd-node1: error: StepId=8.1 exceeded memory limit (480903168 > 419430400), being killed",
        "slurmstepd: error: Detected 1 oom_kill event in StepId=8.1. Some of the step tasks have been OOM Killed.",
        "slurmstepd: error: Detected 2 oom-kill event(s) in StepId=8.1 cgroup.",
    ],
)
def test_host_memory_that_ran_out_is_told_from_slurms_line(line: str) -> None:
    assert out_of_host_memory(f"before\n{line}\nafter") == line


def test_a_gpu_out_of_memory_is_no_host_out_of_memory() -> None:
    assert out_of_host_memory("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB") is None


def test_the_first_task_that_ended_badly_says_how_and_not_srun_that_ended_the_others() -> None:
    output = (
        "srun: error: node2: tasks 1-2: Exited with exit code 3\n"
        "srun: launch/slurm: _step_signal: Terminating StepId=20.1\n"
        "srun: error: node1: task 0: Exited with exit code 143\n"
    )
    assert own_exit_code(output, 143) == 3
    assert own_exit_code("srun: error: node1: task 0: Killed\n", 137) == 137


@pytest.mark.parametrize(
    "reason",
    ["PartitionNodeLimit", "PartitionConfig", "BadConstraints", "AssocMaxWallDurationPerJobLimit",
     "QOSMaxNodePerJobLimit", "JobHeldUser",
     "ReqNodeNotAvail, UnavailableNodes:n[1-2]", "(launch failed requeued held)"],
)  # fmt: skip
def test_a_job_that_waits_for_what_will_not_come_is_stuck(reason: str) -> None:
    assert is_stuck(reason)


@pytest.mark.parametrize("reason", ["None", "Priority", "Resources", "AssocGrpCpuLimit", "QOSMaxJobsPerUserLimit", ""])
def test_a_job_that_waits_for_its_turn_is_not_stuck(reason: str) -> None:
    assert not is_stuck(reason)
