"""Raw logs, one job a run. A sealed log is a source file: the rule exists only for runs that have none."""

import re


def is_measured_here(study):
    return SETTINGS.site in study.measure_on


def is_sealed(run):
    return (RAW / run / "events.jsonl").is_file()


for study in STUDIES.values():
    if not is_measured_here(study):
        sites = ", ".join(study.measure_on) or "nowhere"
        logger.warning(f"study {study.name} is not measured on site {SETTINGS.site!r}; its measure_on: {sites}")


# run (its folder under data/raw) -> what the launcher is told
RUNS_TO_MEASURE = {
    f"{study.name}/{cell.cell_id}/{repeat}": (study.name, cell, repeat)
    for study in STUDIES.values()
    if is_measured_here(study)
    for cell, repeat in study.runs()
    if not is_sealed(f"{study.name}/{cell.cell_id}/{repeat}")
}


def cores_of(wildcards):
    """All cores of this machine, so that nothing runs beside a measurement; elsewhere those that the cell uses."""
    cell = RUNS_TO_MEASURE[wildcards.run][1].cell
    return workflow.cores if SETTINGS.site == "local" else cell.num_processes * cell.threads_per_process


# No input on purpose: nothing but a missing log may start a measurement.
rule measure_run:
    output:
        "data/raw/{run}/events.jsonl",
    log:
        "logs/measure_run/{run}.log",
    wildcard_constraints:
        run="|".join(map(re.escape, RUNS_TO_MEASURE)) or "(?!)",
    conda:
        "../environment.yml"
    threads: cores_of
    params:
        study=lambda wildcards: RUNS_TO_MEASURE[wildcards.run][0],
        cell=lambda wildcards: RUNS_TO_MEASURE[wildcards.run][1].cell_id,
        repeat=lambda wildcards: RUNS_TO_MEASURE[wildcards.run][2],
        device=SETTINGS.device,
    shell:
        "python workflow_scripts/measure_run.py --study {params.study:q} --cell {params.cell:q} "
        "--repeat {params.repeat} --device {params.device:q} --output {output:q} > {log:q} 2>&1"
