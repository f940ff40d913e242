"""Records from logs, one job a run, of shipped studies and of others' logs and tables one a folder."""


rule ingest_run:
    input:
        log="data/raw/{run}/events.jsonl",
        hardware=HARDWARE_FILES,
        code=code_of("workflow_scripts/ingest_run.py"),
    output:
        runs="results/records/{run}.runs.parquet",
        collectives="results/records/{run}.collectives.parquet",
        kernels="results/records/{run}.kernels.parquet",
    log:
        "logs/ingest_run/{run}.log",
    wildcard_constraints:
        run="[^/]+/[^/]+/[^/]+",
    conda:
        "../environment.yml"
    shell:
        "python workflow_scripts/ingest_run.py --log {input.log:q} "
        "--runs {output.runs:q} --collectives {output.collectives:q} --kernels {output.kernels:q} 2>&1 | tee {log:q}"


# A study that ships has a hundred logs that do not change: a job each would be minutes of starting Python.
rule ingest_study:
    input:
        logs=lambda wildcards: sorted(map(str, (RAW / wildcards.study).glob("*/*/events.jsonl"))),
        beside=lambda wildcards: sorted(
            str(path) for name in ("power.csv", "trace.*") for path in (RAW / wildcards.study).glob(f"*/*/{name}")
        ),
        hardware=HARDWARE_FILES,
        code=code_of("workflow_scripts/ingest_run.py"),
    output:
        runs="results/records/{study}.runs.parquet",
        collectives="results/records/{study}.collectives.parquet",
        kernels="results/records/{study}.kernels.parquet",
    log:
        "logs/ingest_study/{study}.log",
    wildcard_constraints:
        study="[^/]+",
    conda:
        "../environment.yml"
    shell:
        "python workflow_scripts/ingest_run.py --log {input.logs:q} "
        "--runs {output.runs:q} --collectives {output.collectives:q} --kernels {output.kernels:q} 2>&1 | tee {log:q}"


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
