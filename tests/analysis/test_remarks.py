from typing import Any

import pytest

from falloff.analysis.remarks import remarks


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("power_cap_share", 0.97, "the power limit held the clocks down in 97% of the power samples"),
        ("thermal_share", 0.05, "heat held the clocks down in 5% of the power samples"),
        ("straggler", "ranks 0-7 (node 0) are late", "straggler: ranks 0-7 (node 0) are late"),
        ("oversubscribed", True, "oversubscribed: more processes than cores"),
        ("num_wrong", 3, "3 elements came out wrong"),
        (
            "torch",
            "2.9.0.dev20250601",
            "torch 2.9.0.dev20250601 is a development build: installed on another day it is",
        ),
        ("framework_version", "HEAD", "framework_version HEAD is a development build: installed on another day it is"),
    ],
)
def test_a_record_says_what_is_wrong_with_it_under_its_name(field: str, value: Any, said: str) -> None:
    (found,) = remarks({"record_id": "a", field: value})
    assert found.startswith(f"a: {said}")


@pytest.mark.parametrize(
    "sound",
    [
        {"power_cap_share": 0.04, "thermal_share": 0.0},
        {"oversubscribed": False, "num_wrong": 0, "straggler": None},
        {"torch": "2.9.0+cu128", "framework_version": "0.12.1"},
        {"power_cap_share": None, "oversubscribed": None, "num_wrong": None, "torch": None},
    ],
)
def test_a_sound_record_and_a_silent_one_say_nothing(sound: dict[str, Any]) -> None:
    assert remarks({"record_id": "a", **sound}) == ()
