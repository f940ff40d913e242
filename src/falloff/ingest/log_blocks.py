"""Lines that a framework prints together, as one line: a heading and the values under it."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from falloff.ingest.logtext import Line

# Other ranks and libraries write between the lines of a block; this many of their lines say that it is over.
MOST_HELD_LINES = 500
# The longest blocks, with a value for each layer of a network, have some hundred lines.
MOST_BLOCK_LINES = 2_000


@dataclass(kw_only=True)
class _Open:
    """Blocks that are not closed yet, one a rank, and the other lines that came meanwhile."""

    blocks: dict[int | None, list[Line]] = field(default_factory=dict)
    others: list[Line] = field(default_factory=list)


def join_blocks(
    lines: Iterable[Line], opens: Callable[[str], bool], holds: Callable[[str], bool], is_ours: Callable[[str], bool]
) -> Iterator[Line]:
    """Yield each block as one line, its lines apart by newlines, and every other line after the block that it is in.

    opens: whether a line is a block's heading. holds: whether it can be one of its values, is_ours: whether it can be
    no other's. A value that is ours without a heading before it, as in a log that begins within a block, makes a
    block that has none. Blocks of ranks that say who they are may be interleaved.
    """
    state = _Open()
    for line in lines:
        block = state.blocks.get(line.rank)
        if opens(line.text):
            yield from _close(state, line.rank)
            state.blocks[line.rank] = [line]
        elif holds(line.text) if block else is_ours(line.text):
            state.blocks.setdefault(line.rank, []).append(line)
        elif not state.blocks:
            yield line
        else:
            state.others.append(line)
        if len(state.others) > MOST_HELD_LINES or len(state.blocks.get(line.rank, ())) > MOST_BLOCK_LINES:
            yield from _close_all(state)
    yield from _close_all(state)


def whole_values(values: str, block: Line) -> list[str]:
    """Return the lines under a block's heading, without one whose end is cut off: its value may go on."""
    lines = values.split("\n")
    return lines if block.is_ended else lines[:-1]


def _close(state: _Open, rank: int | None) -> Iterator[Line]:
    """Yield a rank's block, and what came meanwhile where no other block is open."""
    block = state.blocks.pop(rank, None)
    if block:
        yield Line(rank, "\n".join(line.text for line in block), all(line.is_ended for line in block))
    if not state.blocks:
        yield from state.others
        state.others = []


def _close_all(state: _Open) -> Iterator[Line]:
    for rank in tuple(state.blocks):
        yield from _close(state, rank)
