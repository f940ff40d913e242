"""Raw logs, one job a run or a pack of runs. A sealed log is a source file: rules are only for runs that have none."""

import re


# No input on purpose: nothing but a missing log may start a measurement.
rule measure_run:
    output:
        "data/raw/{run}/events.jsonl",
    log:
        "logs/measure_run/{run}.log",
    wildcard_constraints:
        run="|".join(map(re.escape, sorted(RUNS_ALONE))) or "(?!)",
    conda:
        "../environment.yml"
    threads: cores_of
    resources:
        **resources_of_rule(),
    params:
        study=lambda wildcards: RUNS_TO_MEASURE[wildcards.run].study,
        cells=lambda wildcards: RUNS_TO_MEASURE[wildcards.run].cell_id,
        repeat=lambda wildcards: RUNS_TO_MEASURE[wildcards.run].repeat,
        device=DEVICE,
        site=SITE_OPTION,
    shell:
        MEASURE


# The same of several runs, one after the other in one job: runs_per_job of the site.
for measure_pack, pack in PACKS.items():
    if to_measure := left_of(pack):

        rule:
            name:
                measure_pack
            output:
                expand("data/raw/{run}/events.jsonl", run=to_measure),
            log:
                f"logs/measure_run/{measure_pack}.log",
            conda:
                "../environment.yml"
            resources:
                **job_resources(tuple(to_measure)),
            params:
                study=RUNS[pack[0]].study,
                cells=[RUNS[name].cell_id for name in to_measure],
                repeat=RUNS[pack[0]].repeat,
                device=DEVICE,
                site=SITE_OPTION,
            shell:
                MEASURE
