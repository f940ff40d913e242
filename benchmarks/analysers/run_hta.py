"""Analyse traces with HTA: run_hta.py OUT [--more] TRACE... writes what it found to OUT as JSON.

The overlap is the one call that the time is taken for. --more adds the temporal breakdown, for its compute and idle.
"""

import json
import sys
import time
from importlib.metadata import version
from pathlib import Path

from hta.trace_analysis import TraceAnalysis


def main() -> None:
    """Read, analyse, write."""
    started_s = time.perf_counter()
    out, *traces = [word for word in sys.argv[1:] if word != "--more"]
    folder = str(Path(traces[0]).resolve().parent)
    files = {rank: str(Path(trace).resolve()) for rank, trace in enumerate(traces)}
    # by default it drops the last step, which the truth holds
    analysis = TraceAnalysis(trace_files=files, trace_dir=folder, include_last_profiler_step=True)
    table = analysis.get_comm_comp_overlap(visualize=False)
    seconds = time.perf_counter() - started_s
    ranks = {
        str(rank): {"overlap_share": percent / 100}
        for rank, percent in zip(table["rank"], table["comp_comm_overlap_pctg"], strict=True)
    }
    if "--more" in sys.argv:
        for row in analysis.get_temporal_breakdown(visualize=False).to_dict("records"):
            ranks[str(row["rank"])] |= {
                "span_ns": float(row["kernel_time(us)"]) * 1000,
                "compute_ns": float(row["compute_time(us)"]) * 1000,
                "idle_ns": float(row["idle_time(us)"]) * 1000,
            }
    versions = {name: version(name) for name in ("HolisticTraceAnalysis", "pandas", "numpy")}
    Path(out).write_text(json.dumps({"versions": versions, "seconds": seconds, "ranks": ranks}))


if __name__ == "__main__":
    main()
