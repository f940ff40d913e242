"""Hardware: one GPU type, its peaks and limits, every number with its source; unknown names are errors."""

import math
from dataclasses import dataclass
from pathlib import Path

from falloff.spec.reading import build, check_keys, read_yaml, require_positive

# as param_dtype of the records names them; under another name a peak would never be looked up
PEAK_DTYPES = ("float64", "float32", "tfloat32", "bfloat16", "float16", "float8", "float4")
# A V100 has 1.57e13 in float32, a GB200 1e16 in float4: outside this a unit is wrong, not the GPU unusual.
LEAST_PEAK_FLOPS, MOST_PEAK_FLOPS = 1e12, 1e17


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """One accelerator type. peak_flops holds dense FLOP/s by dtype; aliases are what logs and tables call it.

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
        check_keys(self.peak_flops, PEAK_DTYPES, "peak_flops")
        for dtype, rate in self.peak_flops.items():
            if not (math.isfinite(rate) and rate > 0):
                raise ValueError(f"peak_flops.{dtype} must be above zero and finite, found {rate}")
            if not LEAST_PEAK_FLOPS <= rate <= MOST_PEAK_FLOPS:
                raise ValueError(
                    f"peak_flops.{dtype} is {rate:g}; the unit is FLOP/s of one GPU, {LEAST_PEAK_FLOPS:g} to "
                    f"{MOST_PEAK_FLOPS:g}, so 989.4 TFLOP/s is 989.4e+12"
                )
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
