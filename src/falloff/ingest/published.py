"""Published numbers: where the rows of a table are from, as facts taken from papers and repositories.

Each table has a sources.yaml beside it that says, for every source it names, where it is from, under which
licence, and what its numbers count. Blank means "not stated" and stays None.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from falloff.records import RunRecord
from falloff.spec.hardware import Hardware, find_hardware
from falloff.spec.reading import build, check_keys, read_yaml

HARDWARE = Path("config/hardware")
SOURCES = "sources.yaml"

# Flags that tables and figures look for; the words are what a reader sees.
UNVERIFIED = "unverified"
INFERRED = "inferred"  # of one field: 'inferred: seq, the default of that time'


@dataclass(frozen=True, kw_only=True)
class PublishedSource:
    """Where the rows of one source are from. unverified says which fields rest on memory and not on a page.

    states holds record fields that the source says once for all its rows, outside the table; infers, by record
    field, on what the value of a field rests that the source does not state.
    """

    name: str
    address: str
    licence: str
    counts: str
    unverified: str | None = None
    states: dict[str, Any] = field(default_factory=dict)
    infers: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        fields = [field.name for field in dataclasses.fields(RunRecord)]
        check_keys(self.states, fields, "states")
        check_keys(self.infers, fields, "infers")


def read_sources(path: Path) -> dict[str, PublishedSource]:
    """Return the sources stated beside the table `path`, by the key that its rows use; ValueError names the file."""
    where = path.parent / SOURCES
    raw = read_yaml(where)
    if not isinstance(raw, Mapping) or not raw:
        raise ValueError(f"{where}: a mapping from source to what is known of it is needed, found {raw!r}")
    return {str(key): build(PublishedSource, value, f"{where}: {key}") for key, value in raw.items()}


def source_of(key: str, sources: Mapping[str, PublishedSource]) -> PublishedSource:
    """Return the source that a row names; ValueError where sources.yaml lacks it."""
    if key not in sources:
        raise ValueError(f"source {key!r} has no entry in {SOURCES}; known: {', '.join(sources)}")
    return sources[key]


def flags_of(source: PublishedSource, *flags: str | None) -> tuple[str, ...] | None:
    """Return the flags of a row that hold and what its source rests on, None where there are none."""
    unverified = f"{UNVERIFIED}: {source.unverified}" if source.unverified else None
    return tuple(flag for flag in (unverified, *flags) if flag) or None


def hardware_of(gpu: str, known: Mapping[str, Hardware]) -> str | None:
    """Return the name in config/hardware of a GPU that a table names exactly so, or None: it is never guessed."""
    try:
        return find_hardware(gpu, dict(known)).name
    except ValueError:
        return None
