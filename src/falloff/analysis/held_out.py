"""Published cells beside what the model, and what it must beat, predict of them from fits that never saw them."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from falloff.perfmodel.baselines import naive_tokens
from falloff.perfmodel.jobs import Bools, Floats
from falloff.perfmodel.parameters import Values
from falloff.perfmodel.rivals import rivals_known, rivals_unseen
from falloff.perfmodel.scores import SCALES
from falloff.perfmodel.step import Steps, predict_steps
from falloff.perfmodel.validate import Model, Predictions, Table, fit_of, known, unseen

# a fit to so many GPUs and fewer predicts all cells with more
CUTS = (8, 64, 128)
# generations whose cells, and no others, are fitted, and the one whose cells such a fit predicts
OLDER, NEWER = ("v100", "a100"), "h100"
# Column (b) is two columns: the source is known but for whole models, or but for whole counts of GPUs.
KNOWN = {"models": "by models", "GPU counts": "by counts"}
REGIMES = ("products", "memory-bound kernels", "communication", "waiting")
# Of a step, what must not be in products for another part to name its regime.
LEAST_SHARE = 0.2


def held_out(table: Table, model: Model, values: Values) -> pd.DataFrame:
    """Return one row a published cell that can be learned from or is scored, in the order of the table.

    Rates are tokens per GPU and second: published; unseen (column a: no cell of the source was fitted); by_models and
    by_counts (column b); the naive rule; the constant HFU and the regression under each of these splits; above_8,
    above_64, above_128, from a fit to so many GPUs and fewer; and newer, of cells of generation NEWER from a fit to
    those of OLDER alone, to any GPUs. Bytes are published_memory and those of
    the two columns, of the kind that memory_kind names. fits says whether the step is held to fit, outcome what became
    of it. regime is what the step is bound by under `values`, parameters of step.py, which serve for nothing else. Not
    predicted is NaN.
    """
    first, second = unseen(table, model), known(table, model)
    away = rivals_unseen(table)
    frame = pd.DataFrame(
        {
            **_identity(table),
            "regime": regimes_of(predict_steps(table.jobs, values)),
            "published": table.real,
            "unseen": first.tokens,
            **{_column(name): one.tokens for name, one in second.items()},
            "naive": naive_tokens(table.jobs),
            "constant_unseen": away.constant,
            "regression_unseen": away.regression,
            **_known_rivals(table),
            **{f"above_{cut}": _above(table, model, cut) for cut in CUTS},
            "newer": _newer(table, model),
            "memory_kind": table.measured.memory_kind,
            "published_memory": table.measured.memory_bytes,
            "unseen_memory": first.memory_bytes,
            **{f"{_column(name)}_memory": one.memory_bytes for name, one in second.items()},
            "outcome": table.measured.outcome,
            "fits": first.fits,
        }
    )
    return frame[_is_of_use(table, first, second)].reset_index(drop=True)


def scale_of(gpus: npt.ArrayLike) -> npt.NDArray[np.str_]:
    """Return the name of the scale that each number of GPUs [n] is of (scores.SCALES)."""
    tops = [high for _, _, high in SCALES[:-1]]
    return np.array([name for name, _, _ in SCALES])[np.searchsorted(tops, np.asarray(gpus, dtype=float))]


def regimes_of(steps: Steps) -> npt.NDArray[np.str_]:
    """Return what each predicted step [n] is bound by: the largest part beside products, where that is a fifth of it.

    communication: exposed, and what computation is slowed by; waiting: for the host, stages, slower GPUs, the loop.
    """
    parts = {
        "memory-bound kernels": steps.memory_bound_s + steps.optimizer_s,
        "communication": steps.exposed_s + steps.data_parallel.slowed_s,
        "waiting": steps.launch_s
        + steps.bubble_s
        + steps.imbalance_s
        + steps.slowest_gpu_s
        + steps.jitter_s
        + steps.overhead_s,
    }
    shares = np.stack(list(parts.values())) / steps.step_s
    names = np.array(list(parts))[np.argmax(shares, axis=0)]
    return np.where(shares.max(axis=0) >= LEAST_SHARE, names, "products")


def _column(name: str) -> str:
    return KNOWN[name].replace(" ", "_")


def _identity(table: Table) -> dict[str, Any]:
    family = np.full(len(table.cells), "", dtype=object)
    for name, mask in table.families.items():
        family[mask] = name
    return {
        "cell_id": [cell.cell_id for cell in table.cells],
        "source": table.sources,
        "source_ref": [cell.text("source_url") for cell in table.cells],
        "family": family,
        "network": [cell.text("model") for cell in table.cells],
        "generation": table.jobs.generation,
        "num_gpus": table.jobs.gpus,
        **_series(table),
    }


def _series(table: Table) -> dict[str, list[str]]:
    """Return the series over GPUs that each cell is of, as texts: one of a fixed batch, one of a fixed batch a GPU.

    Cells of a series agree in all but GPUs, data parallelism, accumulation, and what follows from them.
    """
    jobs = table.jobs
    numbers = (jobs.seq, jobs.microbatch, jobs.tp, jobs.pp, jobs.vpp, jobs.cp, jobs.ep, jobs.zero_stage, jobs.recompute)
    texts = ("gpu", "interconnect", "model", "precision", "framework", "framework_version", "attention", "compile")
    shared = [
        " ".join([cell.source, *(cell.text(name) for name in texts), *(f"{field[place]:g}" for field in numbers)])
        for place, cell in enumerate(table.cells)
    ]
    batches = {"strong": jobs.tokens, "weak": jobs.tokens / jobs.gpus}
    return {
        f"{kind}_series": [f"{name} {tokens:g}" for name, tokens in zip(shared, batch, strict=True)]
        for kind, batch in batches.items()
    }


def _known_rivals(table: Table) -> dict[str, Floats]:
    """Return the baselines fitted to the training cells of a cell's own family alone, by what was split."""
    kinds = ("constant", "regression")
    found = {f"{kind}_{_column(name)}": np.full(len(table.cells), np.nan) for kind in kinds for name in KNOWN}
    for mask in table.families.values():
        for name, rivals in rivals_known(table, mask).items():
            for kind in kinds:
                predicted: Floats = getattr(rivals, kind)
                made = np.isfinite(predicted)
                found[f"{kind}_{_column(name)}"][made] = predicted[made]
    return found


