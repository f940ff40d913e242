"""The settings of the workflow: config/config.yaml and what --config puts over it."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Which studies are on, what device measures them, and which site this is."""

    studies: tuple[str, ...]
    device: Literal["auto", "cpu", "cuda"]
    site: str

    def __post_init__(self) -> None:
        if not self.site:
            raise ValueError("site must name where this runs, found ''")
        twice = {name for name in self.studies if self.studies.count(name) > 1}
        if twice:
            raise ValueError(f"studies names {', '.join(sorted(twice))} twice")
