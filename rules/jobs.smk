"""What is measured here, in which jobs, and what each of them asks for."""

import functools
import math

from snakemake.resources import Resources

from falloff.head import IN_FLIGHT
from falloff.schedule import run_of, runs_on_site
from falloff.slurm.packs import pack_id, packs_of
from falloff.slurm.resources import resources_of, snakemake_resources, unless_stated
from falloff.units import SECONDS_PER_MINUTE

# On a cluster whose nodes have GPUs a job without one is an error, and never a measurement on its CPUs.
DEVICE = ("cuda" if SITE.gpu_resource else "cpu") if SITE and SETTINGS.device == "auto" else SETTINGS.device


def runs_here(study):
    """Return the runs of a study that this site can measure, sealed or not."""
    if SITE is None:
        return [run_of(study, cell, repeat, RAW, "cuda" if NUM_GPUS else "cpu") for cell, repeat in study.runs()]
    try:
        runs, reasons = runs_on_site(study, RAW, SITE)
    except ValueError as error:
        raise WorkflowError(f"study {study.name}: {error}") from error
    for reason in reasons[len(study.refused) :]:
        logger.warning(f"refused: {reason}")
    return runs


# run (its folder under data/raw) -> what the launcher is told
RUNS = {
    str(run.run_dir.relative_to(RAW)): run
    for study in STUDIES.values()
    if is_measured_here(study)
    for run in runs_here(study)
}
# A job measures what its head planned, sealed in the meantime or not: the launcher leaves a sealed log as it is.
RUNS_TO_MEASURE = {name: run for name, run in RUNS.items() if not workflow.is_main_process or not is_sealed(name)}

# rule -> the runs of a job that measures several; all of them, sealed or not, so that it is the same in head and job
PACKS = {
    f"measure_pack_{pack_id(pack)}": [str(run.run_dir.relative_to(RAW)) for run in pack]
    for pack in (packs_of(RUNS.values(), SITE) if SITE else ())
    if len(pack) > 1
}
RUNS_ALONE = RUNS_TO_MEASURE.keys() - {name for pack in PACKS.values() for name in pack}


def left_of(pack):
    """Return the runs of a pack that have no log; a job needs its rule, and Snakemake deletes what a rule names."""
    return [name for name in pack if not is_sealed(name)] or [name for name in pack if name in RUNS_TO_MEASURE]


def cores_of_cell(wildcards):
    cell = RUNS_TO_MEASURE[wildcards.run].cell
    return cell.num_processes * cell.threads_per_process


def cores_of(wildcards):
    """All cores of this machine, so that nothing runs beside a measurement; elsewhere those that the cell uses."""
    return workflow.cores if SETTINGS.site == "local" else cores_of_cell(wildcards)


def gpus_of(wildcards):
    """One GPU a process where the settings insist on GPUs; on this machine the launcher takes what is attached."""
    return RUNS_TO_MEASURE[wildcards.run].cell.num_processes if DEVICE == "cuda" else 0


def minutes_of(wildcards):
    """Return the study's time limit with five minutes for Snakemake itself to start and to end."""
    return 5 + math.ceil(RUNS_TO_MEASURE[wildcards.run].limits.timeout_s / SECONDS_PER_MINUTE)


def stated_resources():
    """Return the names of what somebody has stated for all jobs, without Snakemake's own defaults."""
    own = set(Resources.default("full").args)
    return {
        arg.partition("=")[0] for arg in workflow.resource_settings._parsed_default_resources.args if arg not in own
    }


STATED = stated_resources()


@functools.cache
def job_resources(names):
    """Return what one job asks Slurm for that measures the named runs."""
    asked = snakemake_resources(resources_of([RUNS[name] for name in names], SITE), SITE)
    return {**unless_stated(asked, STATED), IN_FLIGHT: 1}


def resource_of_run(name):
    return lambda wildcards: job_resources((wildcards.run,))[name]


def resources_of_rule():
    """Return the resources of measure_run, functions of its wildcards; which there are depends on the site alone."""
    if SITE is None:
        return {"cpus_per_task": cores_of_cell, "gpu": gpus_of, "runtime": minutes_of}
    return {name: resource_of_run(name) for run in list(RUNS)[:1] for name in job_resources((run,))}


SITE_OPTION = ["--site", str(SITE_FILE)] if SITE else []
# A job's end comes as SIGTERM to all of its processes: a shell that leaves at once would take the launcher with it,
# which has KillWait of Slurm to seal its log.
MEASURE = (
    "trap : TERM; trap 'tail -n 1 {log:q}' EXIT; "
    "python workflow_scripts/measure_run.py --study {params.study:q} --cell {params.cells:q} "
    "--repeat {params.repeat} --device {params.device:q} {params.site:q} --output {output:q} > {log:q} 2>&1"
)
