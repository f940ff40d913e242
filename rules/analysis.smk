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
