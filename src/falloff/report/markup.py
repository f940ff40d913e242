"""Text as HTML: escaped, numbers kept whole, links relative to the page."""

import html
import os
import re
from pathlib import Path


def escaped(text: str) -> str:
    """Return text that may stand in HTML and in its attributes."""
    return html.escape(text, quote=True)


def prose(text: str) -> str:
    """Return sentences as HTML: no line ends between a number and its percent sign, and a minus is one."""
    whole = re.sub(r"(?<=\d) %", "\N{NO-BREAK SPACE}%", escaped(text))
    return re.sub(r"(?<![\w.)-])-(?=\d)", "\N{MINUS SIGN}", whole)


def counted(number: int, word: str) -> str:
    """Return a number and its word, in the plural unless it is one."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def relative(target: Path, page: Path) -> str:
    """Return the address of a file from the page."""
    return Path(os.path.relpath(target, page.parent)).as_posix()


def first_clause(text: str) -> str:
    """Return what a text says before its first semicolon or full stop, without it."""
    return re.split(r"; |\.(?= [A-Z])|\.$", text.strip(), maxsplit=1)[0]
