"""One table a figure: exactly what is plotted, and what its grid lacks."""


rule tabulate_this_machine:
    input:
        runs=records_of("laptop", "runs"),
        collectives=records_of("laptop", "collectives"),
        study="config/studies/laptop.yaml",
        networks=NETWORK_FILES,
        hardware=HARDWARE_FILES,
        code=code_of("workflow_scripts/tabulate_this_machine.py"),
    output:
        table="results/tables/this_machine.parquet",
        coverage="results/tables/this_machine.coverage.parquet",
    log:
        "logs/tabulate/this_machine.log",
    conda:
        "../environment.yml"
    shell:
        "python workflow_scripts/tabulate_this_machine.py --runs {input.runs:q} --collectives {input.collectives:q} "
        "--study {input.study:q} --table {output.table:q} --coverage {output.coverage:q} 2>&1 | tee {log:q}"


rule tabulate_slurm_smoke:
    input:
        runs=records_of("slurm_smoke", "runs"),
        study="config/studies/slurm_smoke.yaml",
        networks=NETWORK_FILES,
        code=code_of("workflow_scripts/tabulate_slurm_smoke.py"),
    output:
        table="results/tables/slurm_smoke.parquet",
        coverage="results/tables/slurm_smoke.coverage.parquet",
    log:
        "logs/tabulate/slurm_smoke.log",
    conda:
        "../environment.yml"
    shell:
        "python workflow_scripts/tabulate_slurm_smoke.py --runs {input.runs:q} "
        "--study {input.study:q} --table {output.table:q} --coverage {output.coverage:q} 2>&1 | tee {log:q}"


rule tabulate_h200:
    input:
        runs=records_of("h200", "runs") + external_records("runs", "runs"),
        hardware=HARDWARE_FILES,
        code=code_of("workflow_scripts/tabulate_h200.py"),
    output:
        table="results/tables/h200.parquet",
        coverage="results/tables/h200.coverage.parquet",
    log:
        "logs/tabulate/h200.log",
    conda:
        "../environment.yml"
    shell:
        "python workflow_scripts/tabulate_h200.py --runs {input.runs:q} "
        "--table {output.table:q} --coverage {output.coverage:q} 2>&1 | tee {log:q}"


rule tabulate_overlap:
    input:
        runs=records_of("h200", "runs"),
        calibration=CALIBRATION_FILES,
        machines=HARDWARE_FILES + CLUSTER_FILES + NETWORK_FILES,
        code=code_of("workflow_scripts/tabulate_overlap.py"),
    output:
        table="results/tables/overlap.parquet",
        coverage="results/tables/overlap.coverage.parquet",
    log:
        "logs/tabulate/overlap.log",
    conda:
        "../environment.yml"
    shell:
        "python workflow_scripts/tabulate_overlap.py --runs {input.runs:q} "
        "--table {output.table:q} --coverage {output.coverage:q} 2>&1 | tee {log:q}"


rule tabulate_strong_scaling:
    input:
        runs=external_records("runs", "falloff-training-cells"),
        hardware=HARDWARE_FILES,
        code=code_of("workflow_scripts/tabulate_strong_scaling.py"),
    output:
        table="results/tables/strong_scaling.parquet",
        coverage="results/tables/strong_scaling.coverage.parquet",
    log:
        "logs/tabulate/strong_scaling.log",
    conda:
        "../environment.yml"
    shell:
        "python workflow_scripts/tabulate_strong_scaling.py --runs {input.runs:q} "
        "--table {output.table:q} --coverage {output.coverage:q} 2>&1 | tee {log:q}"


rule tabulate_collectives:
    input:
        collectives=external_records(
            "collectives",
            "collectives",
            "falloff-collectives",
            "nccl-allreduce-readoff",
        )
        + shipped_records("collectives"),
        hardware=HARDWARE_FILES,
        code=code_of("workflow_scripts/tabulate_collectives.py"),
    output:
        table="results/tables/collectives.parquet",
        coverage="results/tables/collectives.coverage.parquet",
    log:
        "logs/tabulate/collectives.log",
    conda:
        "../environment.yml"
    shell:
        "python workflow_scripts/tabulate_collectives.py --collectives {input.collectives:q} "
        "--table {output.table:q} --coverage {output.coverage:q} 2>&1 | tee {log:q}"


