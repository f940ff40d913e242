"""The block of `nvidia-smi -q` that says what holds a GPU's clocks down, in a file without readings of power."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from falloff.ingest.logtext import clean, read_text, without_prefixes
from falloff.ingest.power_columns import REASON_BITS
from falloff.ingest.power_nvidia_smi import read_clock_reasons

_BLOCK = re.compile(
    r"^\s*Clocks (?:Event|Throttle) Reasons\s*$|<clocks_(?:event|throttle)_reason_", re.IGNORECASE | re.MULTILINE
)
_GPU = re.compile(r'^\s*GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)\s*$|<gpu id="([^"]{1,40})">', re.M)
# `nvidia-smi -q -x` writes 27 KB a GPU: this is a node of 16 for an hour, each minute.
_MOST_CHARS = 32 << 20


@dataclass(frozen=True, kw_only=True)
class ClockReasons:
    """What holds the clocks of one GPU down, by nvidia-smi's own names; None for a reason of which it says neither."""

    gpu: str | None  # its PCI address, None for a block alone
    reasons: Mapping[str, bool | None]

    @property
    def active(self) -> tuple[str, ...]:
        """The reasons that are active, those that do not slow a GPU under load (idle, a user's setting) included."""
        return tuple(name for name, is_active in self.reasons.items() if is_active)

    @property
    def slowing(self) -> tuple[str, ...]:
        """The active ones that slow a GPU under load: its power limit, heat, the power supply."""
        return tuple(name for name in self.active if name in REASON_BITS)


def is_clock_reasons(head: str) -> bool:
    """Return whether a file's first part holds the block of clock reasons, as text or XML."""
    return _BLOCK.search(without_prefixes(head)) is not None


def read_clock_reasons_file(path: Path) -> list[ClockReasons]:
    """Return the blocks of a file in order, one a GPU and report; ValueError, one sentence, where it holds none."""
    text, length = [], 0
    for piece in read_text(path):
        text.append(piece)
        length += len(piece)
        if length > _MOST_CHARS:
            break
    found = _by_gpu(without_prefixes(clean("".join(text))))
    if not found:
        raise ValueError(
            f"{path}: holds no block 'Clocks Event Reasons' with reasons in it, as nvidia-smi -q prints it"
        )
    return found


def _by_gpu(text: str) -> list[ClockReasons]:
    headings = list(_GPU.finditer(text))
    bounds = [0, *(heading.start() for heading in headings), len(text)]
    names = [None, *(heading[1] or heading[2] for heading in headings)]
    blocks = zip(names, bounds[:-1], bounds[1:], strict=True)
    found = [(name, read_clock_reasons(text[begin:end])) for name, begin, end in blocks]
    return [ClockReasons(gpu=name, reasons=reasons) for name, reasons in found if reasons]
