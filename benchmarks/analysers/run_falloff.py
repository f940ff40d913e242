"""Analyse traces with falloff: run_falloff.py OUT [--more] TRACE... writes what it found to OUT as JSON."""

import json
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from falloff.ingest.exposure import Exposure, measure_exposure
from falloff.ingest.ranks import RankReport, measure_ranks, read_ranks
from falloff.ingest.trace import read_trace

PARTS = ("span_ns", "compute_ns", "comm_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns")


def found(exposure: Exposure, more: bool) -> dict[str, Any]:
    """Return one rank's quantities."""
    parts = {name: getattr(exposure, name) for name in PARTS}
    overlap_share = (exposure.comm_ns - exposure.exposed_comm_ns) / exposure.comm_ns
    if not more:
        return {**parts, "overlap_share": overlap_share}
    steps = [{"number": step.number, **{name: getattr(step, name) for name in PARTS}} for step in exposure.steps]
    return {**parts, "overlap_share": overlap_share, "collectives_ns": exposure.by_collective_ns, "steps": steps}


def over_ranks(report: RankReport) -> dict[str, Any]:
    """Return what only the ranks together tell."""
    return {
        "transfer_ns": dict(report.transfer_ns),
        "wait_ns": dict(report.wait_ns),
        "offset_ns": dict(report.offset_ns),
        "residual_ns": report.residual_ns,
        "skew_ns": report.skew_ns,
    }


def main() -> None:
    """Read, analyse, write."""
    started_s = time.perf_counter()
    more = "--more" in sys.argv
    out, *traces = [Path(word) for word in sys.argv[1:] if word != "--more"]
    result: dict[str, Any] = {"versions": {"falloff": version("falloff")}}
    if len(traces) == 1:
        result["ranks"] = {"0": found(measure_exposure(read_trace(traces[0])), more)}
    else:
        report = measure_ranks(read_ranks(traces).traces)
        result["ranks"] = {str(rank): found(exposure, more) for rank, exposure in report.exposures.items()}
        result["over_ranks"] = over_ranks(report)
    result["seconds"] = time.perf_counter() - started_s
    out.write_text(json.dumps(result))


if __name__ == "__main__":
    main()