rule tabulate_comparability:
    input:
        runs=external_records("runs", "torchtitan-tables"),
        hardware=HARDWARE_FILES,
        code=code_of("workflow_scripts/tabulate_comparability.py"),
    output:
        table="results/tables/comparability.parquet",
        coverage="results/tables/comparability.coverage.parquet",
    log:
        "logs/tabulate/comparability.log",
    conda:
        "../environment.yml"
    shell:
        "python workflow_scripts/tabulate_comparability.py --runs {input.runs:q} "
        "--table {output.table:q} --coverage {output.coverage:q} 2>&1 | tee {log:q}"


# What predictions of cells that no fit had seen say: their scripts take those alone.
rule tabulate_held_out:
    input:
        cells="results/perfmodel/held_out.parquet",
        code=lambda wildcards: code_of(f"workflow_scripts/tabulate_{wildcards.name}.py"),
    output:
        table="results/tables/{name}.parquet",
        coverage="results/tables/{name}.coverage.parquet",
    log:
        "logs/tabulate/{name}.log",
    wildcard_constraints:
        name="|".join(HELD_OUT),
    conda:
        "../environment.yml"
    shell:
        "python workflow_scripts/tabulate_{wildcards.name}.py --held-out {input.cells:q} "
        "--table {output.table:q} --coverage {output.coverage:q} 2>&1 | tee {log:q}"


# Our runs beside what the model says of them and of larger ones: no published cell is read.
rule tabulate_predicted:
    input:
        runs=records_of("h200", "runs"),
        calibration=CALIBRATION_FILES,
        machines=HARDWARE_FILES + CLUSTER_FILES + NETWORK_FILES,
        code=lambda wildcards: code_of(f"workflow_scripts/tabulate_{wildcards.name}.py"),
    output:
        table="results/tables/{name}.parquet",
        coverage="results/tables/{name}.coverage.parquet",
    log:
        "logs/tabulate/{name}.log",
    wildcard_constraints:
        name="|".join(PREDICTED),
    conda:
        "../environment.yml"
    shell:
        "python workflow_scripts/tabulate_{wildcards.name}.py --runs {input.runs:q} "
        "--table {output.table:q} --coverage {output.coverage:q} 2>&1 | tee {log:q}"


rule tabulate_weak_scaling:
    input:
        runs=records_of("h200", "runs"),
        cells=TRAINING_CELLS,
        calibration=CALIBRATION_FILES,
        machines=HARDWARE_FILES + CLUSTER_FILES + NETWORK_FILES,
        code=code_of("workflow_scripts/tabulate_weak_scaling.py"),
    output:
        table="results/tables/weak_scaling.parquet",
        coverage="results/tables/weak_scaling.coverage.parquet",
    log:
        "logs/tabulate/weak_scaling.log",
    conda:
        "../environment.yml"
    shell:
        "python workflow_scripts/tabulate_weak_scaling.py --runs {input.runs:q} --cells {input.cells:q} "
        "--table {output.table:q} --coverage {output.coverage:q} 2>&1 | tee {log:q}"


rule tabulate_collective_regimes:
    input:
        collectives=external_records(
            "collectives",
            "collectives",
            "falloff-collectives",
            "nccl-allreduce-readoff",
        ),
        points=COLLECTIVE_FILES,
        calibration=CALIBRATION_FILES,
        machines=HARDWARE_FILES + CLUSTER_FILES + NETWORK_FILES,
        code=code_of("workflow_scripts/tabulate_collective_regimes.py"),
    output:
        table="results/tables/collective_regimes.parquet",
        coverage="results/tables/collective_regimes.coverage.parquet",
    log:
        "logs/tabulate/collective_regimes.log",
    conda:
        "../environment.yml"
    params:
        external=lambda wildcards, input: str(Path(input.points[0]).parents[1]),
    shell:
        "python workflow_scripts/tabulate_collective_regimes.py --collectives {input.collectives:q} "
        "--external {params.external:q} --table {output.table:q} --coverage {output.coverage:q} 2>&1 | tee {log:q}"


