"""Which runs of a study are measured, in which order, and until when."""

import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from falloff import rawlog
from falloff.launch import Run
from falloff.slurm.resources import resources_of
from falloff.spec.cell import cell_to_json
from falloff.spec.reading import ImpossibleLayoutError
from falloff.spec.site import Site
from falloff.spec.study import RefusedCell, Study, StudyCell

Lane = list[Run]


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What is asked of a study: cells with one of the texts in id or statement, one repeat, on each GPU by itself."""

    only: tuple[str, ...] = ()
    repeat: int | None = None
    gpus_apart: int = 0  # so many GPUs, each with repeats of the one-process cells; 0: no such thing


def schedule(study: Study, raw: Path, device: Literal["cpu", "cuda"], choice: Choice) -> list[list[Lane]]:
    """Return the runs without a sealed log: stages one after the other, each of lanes beside each other.

    Repeats are outermost, so that the second of every cell comes after the first of all, in processes of its own; in
    a pass cells stand in the study's order, those with as many processes together. Of a one-process cell that each GPU
    measures by itself, repeat r is measured on GPU 0, r + 1 on GPU 1, and so on. ValueError where a text is in no cell.
    """
    asked_for: list[StudyCell | RefusedCell] = [*study.cells, *study.refused]
    for text in choice.only:
        if not any(_is_chosen(cell, [text]) for cell in asked_for):
            raise ValueError(f"study {study.name}: no cell has {text!r} in its id or in what the study states of it")
    cells = [cell for cell in study.cells if _is_chosen(cell, choice.only)]
    width = choice.gpus_apart or 1
    last = max((cell.repeats for cell in cells), default=0)
    firsts: Iterable[int] = range(1, last + 1, width) if choice.repeat is None else [choice.repeat]
    stages: list[list[Lane]] = []
    for first in firsts:
        apart = [cell for cell in cells if choice.gpus_apart and cell.cell.num_processes == 1]
        together = [cell for cell in cells if cell not in apart]
        apart = [cell for cell in apart if choice.repeat is not None or first <= cell.repeats]
        stages.append([_lane(study, apart, first + gpu, raw, device, gpu) for gpu in range(choice.gpus_apart)])
        for repeat in range(first, first + width) if choice.repeat is None else [first]:
            present = [cell for cell in together if choice.repeat is not None or repeat <= cell.repeats]
            stages.append([_lane(study, present, repeat, raw, device, None)])
    return [stage for stage in stages if any(stage)]


def _is_chosen(cell: StudyCell | RefusedCell, only: Sequence[str]) -> bool:
    # without quotes, which a shell would have to be told
    stated = json.dumps(cell.stated, sort_keys=True, default=str).replace('"', "")
    text = f"{cell.cell_id} {stated}"
    return not only or any(part in text for part in only)


def _lane(
    study: Study, cells: Sequence[StudyCell], repeat: int, raw: Path, device: Literal["cpu", "cuda"], gpu: int | None
) -> Lane:
    """Return one repeat of each cell that has no sealed log, by process count in the order of its first cell."""
    counts = list(dict.fromkeys(cell.cell.num_processes for cell in cells))
    ordered = sorted(cells, key=lambda cell: counts.index(cell.cell.num_processes))
    runs = [run_of(study, cell, repeat, raw, device, gpu) for cell in ordered]
    return [run for run in runs if not rawlog.is_sealed(run.run_dir)]


def run_of(
    study: Study, cell: StudyCell, repeat: int, raw: Path, device: Literal["cpu", "cuda"], gpu: int | None = None
) -> Run:
    """Return one repeat of a cell as the launcher takes it."""
    return Run(
        study=study.name,
        cell_id=cell.cell_id,
        repeat=repeat,
        cell=cell.cell,
        limits=study.limits,
        run_dir=raw / study.name / cell.cell_id / str(repeat),
        device=device,
        gpu=gpu,
    )


def runs_on_site(study: Study, raw: Path, site: Site) -> tuple[list[Run], list[str]]:
    """Return the runs of a study that can be jobs of a site, sealed or not, and why each other cell cannot.

    ValueError where one would be longer than the site's longest job.
    """
    device: Literal["cpu", "cuda"] = "cuda" if site.gpu_resource else "cpu"
    runs, reasons = [], [cell.reason for cell in study.refused]
    for cell, repeat in study.runs():
        run = run_of(study, cell, repeat, raw, device)
        try:
            resources_of([run], site)
        except ImpossibleLayoutError as error:
            reasons += [f"{cell.cell_id}: {error}"] if repeat == 1 else []
        else:
            runs.append(run)
    return runs, reasons


@dataclass(kw_only=True)
class Budget:
    """The seconds in which runs may start: a run that is not expected to end in them is left."""

    until_s: float
    _start_s: float = field(default_factory=time.monotonic)
    _wall_s: dict[str, list[float]] = field(default_factory=dict)

    def may_start(self, run: Run) -> bool:
        """Return whether a run is expected to end in time; the first one may always try while there is time."""
        return self.left_s() > (self.expected_s(run) or 0.0)

    def left_s(self) -> float:
        """Return the seconds that are left."""
        return self.until_s - (time.monotonic() - self._start_s)

    def expected_s(self, run: Run) -> float | None:
        """Return the mean of the like runs so far, else of all, at most the run's limit; None before any."""
        seen = self._wall_s.get(_likeness(run)) or [wall_s for like in self._wall_s.values() for wall_s in like]
        return min(sum(seen) / len(seen), run.limits.timeout_s) if seen else None

    def note(self, run: Run, wall_s: float) -> None:
        """Remember how long a run took."""
        self._wall_s.setdefault(_likeness(run), []).append(wall_s)


def _likeness(run: Run) -> str:
    return f"{cell_to_json(run.cell)['kind']} on {run.cell.num_processes}"
