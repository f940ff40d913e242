"""The settings of the workflow: config/config.yaml and what --config puts over it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Which studies are on, what measures them, which site this is, and a site file in place of its profile's."""

    studies: tuple[str, ...]
    device: Literal["auto", "cpu", "cuda"]
    site: str
    site_file: str | None = None

    def __post_init__(self) -> None:
        if not self.site:
            raise ValueError("site must name where this runs, found ''")
        if self.site_file is not None and self.site == "local":
            # --config on the command line replaces the profile's, site=slurm with it
            raise ValueError("site_file is stated where site is 'local'; state both: --config site=slurm site_file=...")
        twice = {name for name in self.studies if self.studies.count(name) > 1}
        if twice:
            raise ValueError(f"studies names {', '.join(sorted(twice))} twice")

    def find_site_file(self, profiles: Path) -> Path | None:
        """Return the file that describes this site, None for one whose profile has none."""
        path = profiles / self.site / "site.yaml" if self.site_file is None else Path(self.site_file)
        return path if self.site_file is not None or path.is_file() else None
