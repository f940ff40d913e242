"""fms-fsdp's log, read by field name: one value a line, in blocks that begin with 'step:'.

'current' rates are over the steps since the block before, 'overall' ones over all since the launch, its first step
and every checkpoint among them: these are kept apart and no rate of ours is made of them. Source:
fms_fsdp/utils/train_utils.py at 5a296af.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from falloff.ingest.header_text import first_match
from falloff.ingest.log_blocks import join_blocks, whole_values
from falloff.ingest.logtext import Line, number_of
from falloff.ingest.training_log import LoggedStep, Settled, System
from falloff.units import GIB, MEGA

_OPENS = re.compile(r"step: ?\d+$")
# forks add lines; each ends its name with one of these words
_VALUE = re.compile(
    r"(?P<name>(?:[A-Za-z][\w ./()]* )?(?:loss|LR|seen|norm|memory|time|speed|steps|sec|day|tok/step|remaining|toks?"
    r"|example|\(H:M:S\))): ?(?P<value>\S.*)$"
)
_OURS = re.compile(r"(?:current|overall) token per (?:gpu per sec|day): ?\d|(?:current|overall) step time: ?\d")
_IS_FMS = re.compile(r"^(?:\[[^\]\n]{0,40}\]: ?)?(?:current|overall) token per gpu per sec: ?\d", re.MULTILINE)
_SPEED = re.compile(r"speed for these \d+ steps$")  # the current step time, until 2024-04
_TOTAL = re.compile(r"^Training for (\d{1,12}) steps")
_CONFIG = re.compile(r"running with these configs \w+\((.*)\)")
_PARAMS = re.compile(r"model has (\d+(?:\.\d+)?) Million params")


def is_fms_fsdp_log(text: str) -> bool:
    """Return whether the text is fms-fsdp's: it alone names a rate 'token per gpu per sec' on a line of its own."""
    return bool(_IS_FMS.search(text))


def _join(lines: Iterable[Line]) -> Iterator[Line]:
    return join_blocks(
        lines,
        lambda text: bool(_OPENS.match(text)),
        lambda text: bool(_VALUE.match(text)),
        lambda text: bool(_OURS.match(text)),
    )


def _is_block(text: str) -> bool:
    first = text.partition("\n")[0]
    return bool(_OPENS.match(first) or _OURS.match(first) or (_VALUE.match(first) and "\n" in text))


def _parse(line: Line) -> tuple[LoggedStep, frozenset[str]] | None:
    head, _, rest = line.text.partition("\n")
    if not _OPENS.match(head):
        return None
    matches = [match for text in whole_values(rest, line) if (match := _VALUE.match(text))]
    found = {match["name"]: match["value"] for match in matches}
    speed = next((name for name in found if _SPEED.search(name)), "current step time")
    if "loss" not in found or not found.keys() & {speed, "current token per gpu per sec"}:
        return None
    step = LoggedStep(
        step=int(head.partition(":")[2]),
        loss=number_of(found.get("loss", "")),
        grad_norm=number_of(found.get("gradient norm", "")),
        memory_bytes=_bytes(found.get("reserved memory", "")),
        step_s=number_of(found.get(speed, "")) or None,
        tokens_per_gpu_s=number_of(found.get("current token per gpu per sec", "")) or None,
        tokens_seen=number_of(found.get("tokens seen", "")),
        more={name: value for name, value in found.items() if name not in _PLACED and name != speed},
    )
    return step, frozenset(found) - _SOMETIMES


_PLACED = frozenset(
    {"loss", "gradient norm", "reserved memory", "current token per gpu per sec", "current step time", "tokens seen"}
)
# the last one of a block may be cut and nothing lost
_SOMETIMES = frozenset({"remaining steps", "overall token per day"})


def _bytes(text: str) -> float | None:
    """Return bytes; forks print GiB and say so."""
    value, _, unit = text.partition(" ")
    number = number_of(value)
    return number if number is None or not unit else number * {"GiB": GIB}[unit] if unit == "GiB" else None


def _facts(texts: Sequence[str]) -> Mapping[str, Any]:
    found: dict[str, Any] = {}
    config = next((match[1] for text in texts if (match := _CONFIG.search(text))), "")
    for field, key in (("microbatch", "batch_size"), ("seq", "seq_length"), ("vocab", "vocab_size")):
        value = re.search(rf"\b{key}=(\d{{1,12}})(?=[,)]|$)", config)
        if value and int(value[1]):
            found[field] = int(value[1])
    for field, key in (("network", "model_variant"), ("sharding", "sharding_strategy")):
        word = re.search(rf"\b{key}='([^']*)'", config)
        if word:
            found[field] = word[1]
    compiled = re.search(r"\buse_torch_compile=(True|False)", config)
    if compiled:
        found["compile"] = compiled[1] == "True"
    params = first_match(_PARAMS, texts)
    if params and float(params[1]) > 0:
        found["params"] = float(params[1]) * MEGA
    return {**found, "memory_kind": "cuda peak reserved, of the last step", "tokens_are": "all"}


def _settle(facts: Mapping[str, Any], steps: Sequence[LoggedStep], remarks: Sequence[str]) -> Settled:
    """Return the steps with how many there shall be, which a line before them says."""
    total = next((int(match[1]) for text in remarks if (match := _TOTAL.search(text))), None)
    return facts, [replace(step, total_steps=total) for step in steps]


FMS_FSDP = System(
    name="fms-fsdp",
    is_step=_is_block,
    parse=_parse,
    read_facts=_facts,
    join=_join,
    events=(
        (
            "a checkpoint was written",
            re.compile(r"[Cc]heckpoint (?:saved|written)|(?:Saving|Writing) .{0,80}checkpoint"),
        ),
    ),
    begins=re.compile(r"running with these configs"),
    remarks=_TOTAL,
    settle=_settle,
)
