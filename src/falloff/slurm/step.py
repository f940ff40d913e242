"""The step in which ranks run, to be ended on all of its nodes."""

import contextlib
import subprocess

from falloff.slurm.client import SlurmError, run_command


def end_step(job_id: str, name: str, srun: "subprocess.Popen[bytes]", grace_s: float) -> None:
    """End the job's step of that name: by SIGTERM, upon which ranks say where they are, then as Slurm ends a step.

    By srun's own end the ranks of other nodes would be ended by SIGKILL alone, the last resort.
    """
    with contextlib.suppress(SlurmError):
        listed = run_command(["squeue", "--noheader", "--steps", f"--jobs={job_id}", "--format=%i %j"], tries=1)
        steps = [line.split()[0] for line in listed.splitlines() if line.split()[1:] == [name]]
        for options in (["--signal=TERM"], []):
            for step in steps:
                run_command(["scancel", *options, step], tries=1)
            with contextlib.suppress(subprocess.TimeoutExpired):
                srun.wait(grace_s)
                return
