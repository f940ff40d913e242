"""Records from logs, one job a run, and from others' logs and tables, one job a folder."""

from falloff.spec.source import read_source


def logs_of(study_name):
    """Return the runs of a study that have a log or get one here; logs that no study names are welcome too."""
    present = {str(path.parent.relative_to(RAW)) for path in (RAW / study_name).glob("*/*/events.jsonl")}
    planned = {run for run, (study, _, _) in RUNS_TO_MEASURE.items() if study == study_name}
    return sorted(present | planned)


def records_of(study_name, kind):
    return [f"results/records/{run}.{kind}.parquet" for run in logs_of(study_name)]


def contents_of(folder):
    """Return what a folder of data/external holds: runs, collectives, and the formats of its tables."""
    try:
        return read_source(EXTERNAL / folder).contents
    except ValueError as error:
        raise WorkflowError(str(error)) from error


EXTERNAL_CONTENTS = {path.parent.name: contents_of(path.parent.name) for path in sorted(EXTERNAL.glob("*/source.yaml"))}


def external_records(kind, *contents):
    """Return the record files of every folder of data/external that holds one of the contents."""
    return [
        f"results/records/external/{folder}.{kind}.parquet"
        for folder, held in EXTERNAL_CONTENTS.items()
        if held & set(contents)
    ]


rule ingest_run:
    input:
        log="data/raw/{run}/events.jsonl",
        hardware=HARDWARE_FILES,
        code=code_of("workflow_scripts/ingest_run.py"),
    output:
        runs="results/records/{run}.runs.parquet",
        collectives="results/records/{run}.collectives.parquet",
    log:
        "logs/ingest_run/{run}.log",
    wildcard_constraints:
        run="[^/]+/[^/]+/[^/]+",
    conda:
        "../environment.yml"
    shell:
        "python workflow_scripts/ingest_run.py --log {input.log:q} "
        "--runs {output.runs:q} --collectives {output.collectives:q} 2>&1 | tee {log:q}"


rule ingest_external:
    input:
        files=lambda wildcards: sorted(str(p) for p in (EXTERNAL / wildcards.folder).rglob("*") if p.is_file()),
        hardware=HARDWARE_FILES,
        networks=NETWORK_FILES,
        code=code_of("workflow_scripts/ingest_external.py"),
    output:
        runs="results/records/external/{folder}.runs.parquet",
        collectives="results/records/external/{folder}.collectives.parquet",
    log:
        "logs/ingest_external/{folder}.log",
    wildcard_constraints:
        folder="[^/]+",
    conda:
        "../environment.yml"
    params:
        folder=lambda wildcards: str(EXTERNAL / wildcards.folder),
    shell:
        "python workflow_scripts/ingest_external.py --folder {params.folder:q} "
        "--runs {output.runs:q} --collectives {output.collectives:q} 2>&1 | tee {log:q}"
