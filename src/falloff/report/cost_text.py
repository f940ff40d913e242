"""What a study holds of a cluster, as aligned text: a line a kind of job, and the rules by which it was reckoned."""

from collections.abc import Sequence

from falloff.cost import RULES, JobCost, StudyCost, total_of
from falloff.report.text import DASH, aligned, decimals
from falloff.units import SECONDS_PER_MINUTE

_HEADER = ("nodes", "GPUs", "jobs", "runs", "minutes a job", "node-hours", "GPU-hours", "kWh", "rule")


def cost_lines(cost: StudyCost) -> list[str]:
    """Return the table of a study's cost and what its numbers mean."""
    kinds = sorted({_kind(job) for job in cost.jobs})
    rows = [_row([job for job in cost.jobs if _kind(job) == kind], cost.gpu_limit_w, kind) for kind in kinds]
    if len(rows) > 1:
        rows.append(_row(cost.jobs, cost.gpu_limit_w, None))
    lines = [
        f"study {cost.study} on {cost.site}: {cost.num_cells} cells, {cost.num_runs} runs, {cost.num_sealed} of them "
        f"measured; what is left:"
    ]
    lines += ["", aligned(_HEADER, rows, indent="")] if rows else ["", "nothing"]
    lines += ["", *(f"{rule}: {RULES[rule]}" for rule in sorted({job.rule for job in cost.jobs}))]
    return [*lines, f"kWh: {cost.energy_rule}", *(f"refused: {reason}" for reason in cost.refused)]


def _kind(job: JobCost) -> tuple[int, int, str]:
    return job.nodes, job.gpus, job.rule


def _row(jobs: Sequence[JobCost], gpu_limit_w: float | None, kind: tuple[int, int, str] | None) -> list[str]:
    total = total_of(jobs, gpu_limit_w)
    nodes, gpus, rule = kind or ("all", "", "")
    return [
        str(nodes),
        str(gpus),
        str(total.num_jobs),
        str(total.num_runs),
        decimals(total.held_s / total.num_jobs / SECONDS_PER_MINUTE, 1),
        decimals(total.node_hours, 2),
        decimals(total.gpu_hours, 2),
        DASH if total.energy_kwh is None else decimals(total.energy_kwh, 2),
        rule,
    ]
