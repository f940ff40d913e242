"""What is said of a decided claim: why, what the model's ablation shows, what stands beside, our value."""

import numpy as np

from falloff.analysis.claim_ablation import WHAT_IFS
from falloff.analysis.claims import Checked, Decided, words_of
from falloff.spec.claims import Verdict


def why(one: Decided) -> str:
    """Return the sentence of why: what the deciding checks found, and the claim's remark.

    Where these compare no number that the claim states, the model's check that does is told too. Where the model alone
    speaks, a second sentence says what is left of it with its mechanism off.
    """
    there = [each for each in one.checks if each.outcome != "no rows"]
    roles = _roles(one.verdict)
    parts = [_sentence(each) for each in there if each.check.role in roles]
    if roles == ("decides",) and not any(each.check.stated is not None for each in one.deciding):
        parts += [_sentence(each) for each in there if each.check.role == "model" and each.check.stated is not None]
    if one.verdict == "cannot be decided":
        parts.insert(0, one.claim.undecidable or "no row of ours is of it")
    if one.remark:
        parts.append(one.remark)
    sentences = ["; ".join(part.strip().rstrip(".") for part in parts)]
    if one.verdict.startswith("model") and (off := ablations(one)):
        sentences.append(off)
    return " ".join(f"{text[:1].upper()}{text[1:]}." for text in sentences)


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
        text += f", {gap:,.{what.digits}f} {unit} from the stated {words_of(what.stated, what)}".replace("  ", " ")
        low, high = one.interval
        if np.isfinite(low) and np.isfinite(high):
            inside = "inside" if low <= what.stated <= high else "outside"
            text += f", which is {inside} our {low:,.{what.digits}f} to {words_of(high, what)}"
    if what.partial and what.role == "decides":
        text += f", but {what.partial}"
    return text


def ablation_words(one: Checked) -> str:
    """Return what becomes of a check's direction with each term off and at the ends of the parameters, in words."""
    ablated = one.ablated
    assert ablated is not None
    offs = []
    for name, value in ablated.without.items():
        so = "still so" if ablated.survives[name] else "not so"
        offs.append(f"with {WHAT_IFS[name].words} {words_of(value, one.check)}, {so}")
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
