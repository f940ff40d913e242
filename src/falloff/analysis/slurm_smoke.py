"""The table of figure slurm_smoke: a study of seconds on one, two and four nodes of a cluster."""

from typing import Any

import pandas as pd

from falloff.analysis import points
from falloff.analysis.controls import ordinary
from falloff.analysis.coverage import coverage_frame, current_records, study_coverage
from falloff.analysis.efficiency import Row, number, tokens_per_s
from falloff.spec.study import Study

FIGURE = "slurm_smoke"


def tabulate(study: Study, runs: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the figure's table and its coverage, from the records of the study's logs.

    One panel, throughput: tokens/s of all ranks over ranks, a series a network and way to split it; nodes says on how
    many nodes a cell ran. ValueError where nothing ended well.
    """
    current = current_records(study, ordinary(runs))
    good = current[current["outcome"] == "ok"]
    if good.empty:
        raise ValueError(f"figure {FIGURE}: none of {len(runs)} records of study {study.name} is ok")
    cells = list(points.groups(good, ("network", "cell_id", "backend")))
    spreads = points.pools(cells, tokens_per_s)
    rows = [_row(cell, spreads) for cell in cells]
    return points.points_frame(rows), coverage_frame(study_coverage(FIGURE, study, runs))


def split_words(row: Row) -> str:
    """Return how a cell splits its network, whatever the number of ranks: a series of the figure."""
    tp = number(row, "tp")
    return f"tp {tp:g}, replicated" if tp > 1 else "dp_shard"


def _row(cell: pd.DataFrame, spreads: points.Pools) -> dict[str, Any]:
    first = points.rows_of(cell)[0]
    return points.point(
        cell,
        tokens_per_s,
        panel="throughput",
        series=f"{first['network']} {split_words(first)}",
        x=number(first, "num_gpus"),
        spreads=spreads,
        label=split_words(first),
        nodes=number(first, "nodes"),
        cell_id=first["cell_id"],
    )
