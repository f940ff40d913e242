"""What a leg is asked for: a file in its folder, from the parent to the ranks."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.torchtitan.plan import System
from falloff.spec.cell import TrainCell, cell_from_json, cell_to_json

REQUEST_NAME = "request.json"
MEASURED_NAME = "measured.json"
OUTPUT_NAME = "output.txt"  # of the first rank and of torchrun
OUTPUT_OF_RANK = "output.rank{rank}.txt"


@dataclass(frozen=True, kw_only=True)
class Request:
    """One launch of one program."""

    system: System
    cell: TrainCell
    device: str
    titan_path: str

    def write(self, folder: Path) -> None:
        """Write the request into the leg's folder."""
        stated = {**self.__dict__, "cell": cell_to_json(self.cell)}
        (folder / REQUEST_NAME).write_text(json.dumps(stated), encoding="utf-8")


def read_request(folder: Path) -> Request:
    """Return what stands in a leg's folder."""
    stated: dict[str, Any] = json.loads((folder / REQUEST_NAME).read_text(encoding="utf-8"))
    cell = cell_from_json(stated.pop("cell"), str(folder / REQUEST_NAME))
    if not isinstance(cell, TrainCell):
        raise ValueError(f"{folder / REQUEST_NAME}: a cell of kind train is needed, found {cell.kind!r}")
    return Request(cell=cell, **stated)
