"""The log of a run whose launcher never began: Slurm refused its job, or the job ended before it."""

from collections.abc import Iterable
from pathlib import Path

from falloff import rawlog
from falloff.launch import Run, event_of_unlaunched
from falloff.ownership import OUTCOME_OF_END, JobEnd
from falloff.slurm.owner import OWNER_NAME, owner_of
from falloff.slurm.resources import resources_of
from falloff.spec.site import Site

_LONGEST_LINE = 300


def seal_unlaunched(run: Run, site: Site, end: JobEnd | None, reason: str) -> None:
    """Seal a run that no launcher began with how its job ended, as crash where Slurm did not take it (no `end`).

    A run that is sealed, or that another job has begun or is about to begin, is left as it is.
    """
    job_id = None if end is None else end.job_id
    if rawlog.is_sealed(run.run_dir) or (run.run_dir / rawlog.OPEN_NAME).exists():
        return
    if owner_of(run.run_dir) not in (None, job_id):
        return
    run.run_dir.mkdir(parents=True, exist_ok=True)
    started = event_of_unlaunched(run, job_id, resources_of([run], site).nodes)
    rawlog.append_event(run.run_dir, "run_started", **started)
    outcome = "crash" if end is None else OUTCOME_OF_END.get(end.state, "crash")
    rawlog.append_event(run.run_dir, "outcome", outcome=outcome, reason=reason, exit_code=None, wall_s=None)
    rawlog.seal(run.run_dir)
    (run.run_dir / OWNER_NAME).unlink(missing_ok=True)


def last_line(logs: Iterable[Path]) -> str | None:
    """Return the last line of the first of the logs that has any, None where none has."""
    for path in logs:
        try:
            lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
        except OSError:
            continue
        if said := [line.strip() for line in lines if line.strip()]:
            return said[-1][:_LONGEST_LINE]
    return None
