"""Hardware: one GPU type, its peaks and limits, every number with its source; unknown names are errors."""

import functools
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from falloff.spec.reading import build, check_keys, read_yaml, require_positive

# as param_dtype of the records names them; under another name a peak would never be looked up
PEAK_DTYPES = ("float64", "float32", "tfloat32", "bfloat16", "float16", "float8", "float4")
# A V100 has 1.57e13 in float32, a GB200 1e16 in float4: outside this a unit is wrong, not the GPU unusual.
LEAST_PEAK_FLOPS, MOST_PEAK_FLOPS = 1e12, 1e17

# How dense matrix peaks of one part stand to each other. A figure that counts 2:4 sparsity is twice the dense one, so
# that an entry which mixes the two leaves these ratios. They hold on Ampere, Ada, Hopper, Blackwell, CDNA 2 to 4;
# float4 is three times float8 on Blackwell Ultra alone.
_DENSE_RATIOS: tuple[tuple[str, str, tuple[float, ...]], ...] = (
    ("bfloat16", "float16", (1.0,)),
    ("tfloat32", "bfloat16", (0.5,)),
    ("tfloat32", "float16", (0.5,)),
    ("float8", "bfloat16", (2.0,)),
    ("float8", "float16", (2.0,)),
    ("float4", "float8", (2.0, 3.0)),
)
_RATIO_TOLERANCE = 0.03  # data sheets round: an L40S has 733 over 362.05, which is 2.025

# what drivers and tables write before a part's name, or leave out
_VENDORS = ("nvidia", "amd", "tesla", "instinct")
_TRADEMARKS = re.compile(r"[®™]|\((?:r|tm)\)")
_SEPARATORS = re.compile(r"[\s_-]+")  # Kubernetes labels write a driver's blanks as hyphens


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """One accelerator type. peak_flops holds dense FLOP/s by dtype; aliases are what logs and tables call it.

    It is what a program sees as one device: one GCD of a board that holds two. memory_bytes and power_limit_w tell
    variants of one name apart. memory_bandwidth (bytes a second, the sheet's) and sms (streaming multiprocessors or
    compute units) are what the performance model needs beside them. ValueError where two peaks stand to each other as
    no dense peaks do.
    """

    name: str
    aliases: tuple[str, ...]
    peak_flops: dict[str, float]
    memory_bytes: int
    power_limit_w: float
    sources: tuple[str, ...]
    memory_bandwidth: float | None = None
    sms: int | None = None

    def __post_init__(self) -> None:
        require_positive(self, "memory_bytes", "power_limit_w", "memory_bandwidth", "sms")
        check_keys(self.peak_flops, PEAK_DTYPES, "peak_flops")
        for dtype, rate in self.peak_flops.items():
            _check_peak(dtype, rate)
        for dtype, other, ratios in _DENSE_RATIOS:
            _check_ratio(self.peak_flops, dtype, other, ratios)
        if not self.sources:
            raise ValueError("sources must name where the numbers are from")

    @property
    def family(self) -> str:
        """Return the part's name without its variant: h100 of h100-pcie."""
        return self.name.partition("-")[0]


def read_all_hardware(folder: Path) -> dict[str, Hardware]:
    """Return every hardware file of `folder` by name; ValueError where two claim one alias."""
    stats = [(path, path.stat()) for path in sorted(folder.glob("*.yaml"))]
    return dict(_read_hardware(tuple((path, stat.st_mtime_ns, stat.st_size) for path, stat in stats)))


# A folder of logs asks for the files of all GPU types once a log, and reading them takes 20 ms, longer than most logs.
@functools.lru_cache(maxsize=4)
def _read_hardware(files: tuple[tuple[Path, int, int], ...]) -> Mapping[str, Hardware]:
    known = {}
    owner: dict[tuple[str, ...], str] = {}
    for path, _, _ in files:
        hardware = build(Hardware, read_yaml(path), str(path))
        if hardware.name != path.stem:
            raise ValueError(f"{path}: name is {hardware.name!r}, the file says {path.stem!r}")
        for alias in (hardware.name, *hardware.aliases):
            if owner.setdefault(_words(alias), hardware.name) != hardware.name:
                raise ValueError(f"{path}: alias {alias!r} already belongs to {owner[_words(alias)]!r}")
        known[hardware.name] = hardware
    return known


