"""A trace of a few steps by torch's profiler, outside what is measured."""

import gzip
import tempfile
from collections.abc import Callable
from pathlib import Path

from torch.profiler import ProfilerActivity, profile, record_function

from falloff.outputs import whole_file


def trace_steps(path: Path, steps: range, run_step: Callable[[], None], *, on_gpu: bool) -> None:
    """Run the steps under the profiler and write their Chrome trace, gzipped and whole, to `path`.

    Each step is a span named as torch's profiler and the readers of its traces name it.
    """
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    # One cycle, so there is nothing to accumulate; torch 2.11 warns where this is not stated.
    with profile(activities=activities, acc_events=True) as profiler:
        for step in steps:
            with record_function(f"ProfilerStep#{step}"):
                run_step()
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".trace.") as folder:
        plain = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(plain))
        # The trace says where it was written first, which is the machine's own affair.
        trace = plain.read_bytes().replace(str(plain).encode(), path.name.encode())
        with whole_file(path) as unfinished:
            unfinished.write_bytes(gzip.compress(trace, mtime=0))
