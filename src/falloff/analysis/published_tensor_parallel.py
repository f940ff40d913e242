"""Published cells that differ in tensor parallelism, over those with least of it, and the model's of these cells."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from falloff.analysis.model_points import published_cells, published_row
from falloff.analysis.playbook_mixes import SOURCE, Mixes, cell_row, counts, same_cell_row, tied_within
from falloff.analysis.predicted_series import PREDICTED
from falloff.perfmodel.calibrate import Fit
from falloff.perfmodel.cells import Cell

# of a published series with everything else alike, the networks that ran without pipeline stages
SERIES_NETWORKS = ("1B", "8B")
# the one source of several tensor-parallel degrees under full sharding (ZeRO-3) at one batch, on V100
ZERO3_SOURCE, ZERO3_PROGRAM = "bigscience-v100", "Megatron-LM"


def _alike(mixes: Mixes, network: str, gpus: int) -> list[dict[int, int]]:
    """Return published cells by tp, a chain each accumulation and sharding, without stages; of reruns the faster."""
    jobs = mixes.of.jobs
    chains: dict[tuple[float, float], dict[int, int]] = {}
    for place in mixes.places(network, gpus):
        if jobs.pp[place] == 1:
            chain = chains.setdefault((float(jobs.num_microbatches[place]), float(jobs.zero_stage[place])), {})
            tp = int(jobs.tp[place])
            if tp not in chain or mixes.rates[place] > mixes.rates[chain[tp]]:
                chain[tp] = place
    return [dict(sorted(chain.items())) for _, chain in sorted(chains.items())]


def series_rows(mixes: Mixes) -> Iterator[dict[str, Any]]:
    """Yield of each network and count the longest chain of alike cells, of those the one with the fastest cell."""
    tie = tied_within(mixes)
    for network, gpus, _ in counts(mixes):
        chains = [chain for chain in _alike(mixes, network, gpus) if len(chain) > 1]
        if network not in SERIES_NETWORKS or not chains:
            continue
        chain = max(chains, key=lambda chain: (len(chain), max(mixes.rates[place] for place in chain.values())))
        base = next(iter(chain.values()))
        for tp, place in chain.items():
            name = f"{network}, {gpus} GPUs"
            row = cell_row(mixes, place, panel="published", series=name, x=float(tp))
            yield {**row, "rate": row["y"], "y": float(mixes.rates[place] / mixes.rates[base]), "tie_within": tie}
            said = same_cell_row(mixes, place, panel="same_cells", series=name, x=float(tp))
            ratio = float(mixes.said[place] / mixes.said[base])
            yield {**said, "rate": said["y"], "y": ratio, "y_low": None, "y_high": None, "interval": None}


def pair_rows(mixes: Mixes) -> Iterator[dict[str, Any]]:
    """Yield what twice the tensor parallelism gives, over all pairs of alike cells of a network and count."""
    for network, gpus, _ in counts(mixes):
        pairs: dict[int, list[tuple[int, int]]] = {}
        for chain in _alike(mixes, network, gpus):
            for tp, place in chain.items():
                if 2 * tp in chain:
                    pairs.setdefault(tp, []).append((place, chain[2 * tp]))
        for tp, found in sorted(pairs.items()):
            ratios, said = (
                np.array([rates[two] / rates[one] for one, two in found]) for rates in (mixes.rates, mixes.said)
            )
            ids = [mixes.of.cells[place].cell_id for pair in found for place in pair]
            yield {
                "panel": "pairs",
                "series": f"{network}, tp {tp} to {2 * tp}",
                "x": float(gpus),
                "y": float(np.median(ratios)),
                "n": len(found),
                "num_gpus": gpus,
                "network": network,
                "tp": tp,
                "faster": float((ratios > 1).mean()),
                "predicted": float(np.median(said)),
                "provenance": "published",
                "source": SOURCE,
                "source_ref": mixes.of.cells[found[0][0]].text("source_url"),
                "record_id": "; ".join(dict.fromkeys(ids)),
            }


def zero3_rows(cells: Sequence[Cell], fit: Fit) -> Iterator[dict[str, Any]]:
    """Yield BigScience's cells that shard everything, of each network and batch that ran with and without tp."""
    own = [
        cell
        for cell in cells
        if cell.source == ZERO3_SOURCE
        and cell.text("zero_stage_or_fsdp") == "zero3"
        and cell.text("framework").startswith(ZERO3_PROGRAM)
        and "cpu offload" not in cell.text("note")
    ]
    rated = [(cell, rate) for cell in own if (rate := cell.measured("tokens_per_s_per_gpu"))]
    found = published_cells(own, fit)
    names = [] if found is None else [cell.cell_id for cell in found.cells]
    said = dict(zip(names, found.made.tokens_per_gpu_s.tolist() if found else [], strict=True))
    keys = [(cell.text("model"), int(cell.number("global_batch") or 0)) for cell, _ in rated]
    for network, batch in sorted(set(keys)):
        here = [pair for pair, key in zip(rated, keys, strict=True) if key == (network, batch)]
        base = [(cell, rate) for cell, rate in here if cell.number("tp") == 1]
        if not base or len(base) == len(here):
            continue
        base_rate = float(np.median([rate for _, rate in base]))
        base_said = [said[cell.cell_id] for cell, _ in base if cell.cell_id in said]
        name = f"{network.rpartition('-')[2]}, batch {batch:,}"
        for cell, rate in here:
            tp = cell.number("tp") or 1.0
            about = {"network": network, "tp": int(tp), "rate": rate, "global_batch": float(batch)}
            row = published_row(cell, rate / base_rate, panel="zero3", series=name, x=tp, **about)
            yield row
            if cell.cell_id in said and len(base_said) == len(base):
                predicted = said[cell.cell_id]
                y = predicted / float(np.median(base_said))
                more = {"panel": "zero3_same_cells", "y": y, "rate": predicted, "record_id": f"of {cell.cell_id}"}
                yield {**row, **PREDICTED, **more}
