"""GPU types: known by whole names, never guessed."""

import math
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from falloff.spec.cell import Dtype
from falloff.spec.hardware import PEAK_DTYPES, find_hardware, read_all_hardware

CONFIG = Path(__file__).parents[2] / "config" / "hardware"


def write_hardware(folder: Path, name: str, **changes: Any) -> None:
    values = {
        "name": name,
        "aliases": [f"NVIDIA {name.upper()}"],
        "peak_flops": {"bfloat16": 989.4e12},
        "memory_bytes": 80 * 1024**3,
        "power_limit_w": 700,
        "sources": ["a data sheet"],
        **changes,
    }
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(values))


def test_a_gpu_is_found_by_its_whole_name_without_case(tmp_path: Path) -> None:
    write_hardware(tmp_path, "h100")
    known = read_all_hardware(tmp_path)
    assert find_hardware("nvidia h100 ", known).name == "h100"
    assert find_hardware("H100", known).peak_flops["bfloat16"] == 989.4e12


@pytest.mark.parametrize("name", ["NVIDIA H100 PCIe", "NVIDIA H10", "H1000", "", "A100"])
def test_a_gpu_of_another_name_is_an_error_and_never_a_default(tmp_path: Path, name: str) -> None:
    write_hardware(tmp_path, "h100")
    with pytest.raises(ValueError, match=r"is unknown; known: h100\. Add a file to config/hardware"):
        find_hardware(name, read_all_hardware(tmp_path))


def test_two_gpus_cannot_claim_one_alias(tmp_path: Path) -> None:
    write_hardware(tmp_path, "h100", aliases=["NVIDIA H"])
    write_hardware(tmp_path, "h200", aliases=["nvidia h"])
    with pytest.raises(ValueError, match=r"h200.yaml: alias 'nvidia h' already belongs to 'h100'"):
        read_all_hardware(tmp_path)


def test_a_gpu_under_another_name_than_its_file_is_an_error(tmp_path: Path) -> None:
    write_hardware(tmp_path, "h100")
    (tmp_path / "h200.yaml").write_text((tmp_path / "h100.yaml").read_text())
    with pytest.raises(ValueError, match=r"h200.yaml: name is 'h100', the file says 'h200'"):
        read_all_hardware(tmp_path)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"peak_flops": {"bfloat16": 0.0}}, r"peak_flops.bfloat16 must be above zero and finite, found 0.0"),
        ({"peak_flops": {"bfloat16": -1.0}}, r"peak_flops.bfloat16 must be above zero"),
        ({"peak_flops": {"bfloat16": math.nan}}, r"peak_flops.bfloat16 must be above zero"),
        ({"peak_flops": {"bfloat16": math.inf}}, r"peak_flops.bfloat16 must be above zero and finite"),
        ({"peak_flops": {"bfloat16": "989 TFLOP/s"}}, r"peak_flops.bfloat16: float is needed"),
        (
            {"peak_flops": {"bfloat16": 1307.4}},
            r"bfloat16 is 1307.4; the unit is FLOP/s .* 989.4 TFLOP/s is 989.4e\+12",
        ),
        ({"peak_flops": {"bfloat16": 989.4e15}}, r"peak_flops.bfloat16 is 9.894e\+17; the unit is FLOP/s of one GPU"),
        (
            {"peak_flops": {"bf16": 989.4e12}},
            r"peak_flops: unknown key 'bf16' \(did you mean 'bfloat16'\?\); allowed: ",
        ),
        ({"memory_bytes": -1}, r"memory_bytes must be above zero"),
        ({"power_limit_w": 0}, r"power_limit_w must be above zero"),
        ({"sources": []}, r"sources must name where the numbers are from"),
        ({"memory_byte": 1}, r"unknown key 'memory_byte' \(did you mean 'memory_bytes'\?\)"),
    ],
)
def test_a_mistake_in_a_hardware_file_is_a_sentence(tmp_path: Path, changes: dict[str, Any], sentence: str) -> None:
    write_hardware(tmp_path, "h100", **changes)
    with pytest.raises(ValueError, match=sentence):
        read_all_hardware(tmp_path)


def test_every_dtype_that_a_cell_may_ask_for_can_have_a_peak() -> None:
    assert set(get_args(Dtype)) <= set(PEAK_DTYPES)


def test_the_shipped_gpu_types_state_dense_peaks_and_where_they_are_from() -> None:
    known = read_all_hardware(CONFIG)
    assert known["h100-sxm"].peak_flops["bfloat16"] == pytest.approx(989.4e12, rel=1e-3)
    assert all(hardware.sources for hardware in known.values())


def test_an_h200_is_known_by_the_name_that_its_driver_gives() -> None:
    h200 = find_hardware("NVIDIA H200", read_all_hardware(CONFIG))
    assert h200.peak_flops["bfloat16"] == pytest.approx(989.4e12, rel=1e-3)
