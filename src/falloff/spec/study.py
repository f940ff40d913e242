"""A study: one question as data, read into cells, each with an id, its repeats and where it is measured."""

import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from falloff.spec.cell import Cell, TrainCell
from falloff.spec.collectives_cell import CollectivesCell
from falloff.spec.kernels_cell import KernelsCell
from falloff.spec.layout import AXES, Layout
from falloff.spec.network import Network, read_network
from falloff.spec.reading import ImpossibleLayoutError, build, check_keys, read_yaml, require_positive


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a run may take before it is ended.

    Wall seconds, the seconds that a rank waits for the others in one collective, host memory a process, and how many
    processes stand on one node of a cluster (None: no limit).
    """

    timeout_s: float = 600.0
    collective_timeout_s: float = 120.0
    process_memory_bytes: int | None = None
    processes_per_node: int | None = None

    def __post_init__(self) -> None:
        require_positive(self, "timeout_s", "collective_timeout_s", "process_memory_bytes", "processes_per_node")


@dataclass(frozen=True, kw_only=True)
class StudyCell:
    """One cell of a study under its id. `stated` is what the study says of it, the ground of the id.

    The id leaves out what spec/ fills in by default: a changed default must not look like a new cell (its
    log, which carries every field, then reads as stale).
    """

    cell_id: str
    cell: Cell
    repeats: int
    stated: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class RefusedCell:
    """A cell that the study asks for and that cannot run, with the reason in a sentence."""

    cell_id: str
    stated: dict[str, Any]
    reason: str


@dataclass(frozen=True, kw_only=True)
class Study:
    """A question, its cells and the sites that measure them."""

    name: str
    question: str
    scaling: Literal["strong", "weak", "none"]
    measure_on: tuple[str, ...]
    limits: Limits
    cells: tuple[StudyCell, ...]
    refused: tuple[RefusedCell, ...]

    def runs(self) -> Iterator[tuple[StudyCell, int]]:
        """Yield each cell with each of its repeats, counted from 1."""
        for cell in self.cells:
            for repeat in range(1, cell.repeats + 1):
                yield cell, repeat


@dataclass(frozen=True, kw_only=True)
class _Document:
    """The study file as written, before its grids are multiplied out."""

    question: str
    measure_on: tuple[str, ...]
    scaling: Literal["strong", "weak", "none"] = "none"
    limits: Limits = Limits()
    fixed: dict[str, Any]
    grids: tuple[dict[str, Any], ...]
    collectives: tuple[dict[str, Any], ...]
    kernels: tuple[dict[str, Any], ...]

    def __post_init__(self) -> None:
        if not self.question.strip():
            raise ValueError(f"question must say what the study asks, found {self.question!r}")


_GRID_KEYS = ("repeats", "fixed", "grid", "include", "exclude")


def read_study(path: Path, networks: Path, num_gpus: int = 0) -> Study:
    """Return the study in the YAML file `path`, its networks looked up in the folder `networks`.

    num_gpus is how many GPUs the measuring machine has (0: processes on CPU, any number); a cell that needs
    more is refused. Raises ValueError, one sentence, for a misspelt key, a wrong type or unit, a cell stated twice.
    """
    document = _read_document(path)
    cells: list[StudyCell] = []
    refused: list[RefusedCell] = []
    seen_ids: set[str] = set()
    seen_cells: set[Cell] = set()
    for where, stated, repeats in _stated_cells(document, path):
        cell_id = _cell_id(stated)
        if cell_id in seen_ids:
            raise ValueError(f"{where}: the cell {_canonical(stated)} is stated twice")
        seen_ids.add(cell_id)
        try:
            cell = _build_cell(stated, networks, where)
            _check_gpus(cell, num_gpus, where)
        except ImpossibleLayoutError as error:
            refused.append(RefusedCell(cell_id=cell_id, stated=stated, reason=str(error)))
            continue
        # {dp_shard: 2} and {dp_shard: 2, tp: 1} have two ids and are one cell
        if cell in seen_cells:
            raise ValueError(f"{where}: the cell {_canonical(stated)} is stated twice, the other time in other words")
        seen_cells.add(cell)
        cells.append(StudyCell(cell_id=cell_id, cell=cell, repeats=repeats, stated=stated))
    return Study(
        name=path.stem,
        question=document.question,
        scaling=document.scaling,
        measure_on=document.measure_on,
        limits=document.limits,
        cells=tuple(cells),
        refused=tuple(refused),
    )


def _read_document(path: Path) -> _Document:
    raw = read_yaml(path)
    where = str(path)
    if not isinstance(raw, Mapping):
        raise ValueError(f"{where}: a mapping is needed, found {raw!r}")
    document: dict[str, Any] = {"fixed": {}, "grids": [], "collectives": [], "kernels": [], **raw}
    _check_shape(document["fixed"], Mapping, "a mapping", f"{where}: fixed")
    for key in ("grids", "collectives", "kernels"):
        _check_shape(document[key], list, "a list of mappings", f"{where}: {key}")
        for item in document[key]:
            _check_shape(item, Mapping, "a list of mappings", f"{where}: {key}")
    return build(_Document, document, where)


def _check_shape(value: Any, kind: type, words: str, where: str) -> None:
    if not isinstance(value, kind):
        raise ValueError(f"{where}: {words} is needed, found {value!r}")


def _stated_cells(document: _Document, path: Path) -> Iterator[tuple[str, dict[str, Any], int]]:
    """Yield where each cell stands, what is stated of it, and its repeats."""
    for number, grid in enumerate(document.grids, start=1):
        where = f"{path}: grid {number}"
        check_keys(grid, _GRID_KEYS, where)
        for stated in _multiply_out(grid, document.fixed, where):
            yield where, stated, _repeats(grid, where)
    for kind, blocks in (("collectives", document.collectives), ("kernels", document.kernels)):
        for number, block in enumerate(blocks, start=1):
            where = f"{path}: {kind} {number}"
            yield where, {"kind": kind, **{k: v for k, v in block.items() if k != "repeats"}}, _repeats(block, where)


def _repeats(block: Mapping[str, Any], where: str) -> int:
    repeats = block.get("repeats", 1)
    if type(repeats) is not int or repeats < 1:
        raise ValueError(f"{where}: repeats must be a whole number from 1 on, found {repeats!r}")
    return repeats


def _multiply_out(grid: Mapping[str, Any], fixed: Mapping[str, Any], where: str) -> Iterator[dict[str, Any]]:
    """Yield what each cell of one grid states: the product of its axes, less excludes, then its includes."""
    axes, includes, excludes = grid.get("grid", {}), grid.get("include", []), grid.get("exclude", [])
    _check_shape(grid.get("fixed", {}), Mapping, "a mapping", f"{where}: fixed")
    _check_shape(axes, Mapping, "a mapping of lists", f"{where}: grid")
    for axis, values in axes.items():
        if not isinstance(values, list) or not values:
            raise ValueError(f"{where}: grid.{axis}: a list of values is needed, found {values!r}")
    for key, patterns in (("include", includes), ("exclude", excludes)):
        _check_shape(patterns, list, "a list of mappings", f"{where}: {key}")
        for pattern in patterns:
            _check_shape(pattern, Mapping, "a list of mappings", f"{where}: {key}")
    common = {**fixed, **grid.get("fixed", {})}
    for exclude in excludes:
        # a misspelt key would exclude nothing, in silence
        check_keys(exclude, [*common, *axes], f"{where}: exclude")
    products: Iterator[tuple[Any, ...]] = itertools.product(*axes.values()) if axes or not includes else iter(())
    unused = set(range(1, len(excludes) + 1))
    for values in products:
        stated = {**common, **dict(zip(axes, values, strict=True))}
        hits = {number for number, exclude in enumerate(excludes, start=1) if _agrees(stated, exclude, where)}
        unused -= hits
        if not hits:
            yield stated
    if unused:
        number = min(unused)
        raise ValueError(f"{where}: exclude {number} matches no cell of the grid, found {excludes[number - 1]!r}")
    for include in includes:
        yield {**common, **include}


def _agrees(stated: Mapping[str, Any], pattern: Mapping[str, Any], where: str) -> bool:
    return all(_plain(key, stated.get(key), where) == _plain(key, value, where) for key, value in pattern.items())


def _plain(key: str, value: Any, where: str) -> Any:
    """Return a value in the one form in which it can be compared: {tp: 2} and {tp: 2, pp: 1} are one layout."""
    return build(Layout, value, f"{where}: layout") if key == "layout" else value


def _build_cell(stated: Mapping[str, Any], networks: Path, where: str) -> Cell:
    if stated.get("kind") == "collectives":
        return build(CollectivesCell, stated, where)
    if stated.get("kind") == "kernels":
        return build(KernelsCell, {**stated, "networks": _named_networks(stated, networks, where)}, where)
    network = stated.get("network")
    if not isinstance(network, str):
        raise ValueError(f"{where}: network: the name of a file in {networks} is needed, found {network!r}")
    return build(TrainCell, {**stated, "network": read_network(network, networks)}, where)


def _named_networks(stated: Mapping[str, Any], folder: Path, where: str) -> list[Network]:
    names = stated.get("networks")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{where}: networks: names of files in {folder} are needed, found {names!r}")
    return [read_network(name, folder) for name in names]


def _check_gpus(cell: Cell, num_gpus: int, where: str) -> None:
    if 0 < num_gpus < cell.num_processes:
        raise ImpossibleLayoutError(
            f"{where}: {cell.num_processes} processes need as many GPUs, this machine has {num_gpus}"
        )


def _cell_id(stated: Mapping[str, Any]) -> str:
    """Return a label for people and a digest of everything stated; read by nobody, only compared."""
    digest = hashlib.sha256(_canonical(stated).encode()).hexdigest()[:8]
    if stated.get("kind") == "collectives":
        return f"collectives-{stated.get('num_processes')}-{digest}"
    if stated.get("kind") == "kernels":
        return f"kernels-{stated.get('num_processes', 1)}-{digest}"
    layout = stated.get("layout")
    axes = "-".join(f"{axis}{layout[axis]}" for axis in AXES if axis in layout) if isinstance(layout, Mapping) else ""
    return "-".join(part for part in (str(stated.get("network")), axes, digest) if part)


def _canonical(stated: Mapping[str, Any]) -> str:
    """Return what is stated as JSON that does not depend on the order of keys; what JSON lacks (dates) as text."""
    return json.dumps(stated, sort_keys=True, default=str)
