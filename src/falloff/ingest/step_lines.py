"""Trainers that print one line a step, and little else: torchtune, MaxText, llm.c, modded-nanogpt and InternEvo.

torchtune's DiskLogger and StdoutLogger print 'Step 1 | loss:2.08 lr:2e-05 tokens_per_second_per_gpu:57.8' and, where
memory is logged, peaks in GiB (torchtune/training/metric_logging.py); MaxText 'completed step: 9, seconds: 1.341,
TFLOP/s/device: 257.9, Tokens/s/device: 36653.2, loss: 0.0' (AI-Hypercomputer/maxtext pull 761); llm.c 'step 149/190 |
loss .. | 360.64 ms | 14.9% bf16 MFU | 1449806 tok/s' (anthonix/llm.c issue 2); modded-nanogpt 'step:125/1480
train_time:29736ms step_avg:258.57ms' (KellerJordan/modded-nanogpt pull 65), whose step_avg is a mean since step 10;
InternEvo (InternLM) 'tflops=189.8,step=1,loss=11.6,tgs (tokens/gpu/second)=4274.45,..' in 2023 and the same with
blanks for commas since (doc/usage.md of InternLM/InternLM and InternLM/InternEvo).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from falloff.ingest.logtext import Line, number_of
from falloff.ingest.training_log import LoggedStep, System
from falloff.units import GIB, TERA

_NUMBER = r"([-+]?(?:\d[\d,]*(?:\.\d*)?(?:[eE][-+]?\d+)?|nan|inf))"


@dataclass(frozen=True, kw_only=True)
class StepLine:
    """How one trainer's line reads.

    step: where the line begins, with a group for the step and, where it says so, one named total. quantities: fields
    of LoggedStep, each with its unit, what stands before its number, and what after. needed: the quantities without
    which a line is cut. facts: what holds for every such log.
    """

    name: str
    step: re.Pattern[str]
    quantities: Mapping[str, tuple[float, str, str]]
    needed: frozenset[str]
    facts: Mapping[str, Any] = field(default_factory=dict)
    every_line_is_one_step: bool = False


TORCHTUNE = StepLine(
    name="torchtune",
    step=re.compile(r"^Step (\d{1,12}) \| (?=\w+:)"),
    quantities={
        "loss": (1.0, r"\bloss:", r"(?=\s|$)"),
        "grad_norm": (1.0, r"\bgrad_norm:", r"(?=\s|$)"),
        "tokens_per_gpu_s": (1.0, r"\btokens_per_second_per_gpu:", r"(?=\s|$)"),
        "memory_bytes": (GIB, r"\bpeak_memory_reserved:", r"(?=\s|$)"),
    },
    needed=frozenset({"loss"}),
    # it counted every token up to early 2025 and those of the loss since, and its lines do not tell which
    facts={"task": None, "memory_kind": "cuda peak reserved"},
)
MAXTEXT = StepLine(
    name="maxtext",
    step=re.compile(r"\bcompleted step: (\d{1,12}), (?=seconds: )"),
    quantities={
        "step_s": (1.0, r"\bseconds: ", r"(?=,|$)"),
        "flops_per_gpu_s": (TERA, r"\bTFLOP/s(?:/device)?: ", r"(?=,|$)"),
        "tokens_per_gpu_s": (1.0, r"\bTokens/s/device: ", r"(?=,|$)"),
        "loss": (1.0, r"\bloss: ", r"(?=,|$)"),
    },
    needed=frozenset({"step_s", "loss"}),
    every_line_is_one_step=True,
)
LLM_C = StepLine(
    name="llm.c",
    step=re.compile(r"\bstep +(\d{1,12})/(?P<total>\d{1,12}) \| (?=(?:train )?loss )"),
    quantities={
        "loss": (1.0, r"\bloss +", r"(?= )"),
        "grad_norm": (1.0, r"\bnorm +", r"(?= )"),
        "step_s": (1e-3, r"\| *", r" ms\b"),
        "peak_flops_share": (0.01, r"\| *", r"% bf16 MFU"),
        "tokens_per_s": (1.0, r"\| *", r" tok/s"),
    },
    needed=frozenset({"loss", "step_s", "tokens_per_s"}),
    # a mean that gives less weight to older steps: the seconds of the line are the step's own
    facts={"note": "its tok/s are smoothed over the steps before"},
    every_line_is_one_step=True,
)
MODDED_NANOGPT = StepLine(
    name="modded-nanogpt",
    step=re.compile(r"\bstep:(\d{1,12})/(?P<total>\d{1,12}) (?=(?:train_loss|val_loss|train_time):)"),
    # its clock stands still while it validates; a line after that has the loss of the validation alone
    quantities={"loss": (1.0, r"\b(?:train|val)_loss:", r"(?= )"), "elapsed_s": (1e-3, r"\btrain_time:", r"ms\b")},
    needed=frozenset({"elapsed_s"}),
)
INTERNEVO = StepLine(
    name="internevo",
    step=re.compile(r"\brecord_current_batch_training_metrics\b(?=.{0,200}?\bstep=(\d{1,12})[ ,])"),
    quantities={
        "loss": (1.0, r"\bloss=", r"(?=[ ,])"),
        # since November 2023 it prints real_tgs beside it, without the padding of packed samples
        "tokens_per_gpu_s": (1.0, r"\btgs \(tokens/gpu/second\)=", r"(?=[ ,])"),
        "flops_per_gpu_s": (TERA, r"\btflops=", r"(?=[ ,])"),
        "tokens_seen": (1.0, r"\bnum_consumed_tokens=", r"(?=[ ,])"),
    },
    needed=frozenset({"loss", "tokens_per_gpu_s", "tokens_seen"}),
    facts={"tokens_are": "all"},
    every_line_is_one_step=True,
)


def _parse(trainer: StepLine, line: Line) -> tuple[LoggedStep, frozenset[str]] | None:
    begin = trainer.step.search(line.text)
    if begin is None or not line.is_ended:
        return None
    rest = line.text[begin.end() :]
    found: dict[str, Any] = {}
    for name, (unit, before, after) in trainer.quantities.items():
        match = re.search(before + _NUMBER + after, rest)
        number = number_of(match[1]) if match else None
        if number is not None:
            found[name] = number * unit
        elif name in trainer.needed or re.search(before + r"\S*$", rest):
            return None
    total = begin.groupdict().get("total")
    step = LoggedStep(
        step=int(begin[1]),
        total_steps=int(total) if total else None,
        num_steps=1 if trainer.every_line_is_one_step else None,
        elapsed_digit_s=1e-3 if "elapsed_s" in found else None,
        **found,
    )
    return step, trainer.needed


def _facts(trainer: StepLine, texts: Sequence[str]) -> Mapping[str, Any]:
    precision = next((m[1] for text in texts if (m := re.search(r"with precision torch\.(\w+)", text))), None)
    return {**trainer.facts, **({"param_dtype": precision} if precision else {})}


def system_of(trainer: StepLine) -> System:
    """Return how the log of a trainer reads that prints one line a step."""
    return System(
        name=trainer.name,
        is_step=lambda text: trainer.step.search(text) is not None,
        parse=lambda line: _parse(trainer, line),
        read_facts=lambda texts: _facts(trainer, texts),
        events=(
            (
                "a checkpoint was written",
                re.compile(r"[Cc]heckpoint .{0,80}\bsaved\b|[Ss]av(?:ing|ed) .{0,40}checkpoint"),
            ),
            ("a profiler ran", re.compile(r"Profiler session started")),  # MaxText's
            ("an evaluation ran", re.compile(r"\bval_loss:|\bval loss\b|\beval metrics")),
        ),
    )


def is_step_line_log(trainer: StepLine, text: str) -> bool:
    """Return whether a text has a whole step line of this trainer, at the start of a line or within one."""
    lines = (line.rstrip() for line in text.split("\n"))
    return any(trainer.step.search(line) and _parse(trainer, Line(None, line, True)) for line in lines)
