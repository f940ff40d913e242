"""Published cells predicted: by the shipped calibration, and by fits that have not seen them."""


rule predict_cells:
    input:
        cells=TRAINING_CELLS,
        calibration=CALIBRATION_FILES,
        machines=HARDWARE_FILES + CLUSTER_FILES,
        code=code_of("workflow_scripts/predict_cells.py"),
    output:
        "results/perfmodel/predictions.csv",
    log:
        "logs/perfmodel/predict_cells.log",
    conda:
        "../environment.yml"
    shell:
        "python workflow_scripts/predict_cells.py --cells {input.cells:q} --output {output:q} 2>&1 | tee {log:q}"


# Some twenty fits, half a minute of one core: what the three figures of validation are drawn from.
rule hold_out_cells:
    input:
        cells=TRAINING_CELLS,
        calibration=CALIBRATION_FILES,
        machines=HARDWARE_FILES + CLUSTER_FILES,
        code=code_of("workflow_scripts/hold_out_cells.py"),
    output:
        "results/perfmodel/held_out.parquet",
    log:
        "logs/perfmodel/hold_out_cells.log",
    conda:
        "../environment.yml"
    shell:
        "OMP_NUM_THREADS=1 python workflow_scripts/hold_out_cells.py --cells {input.cells:q} --output {output:q} "
        "2>&1 | tee {log:q}"


# Some 40,000 steps in ten seconds of one core: what the page's panel looks up.
rule predict_grid:
    input:
        calibration=CALIBRATION_FILES,
        machines=HARDWARE_FILES + CLUSTER_FILES + NETWORK_FILES,
        code=code_of("workflow_scripts/predict_grid.py"),
    output:
        "results/perfmodel/what_if.json",
    log:
        "logs/perfmodel/predict_grid.log",
    conda:
        "../environment.yml"
    shell:
        "OMP_NUM_THREADS=1 python workflow_scripts/predict_grid.py --output {output:q} 2>&1 | tee {log:q}"