rule tabulate_attribution:
    input:
        runs=records_of("h200", "runs"),
        published=external_records("runs", "torchtitan-tables"),
        calibration=CALIBRATION_FILES,
        machines=HARDWARE_FILES + CLUSTER_FILES + NETWORK_FILES,
        code=code_of("workflow_scripts/tabulate_attribution.py"),
    output:
        table="results/tables/attribution.parquet",
        coverage="results/tables/attribution.coverage.parquet",
    log:
        "logs/tabulate/attribution.log",
    conda:
        "../environment.yml"
    shell:
        "OMP_NUM_THREADS=1 python workflow_scripts/tabulate_attribution.py --runs {input.runs:q} "
        "--published {input.published:q} --table {output.table:q} --coverage {output.coverage:q} 2>&1 | tee {log:q}"


# Each script takes our runs and published cells, and reads machines, networks and the calibration where they stand.
rule tabulate_modelled:
    input:
        runs=records_of("h200", "runs") + records_of("one_h200", "runs"),
        cells=TRAINING_CELLS,
        calibration=CALIBRATION_FILES,
        assumptions=ASSUMPTION_FILES,
        machines=HARDWARE_FILES + CLUSTER_FILES + NETWORK_FILES,
        code=lambda wildcards: code_of(f"workflow_scripts/tabulate_{wildcards.name}.py"),
    output:
        table="results/tables/{name}.parquet",
        coverage="results/tables/{name}.coverage.parquet",
    log:
        "logs/tabulate/{name}.log",
    wildcard_constraints:
        name="|".join(MODELLED),
    conda:
        "../environment.yml"
    shell:
        "OMP_NUM_THREADS=1 python workflow_scripts/tabulate_{wildcards.name}.py --runs {input.runs:q} "
        "--cells {input.cells:q} --table {output.table:q} --coverage {output.coverage:q} 2>&1 | tee {log:q}"


# Every run with a rate that was measured, imported or published: of no figure, and what decides where no figure has it.
rule collect_evidence:
    input:
        runs=records_of("h200", "runs")
        + external_records("runs", "runs", "falloff-training-cells", "torchtitan-tables"),
        calibration=CALIBRATION_FILES,
        machines=HARDWARE_FILES + CLUSTER_FILES + NETWORK_FILES,
        code=code_of("workflow_scripts/collect_evidence.py"),
    output:
        runs="results/tables/runs.parquet",
        model="results/tables/claim_model.parquet",
    log:
        "logs/collect_evidence.log",
    conda:
        "../environment.yml"
    shell:
        "python workflow_scripts/collect_evidence.py --runs {input.runs:q} --table {output.runs:q} "
        "--model {output.model:q} 2>&1 | tee {log:q}"


rule check_claims:
    input:
        tables=expand("results/tables/{name}.parquet", name=[*CLAIM_TABLES, "runs", "claim_model"]),
        claims="config/claims.yaml",
        questions="config/questions.yaml",
        calibration=CALIBRATION_FILES,
        machines=HARDWARE_FILES + CLUSTER_FILES + NETWORK_FILES,
        code=code_of("workflow_scripts/check_claims.py"),
    output:
        claims="results/tables/claims.parquet",
        checks="results/tables/claim_checks.parquet",
        questions="results/tables/questions.parquet",
    log:
        "logs/check_claims.log",
    conda:
        "../environment.yml"
    params:
        folder=lambda wildcards, output: str(Path(output.claims).parent),
    shell:
        "OMP_NUM_THREADS=1 python workflow_scripts/check_claims.py --tables {input.tables:q} --claims {input.claims:q} "
        "--questions {input.questions:q} --output {params.folder:q} 2>&1 | tee {log:q}"
