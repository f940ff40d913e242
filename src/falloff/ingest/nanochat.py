"""nanochat's and nanoGPT's logs, read by field name.

Each line of nanochat is of one step, timed between two synchronisations, so that evaluations and checkpoints are not
in it; tok/sec is of all GPUs. nanoGPT prints every few iterations, and `time` is of the last one alone, an evaluation
before it included; its mfu is a running mean of that of each printed one. Both reckon MFU over a peak that is one
GPU's whatever runs: 989 TFLOP/s in nanochat until January 2026, which says its peak since, 312 TFLOP/s in nanoGPT.
Sources: scripts/base_train.py of nanochat at 3a5e0bc and 92d63d4, train.py and model.py of nanoGPT.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from falloff.ingest.header_text import first_match
from falloff.ingest.logtext import Line, number_of
from falloff.ingest.training_log import LoggedStep, Settled, System
from falloff.units import MEGA, MILLI, TERA

NANOCHAT_PEAK_FLOPS = 989e12  # one H100 SXM in bfloat16, dense; scripts/base_train.py at 3a5e0bc
NANOGPT_PEAK_FLOPS = 312e12  # one A100 in bfloat16, dense; model.py, estimate_mfu

_STEP = re.compile(r"\bstep (?P<step>\d+)(?:/(?P<total>\d+))? \(\d+(?:\.\d+)?%\) \|(?P<rest>.*)$")
_ITER = re.compile(r"\biter (?P<step>\d+): (?P<rest>loss \S+, time .*)$")
_IS_STEP = re.compile(r"\bstep \d+(?:/\d+)? \(\d|\biter \d+: loss |\| tok/sec: \d")
_IS_NANOCHAT = re.compile(r"^(?:.{0,80}\b)?step \d+(?:/\d+)? \([\d.]+%\) \| .{0,200}\btok/sec: [\d,]+", re.MULTILINE)
_IS_NANOGPT = re.compile(r"^(?:.{0,80}\b)?iter \d+: loss \S+, time [\d.]+ms", re.MULTILINE)
_MILLISECONDS = re.compile(r"(\d+(?:\.\d+)?)ms$")
_SHARE = re.compile(r"(-?\d+(?:\.\d+)?|inf|nan)%?\*?$")  # a fork marks a peak that it guesses by *
_PLACED = frozenset({"loss", "dt", "time", "tok/sec", "mfu", "bf16_mfu", "grad norm"})

# RunRecord field: what says it. nanochat prints a line each, since 2026 JSON in its place.
_COUNTS: Mapping[str, re.Pattern[str]] = {
    "vocab": re.compile(r'(?:^Vocab size: |"vocab_size": )([\d,]{1,16})'),
    "layers": re.compile(r'(?:^num_layers: |"n_layer": )(\d{1,9})'),
    "hidden": re.compile(r'(?:^model_dim: |"n_embd": )(\d{1,9})'),
    "heads": re.compile(r'(?:^num_heads: |"n_head": )(\d{1,9})'),
    "kv_heads": re.compile(r'(?:^num_kv_heads: |"n_kv_head": )(\d{1,9})'),
    "tokens_per_step": re.compile(r"(?:^Total batch size |^tokens per iteration will be: )([\d,]{1,16})(?= => |$)"),
    "params": re.compile(r"(?:^Number of parameters: |^total *: )([\d,]{1,20})$"),
}
_MICROBATCH = re.compile(r"^Tokens / micro-batch / rank: (\d{1,9}) x (\d{1,9}) = ([\d,]{1,16})")
_OF_ALL_RANKS = re.compile(r"^Tokens / micro-batch: ([\d,]{1,16})")
_GPU = re.compile(r"^GPU: (.+?) \| Peak FLOPS \(BF16\): (\d+(?:\.\d+)?e\+\d\d)")
_PARAMS_IN_MILLIONS = re.compile(r"^number of parameters: (\d+(?:\.\d+)?)M")
_FLOPS_PER_TOKEN = re.compile(r"^Estimated FLOPs per token: (\d+(?:\.\d+)?e\+\d\d)")


def is_nanochat_log(text: str) -> bool:
    """Return whether the text is nanochat's or nanoGPT's."""
    return bool(_IS_NANOCHAT.search(text) or _IS_NANOGPT.search(text))


def _parse(line: Line) -> tuple[LoggedStep, frozenset[str]] | None:
    of_nanochat, of_nanogpt = _STEP.search(line.text), _ITER.search(line.text)
    match = of_nanochat or of_nanogpt
    if match is None:
        return None
    pairs = match["rest"].split("|" if of_nanochat else ",")
    named = dict(_pair(pair, ": " if of_nanochat else " ") for pair in pairs)
    duration = _MILLISECONDS.match(named.get("dt") or named.get("time") or "")
    share_name = next((name for name in ("mfu", "bf16_mfu") if name in named), None)
    share = _SHARE.match(named[share_name]) if share_name else None
    if "loss" not in named or (share_name and share is None):
        return None
    if duration is None and ("dt" in named or "tok/sec" not in named):
        return None
    if not line.is_ended and not of_nanogpt:
        return None  # the last number may go on
    if not line.is_ended and not line.text.endswith("%"):
        return None
    step = LoggedStep(
        step=int(match["step"]),
        # steps count from 0, so that the last one printed is one less than there are
        total_steps=int(of_nanochat["total"]) - 1 if of_nanochat and of_nanochat["total"] else None,
        num_steps=1,
        loss=number_of(named["loss"]),
        grad_norm=number_of(named.get("grad norm", "")),
        step_s=float(duration[1]) * MILLI or None if duration else None,
        tokens_per_s=number_of(named.get("tok/sec", "")) or None,
        # -100 % and 0 % stand for an MFU that is not known: the first iterations, a GPU without a peak
        peak_flops_share=float(share[1]) / 100 if share and float(share[1]) > 0 else None,
        more={name: value for name, value in named.items() if name not in _PLACED or name == "bf16_mfu"},
    )
    return step, frozenset(named) - {"eta"}


def _pair(text: str, separator: str) -> tuple[str, str]:
    name, _, value = text.strip().partition(separator)
    return name, value.strip()


def _facts(texts: Sequence[str]) -> Mapping[str, Any]:
    found: dict[str, Any] = {}
    for field, pattern in _COUNTS.items():
        match = first_match(pattern, texts)
        value = _count(match[1]) if match else None
        if value:
            found[field] = float(value) if field in ("params", "tokens_per_step") else value
    return {**found, **_batch(texts), **_peak(texts), **_params(texts, found), "tokens_are": "all"}


def _count(text: str) -> int | None:
    digits = text.replace(",", "")
    return int(digits) if digits else None


def _batch(texts: Sequence[str]) -> dict[str, Any]:
    """Return microbatch and sequence, and the GPUs: the tokens of all ranks over those of one."""
    of_rank, of_all = first_match(_MICROBATCH, texts), first_match(_OF_ALL_RANKS, texts)
    if of_rank is None or not int(of_rank[1]) or not int(of_rank[2]):
        return {}
    found: dict[str, Any] = {"microbatch": int(of_rank[1]), "seq": int(of_rank[2])}
    tokens, per_rank = _count(of_all[1]) if of_all else None, found["microbatch"] * found["seq"]
    if tokens and tokens % per_rank == 0:
        found |= {"num_gpus": tokens // per_rank, "dp": tokens // per_rank}
    return found


def _params(texts: Sequence[str], found: Mapping[str, Any]) -> dict[str, Any]:
    match = None if "params" in found else first_match(_PARAMS_IN_MILLIONS, texts)
    return {"params": float(match[1]) * MEGA} if match and float(match[1]) > 0 else {}


def _peak(texts: Sequence[str]) -> dict[str, Any]:
    """Return the peak under its MFU as it says it, else the one that its source hard-wires as a default."""
    gpu, per_token = first_match(_GPU, texts), first_match(_FLOPS_PER_TOKEN, texts)
    flops = f"{float(per_token[1]):.4g} FLOPs a token" if per_token else "FLOPs"
    if gpu:
        peak = float(gpu[2])
        return {
            "gpu_name": gpu[1],
            "reported_peak_flops": peak,
            "reported_convention": f"nanochat: {flops} over {peak / TERA:g} TFLOP/s",
        }
    return {}


def _settle(facts: Mapping[str, Any], steps: Sequence[LoggedStep], _: Sequence[str]) -> Settled:
    """Return the facts with the peak that the source hard-wires, as a default, where the log states none.

    Lines of January 2026 and later, which name an epoch or a bf16_mfu, are of versions that know the GPU's own peak.
    """
    if all(step.tokens_per_s is None for step in steps):
        facts = {**facts, "framework": "nanogpt"}
    if "reported_peak_flops" in facts or all(step.peak_flops_share is None for step in steps):
        return facts, steps
    if any(step.tokens_per_s is None for step in steps):
        peak, note = NANOGPT_PEAK_FLOPS, "nanoGPT reckons MFU over 312 TFLOP/s whatever the GPU is"
    elif any("epoch" in step.more or "bf16_mfu" in step.more for step in steps):
        return facts, steps
    else:
        peak, note = NANOCHAT_PEAK_FLOPS, "nanochat of 2025 reckons MFU over 989 TFLOP/s whatever the GPU is"
    return {**facts, "defaults": {"reported_peak_flops": (peak, note)}}, steps


NANOCHAT = System(
    name="nanochat",
    is_step=lambda text: bool(_IS_STEP.search(text)),
    parse=_parse,
    read_facts=_facts,
    # nanochat's steps are timed without what comes between them; nanoGPT's time is of all that one iteration does
    events=(("an evaluation ran", re.compile(r"^step \d+: train loss .*, val loss ")),),
    ended=re.compile(r"^Total training time: "),
    settle=_settle,
)
