"""How a run of a training log ended, by what its lines say and by its losses."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from falloff.ingest.training_log import LoggedStep

OUT_OF_MEMORY = re.compile(r"OutOfMemoryError|CUDA out of memory|HIP out of memory")
FAILURE = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception): .+")
# What stops a run from without, and its outcome: Slurm's and Kubernetes' words, torchrun's of a rank that was killed,
# and NCCL's watchdog, whose time runs out where a rank waits for one that will not come.
STOPS = (
    ("timeout", re.compile(r"CANCELLED AT \S+ DUE TO TIME LIMIT|Watchdog caught collective operation timeout")),
    (
        "killed",
        re.compile(
            r"CANCELLED AT \S+|DUE TO (?:PREEMPTION|NODE FAILURE)|DueToPreemption|[Oo]om[-_ ][Kk]ill|OOMKilled"
            r"|\bSignal 9 \(SIGKILL\) received|\bexitcode +: -(?:9|15)\b|exiting program after receiving SIG"
        ),
    ),
)
_LONGEST_REASON_CHARS = 200


@dataclass(kw_only=True)
class EndSigns:
    """What lines that are no whole steps say of a run's end; lost_loss is the step of a cut line without its loss."""

    ended: bool = False
    out_of_memory: str | None = None
    failure: tuple[str, str] | None = None  # the first one's outcome and words: others follow from it
    lost_loss: int | None = None

    def note(self, text: str, ended: re.Pattern[str] | None) -> None:
        """Take what a line says; `ended` is what the framework prints when a run ends well."""
        self.ended = self.ended or bool(ended and ended.search(text))
        if self.out_of_memory is None and OUT_OF_MEMORY.search(text):
            self.out_of_memory = text.strip()[:_LONGEST_REASON_CHARS]
        if self.failure is None:
            outcome = "crash" if FAILURE.search(text) else next((o for o, stop in STOPS if stop.search(text)), None)
            self.failure = (outcome, text.strip()[:_LONGEST_REASON_CHARS]) if outcome else None


def outcome_of(signs: EndSigns, steps: Sequence[LoggedStep]) -> tuple[str, str | None]:
    """Return a RunRecord's outcome and its reason, None for a run that ended well."""
    for step in steps:
        if step.loss is not None and not math.isfinite(step.loss):
            return "unstable", f"the loss of step {step.step} is {step.loss}"
    vanished = _vanished_loss(steps)
    if vanished is not None:
        return "unstable", f"step {vanished.step} prints no loss: it is no number"
    lost = _lost_gradient(steps)
    if lost is not None:
        return "unstable", f"the gradient norm of step {lost.step} is nan, and of all after it"
    if signs.lost_loss is not None and any(step.loss is not None for step in steps):
        return "unstable", f"step {signs.lost_loss} prints no loss, in a line that is cut: it is no number"
    last = steps[-1] if steps else None
    if signs.ended or (last is not None and last.total_steps is not None and last.step >= last.total_steps):
        return "ok", None
    if signs.out_of_memory:
        return "oom", signs.out_of_memory
    if signs.failure:
        return signs.failure
    where = f"after step {last.step}" if last else "before the first step line"
    return "killed", f"the log ends {where} and does not say that the run is done; it may be an excerpt"


def _lost_gradient(steps: Sequence[LoggedStep]) -> LoggedStep | None:
    """Return the first of the last steps whose gradient norms are all nan; one that recovers was a skipped step."""
    lost = None
    for step in reversed(steps):
        if step.grad_norm is None or not math.isnan(step.grad_norm):
            return lost
        lost = step
    return lost


def _vanished_loss(steps: Sequence[LoggedStep]) -> LoggedStep | None:
    """Return the first step that prints no loss after others did, or with a gradient norm that is no number.

    Megatron leaves the field out of the line where the loss is NaN, and its counter of NaN iterations stays 0.
    """
    had_loss = False
    for step in steps:
        is_no_number = step.grad_norm is not None and not math.isfinite(step.grad_norm)
        if step.loss is None and (had_loss or is_no_number) and step.unusable is None:
            return step
        had_loss = had_loss or step.loss is not None
    return None
