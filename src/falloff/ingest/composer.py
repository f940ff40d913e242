"""Composer's and llm-foundry's console log, read by field name; it goes to stderr.

A heading '[batch=20/100]:' and under it 'Train name: value', one a line; until 2022 one line for each call that logs,
'[BATCH][batch=20/100]: { "name": value, }'. Its rates are rolling means over the last batches (10 in llm-foundry, 100
else) and missing until that many are over; its clock stops in evaluations. Names: throughput/step until 0.7,
samples/step in 0.8, throughput/samples_per_sec and wall_clock/ from 0.9, throughput/device/ and mfu from 0.13, time/
from 0.14. Tokens were samples times max_seq_len until 0.17.1, padding included, and are what the data loader counts
since. No mfu where its table has no peak for the GPU. Source: composer/callbacks/speed_monitor.py over its tags.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from falloff.ingest.composer_settle import settle
from falloff.ingest.log_blocks import join_blocks, whole_values
from falloff.ingest.logtext import Line, first_number
from falloff.ingest.training_log import LoggedStep, System
from falloff.units import GIGA

_HEAD = r"(?:\[epoch=(?P<epoch>\d+)(?:/\d+)?\])?\[(?P<unit>[a-z]+)=(?P<number>\d+)(?:/(?P<total>\d+))?\]"
_OPENS = re.compile(rf"{_HEAD}:?$|\[Eval [^\]]*\].*$")
_ONE_LINE = re.compile(r"(?:\[BATCH\])?(?P<head>(?:\[epoch=\d+(?:/\d+)?\])?\[[a-z]+=\d+(?:/\d+)?\]): *(?P<rest>\S.*)$")
_IN_BRACES = re.compile(r'"(?P<name>[^"]+)": (?P<value>[^,{}"]+|"[^"]*")')
_VALUE = re.compile(r"\s*(?P<split>Train|Eval|trace) (?P<name>[\w/.()-]+(?: [\w/.()-]+)*): ?(?P<value>\S.*)$")
_OURS = re.compile(r"\s*Train (?:throughput|time|wall_clock|memory|trainer|loss|metrics)/\S+: ?\S")
_IS_COMPOSER = re.compile(
    r"^(?:\S{1,80} ?)??(?:\[BATCH\])?(?:\[epoch=\d+[^\]\n]{0,20}\])?\[[a-z]+=\d+(?:/\d+)?\]:"
    r"(?:\s{1,80}(?:\S{1,80}[ \t]{1,80})?Train [\w/]+|[ \t]{0,80}\{ \")"
    r"|^(?:\S{1,80})??[ \t]{1,80}Train (?:throughput|loss|metrics)/\S{1,80}: ?\S",
    re.MULTILINE,
)
# field: its names, the newest first
_NAMES: Mapping[str, tuple[str, ...]] = {
    "loss": ("loss/train/total", "loss/train", "metrics/train/LanguageCrossEntropy", "LanguageCrossEntropy"),
    "samples_per_s": ("throughput/samples_per_sec", "samples/step", "throughput/step"),
    "tokens_per_s": ("throughput/tokens_per_sec",),
    "tokens_per_gpu_s": ("throughput/device/tokens_per_sec",),
    "flops_per_gpu_s": ("throughput/device/flops_per_sec",),
    "peak_flops_share": ("throughput/device/mfu",),
    "tokens_seen": ("time/token",),
    "samples_seen": ("time/sample",),
}
_RESERVED = ("memory/peak_reserved_mem", "memory/reserved_mem", "memory/current_reserved_mem")
_BATCHES_BEFORE = ("time/batch", "trainer/global_step")
# reserved_mem was in bytes until 0.12 and is in units of 1e9 since: no GPU has 1e6 of those
_LEAST_BYTES = 1e6

_COUNTS = {
    "global_batch": re.compile(r"^\s*(?:global_train_batch_size|train_batch_size): (\d{1,9})$"),
    "microbatch": re.compile(r"^\s*device_train_microbatch_size: (\d{1,9})$"),
    "seq": re.compile(r"^\s*max_seq_len: (\d{1,9})$"),
    "nodes": re.compile(r"^\s*num_nodes: (\d{1,9})$"),
    "gpus_per_node": re.compile(r"^\s*num_(?:gpus|cores)_per_node: (\d{1,9})$"),
}
_VERSION = re.compile(r"^\s*composer_version: ['\"]?(\d+\.\d+\.\d+\S*?)['\"]?$")


def is_composer_log(text: str) -> bool:
    """Return whether the text is Composer's: a heading with a unit and values named after 'Train'."""
    return bool(_IS_COMPOSER.search(text))


def _join(lines: Iterable[Line]) -> Iterator[Line]:
    return join_blocks(
        _unfold(lines),
        lambda text: bool(_OPENS.match(text)),
        lambda text: bool(_VALUE.match(text)),
        lambda text: bool(_OURS.match(text)),
    )


