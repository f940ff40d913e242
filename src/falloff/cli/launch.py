"""falloff launch --show: what becomes of a cell on a cluster, without submitting it."""

import argparse
import dataclasses
import itertools
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from falloff.cli.output import print_json
from falloff.launch import Run, rank_command
from falloff.rawlog import is_sealed
from falloff.schedule import runs_on_site
from falloff.slurm.allocation import shown_allocation
from falloff.slurm.command import site_environment
from falloff.slurm.packs import packs_of
from falloff.slurm.resources import JobResources, resources_of, snakemake_resources
from falloff.spec.site import Site, read_site
from falloff.spec.study import Study, read_study

STUDIES, RAW = Path("config/studies"), Path("data/raw")
# what a person reads in one sentence
NUM_LISTED = 12


def run(parsed: argparse.Namespace) -> int:
    """Print the job of a cell's first repeat: its resources, its sbatch call, and what starts its ranks in it.

    In place of a cell a study may be named; its cells are printed then, since none has a folder before it is measured.
    """
    # Snakemake's plugin, which renders the call, takes its seconds
    from falloff.submission import sbatch_command

    if (STUDIES / f"{parsed.show}.yaml").is_file():
        study = read_study(STUDIES / f"{parsed.show}.yaml", Path("config/models"))
        cells = [each.cell_id for each in study.cells]
        if parsed.json:
            print_json({"study": study.name, "cells": cells})
        else:
            print("\n".join([f"the cells of study {study.name}:", *(f"  {cell_id}" for cell_id in cells)]))
        return 0
    site = read_site(parsed.site_file)
    runs = _job_of(parsed.show, parsed.study, site)
    size = resources_of(runs, site)
    resources = snakemake_resources(size, site)
    shown = {
        "study": runs[0].study,
        "runs": [f"{run.cell_id}/{run.repeat}" for run in runs],
        "size": dataclasses.asdict(size),
        "resources": resources,
        "sbatch": sbatch_command(resources),
        "environment": site_environment(site),
        # neighbours that agree in their place share their processes
        "ranks": [
            rank_command(list(shared), shown_allocation(size.nodes), site)
            for _, shared in itertools.groupby(runs, key=lambda run: run.place)
        ],
    }
    if parsed.json:
        print_json(shown)
    else:
        print("\n".join(_lines(shown, size, site)))
    return 0


def _job_of(cell: str, study_name: str | None, site: Site) -> tuple[Run, ...]:
    """Return the runs of the job in which a cell's first repeat is measured; ValueError for a cell that is none.

    Beside the cell's own only those without a log, which the job would measure.
    """
    study = _study_with(cell, study_name)
    (cell_id,) = _matching(study, cell)
    runs, reasons = runs_on_site(study, RAW, site)
    for pack in packs_of(runs, site):
        if any(run.cell_id == cell_id for run in pack):
            return tuple(run for run in pack if run.cell_id == cell_id or not is_sealed(run.run_dir))
    (reason,) = [reason for reason in reasons if reason.startswith(cell_id)]
    raise ValueError(f"study {study.name}: {reason}")


def _study_with(cell: str, study_name: str | None) -> Study:
    """Return the one study that has the one cell whose id is `cell` or begins so."""
    paths = sorted(STUDIES.glob("*.yaml")) if study_name is None else [STUDIES / f"{study_name}.yaml"]
    studies = [read_study(path, Path("config/models")) for path in paths]
    found = [(study, cell_id) for study in studies for cell_id in _matching(study, cell)]
    names = ", ".join(study.name for study in studies)
    if not found:
        _raise_refused(studies, cell)
        raise ValueError(
            f"no cell's id is or begins with {cell!r} in {names}; --show with a study's name lists its cells"
        )
    if len(found) > 1:
        listed = ", ".join(f"{cell_id} of {study.name}" for study, cell_id in found[:NUM_LISTED])
        more = f" and {len(found) - NUM_LISTED} more" if len(found) > NUM_LISTED else ""
        raise ValueError(
            f"{cell!r} is or begins the id of {len(found)} cells: {listed}{more}; name one, or its --study"
        )
    return found[0][0]


def _matching(study: Study, cell: str) -> list[str]:
    ids = [each.cell_id for each in study.cells]
    return [cell] if cell in ids else [cell_id for cell_id in ids if cell_id.startswith(cell)]


def _raise_refused(studies: Sequence[Study], cell: str) -> None:
    for study in studies:
        for refused in study.refused:
            if refused.cell_id.startswith(cell):
                raise ValueError(f"study {study.name}: {refused.cell_id} is refused: {refused.reason}")


def _lines(shown: Mapping[str, Any], size: JobResources, site: Site) -> Iterator[str]:
    gpus = f", {size.gpus_per_node} GPUs" if size.gpus_per_node else ""
    nodes = "1 node" if size.nodes == 1 else f"{size.nodes} nodes"
    yield f"one job on {site.label}: {nodes}, {size.processes_per_node} processes{gpus} a node"
    yield f"at most {size.time_limit_s:g} s; measures {', '.join(shown['runs'])} of study {shown['study']}"
    yield "\nresources of the job, as Snakemake has them:"
    yield from (f"  {name}={value}" for name, value in shown["resources"].items())
    yield "\nsubmitted as (its name, log, comment and script are Snakemake's):"
    yield f"  {shlex.join(shown['sbatch'])}"
    yield "\nvariables of the site on every node:"
    yield from (f"  {name}={value}" for name, value in shown["environment"].items())
    yield "\nthe ranks, started one after the other by the launcher in the job, which knows its id, nodes and port:"
    yield from (f"  {shlex.join(command)}" for command in shown["ranks"])
