"""Raw logs, one job a run. A sealed log is a source file: the rule exists only for runs that have none."""

import re


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
    resources:
        cpus_per_task=cores_of_cell,
        gpu=gpus_of,
        runtime=minutes_of,
    params:
        study=lambda wildcards: RUNS_TO_MEASURE[wildcards.run][0],
        cell=lambda wildcards: RUNS_TO_MEASURE[wildcards.run][1].cell_id,
        repeat=lambda wildcards: RUNS_TO_MEASURE[wildcards.run][2],
        device=SETTINGS.device,
    shell:
        "trap 'tail -n 1 {log:q}' EXIT; "
        "python workflow_scripts/measure_run.py --study {params.study:q} --cell {params.cell:q} "
        "--repeat {params.repeat} --device {params.device:q} --output {output:q} > {log:q} 2>&1"
