"""What stands side by side, and in which order it runs.

A side is one program with one training cell; the same cell describes both programs, each translates it to its own
options. A block runs every side once, there and in the next block back again (A B B A ...), so that what drifts
steadily over the session falls on all sides alike.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from falloff.spec.cell import TrainCell
from falloff.spec.layout import Layout
from falloff.spec.network import Network
from falloff.spec.reading import build

System = Literal["falloff", "torchtitan"]

COMPARED_STEPS = 20  # of which the losses are held against each other
LOSS_TOLERANCE = 0.01  # relative


@dataclass(frozen=True, kw_only=True)
class Side:
    """One program with one cell."""

    name: str
    system: System
    cell: TrainCell


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Which of our sides is divided by which of theirs; of several of theirs the fastest is taken."""

    name: str
    ours: str
    theirs: tuple[str, ...]
    goal: float
    same_losses: bool


@dataclass(frozen=True, kw_only=True)
class Leg:
    """One launch of one side."""

    block: int
    place: int
    side: str

    @property
    def name(self) -> str:
        """Return the leg's folder, which sorts as the legs run."""
        return f"block{self.block:02d}.{self.place}.{self.side}"


COMPARISONS = (
    Comparison(
        name="equalised, no recomputation, local batch 1",
        ours="ours_none_1",
        theirs=("titan_none_1",),
        goal=1.0,
        same_losses=True,
    ),
    Comparison(
        name="equalised, selective recomputation, local batch 2",
        ours="ours_selective_2",
        theirs=("titan_selective_2",),
        goal=1.0,
        same_losses=True,
    ),
    Comparison(
        name="best against best",
        ours="ours_best",
        theirs=("titan_none_1", "titan_selective_2"),
        goal=1.08,
        same_losses=False,
    ),
    Comparison(
        name="float8, no recomputation, local batch 1",
        ours="ours_float8_1",
        theirs=("titan_float8_1",),
        goal=1.0,
        same_losses=True,
    ),
)

_NONE_1 = {"local_batch": 1, "recompute": "none"}
_SELECTIVE_2 = {"local_batch": 2, "recompute": "selective"}
_SIDES: dict[str, tuple[System, dict[str, Any]]] = {
    "titan_none_1": ("torchtitan", _NONE_1),
    "ours_none_1": ("falloff", _NONE_1),
    "titan_selective_2": ("torchtitan", _SELECTIVE_2),
    "ours_selective_2": ("falloff", _SELECTIVE_2),
    "ours_best": ("falloff", _NONE_1),
    "titan_float8_1": ("torchtitan", {**_NONE_1, "float8": True}),
    "ours_float8_1": ("falloff", {**_NONE_1, "float8": True}),
}


def leg_order(sides: Sequence[str], blocks: int) -> list[Leg]:
    """Return the legs of so many blocks in the order in which they run: every other block goes backwards."""
    order = []
    for block in range(blocks):
        way = list(sides) if block % 2 == 0 else list(reversed(sides))
        order += [Leg(block=block, place=place, side=side) for place, side in enumerate(way)]
    return order


def make_sides(
    names: Sequence[str], network: Network, *, seq: int, ranks: int, best: Mapping[str, Any], every: Mapping[str, Any]
) -> dict[str, Side]:
    """Return the named sides; `best` changes the cell of ours_best, `every` that of each side.

    ValueError for a side that is not known, and where a change names no field of a cell or makes one that cannot run.
    """
    found = {}
    for name in names:
        if name not in _SIDES:
            raise ValueError(f"no side is called {name!r}; allowed: {', '.join(_SIDES)}")
        system, options = _SIDES[name]
        cell = equal_cell(network, seq=seq, ranks=ranks, **{**options, **every})
        found[name] = Side(name=name, system=system, cell=changed(cell, best) if name == "ours_best" else cell)
    return found


def equal_cell(
    network: Network, *, seq: int, ranks: int, local_batch: int, recompute: str, **changes: Any
) -> TrainCell:
    """Return the cell of both sides: TorchTitan's documented options, and a warm-up that ends before the window.

    Some 15 s are measured: 18 steps of 0.85 s, or 12 of 1.7 s where the local batch is 2 (seen on two H200).
    """
    stated: dict[str, Any] = {
        "network": asdict(network),
        "layout": asdict(Layout(dp_shard=ranks)),
        "seq": seq,
        "global_batch": ranks * local_batch,
        "microbatch": local_batch,
        "param_dtype": "bfloat16",
        "reduce_dtype": "float32",  # the only one that TorchTitan 0.2.2 takes
        "compile": True,
        "attention": "cudnn",  # what TorchTitan asks of SDPA first
        "recompute": recompute,
        "grad_clip": 1.0,
        # What its own warm-up of 200 steps to 3e-4 has come to at step 20. Constant on both sides.
        "learning_rate": 3e-5,
        "warmup_steps": 8,
        "measured_steps": 18 if local_batch == 1 else 12,
        "profiled_steps": 0,
        "traced_ranks": [],
    }
    return build(TrainCell, {**stated, **changes}, "the side-by-side's cell")


def changed(cell: TrainCell, changes: Mapping[str, Any]) -> TrainCell:
    """Return a cell with some fields changed; the global batch follows the microbatch unless it is named too."""
    stated = {**asdict(cell), **changes}
    if "microbatch" in changes and "global_batch" not in changes:
        stated["global_batch"] = cell.layout.dp * int(changes["microbatch"])
    return build(TrainCell, stated, "ours_best")
