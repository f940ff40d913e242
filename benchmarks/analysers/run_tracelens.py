"""Analyse traces with TraceLens: run_tracelens.py OUT [--more] TRACE... writes what it found to OUT as JSON.

Its GPU event analyser is used alone, without the call tree that the rest of TraceLens needs. It handles one trace;
several are given to as many processes as there are cores, as the other two do by themselves.
"""

import json
import multiprocessing
import os
import sys
import time
from importlib.metadata import version
from pathlib import Path

from TraceLens import DataLoader, GPUEventAnalyser


def analyse(path: str) -> dict[str, float]:
    """Return one rank's quantities."""
    events = DataLoader.load_data(path)["traceEvents"]
    # 1.0.0 looks up a number that only its tree builder gives (the documented call ends in KeyError: 'UID')
    for number, event in enumerate(events):
        event["UID"] = number
    us = GPUEventAnalyser(events).compute_metrics()
    return {
        "overlap_share": 1 - us["exposed_comm_time"] / us["total_comm_time"],
        "span_ns": us["total_time"] * 1000,
        "compute_ns": us["computation_time"] * 1000,
        "comm_ns": us["total_comm_time"] * 1000,
        "exposed_comm_ns": us["exposed_comm_time"] * 1000,
        "exposed_copy_ns": us["exposed_memcpy_time"] * 1000,
        "idle_ns": us["idle_time"] * 1000,
    }


def main() -> None:
    """Read, analyse, write."""
    started_s = time.perf_counter()
    out, *traces = [word for word in sys.argv[1:] if word != "--more"]
    if len(traces) == 1:
        found = [analyse(traces[0])]
    else:
        with multiprocessing.Pool(min(len(traces), os.cpu_count() or 1)) as pool:
            found = pool.map(analyse, traces, chunksize=1)
    seconds = time.perf_counter() - started_s
    versions = {name: version(name) for name in ("TraceLens", "orjson", "pandas")}
    ranks = {str(rank): quantities for rank, quantities in enumerate(found)}
    Path(out).write_text(json.dumps({"versions": versions, "seconds": seconds, "ranks": ranks}))


if __name__ == "__main__":
    main()
