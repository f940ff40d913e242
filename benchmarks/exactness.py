"""How far what an analyser found is from the truth, in nanoseconds and in points of overlap."""

from collections.abc import Iterator, Mapping
from typing import Any

PARTS = ("span_ns", "compute_ns", "comm_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns")
# TraceLens takes memsets for compute; it is held to the truth of that definition
OWN_DEFINITION = {"tracelens": "memset_is_compute"}


def truth_of(tool: str, rank: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a rank's true quantities by the analyser's own definition of compute."""
    own: Mapping[str, Any] = rank[OWN_DEFINITION[tool]] if tool in OWN_DEFINITION else rank
    return own


def errors(tool: str, found: Mapping[str, Any], truth: Mapping[str, Any]) -> dict[str, float]:
    """Return found minus true of each quantity that the analyser gives; over ranks the one furthest off."""
    furthest: dict[str, float] = {}
    for rank in truth["ranks"]:
        got, true = found["ranks"][str(rank["rank"])], truth_of(tool, rank)
        for name in ("overlap_share", *PARTS):
            if name in got:
                error = got[name] - true[name]
                furthest[name] = max(furthest.get(name, 0), error, key=abs)
    return furthest


def mismatches(found: Mapping[str, Any], truth: Mapping[str, Any]) -> tuple[int, list[str]]:
    """Return how many of falloff's integers were compared, and each that is not the true one, in words."""
    compared = list(_compared(found, truth))
    return len(compared), [f"{name}: {got} for {true}" for name, got, true in compared if got != true]


def _compared(found: Mapping[str, Any], truth: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    over = found.get("over_ranks")
    if over:
        yield "skew", over["skew_ns"], truth["skew_ns"]
        yield "distance of the clocks after alignment", over["residual_ns"], 0
    for rank in truth["ranks"]:
        key = str(rank["rank"])
        got = found["ranks"].get(key, {})
        for name in PARTS:
            yield f"rank {key} {name}", got.get(name), rank[name]
        for collective, ns in rank["collectives_ns"].items():
            yield f"rank {key} {collective}", got.get("collectives_ns", {}).get(collective), ns
        steps = {step["number"]: step for step in got.get("steps", [])}
        for step in rank["steps"]:
            for name in PARTS:
                yield f"rank {key} step {step['number']} {name}", steps.get(step["number"], {}).get(name), step[name]
        if over:
            yield f"rank {key} transfer", over["transfer_ns"].get(key), sum(rank["transfer_ns"].values())
            yield f"rank {key} wait", over["wait_ns"].get(key), sum(rank["wait_ns"].values())
            ahead_ns = rank["clock_offset_ns"] - truth["ranks"][0]["clock_offset_ns"]
            yield f"rank {key} clock", over["offset_ns"].get(key), ahead_ns
