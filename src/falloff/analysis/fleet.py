"""The table of figure fleet: one large network or several small ones on the same GPUs, in energy and dollars."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from falloff.analysis import points
from falloff.analysis.coverage import CoverageRow, coverage_frame
from falloff.analysis.efficiency import Row, flops_per_token
from falloff.analysis.fastest_layouts import fastest_layouts
from falloff.analysis.layout_choice import layout_of
from falloff.analysis.marginal import weighted_deviations
from falloff.analysis.model_points import INTERVAL, predicted_rows
from falloff.analysis.predicted_series import PREDICTED, is_plain, own_runs
from falloff.analysis.training_budget import loss_of, tokens_to
from falloff.normal import Z90
from falloff.perfmodel.calibrate import Fit
from falloff.perfmodel.cells import Cell
from falloff.perfmodel.counting import model_flops_per_token
from falloff.perfmodel.prediction import Prediction
from falloff.perfmodel.requests import find_network
from falloff.spec.assumptions import LossLaws, Prices, read_loss_laws, read_prices

FIGURE = "fleet"
CLUSTER, HARDWARE = "h100-sxm-ib400", "h100-sxm"
FLEET = 2048
PARTS = tuple(2**doubling for doubling in range(9))  # jobs that share the fleet, 1 to 256
NETWORKS = {
    "1B": "llama2-1b",
    "7B": "llama2-7b",
    "13B": "llama2-13b",
    "70B": "llama2-70b",
    "405B": "llama3-405b",
}
GLOBAL_BATCH, SEQ = 1024, 4096  # of every job: 4.2 million tokens
SMALL, SMALL_JOBS = "7B", 8  # what the large ones are set against: eight jobs of it on an eighth of the fleet each
_OWN_NETWORKS = {"llama2-1b": "1B", "llama2-3b": "3B", "llama2-7b": "7B", "llama3-8b": "8B"}
_MWH_J = 3.6e9


def tabulate(runs: pd.DataFrame, _cells: Sequence[Cell], fit: Fit) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the figure's table and its coverage, from records of our runs and a calibration.

    Every job has a batch of GLOBAL_BATCH sequences and runs in the fastest layout that fits its share of the fleet;
    `jobs` is how many share it. Panels over the GPUs of a job, a series a network: energy_per_token_j,
    energy_per_flop_j (over model FLOPs), mfu, usd_per_mtoken; and of our own runs on one and two H200 the first two.
    parts: by how many times a token of one network on the whole fleet takes more energy than one of SMALL on an eighth;
    part is whole, size (FLOPs of a token), network (energy a FLOP at equal GPUs) and scale (energy a FLOP on the whole
    fleet over that on an eighth); whole is the product. jobs_ratio: energy a token of one job on the whole fleet over
    that of SMALL_JOBS jobs of the same network, alone what scale does.
    mwh_to_loss, usd_to_loss: of one job on the whole fleet over parameters (x), to the losses that networks named in
    `target` reach after 20 tokens a parameter; `law` names the loss law. No batch penalty: all batches are equal.
    """
    laws, prices = read_loss_laws(), read_prices()
    shares = [FLEET // parts for parts in reversed(PARTS)]
    made = {
        name: fastest_layouts(network, CLUSTER, shares, global_batch=GLOBAL_BATCH, seq=SEQ, fit=fit)
        for name, network in NETWORKS.items()
    }
    rows: list[dict[str, Any]] = []
    for name, prediction in made.items():
        rows += _energies(name, prediction, prices)
        rows += _jobs_ratio(name, prediction, fit)
        rows += _parts(name, prediction, made[SMALL])
    rows += _to_losses(made, laws, prices)
    own = own_runs(runs) if len(runs) else runs
    measured = _measured(own) if len(own) else []
    rows += measured
    return points.points_frame(rows), coverage_frame(_coverage(made, len(measured)))


def _energies(name: str, made: Prediction, prices: Prices) -> Iterator[dict[str, Any]]:
    gpus = made.jobs.gpus
    flops = model_flops_per_token(made.jobs)
    usd = prices.of(HARDWARE).on_demand_usd_h / 3600 * 1e6
    for place, row in enumerate(
        predicted_rows(
            made,
            "energy_per_token_j",
            panel="energy_per_token_j",
            series=[name] * len(gpus),
            xs=list(gpus),
            kind="predicted",
        )
    ):
        more = {
            "network": name,
            "jobs": FLEET / float(gpus[place]),
            "layout": layout_of(made.jobs, place),
            "draw_w": float(made.power.draw_w[place]),
            "flops_per_token": float(flops[place]),
            "global_batch": GLOBAL_BATCH,
            "seq": SEQ,
        }
        yield {**row, **more}
        ends = ("y", "y_low", "y_high")
        yield {**row, **more, "panel": "energy_per_flop_j", **{end: row[end] / float(flops[place]) for end in ends}}
        rate, low, high = (float(values[place]) for values in (made.tokens_per_gpu_s, made.low, made.high))
        dollars = {"y": usd / rate, "y_low": usd / high, "y_high": usd / low}
        yield {**row, **more, "panel": "usd_per_mtoken", **dollars}
    found = predicted_rows(
        made, "mfu", panel="mfu", series=[name] * len(gpus), xs=list(gpus), kind="predicted", network=name
    )
    yield from found


def _place(made: Prediction, gpus: int) -> int | None:
    places = np.flatnonzero(made.jobs.gpus == gpus)
    return int(places[0]) if len(places) else None


def _jobs_ratio(name: str, made: Prediction, fit: Fit) -> Iterator[dict[str, Any]]:
    """Yield what a token takes on the whole fleet over what it takes in SMALL_JOBS jobs, its interval by the rates."""
    whole, part = _place(made, FLEET), _place(made, FLEET // SMALL_JOBS)
    if whole is None or part is None:
        return
    energy = made.power.energy_per_token_j
    ratio = float(energy[whole] / energy[part])
    weights = np.zeros((1, len(made.jobs)))
    weights[0, [whole, part]] = -1.0, 1.0
    deviation = float(weighted_deviations(made, fit, weights)[0])
    yield {
        **_row("jobs_ratio", name, float(find_network(NETWORKS[name]).params), ratio),
        "y_low": ratio * np.exp(-Z90 * deviation),
        "y_high": ratio * np.exp(Z90 * deviation),
        "interval": f"{INTERVAL}, of the rates alone",
        "jobs": SMALL_JOBS,
    }


def _parts(name: str, made: Prediction, small: Prediction) -> Iterator[dict[str, Any]]:
    """Yield by what one token of a network on the whole fleet takes more energy than one of SMALL on an eighth."""
    whole, part, other = _place(made, FLEET), _place(made, FLEET // SMALL_JOBS), _place(small, FLEET // SMALL_JOBS)
    if whole is None or part is None or other is None:
        return
    flops, small_flops = model_flops_per_token(made.jobs), model_flops_per_token(small.jobs)
    per_flop = made.power.energy_per_token_j / flops
    small_per_flop = small.power.energy_per_token_j / small_flops
    factors = {
        "size": flops[whole] / small_flops[other],
        "network": per_flop[part] / small_per_flop[other],
        "scale": per_flop[whole] / per_flop[part],
    }
    factors["whole"] = np.prod(list(factors.values()))
    for part_name, factor in factors.items():
        row = _row("parts", name, float(find_network(NETWORKS[name]).params), float(factor))
        yield {**row, "part": part_name, "record_id": f"{name} on {FLEET} against {SMALL}, {part_name}"}


def _row(panel: str, name: str, x: float, y: float) -> dict[str, Any]:
    return {
        **PREDICTED,
        "panel": panel,
        "series": name,
        "kind": "predicted",
        "network": name,
        "x": x,
        "y": y,
        "n": 1,
        "num_gpus": FLEET,
        "record_id": f"{name} on {FLEET} GPUs",
    }


def _to_losses(made: Mapping[str, Prediction], laws: LossLaws, prices: Prices) -> Iterator[dict[str, Any]]:
    params = {name: float(find_network(network).params) for name, network in NETWORKS.items()}
    usd_s = prices.of(HARDWARE).on_demand_usd_h / 3600
    for law in laws.laws:
        for target in ("7B", "70B"):
            loss = loss_of(law, params[target], laws.tokens_per_param * params[target])
            for name, prediction in made.items():
                place, tokens = _place(prediction, FLEET), tokens_to(law, params[name], loss)
                if place is None or not np.isfinite(tokens):
                    continue
                found = {
                    "mwh_to_loss": tokens * prediction.power.energy_per_token_j[place] / _MWH_J,
                    "usd_to_loss": tokens * usd_s / prediction.tokens_per_gpu_s[place],
                }
                for panel, y in found.items():
                    yield {
                        **_row(panel, f"{target}'s loss, {law.name}", params[name], float(y)),
                        "network": name,
                        "law": law.name,
                        "target": target,
                        "loss": loss,
                        "tokens": tokens,
                        "record_id": f"{name} to {loss:.3f}, {law.name}",
                    }


def _per_flop(row: Row) -> float:
    return points.energy_per_token_j(row) / flops_per_token(row)


def _measured(own: pd.DataFrame) -> list[dict[str, Any]]:
    """Return our plain metered runs of whole networks, at the largest microbatch of each."""
    plain = own[own["draw_w"].notna() & own["network"].isin(_OWN_NETWORKS) & (own["seq"] >= SEQ)]
    single = (plain[["tp", "pp", "cp", "dp_replicate"]].fillna(1) == 1).all(axis=1)
    plain = plain[single & is_plain(plain)]
    most = plain.groupby(["network", "num_gpus"])["microbatch"].transform("max")
    groups = list(points.groups(plain[plain["microbatch"] == most], ("cell_id",)))
    rows = []
    for panel, metric in (("energy_per_token_j", points.energy_per_token_j), ("energy_per_flop_j", _per_flop)):
        spreads = points.pools(groups, metric)
        for group in groups:
            first = group.iloc[0]
            more: dict[str, Any] = {"kind": "measured", "network": _OWN_NETWORKS[first["network"]], "machine": "H200"}
            where: dict[str, Any] = {"series": f"{first['network']}, H200", "x": float(first["num_gpus"])}
            rows.append(points.point(group, metric, panel=panel, spreads=spreads, **where, **more))
    return rows


def _coverage(made: Mapping[str, Prediction], num_measured: int) -> Iterator[CoverageRow]:
    if num_measured:
        cell = "energy of a token, 1B to 8B on one and two H200"
        yield CoverageRow(figure=FIGURE, cell=cell, status="measured", n=num_measured // 2)
    for name, prediction in made.items():
        lacking = [parts for parts in PARTS if _place(prediction, FLEET // parts) is None]
        if lacking:
            cell = f"{name} in {lacking[0]} jobs and more on {FLEET:,} H100"
            reason = f"does not fit {FLEET // lacking[0]} GPUs at a batch of {GLOBAL_BATCH:,} sequences"
            yield CoverageRow(figure=FIGURE, cell=cell, status="missing", reason=reason, n=0)
    reason = "no source meters pre-training of several networks on one machine; predicted"
    yield CoverageRow(figure=FIGURE, cell="watts of jobs that share 2,048 H100", status="missing", reason=reason, n=0)
