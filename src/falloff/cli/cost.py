"""falloff cost: what a study holds of a cluster before it is submitted."""

import argparse
import dataclasses
from pathlib import Path

from falloff.cli.files import hardware_folder
from falloff.cli.output import print_json
from falloff.cost import RULES, StudyCost, costs_of, gpu_limit, total_of, walls_of
from falloff.rawlog import is_sealed
from falloff.report.cost_text import cost_lines
from falloff.schedule import runs_on_site
from falloff.slurm.packs import packs_of
from falloff.spec.hardware import read_all_hardware
from falloff.spec.site import Site, read_site
from falloff.spec.study import read_study


def run(parsed: argparse.Namespace) -> int:
    """Print what the runs without a sealed log hold, by the stated rules."""
    cost = _cost(parsed, read_site(parsed.site_file))
    if not parsed.json:
        print("\n".join(cost_lines(cost)))
        return 0
    jobs = [{**dataclasses.asdict(job), "node_hours": job.node_hours, "gpu_hours": job.gpu_hours} for job in cost.jobs]
    total = dataclasses.asdict(total_of(cost.jobs, cost.gpu_limit_w))
    print_json({**dataclasses.asdict(cost), "jobs": jobs, "total": total, "rules": RULES})
    return 0


def _cost(parsed: argparse.Namespace, site: Site) -> StudyCost:
    study = read_study(Path("config/studies") / f"{parsed.study}.yaml", Path("config/models"))
    runs, refused = runs_on_site(study, parsed.data, site)
    # packed as the workflow does, sealed or not, and then without what is sealed
    packs = [[run for run in pack if not is_sealed(run.run_dir)] for pack in packs_of(runs, site)]
    watts, energy_rule = _gpu_limit(parsed.hardware, site)
    return StudyCost(
        study=study.name,
        site=site.label,
        num_cells=len(study.cells),
        num_runs=len(runs),
        num_sealed=len(runs) - sum(map(len, packs)),
        refused=tuple(refused),
        jobs=tuple(costs_of(filter(None, packs), site, walls_of(parsed.data / study.name))),
        gpu_limit_w=watts,
        energy_rule=energy_rule,
    )


def _gpu_limit(hardware: str | None, site: Site) -> tuple[float | None, str]:
    """Return the power limit of the GPU that is named, else of the site's if that is one of config/hardware."""
    known = read_all_hardware(hardware_folder())
    if hardware is not None:
        return gpu_limit(hardware, known)
    if site.gpu_resource is None:
        return None, "not counted: gpu_resource of the site file is null, its jobs ask for no GPUs"
    try:
        return gpu_limit(site.gpu_type, known)
    except ValueError as error:
        return None, f"not known: gpu_type of the site file: {error}; name the GPU with --hardware"
