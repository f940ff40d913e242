"""Hardware: one GPU type, its peaks and limits, every number with its source; unknown names are errors."""

import math
from dataclasses import dataclass
from pathlib import Path

from falloff.spec.reading import build, read_yaml, require_positive


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """One accelerator type. peak_flops holds dense rates by dtype; aliases are what logs and tables call it.

    memory_bytes and power_limit_w tell variants of one name apart.
    """

    name: str
    aliases: tuple[str, ...]
    peak_flops: dict[str, float]
    memory_bytes: int
    power_limit_w: float
    sources: tuple[str, ...]

    def __post_init__(self) -> None:
        require_positive(self, "memory_bytes", "power_limit_w")
        for dtype, rate in self.peak_flops.items():
            if not (math.isfinite(rate) and rate > 0):
                raise ValueError(f"peak_flops.{dtype} must be above zero and finite, found {rate}")
        if not self.sources:
            raise ValueError("sources must name where the numbers are from")


def read_all_hardware(folder: Path) -> dict[str, Hardware]:
    """Return every hardware file of `folder` by name; ValueError where two claim one alias."""
    known = {}
    owner: dict[str, str] = {}
    for path in sorted(folder.glob("*.yaml")):
        hardware = build(Hardware, read_yaml(path), str(path))
        if hardware.name != path.stem:
            raise ValueError(f"{path}: name is {hardware.name!r}, the file says {path.stem!r}")
        for alias in (hardware.name, *hardware.aliases):
            if owner.setdefault(alias.casefold(), hardware.name) != hardware.name:
                raise ValueError(f"{path}: alias {alias!r} already belongs to {owner[alias.casefold()]!r}")
        known[hardware.name] = hardware
    return known


def find_hardware(name: str, known: dict[str, Hardware]) -> Hardware:
    """Return the hardware whose name or alias is `name`, compared whole and without case.

    Never by substring and never by default: elsewhere that gave 563 %, 152 % and 104 % MFU. ValueError says
    how to add one.
    """
    wanted = name.casefold().strip()
    for hardware in known.values():
        if wanted in {alias.casefold() for alias in (hardware.name, *hardware.aliases)}:
            return hardware
    raise ValueError(
        f"hardware {name!r} is unknown; known: {', '.join(sorted(known))}. Add a file to config/hardware with its "
        "dense peaks and their source, or this name to the aliases of one that is there"
    )
