"""The families of published cells that are scored, and by whom they were scored before."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from falloff.perfmodel.cells import Cell
from falloff.perfmodel.floors import twins
from falloff.perfmodel.jobs import Bools

PLAYBOOK, MPT, VTRAIN, LLAMA3 = "ultrascale-playbook", "llm-foundry", "vtrain2024", "llama3-paper"


@dataclass(frozen=True, kw_only=True)
class Family:
    """Cells of one source that were measured alike. Goals and the best peer's error are MAPEs, in per cent.

    peer_cells is how many cells the peers were tried on, where it was not the same.
    """

    name: str
    source: str
    member: Callable[[Cell], bool]
    peer: str
    peer_mape: float | None
    goal_unseen: float
    goal_known: float | None
    peer_cells: int | None = None


def _is_mpt(gpu: str) -> Callable[[Cell], bool]:
    return lambda cell: cell.text("gpu").startswith(gpu) and cell.text("precision") == "bf16"


def _is_precision(*names: str) -> Callable[[Cell], bool]:
    return lambda cell: cell.text("precision") in names


# Peers' numbers: each tool run as shipped on the published cells, or one factor fitted for each family ("fitted"); the
# numbers are those of the project's comparison of peers (docs/perfmodel.md), but for vTrain's, which its paper reports
# (arXiv 2312.12391, section 4: with profiles of every operator on the machine itself).
FAMILIES: tuple[Family, ...] = (
    Family(
        name="Korthikanti 2022 table 5",
        source="korthikanti2022",
        member=lambda cell: bool(cell.source),
        peer="Calculon, in-sample",
        peer_mape=4.5,
        goal_unseen=5,
        goal_known=3.5,
    ),
    Family(
        name="Megatron SC'21 table 1",
        source="megatron-sc21",
        member=lambda cell: cell.text("metric_published").startswith("TFLOP/s/GPU, %"),
        peer="naive rule",
        peer_mape=5.7,
        goal_unseen=6,
        goal_known=4,
    ),
    Family(
        name="Megatron SC'21 PTD",
        source="megatron-sc21",
        member=lambda cell: "days" in cell.text("metric_published") and cell.text("zero_stage_or_fsdp") != "zero3",
        peer="Calculon, fitted",
        peer_mape=2.4,
        goal_unseen=4,
        goal_known=1.5,
    ),
    Family(
        name="SC'21 ZeRO-3",
        source="megatron-sc21",
        member=lambda cell: cell.text("zero_stage_or_fsdp") == "zero3",
        peer="Calculon, fitted",
        peer_mape=14.9,
        goal_unseen=12,
        goal_known=8,
    ),
    Family(
        name="vTrain multi-node",
        source=VTRAIN,
        member=lambda cell: (cell.measured("gpus") or 0) > 8,
        peer="Calculon, fitted",
        peer_mape=11.6,
        goal_unseen=11,
        goal_known=7,
        peer_cells=109,
    ),
    Family(
        name="vTrain single-node",
        source=VTRAIN,
        member=lambda cell: (cell.measured("gpus") or 0) <= 8,
        peer="vTrain, reported, with profiles",
        peer_mape=8.4,
        goal_unseen=12,
        goal_known=6,
        peer_cells=1440,
    ),
    Family(
        name="MPT FSDP, A100",
        source=MPT,
        member=_is_mpt("A100"),
        peer="llm-analysis, fitted on one cell",
        peer_mape=11.2,
        goal_unseen=12,
        goal_known=5,
        peer_cells=17,
    ),
    Family(
        name="MPT FSDP, H100",
        source=MPT,
        member=_is_mpt("H100"),
        peer="llm-analysis, efficiency 0.5",
        peer_mape=13.8,
        goal_unseen=12,
        goal_known=5,
        peer_cells=44,
    ),
    Family(
        name="TorchTitan, bf16",
        source="torchtitan",
        member=_is_precision("bf16"),
        peer="llm-analysis, fitted on one cell",
        peer_mape=9.5,
        goal_unseen=10,
        goal_known=7,
        peer_cells=4,
    ),
    Family(
        name="TorchTitan, fp8",
        source="torchtitan",
        member=_is_precision("fp8", "mxfp8"),
        peer="",
        peer_mape=None,
        goal_unseen=10,
        goal_known=7,
    ),
    Family(
        name="Llama 3 405B, the 8k rows",
        source=LLAMA3,
        member=lambda cell: cell.text("seq") == "8192",
        peer="llm-analysis, fitted on one cell",
        peer_mape=7.0,
        goal_unseen=5,
        goal_known=None,
        peer_cells=3,
    ),
)
UNIQUE_BY_COLUMNS = ("torchtitan",)  # sources of which only rows without a twin are scored

# The peers on the playbook's layouts: median and mean regret of a kernel regression on the measured cells (as FAMILIES)
PLAYBOOK_PEER_REGRET = (9.0, 39.0)


def members(cells: Sequence[Cell]) -> Mapping[str, Bools]:
    """Return which rows belong to which family, by its name, as masks [n]."""
    twin = np.zeros(len(cells), dtype=bool)
    for group in twins(cells):
        twin[group] = True
    found = {}
    for family in FAMILIES:
        mask = np.array([cell.source == family.source and family.member(cell) for cell in cells], dtype=bool)
        found[family.name] = mask & ~twin if family.source in UNIQUE_BY_COLUMNS else mask
    return found


_ACCUMULATION = re.compile(r"grad acc (\d+)")
_PLAYBOOK_BATCH = 256


def has_whole_batch(cell: Cell) -> bool:
    """Return whether a playbook row's dp x microbatch x accumulation is its batch of 256; true of other sources' rows.

    The few others state a layout that cannot have run as stated.
    """
    found = _ACCUMULATION.search(cell.text("note")) if cell.source == PLAYBOOK else None
    if found is None:
        return True
    product = (cell.measured("dp") or 0) * (cell.measured("micro_batch") or 0) * int(found[1])
    return product == _PLAYBOOK_BATCH


# Not learned from: whole-run averages with restarts; prose about another source's runs; a formula that is not stated.
_UNLEARNABLE = ("gpu-hours", "semianalysis-2025", "nemo-docs-longseq")


def is_learnable(cell: Cell) -> bool:
    """Return whether a row may teach the model: a measured step of dense pre-training, of a source that times steps."""
    dense = (cell.text("arch") or "dense") == "dense" and (cell.text("task") or "pretrain") == "pretrain"
    return dense and cell.source not in _UNLEARNABLE and has_whole_batch(cell)
