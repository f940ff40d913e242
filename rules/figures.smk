"""Figures by notebook, and the page that shows them."""

from falloff.report.contents import group_of, short_name

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
    "results/tables/claims.parquet",
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
    collect_evidence,
    check_claims,
    plot_figure,
    render_page,
    predict_grid,


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
        png=report(
            "figures/{name}.png",
            caption="captions/figure.rst",
            category=lambda wildcards: group_of(wildcards.name),
            labels=lambda wildcards: {"figure": short_name(wildcards.name, wildcards.name)},
        ),
        csv="figures/{name}.csv",
        about="figures/{name}.json",
        caption="results/captions/{name}.rst",
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
        "--coverage {input.coverage:q} --out {params.out:q} --executed {log:q} --caption {output.caption:q}"


# The page's style and script are files that no import names.
rule render_page:
    input:
        about=expand("figures/{name}.json", name=FIGURES),
        coverage=expand("results/tables/{name}.coverage.parquet", name=FIGURES),
        claims="results/tables/claims.parquet",
        questions="results/tables/questions.parquet",
        held_out="results/perfmodel/held_out.parquet",
        what_if="results/perfmodel/what_if.json",
        prices="config/assumptions/prices.yaml",
        sources=sorted(str(path) for path in EXTERNAL.glob("*/source*.yaml")),
        assets=["src/falloff/report/page.css", "src/falloff/report/page.js"],
        code=code_of("workflow_scripts/render_page.py"),
    output:
        report("figures/index.html", caption="captions/page.rst", category="The page"),
    log:
        "logs/render_page.log",
    conda:
        "../environment.yml"
    params:
        sources=lambda wildcards, input: str(Path(input.sources[0]).parents[1]),
        assumptions=lambda wildcards, input: str(Path(input.prices).parent),
    shell:
        "python workflow_scripts/render_page.py --figures-json {input.about:q} --coverage {input.coverage:q} "
        "--sources {params.sources:q} --claims {input.claims:q} --questions {input.questions:q} "
        "--held-out {input.held_out:q} --what-if {input.what_if:q} --assumptions {params.assumptions:q} "
        "--output {output:q} 2>&1 | tee {log:q}"
