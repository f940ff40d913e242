"""What the open log of a run says so far, for a launcher that watches it."""

import json
import time
from pathlib import Path

from falloff import rawlog


class GrowingLog:
    """What the open log of a run says so far, read as it grows."""

    def __init__(self, run_dir: Path) -> None:
        self.completed = False
        self.ranks_leave = False
        self.failure_s = float("inf")
        self._read_bytes = dict.fromkeys(rawlog.open_logs(run_dir), 0)

    def read(self) -> None:
        """Read the lines that have come since the last call."""
        for path in self._read_bytes:
            for line in self._new_lines(path):
                if line.startswith(b'{"event": "completed"'):
                    self.completed, self.ranks_leave = True, bool(json.loads(line).get("ranks_leave"))
                elif line.startswith((b'{"event": "failure"', b'{"event": "rank_signalled"')):
                    self.failure_s = min(self.failure_s, time.monotonic())

    def _new_lines(self, path: Path) -> list[bytes]:
        with path.open("rb") as file:
            file.seek(self._read_bytes[path])
            new = file.read()
        lines, newline, _ = new.rpartition(b"\n")
        self._read_bytes[path] += len(lines) + len(newline)
        return lines.split(b"\n")
