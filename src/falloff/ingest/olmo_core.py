"""OLMo-core's console log, read by field name; that of the first OLMo, which writes the same blocks, too.

A heading '[step=10/1000,epoch=1]' and under it 'name=value', one a line. Rates are of that step alone, on one device;
their '(actual avg)' twins are means since the launch, without its first step but with every evaluation and
checkpoint: these stay beside and no rate of ours is made of them. A device's tokens are those of its data-parallel
rank over the ranks that share them. Source: train/callbacks/{speed_monitor,console_logger}.py at fa6c501.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from falloff.ingest.header_text import first_match
from falloff.ingest.log_blocks import join_blocks, whole_values
from falloff.ingest.logtext import Line, first_number, moment_of
from falloff.ingest.step_windows import rise_per_step
from falloff.ingest.training_log import LoggedStep, Settled, System
from falloff.units import GIB

_OPENS = re.compile(r"(?:^|\s)\[step=(?P<step>\d+)/(?P<total>[\d,]+|\?\?\?)(?:,epoch=(?P<epoch>\d+))?[^\]]{0,80}\]$")
_VALUE = re.compile(r"\s{2,40}(?P<name>[A-Za-z][^=]{0,200})=(?P<value>\S{1,100})$")
_UNKNOWN_HEADING = "[step=0/???]"
_OURS = re.compile(r"\s{2,40}(?:throughput|gpu_memory|system|optim|train)/[^=]{1,200}=\S{1,100}$")
_IS_OLMO = re.compile(
    r"\[step=\d+/(?:[\d,]+|\?\?\?)(?:,epoch=\d+[^\]\n]{0,80}\]|\]\n[ \t]{2,40}(?:train|throughput|optim)/)"
    r"|^[ \t]{2,40}throughput/device/(?:TPS|tokens_per_sec)",
    re.MULTILINE,
)
_STAMP = re.compile(r"\[?(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d{1,6})?)")

# field: its names, the newest first
_NAMES: Mapping[str, tuple[str, ...]] = {
    "loss": ("train/CE loss", "train/CrossEntropyLoss"),
    "grad_norm": ("optim/total grad norm", "optim/total_grad_norm"),
    "memory": ("gpu_memory/GPU reserved mem (GiB)", "system/GPU reserved mem (GiB)"),
    "tokens_per_gpu_s": ("throughput/device/TPS", "throughput/device/tokens_per_second"),
    "steps_per_s": ("throughput/device/BPS", "throughput/device/batches_per_second"),
    "flops_per_gpu_s": ("throughput/device/flopsPS",),
    "mfu": ("throughput/device/MFU",),
    "tokens_seen": ("throughput/total tokens", "throughput/total_tokens"),
}
# Values that every whole block has; others come and go with intervals of their own, rates are lacking in the first.
_ALWAYS = ("train/", "optim/")
_DEVICE = re.compile(r"Device: (.+), Device peak Flops/s: (\d{1,20})$")


def is_olmo_core_log(text: str) -> bool:
    """Return whether the text is OLMo-core's or OLMo's: a heading with step and epoch, or a rate of a device."""
    return bool(_IS_OLMO.search(text))


def _join(lines: Iterable[Line]) -> Iterator[Line]:
    """Yield each block as one line; the first of an excerpt may lack its heading, and its step is not known."""
    blocks = join_blocks(
        lines,
        lambda text: bool(_OPENS.search(text)),
        lambda text: bool(_VALUE.match(text)),
        lambda text: bool(_OURS.match(text)),
    )
    is_first = True
    for line in blocks:
        is_headless = is_first and bool(_OURS.match(line.text.partition("\n")[0]))
        yield line._replace(text=f"{_UNKNOWN_HEADING}\n{line.text}") if is_headless else line
        is_first = is_first and not _is_block(line.text)


def _is_block(text: str) -> bool:
    """Return whether a line is a block with values: a heading alone is progress between two of them."""
    head, _, rest = text.partition("\n")
    return bool(_OURS.match(head)) or (bool(_OPENS.search(head)) and bool(rest))


def _parse(line: Line) -> tuple[LoggedStep, frozenset[str]] | None:
    head, _, rest = line.text.partition("\n")
    heading = _OPENS.search(head)
    if heading is None:
        return None
    found = {match["name"]: match["value"] for text in whole_values(rest, line) if (match := _VALUE.match(text))}
    values = {field: first_number(found, names) for field, names in _NAMES.items()}
    if values["loss"] is None and values["tokens_per_gpu_s"] is None:
        return None
    total, rate, share, memory = heading["total"], values["steps_per_s"], values["mfu"], values["memory"]
    placed = {name for names in _NAMES.values() for name in names}
    step = LoggedStep(
        step=int(heading["step"]),
        is_numbered=head != _UNKNOWN_HEADING,
        total_steps=None if total == "???" else int(total.replace(",", "")),
        num_steps=1,
        time=_time(head),
        loss=values["loss"],
        grad_norm=values["grad_norm"],
        memory_bytes=None if memory is None else memory * GIB,
        step_s=1 / rate if rate else None,
        tokens_per_gpu_s=values["tokens_per_gpu_s"] or None,
        flops_per_gpu_s=values["flops_per_gpu_s"],
        peak_flops_share=None if share is None else share / 100,
        tokens_seen=values["tokens_seen"],
        more={name: value for name, value in found.items() if name not in placed},
    )
    return step, frozenset(name for name in found if name.startswith(_ALWAYS))


def _time(text: str) -> datetime | None:
    stamp = _STAMP.match(text)
    return moment_of(stamp[1]) if stamp else None


def _facts(texts: Sequence[str]) -> Mapping[str, Any]:
    found: dict[str, Any] = {"memory_kind": "cuda peak reserved", "tokens_are": "all"}
    device = first_match(_DEVICE, texts)
    if device and int(device[2]):
        found |= {"gpu_name": device[1], "reported_peak_flops": float(device[2])}
        found["reported_convention"] = f"OLMo-core: its FLOPs a token over {float(device[2]) / 1e12:g} TFLOP/s"
    return found


def _settle(facts: Mapping[str, Any], steps: Sequence[LoggedStep], _: Sequence[str]) -> Settled:
    """Return the facts with the tokens of a step, by how its counter of all devices' tokens rises between blocks."""
    per_step = rise_per_step(steps, lambda step: step.tokens_seen)
    return ({"tokens_per_step": per_step, **facts} if per_step is not None else facts), steps


OLMO_CORE = System(
    name="olmo-core",
    is_step=_is_block,
    parse=_parse,
    read_facts=_facts,
    join=_join,
    events=(
        (
            "a checkpoint was written",
            re.compile(r"Saving checkpoint for step|Checkpoint saved|Saving .{0,80}checkpoint"),
        ),
        ("an evaluation ran", re.compile(r"\[eval=|Running .{0,80} evals\.\.\.")),
    ),
    begins=re.compile(r"Training for [\d,]+ steps"),
    ended=re.compile(r"Training complete\b"),
    settle=_settle,
)
