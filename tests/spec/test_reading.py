"""Mistakes in YAML become one sentence each."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from falloff.spec.reading import build, check_keys, read_yaml, require_positive


@dataclass(frozen=True, kw_only=True)
class Axis:
    degree: int = 1


@dataclass(frozen=True, kw_only=True)
class Thing:
    size: int
    rate: float = 1.0
    kind: Literal["round", "square"] = "round"
    note: str | None = None
    sizes: tuple[int, ...] = ()
    peaks: dict[str, float] | None = None
    axis: Axis = Axis()

    def __post_init__(self) -> None:
        require_positive(self, "size", "rate")


def test_a_mapping_becomes_a_frozen_instance() -> None:
    thing = build(Thing, {"size": 2, "sizes": [1, 2], "peaks": {"bf16": 3}, "axis": {"degree": 4}}, "here")
    assert thing == Thing(size=2, sizes=(1, 2), peaks={"bf16": 3.0}, axis=Axis(degree=4))


def test_a_misspelt_key_is_an_error_that_names_the_likely_one() -> None:
    with pytest.raises(ValueError, match=r"here: unknown key 'siez' \(did you mean 'size'\?\); allowed: size, rate"):
        build(Thing, {"siez": 2}, "here")


def test_a_key_like_no_other_is_an_error_without_a_guess() -> None:
    with pytest.raises(ValueError, match=r"^here: unknown key 'xyzzy'; allowed: a, b$"):
        check_keys({"xyzzy": 1}, ["a", "b"], "here")


def test_a_misspelt_key_further_down_says_where_it_stands() -> None:
    with pytest.raises(ValueError, match=r"here: axis: unknown key 'degre'"):
        build(Thing, {"size": 1, "axis": {"degre": 2}}, "here")


def test_a_missing_key_is_named() -> None:
    with pytest.raises(ValueError, match=r"here: size must be stated"):
        build(Thing, {}, "here")


@pytest.mark.parametrize("value", [-1, 0, 0.0, -2.0])
def test_a_size_that_is_negative_or_zero_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match=r"here: size must be above zero and finite, found"):
        build(Thing, {"size": value}, "here")


@pytest.mark.parametrize("value", [math.nan, math.inf, "nan", "-inf"])
def test_a_rate_that_is_not_finite_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match=r"here: rate must be above zero and finite, found"):
        build(Thing, {"size": 1, "rate": value}, "here")


@pytest.mark.parametrize("value", [True, "two", 1.5, math.nan, None, [1]])
def test_an_integer_of_another_kind_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"here: size: int is needed, found"):
        build(Thing, {"size": value}, "here")


def test_a_float_that_yaml_reads_as_text_is_mended() -> None:
    assert build(Thing, {"size": 1, "rate": "9.89e14"}, "here").rate == 9.89e14


@pytest.mark.parametrize("value", [True, "fast", [1.0]])
def test_a_float_of_another_kind_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"here: rate: float is needed"):
        build(Thing, {"size": 1, "rate": value}, "here")


def test_a_choice_outside_the_list_names_what_is_allowed() -> None:
    with pytest.raises(ValueError, match=r"here: kind is 'oval'; allowed: round, square"):
        build(Thing, {"size": 1, "kind": "oval"}, "here")


def test_null_is_taken_only_where_it_is_allowed() -> None:
    assert build(Thing, {"size": 1, "note": None}, "here").note is None
    with pytest.raises(ValueError, match=r"here: rate: float is needed, found None"):
        build(Thing, {"size": 1, "rate": None}, "here")


@pytest.mark.parametrize(("key", "value"), [("sizes", 3), ("peaks", [1]), ("axis", 7)])
def test_a_list_or_mapping_of_another_shape_is_refused(key: str, value: object) -> None:
    with pytest.raises(ValueError, match=rf"here: {key}: a (list|mapping) is needed"):
        build(Thing, {"size": 1, key: value}, "here")


def test_something_that_is_no_mapping_is_refused() -> None:
    with pytest.raises(ValueError, match=r"here: a mapping is needed, found 'text'"):
        build(Thing, "text", "here")


def test_a_key_stated_twice_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "twice.yaml"
    path.write_text("size: 1\nrate: 2\nsize: 3\n")
    with pytest.raises(ValueError, match=r"twice.yaml: key 'size' is stated twice"):
        read_yaml(path)


def test_a_file_that_is_not_yaml_says_at_which_line(tmp_path: Path) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text("size: 1\nrate: [1, 2\n")
    with pytest.raises(ValueError, match=r"broken.yaml: not valid YAML at line \d"):
        read_yaml(path)


def test_a_file_that_is_not_text_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "binary.yaml"
    path.write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(ValueError, match=r"binary.yaml: "):
        read_yaml(path)


def test_a_control_character_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "control.yaml"
    path.write_bytes(b"size: \x01\n")
    with pytest.raises(ValueError, match=r"control.yaml: "):
        read_yaml(path)


def test_a_file_that_is_not_there_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"absent.yaml: cannot be read \(No such file or directory\)"):
        read_yaml(tmp_path / "absent.yaml")


def test_yaml_anchors_and_merges_are_read_as_yaml_says(tmp_path: Path) -> None:
    path = tmp_path / "merged.yaml"
    path.write_text("base: &base {size: 1, rate: 2}\nthing: {<<: *base, rate: 3}\n")
    assert read_yaml(path)["thing"] == {"size": 1, "rate": 3}
