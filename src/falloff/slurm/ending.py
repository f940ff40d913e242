"""How a job ended that took a run with it: of an attempt that was left, and of the job in which one is."""

from falloff.slurm.allocation import Allocation, lost_nodes
from falloff.slurm.client import SlurmError, job_facts
from falloff.slurm.states import StateClass, classify, classify_ending


def state_of_attempt(job_id: str, now: Allocation) -> StateClass:
    """Return how the job ended in which an attempt was left, by who comes to it in the job `now`.

    "failed" where Slurm knows or says nothing: the launcher died, which is all that is known.
    """
    if job_id == now.job_id:
        # a job that runs and is not in its first start was requeued; in its first one, a launcher in it has died
        return "retry" if now.restart_count else "failed"
    try:
        facts = job_facts(job_id) or {}
        return classify(facts.get("JobState", "FAILED"), facts.get("ExitCode"))
    except (SlurmError, ValueError):
        # no answer, or a state of a newer Slurm
        return "failed"


def state_of_own_end(job: Allocation, output: str) -> StateClass | None:
    """Return why this very job is being ended, by what srun printed and the controller says; None where it goes on.

    None too where Slurm does not answer. A node that is lost ends a job, which Slurm may not know yet.
    """
    try:
        state = classify_ending(job_facts(job.job_id) or {}, output)
        if state == "running" and lost_nodes(job.nodes):
            return "retry"
    except (SlurmError, ValueError):
        return None
    return None if state == "running" else state
