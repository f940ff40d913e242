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
        ({"studies": ["laptop", "laptop"]}, "studies names laptop twice"),
    ],
)
def test_a_mistake_in_the_settings_is_a_sentence(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        build(Settings, {**GOOD, **changed}, "config")
