"""Hugging Face's Trainer and those built on it (TRL, axolotl): a dictionary now and then, and a progress bar between.

The dictionary has loss and epoch and no step; the bar has the step and the whole seconds since training began. A step
is read where the bar stands before the dictionary. The last dictionary has means over the whole run, its first steps,
evaluations and checkpoints within: they are noted and are no rate of a step.
Source: src/transformers/trainer.py and trainer_callback.py (ProgressCallback); since 5.0 values are printed as text.
"""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from falloff.ingest.logtext import Line, number_of
from falloff.ingest.training_log import LoggedStep, Settled, System

_BAR = re.compile(
    r"(?P<step>\d{1,9})/(?P<total>\d{1,9}) \[(?:(?P<h>\d{1,6}):)?(?P<m>\d{1,2}):(?P<s>\d\d)"
    r"<[^\]]{0,40}(?:it/s|s/it)[^\]]{0,80}\]"
)
_LOSS = re.compile(r"\{'loss': [^{}]{1,4000}'epoch': [^{}]{1,400}\}")
_LAST = re.compile(r"\{'train_runtime': [^{}]{1,4000}\}")
_IS_LOG = re.compile(rf"{_LOSS.pattern}|{_LAST.pattern}")
_AT = "  at step "
_PLACED = frozenset({"loss", "grad_norm", "num_input_tokens_seen"})
_COUNTS = {
    "microbatch": re.compile(r"Instantaneous batch size per device = ([\d,]{1,12})"),
    "global_batch": re.compile(r"Total train batch size \(.*\) = ([\d,]{1,12})"),
    "accumulation": re.compile(r"Gradient Accumulation steps = ([\d,]{1,12})"),
}


def is_huggingface_log(text: str) -> bool:
    """Return whether the text is of a Trainer: one of its dictionaries, with a loss or with what the run took."""
    return _IS_LOG.search(text) is not None


def _join(lines: Iterable[Line]) -> Iterator[Line]:
    """Yield a dictionary with a loss together with the step and the seconds of the bar before it."""
    bar: str | None = None
    for line in lines:
        bars = list(_BAR.finditer(line.text))
        bar = bars[-1][0] if bars else bar
        found = _LOSS.search(line.text)
        yield line._replace(text=f"{found[0]}{_AT}{bar}") if found and bar else line


def _parse(line: Line) -> tuple[LoggedStep, frozenset[str]] | None:
    text, _, bar = line.text.partition(_AT)
    found, at = _dictionary(text), _BAR.search(bar)
    if found is None or at is None:
        return None
    step = LoggedStep(
        step=int(at["step"]),
        total_steps=int(at["total"]),
        loss=number_of(found["loss"]),
        grad_norm=number_of(found.get("grad_norm", "")),
        tokens_seen=number_of(found.get("num_input_tokens_seen", "")),
        elapsed_s=3600.0 * int(at["h"] or 0) + 60.0 * int(at["m"]) + int(at["s"]),
        elapsed_digit_s=1.0,
        more={name: value for name, value in found.items() if name not in _PLACED},
    )
    return step, frozenset({"loss"})


def _dictionary(text: str) -> dict[str, str] | None:
    """Return a printed dictionary's values as text, None where it is garbled."""
    try:
        found = ast.literal_eval(re.sub(r"(?<=: )(nan|-?inf)(?=[,}])", r"'\1'", text))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    return {str(name): str(value) for name, value in found.items()} if isinstance(found, dict) else None


def _read_facts(texts: Sequence[str]) -> Mapping[str, Any]:
    counts: dict[str, int] = {}
    for name, pattern in _COUNTS.items():
        match = next((match for text in texts if (match := pattern.search(text))), None)
        if match:
            counts[name] = int(match[1].replace(",", ""))
    accumulation = counts.pop("accumulation", None)
    per_gpu = counts.get("microbatch", 0) * (accumulation or 0)
    batch = counts.get("global_batch", 0)
    num_gpus = {"num_gpus": batch // per_gpu} if per_gpu and batch and batch % per_gpu == 0 else {}
    return {"task": None, **counts, **num_gpus, **_whole_run(texts)}


def _whole_run(texts: Sequence[str]) -> dict[str, Any]:
    found = next((_dictionary(match[0]) for text in texts if (match := _LAST.search(text))), None) or {}
    names = ("train_runtime", "train_samples_per_second", "train_steps_per_second")
    words = ", ".join(f"{name} {found[name]}" for name in names if name in found)
    return (
        {"note": f"the whole run's means, first steps, evaluations and checkpoints in them: {words}"} if words else {}
    )


def _settle(facts: Mapping[str, Any], steps: Sequence[LoggedStep], remarks: Sequence[str]) -> Settled:
    return {**facts, **_whole_run(remarks)}, steps


HUGGINGFACE = System(
    name="transformers",
    is_step=lambda text: _AT in text,
    parse=_parse,
    read_facts=_read_facts,
    events=(
        ("a checkpoint was written", re.compile(r"Saving model checkpoint to|Saving (?:the )?model checkpoint")),
        ("an evaluation ran", re.compile(r"'eval_loss':|'eval_runtime':|\*{3,} *Running Evaluation")),
    ),
    ended=_LAST,
    begins=re.compile(r"\*{5} Running training \*{5}"),
    join=_join,
    needs="its dictionaries name no step: the progress bar does, which has to stand before each of them",
    ranks_repeat=False,
    remarks=_LAST,
    settle=_settle,
)
