from pathlib import Path
from typing import Any

import pytest

from falloff.spec.reading import build
from falloff.spec.settings import Settings

GOOD: dict[str, Any] = {"studies": ["laptop"], "device": "auto", "site": "local"}


def test_the_shipped_settings_are_read() -> None:
    assert build(Settings, GOOD, "config").studies == ("laptop",)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"device": "gpu"}, "config: device is 'gpu'; allowed: auto, cpu, cuda"),
        ({"studis": ["x"]}, "unknown key 'studis' .did you mean 'studies'"),
        ({"site": ""}, "site must name where this runs"),
        ({"site_file": "x.yaml"}, "site_file is stated where site is 'local'; state both: --config site=slurm"),
        ({"studies": ["laptop", "laptop"]}, "studies names laptop twice"),
    ],
)
def test_a_mistake_in_the_settings_is_a_sentence(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        build(Settings, {**GOOD, **changed}, "config")


def test_a_site_is_described_by_its_profile_unless_another_file_is_stated(tmp_path: Path) -> None:
    (tmp_path / "slurm").mkdir()
    (tmp_path / "slurm" / "site.yaml").touch()
    slurm = build(Settings, {**GOOD, "site": "slurm"}, "config")
    assert slurm.find_site_file(tmp_path) == tmp_path / "slurm" / "site.yaml"
    assert build(Settings, GOOD, "config").find_site_file(tmp_path) is None
    stated = build(Settings, {**GOOD, "site": "slurm", "site_file": "mine.yaml"}, "config")
    assert stated.find_site_file(tmp_path) == Path("mine.yaml")
