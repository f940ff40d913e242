"""What is said of a decided claim: why, what the model's ablation shows, what stands beside, our value."""

import numpy as np

from falloff.analysis.claim_ablation import WHAT_IFS
from falloff.analysis.claims import Checked, Decided, words_of
from falloff.spec.claims import Verdict

# statistics that are a count of GPUs at which something comes to be; it may never
_CROSSINGS = ("crossing", "crossing_of_groups")
_NEVER = "never"


def why(one: Decided) -> str:
    """Return the sentence of why: what the deciding checks found, those that fail first, and the claim's remark.

    Where these compare no number that the claim states, the model's check that does is told too. A check that lost its
    rows is named with how many are there. What is left of the
    model's word with its mechanism off is told by `ablations`.
    """
    there = [each for each in one.checks if each.outcome != "no rows"]
    there.sort(key=lambda each: each.outcome != "fails")
    roles = _roles(one.verdict)
    parts = [_sentence(each) for each in there if each.check.role in roles]
    if roles == ("decides",) and not any(each.check.stated is not None for each in one.deciding):
        parts += [_sentence(each) for each in there if each.check.role == "model" and each.check.stated is not None]
    if one.verdict == "cannot be decided":
        parts.insert(0, one.claim.undecidable or "; ".join(map(_lost, one.lost)) or "no check of it decides")
    else:
        parts += map(_lost, one.lost)
    if one.remark:
        parts.append(one.remark)
    text = "; ".join(part.strip().rstrip(".") for part in parts)
    return f"{text[:1].upper()}{text[1:]}."


def _roles(verdict: Verdict) -> tuple[str, ...]:
    if verdict == "cannot be decided":
        return ("model", "beside")
    return ("model",) if verdict.startswith("model") else ("decides",)


def _sentence(one: Checked) -> str:
    what, found = one.check, one.found
    n = len(found.rows)
    text = f"{what.what}: {words_of(found.value, what)} ({', '.join(one.kinds)}, {n} {'row' if n == 1 else 'rows'})"
    if what.stated is not None and np.isfinite(found.value):
        gap, unit = abs(found.value - what.stated), "points" if what.unit == "%" else what.unit
        allowed = f" ({what.tolerance or 0:g} allowed)" if gap > (what.tolerance or 0) else ""
        distance = f"{gap:,.{what.digits}f} {unit}".rstrip() + allowed
        text += f", {distance} from the stated {words_of(what.stated, what)}"
        low, high = one.interval
        if np.isfinite(low) and np.isfinite(high):
            inside = "inside" if low <= what.stated <= high else "outside"
            text += f", which is {inside} our {low:,.{what.digits}f} to {words_of(high, what)}"
    if what.partial and what.role == "decides":
        text += f", but {what.partial}"
    return text


def _lost(one: Checked) -> str:
    what, there = one.check, len(one.found.rows)
    return f"{what.what}: table {what.table} lacks rows that it takes ({there} of {what.no_less} are there)"


def ablation_words(one: Checked) -> str:
    """Return what becomes of a check's direction with each term off and at the ends of the parameters, in words."""
    ablated = one.ablated
    assert ablated is not None
    offs = []
    for name, value in ablated.without.items():
        so = "still so" if ablated.survives[name] else "not so"
        found = _NEVER if one.check.measure in _CROSSINGS and not np.isfinite(value) else words_of(value, one.check)
        offs.append(f"with {WHAT_IFS[name].words} {found}, {so}")
    return f"{'; '.join(offs)}; so at {ablated.kept} of {ablated.ends} ends of its parameters' 90 %"


def ablations(one: Decided) -> str | None:
    """Return what switching terms off does to a claim's checks of the model, None where it has none."""
    found = [f"{each.check.what}: {ablation_words(each)}" for each in one.checks if each.ablated is not None]
    return "; ".join(found) or None


def beside(one: Decided) -> str | None:
    """Return what is shown beside a claim and decides nothing, None where there is nothing."""
    there = [each for each in one.checks if each.check.role == "beside" and each.outcome != "no rows"]
    found = [
        f"{_sentence(each)}{': ' if each.groups else ''}{'; '.join(each.groups)}"
        for each in there
        if one.verdict != "cannot be decided"
    ]
    return "; ".join(found) or None


def ours(one: Decided) -> str:
    """Return our value with its interval, and its kind of evidence where that is not the verdict's."""
    shown = one.shown
    if shown is None:
        return "-"
    low, high = shown.interval
    text = words_of(shown.found.value, shown.check)
    if np.isfinite(low) and np.isfinite(high):
        text += f" [{low:,.{shown.check.digits}f}, {high:,.{shown.check.digits}f}]"
    # the number beside the stated one may be of another kind than what decides the direction
    return text if one.evidence in shown.kinds else f"{text} ({', '.join(shown.kinds)})"
