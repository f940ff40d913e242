"""RAPL's folders in a sysfs of the tests' own."""

from pathlib import Path


def rapl_zone(sysfs: Path, zone: str, name: str, energy_uj: int = 1_000_000) -> Path:
    folder = sysfs / "class" / "powercap" / zone
    folder.mkdir(parents=True)
    (folder / "name").write_text(f"{name}\n")
    (folder / "max_energy_range_uj").write_text("262143328850\n")
    (folder / "energy_uj").write_text(f"{energy_uj}\n")
    return folder