def _unfold(lines: Iterable[Line]) -> Iterator[Line]:
    """Yield a heading and a line a value for headings that have values behind them, one heading for calls in a row."""
    last: dict[int | None, str] = {}
    for line in lines:
        match = _ONE_LINE.match(line.text)
        pairs = _pairs(match["rest"]) if match else []
        if match is None or not pairs:
            if _OPENS.match(line.text):
                last.pop(line.rank, None)
            yield line
            continue
        if last.get(line.rank) != match["head"]:
            yield line._replace(text=f"{match['head']}:")
        last[line.rank] = match["head"]
        for name, value in pairs:
            yield line._replace(text=f" Train {name}: {value}")


def _pairs(text: str) -> list[tuple[str, str]]:
    if text.startswith("{"):
        return [(match["name"], match["value"].strip()) for match in _IN_BRACES.finditer(text)]
    items = [item.strip().removeprefix("Train ") for item in re.split(r"\t|\s{2,}", text)]
    halves = [item.partition(": ") for item in items]
    return [(name, value) for name, colon, value in halves if colon and " " not in value]


def _is_block(text: str) -> bool:
    head, _, rest = text.partition("\n")
    return bool(_OURS.match(head)) or (not head.startswith("[Eval ") and bool(_OPENS.match(head)) and "Train " in rest)


def _parse(line: Line) -> tuple[LoggedStep, frozenset[str]] | None:
    head, _, rest = line.text.partition("\n")
    heading = _OPENS.match(head)
    if heading is None:
        return None
    matches = [match for text in whole_values(rest, line) if (match := _VALUE.match(text))]
    found = {match["name"]: match["value"] for match in matches if match["split"] == "Train"}
    number = _step_number(heading, found)
    if number is None:
        return None
    values = {field: first_number(found, names) for field, names in _NAMES.items()}
    memory = first_number(found, _RESERVED)
    placed = {name for names in (*_NAMES.values(), _RESERVED) for name in names}
    step = LoggedStep(
        step=number,
        total_steps=_total(heading),
        loss=values["loss"],
        samples_per_s=values["samples_per_s"] or None,
        tokens_per_s=values["tokens_per_s"] or None,
        tokens_per_gpu_s=values["tokens_per_gpu_s"] or None,
        flops_per_gpu_s=values["flops_per_gpu_s"] or None,
        peak_flops_share=values["peak_flops_share"],
        memory_bytes=memory if memory is None or memory >= _LEAST_BYTES else memory * GIGA or None,
        # 0 stands for tokens that its data loader does not count
        tokens_seen=values["tokens_seen"] or None,
        samples_seen=values["samples_seen"],
        more={name: value for name, value in found.items() if name not in placed},
    )
    return step, frozenset({"loss"} if step.loss is not None else ())


def _step_number(heading: re.Match[str], found: Mapping[str, str]) -> int | None:
    """Return the batch counted over epochs: what was over before it, which newer versions say, or from the heading."""
    before = next((found[name] for name in _BATCHES_BEFORE if found.get(name, "").isdecimal()), None)
    if before is not None and len(before) <= 15:
        return int(before) + 1
    if heading["unit"] not in ("batch", "ba", "step", "iteration"):
        return None
    number = int(heading["number"])
    if heading["epoch"] is None or heading["total"] is None:
        return number
    # epochs count from 0 in the versions that name a rate after a step
    first = 0 if {"throughput/step", "samples/step"} & found.keys() else 1
    return max(int(heading["epoch"]) - first, 0) * int(heading["total"]) + number


def _total(heading: re.Match[str]) -> int | None:
    if heading["epoch"] is not None or heading["total"] is None:
        return None  # of this epoch; how many there will be is not said
    return int(heading["total"]) if heading["unit"] in ("batch", "ba", "step", "iteration") else None


def _facts(texts: Sequence[str]) -> Mapping[str, Any]:
    found: dict[str, Any] = {}
    for text in texts:
        for field, pattern in _COUNTS.items():
            match = pattern.match(text)
            if match and field not in found and int(match[1]):
                found[field] = int(match[1])
    version = next((match[1] for text in texts if (match := _VERSION.match(text))), None)
    if version:
        found["framework_version"] = version
    if "nodes" in found and "gpus_per_node" in found:
        found["num_gpus"] = found["nodes"] * found["gpus_per_node"]
    return {**found, "memory_kind": "cuda reserved"}


COMPOSER = System(
    name="composer",
    is_step=_is_block,
    parse=_parse,
    read_facts=_facts,
    join=_join,
    events=(("a checkpoint was written", re.compile(r"Sav(?:ing|ed) checkpoint|Uploading .{0,80}checkpoint")),),
    settle=settle,
)
