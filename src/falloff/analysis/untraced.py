"""Why launches have no exposed communication, in the few words that a figure has room for."""

import re

import pandas as pd

NO_TRACE = "no trace"
# as ingest.native_trace says that a traced step is no measured one
_REJECTED = re.compile(r"profiled steps are (?P<percent>[\d.]+)% (?P<way>longer|shorter) than the measured ones")


def untraced_words(launches: pd.DataFrame) -> str:
    """Return why no launch of a cell has shares of a traced step: by how much the profiler changed it, or no trace."""
    found = (_REJECTED.search(note) for note in launches["trace_note"] if isinstance(note, str))
    off = next(filter(None, found), None)
    return f"profiler {'+' if off['way'] == 'longer' else '-'}{float(off['percent']):.0f} %" if off else NO_TRACE
