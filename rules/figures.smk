"""Figures by notebook, and the page that shows them."""

# A figure of measured runs is left out where there are none: no log ships and this site does not measure them.
FIGURES = [
    *(["this_machine"] if logs_of("laptop") else []),
    *(["slurm_smoke"] if logs_of("slurm_smoke") else []),
    "h200",
    "overlap",
    "strong_scaling",
    "collectives",
    "comparability",
    "validation",
    "memory",
    "extrapolation",
    "weak_scaling",
    "execution_time",
    "power_per_token",
    "collective_regimes",
    "attribution",
    *MODELLED,
]


# Everything: the figures, their page, every published cell predicted, and the records of every study that is on,
# whether a figure draws it or not. Logs that are to be measured too: behind a record that is there Snakemake would not
# miss one that a person has removed.
EVERYTHING = [
    *expand("figures/{name}.pdf", name=FIGURES),
    "figures/index.html",
    "results/perfmodel/predictions.csv",
    *(record for name in STUDIES for kind in ("runs", "collectives") for record in records_of(name, kind)),
    *(f"data/raw/{run}/events.jsonl" for run in RUNS_TO_MEASURE),
]


# What follows from logs is light: on a cluster it runs with the head, only measurements are submitted.
localrules:
    ingest_run,
    ingest_study,
    ingest_external,
    tabulate_this_machine,
    tabulate_slurm_smoke,
    tabulate_h200,
    tabulate_overlap,
    tabulate_strong_scaling,
    tabulate_collectives,
    tabulate_comparability,
    predict_cells,
    hold_out_cells,
    tabulate_held_out,
    tabulate_predicted,
    tabulate_weak_scaling,
    tabulate_collective_regimes,
    tabulate_attribution,
    tabulate_modelled,
    plot_figure,
    render_page,


rule:
    name:
        "figures/"
    default_target: True
    input:
        EVERYTHING,


# The same by a word that needs no slash.
rule figures:
    input:
        EVERYTHING,


rule plot_figure:
    input:
        notebook="notebooks/{name}.ipynb",
        table="results/tables/{name}.parquet",
        coverage="results/tables/{name}.coverage.parquet",
        code=lambda wildcards: code_of(f"notebooks/{wildcards.name}.ipynb"),
        script=code_of("workflow_scripts/plot_figure.py"),
    output:
        pdf="figures/{name}.pdf",
        png="figures/{name}.png",
        csv="figures/{name}.csv",
        about="figures/{name}.json",
    # The executed notebook is a log: it holds times, and it is kept when a cell fails.
    log:
        "logs/figures/{name}.ipynb",
    wildcard_constraints:
        name="|".join(FIGURES),
    conda:
        "../environment.yml"
    params:
        out="figures/{name}",
    shell:
        "python workflow_scripts/plot_figure.py --notebook {input.notebook:q} --table {input.table:q} "
        "--coverage {input.coverage:q} --out {params.out:q} --executed {log:q}"


rule render_page:
    input:
        about=expand("figures/{name}.json", name=FIGURES),
        coverage=expand("results/tables/{name}.coverage.parquet", name=FIGURES),
        sources=sorted(str(path) for path in EXTERNAL.glob("*/source*.yaml")),
        code=code_of("workflow_scripts/render_page.py"),
    output:
        "figures/index.html",
    log:
        "logs/render_page.log",
    conda:
        "../environment.yml"
    params:
        sources=lambda wildcards, input: str(Path(input.sources[0]).parents[1]),
    shell:
        "python workflow_scripts/render_page.py --figures-json {input.about:q} --coverage {input.coverage:q} "
        "--sources {params.sources:q} --output {output:q} 2>&1 | tee {log:q}"
