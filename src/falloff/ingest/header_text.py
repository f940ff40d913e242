"""What the lines before a log's first step say: the first that fits, a count, a block between brackets."""

import re
from collections.abc import Sequence

_LONGEST_BLOCK_CHARS = 200_000
_COUNT = re.compile(r"\d{1,15}")


def first_match(pattern: re.Pattern[str], texts: Sequence[str]) -> re.Match[str] | None:
    """Return the match of the first line in which the pattern is found, None where it is in none."""
    return next((match for text in texts if (match := pattern.search(text))), None)


def count_of(text: str) -> int | None:
    """Return a count above zero; None for 0, which stands for what is off or not known, and for another text."""
    return (int(text) or None) if _COUNT.fullmatch(text) else None


def bracket_block(texts: Sequence[str], opening: str, closing: str) -> str:
    """Return the text up to the line in which its first bracket closes; empty where that is cut off.

    opening and closing hold the kinds of brackets that count.
    """
    lines: list[str] = []
    depth = num_chars = 0
    for text in texts:
        lines.append(text)
        depth += sum(map(text.count, opening)) - sum(map(text.count, closing))
        num_chars += len(text)
        if depth <= 0 or num_chars > _LONGEST_BLOCK_CHARS:
            return "\n".join(lines) if depth == 0 else ""
    return ""