def _above(table: Table, model: Model, cut: int) -> Floats:
    """Return the rates of all cells above so many GPUs [n] from a fit to the others; NaN of those."""
    above = table.jobs.gpus > cut
    tokens = np.full(len(table.cells), np.nan)
    if above.any():
        tokens[above] = model.predict(table.jobs.take(above), fit_of(table, model, ~above).values)
    return tokens


def _newer(table: Table, model: Model) -> Floats:
    """Return the rates of cells of NEWER [n] from a fit to those of OLDER; NaN of all others.

    What is known of the newer generation before any training run stays in the priors: data sheets, and kernels and
    collectives that were timed alone.
    """
    newer, older = table.jobs.generation == NEWER, np.isin(table.jobs.generation, OLDER)
    tokens = np.full(len(table.cells), np.nan)
    if newer.any() and older.any():
        tokens[newer] = model.predict(table.jobs.take(newer), fit_of(table, model, older).values)
    return tokens


def _is_of_use(table: Table, first: Predictions, second: Mapping[str, Predictions]) -> Bools:
    rated = table.measured.has_rate & (first.made | np.any([one.made for one in second.values()], axis=0))
    remembered = np.isfinite(first.memory_bytes) & np.isfinite(table.measured.memory_bytes)
    return np.asarray(rated | remembered | (table.measured.outcome != "ok") | table.learnable, dtype=bool)
