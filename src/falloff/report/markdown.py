"""Tables in Markdown."""

from collections.abc import Iterable, Sequence
from typing import Any


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return rows under their heads, a line each; a bar within a cell would end it and becomes a slash."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join("| " + " | ".join(str(cell).replace("|", "/") for cell in line) + " |\n" for line in lines)
