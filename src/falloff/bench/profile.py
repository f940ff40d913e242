"""A trace of a few steps by torch's profiler, outside what is measured."""

import gzip
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from torch.profiler import ProfilerActivity, profile, record_function

from falloff.outputs import whole_file
from falloff.rawlog import SCRATCH_VARIABLE


class Tracer:
    """Traces steps: prepare, start, run a step after each of the two, trace, and write once nothing waits for it."""

    def __init__(self, *, on_gpu: bool) -> None:
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
        # One cycle, so there is nothing to accumulate; torch 2.11 warns where this is not stated.
        self._profiler = profile(activities=activities, acc_events=True)

    def prepare(self) -> None:
        """Start what traces kernels: seconds of work, and the first kernels after it are lost."""
        self._profiler.prepare_trace()

    def start(self) -> None:
        """Start to record. The host was held up by it, so that the device waits in the step that follows."""
        self._profiler.start_trace()

    def trace(self, steps: range, run_step: Callable[[], None]) -> None:
        """Run the steps that count, each a span named as the readers of such traces name it, and record no more."""
        for step in steps:
            with record_function(f"ProfilerStep#{step}"):
                run_step()
        self._profiler.stop_trace()

    def write(self, path: Path) -> None:
        """Write the Chrome trace, gzipped and whole."""
        scratch = os.environ.get(SCRATCH_VARIABLE) or path.parent
        with tempfile.TemporaryDirectory(dir=scratch, prefix=".trace.") as folder:
            plain = Path(folder) / "trace.json"
            self._profiler.export_chrome_trace(str(plain))
            # The trace says where it was written first, which is the machine's own affair.
            trace = plain.read_bytes().replace(str(plain).encode(), path.name.encode())
            with whole_file(path) as unfinished:
                unfinished.write_bytes(gzip.compress(trace, mtime=0))
