"""What a row measured: its rate, its memory and of which kind, and whether it ran out of memory."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from falloff.perfmodel.cells import Cell
from falloff.perfmodel.counting import Counts, counted_flops_per_token
from falloff.perfmodel.jobs import Bools, Floats, Jobs
from falloff.units import GIB, GIGA, TERA

MemoryKind = Literal["allocated", "reserved", "device"]
Outcome = Literal["ok", "oom", "crash_or_oom"]

# What the rates of sources without tokens/s count (SOURCE.md beside the table).
_COUNTS: dict[str, Counts] = {
    "megatron-sc21": "equation 3",
    "bigscience-a100-176b": "equation 3",
    "llama3-paper": "model",
    "ml-engineering": "model, causal",
    "megatron-bridge-skills": "model, causal",
}

# Sources that print GiB as "GB": nanotron divides torch's counters by 1024**3 (create_table_log of helpers.py).
_IN_GIB = ("ultrascale-playbook",)

# Which memory a source reports. nanotron, torchtitan and DeepSpeed's table print torch's counters (reserved is what
# torchtitan's metrics call max_reserved); the two bigscience tables and FlagPerf's read nvidia-smi, which sees the
# context and NCCL's buffers too; SimuMax and torchtune say peak allocated and peak active. The playbook's figure does
# not say which of nanotron's two counters it draws. It grows with the microbatch, and by the time they are printed, in
# step 3, the peak of what is allocated has been set back after the backward pass (log_memory in training_step of
# trainer.py, twice in each of the first five steps), which leaves what is reserved as it is.
MEMORY_KINDS: dict[str, MemoryKind] = {
    "ultrascale-playbook": "reserved",
    "simumax-b200": "allocated",
    "torchtune-readme": "allocated",
    "megatron-bridge-skills": "allocated",
    "torchtitan": "reserved",
    "torchao": "reserved",
    "colossalai-readme": "reserved",
    "ml-engineering": "device",
    "flagperf": "device",
    "bigscience-a100-176b": "device",
    "bigscience-v100": "device",
}


@dataclass(frozen=True)
class Measured:
    """What rows measured, as arrays [n]; NaN where a row does not say."""

    tokens_per_gpu_s: Floats
    memory_bytes: Floats
    memory_kind: npt.NDArray[np.str_]
    outcome: npt.NDArray[np.str_]

    @property
    def has_rate(self) -> Bools:
        """Return where a rate was measured."""
        return np.isfinite(self.tokens_per_gpu_s)


def measured(cells: Sequence[Cell], jobs: Jobs) -> Measured:
    """Return what the rows measured, which are the jobs' in the same order."""
    kinds = [MEMORY_KINDS.get(cell.source, "") for cell in cells]
    return Measured(
        tokens_per_gpu_s=_rates(cells, jobs),
        memory_bytes=_bytes(cells),
        memory_kind=np.array(kinds, dtype=np.str_),
        outcome=np.array([outcome_of(cell) for cell in cells], dtype=np.str_),
    )


def _bytes(cells: Sequence[Cell]) -> Floats:
    units = np.array([GIB if cell.source in _IN_GIB else GIGA for cell in cells], dtype=float)
    return np.asarray(_column(cells, "mem_gb_per_gpu") * units, dtype=float)


def outcome_of(cell: Cell) -> Outcome:
    """Return how a row's run ended; one that ran some steps and then out of memory is out of memory."""
    text = cell.text("oom")
    if text == "crash_or_oom":
        return "crash_or_oom"
    return "oom" if text in ("1", "1.0", "oom") else "ok"


def _rates(cells: Sequence[Cell], jobs: Jobs) -> Floats:
    """Return tokens per GPU and second [n]: as published, else from the step, else from FLOP/s by what they count."""
    stated = _column(cells, "tokens_per_s_per_gpu")
    step_s = _column(cells, "step_time_s")
    batch = _column(cells, "global_batch") * jobs.seq / jobs.gpus
    rates = np.where(np.isfinite(stated), stated, batch / step_s)
    flops = _column(cells, "tflops_per_gpu_published") * TERA
    sources = np.array([cell.source for cell in cells], dtype=np.str_)
    for source, counts in _COUNTS.items():
        mask = (sources == source) & ~np.isfinite(rates)
        if mask.any():
            rates[mask] = flops[mask] / counted_flops_per_token(jobs.take(mask), counts)
    return np.asarray(rates, dtype=float)


def _column(cells: Sequence[Cell], name: str) -> Floats:
    values = [cell.measured(name) for cell in cells]
    return np.array([np.nan if value is None else value for value in values], dtype=float)