def find_hardware(name: str, known: Mapping[str, Hardware]) -> Hardware:
    """Return the hardware whose name or alias is `name`: whole, without regard to case, blanks and the vendor's name.

    Never by substring, by PCI code name or by default: elsewhere that gave 563 %, 152 % and 104 % MFU. ValueError
    says which parts a name such as 'H100' leaves open, or how to add an unknown one.
    """
    wanted = _words(name)
    # a driver that says 'NVIDIA H200' means the SXM part; a person who says 'H200' may mean either
    open_name = len(_relatives(wanted, known)) > 1 and not _has_vendor(name)
    for hardware in known.values():
        if not open_name and wanted in {_words(alias) for alias in (hardware.name, *hardware.aliases)}:
            return hardware
    meant = _relatives(wanted, known) or _holding(wanted, known)
    if len(meant) > 1:
        raise ValueError(
            f"hardware {name!r} leaves open which of {', '.join(sorted(meant))} it is; their peaks, memory or power "
            "limits differ, so state the variant"
        )
    raise ValueError(
        f"hardware {name!r} is unknown; known: {', '.join(sorted(known))}. Add a file to config/hardware with its "
        "dense peaks and their source, or this name to the aliases of one that is there"
    )


def _check_peak(dtype: str, rate: float) -> None:
    if not (math.isfinite(rate) and rate > 0):
        raise ValueError(f"peak_flops.{dtype} must be above zero and finite, found {rate}")
    if not LEAST_PEAK_FLOPS <= rate <= MOST_PEAK_FLOPS:
        raise ValueError(
            f"peak_flops.{dtype} is {rate:g}; the unit is FLOP/s of one GPU, {LEAST_PEAK_FLOPS:g} to "
            f"{MOST_PEAK_FLOPS:g}, so 989.4 TFLOP/s is 989.4e+12"
        )


def _check_ratio(peaks: Mapping[str, float], dtype: str, other: str, ratios: tuple[float, ...]) -> None:
    if dtype not in peaks or other not in peaks:
        return
    found = peaks[dtype] / peaks[other]
    if not any(math.isclose(found, ratio, rel_tol=_RATIO_TOLERANCE) for ratio in ratios):
        raise ValueError(
            f"peak_flops.{dtype} is {found:.3g} times peak_flops.{other}, where dense peaks stand at "
            f"{' or '.join(f'{ratio:g}' for ratio in ratios)}: one of them counts sparsity (half of it is dense) or "
            "is another part's"
        )


@functools.cache
def _words(name: str) -> tuple[str, ...]:
    """Return a name's words without the vendor's before them."""
    words = _SEPARATORS.split(_TRADEMARKS.sub(" ", name.casefold()).strip(" -_"))
    while len(words) > 1 and words[0] in _VENDORS:
        words = words[1:]
    return tuple(words)


def _has_vendor(name: str) -> bool:
    return _SEPARATORS.split(name.casefold().strip())[0] in _VENDORS


def _relatives(wanted: tuple[str, ...], known: Mapping[str, Hardware]) -> list[str]:
    """Return the parts of which `wanted` is the family's name alone."""
    return [hardware.name for hardware in known.values() if wanted == (hardware.family,)]


def _holding(wanted: tuple[str, ...], known: Mapping[str, Hardware]) -> list[str]:
    """Return the parts that have a name with every word of `wanted` in it, for the error alone."""
    return [
        hardware.name
        for hardware in known.values()
        if any(set(wanted) <= set(_words(alias)) for alias in (hardware.name, *hardware.aliases))
    ]
