"""GPU types: known by whole names, never guessed."""

import math
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from falloff.spec.hardware import PEAK_DTYPES, Hardware, find_hardware, read_all_hardware
from falloff.spec.reading import Dtype

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
        (
            {"peak_flops": {"bfloat16": 362.05e12, "float8": 1466e12}},
            r"peak_flops.float8 is 4.05 times peak_flops.bfloat16, .* stand at 2: one of them counts sparsity",
        ),
        ({"peak_flops": {"bfloat16": 1979e12, "tfloat32": 494.7e12}}, r"tfloat32 is 0.25 times peak_flops.bfloat16"),
        ({"peak_flops": {"float16": 989.4e12, "tfloat32": 989.4e12}}, r"tfloat32 is 1 times peak_flops.float16"),
        ({"peak_flops": {"float8": 4500e12, "float4": 18000e12}}, r"float4 is 4 times peak_flops.float8, .* 2 or 3:"),
        ({"peak_flops": {"bfloat16": 312e12, "float16": 624e12}}, r"bfloat16 is 0.5 times peak_flops.float16"),
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


KNOWN = read_all_hardware(CONFIG)


@pytest.mark.parametrize(
    ("name", "bfloat16"),
    [
        ("NVIDIA A100-SXM4-40GB", 312e12),
        ("NVIDIA A100-SXM4-80GB", 312e12),
        ("NVIDIA A100-PCIE-40GB", 312e12),
        ("NVIDIA A100 80GB PCIe", 312e12),
        ("NVIDIA A800-SXM4-80GB", 312e12),
        ("NVIDIA A800 80GB PCIe", 312e12),
        ("NVIDIA H100 80GB HBM3", 989.4e12),
        ("NVIDIA H100 PCIe", 756.5e12),
        ("NVIDIA H100 NVL", 835.5e12),
        ("NVIDIA H200", 989.4e12),
        ("NVIDIA H200 NVL", 835.5e12),
        ("NVIDIA GH200 480GB", 989.4e12),
        ("NVIDIA GH200 120GB", 989.4e12),
        ("NVIDIA GH200 144G HBM3e", 989.4e12),
        ("NVIDIA H20", 148e12),
        ("NVIDIA H800", 989.4e12),
        ("NVIDIA H800 PCIe", 756.5e12),
        ("NVIDIA L40S", 362.05e12),
        ("NVIDIA B200", 2250e12),
        ("NVIDIA B300 SXM6 AC", 2250e12),
        ("NVIDIA GB200", 2500e12),
        ("NVIDIA GB300", 2500e12),
        ("AMD Instinct MI250X", 191.5e12),
        ("AMD Instinct MI300X", 1307.4e12),
        ("AMD Instinct MI300X OAM", 1307.4e12),
        ("AMD Instinct MI325X", 1307.4e12),
        ("AMD Instinct MI350X", 2300e12),
        ("AMD Instinct MI355X", 2500e12),
    ],
)
def test_a_driver_s_name_finds_the_dense_peak_of_that_part(name: str, bfloat16: float) -> None:
    assert find_hardware(name, KNOWN).peak_flops["bfloat16"] == bfloat16


@pytest.mark.parametrize("name", ["Tesla V100-SXM2-16GB", "Tesla V100-SXM2-32GB", "Tesla V100-PCIE-16GB"])
def test_a_v100_has_no_peak_in_bfloat16(name: str) -> None:
    assert "bfloat16" not in find_hardware(name, KNOWN).peak_flops


@pytest.mark.parametrize(
    ("name", "hardware"),
    [
        ("H100 SXM", "h100-sxm"),
        ("  nvidia   h100 80gb hbm3 ", "h100-sxm"),
        ("NVIDIA-H100-80GB-HBM3", "h100-sxm"),
        ("AMD Instinct™ MI300X", "mi300x"),
        ("AMD Instinct(TM) MI300X", "mi300x"),
        ("MI300X", "mi300x"),
        ("NVIDIA Tesla V100-SXM2-32GB", "v100-32gb-sxm2"),
        ("b300", "b300"),
    ],
)
def test_case_blanks_hyphens_and_the_vendor_do_not_count_in_a_name(name: str, hardware: str) -> None:
    assert find_hardware(name, KNOWN).name == hardware


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("H100", "h100-96gb-500w, h100-nvl, h100-pcie, h100-sxm"),
        ("NVIDIA H100", "h100-96gb-500w, h100-nvl, h100-pcie, h100-sxm"),  # a driver's name of several custom parts
        ("H200", "h200-nvl, h200-sxm"),
        ("A100-SXM", "a100-40gb-sxm, a100-80gb-sxm"),
        ("A100 80GB", "a100-80gb-pcie, a100-80gb-sxm"),
        ("V100-16GB", "v100-16gb-pcie, v100-16gb-sxm2"),
        ("NVIDIA GH200", "gh200-144gb, gh200-96gb"),
    ],
)
def test_a_name_without_its_variant_is_refused_with_the_variants(name: str, parts: str) -> None:
    with pytest.raises(ValueError, match=rf"hardware '{name}' leaves open which of {parts} it is; .* the variant"):
        find_hardware(name, KNOWN)


@pytest.mark.parametrize("name", ["GH100", "GH100 [H20]", "NVIDIA Corporation GH100 [H20] (rev a1)", "NVIDIA GB10"])
def test_a_chip_s_code_name_is_no_name_of_a_gpu(name: str) -> None:
    with pytest.raises(ValueError, match="is unknown"):
        find_hardware(name, KNOWN)


def test_the_shipped_gpu_types_state_dense_peaks_and_where_they_are_from() -> None:
    assert KNOWN["h100-sxm"].peak_flops["bfloat16"] == pytest.approx(989.4e12, rel=1e-3)
    assert all(hardware.sources for hardware in KNOWN.values())


@pytest.mark.parametrize("hardware", [part for part in KNOWN.values() if "float8" in part.peak_flops])
def test_dense_float8_is_twice_bfloat16_in_every_shipped_part(hardware: Hardware) -> None:
    assert hardware.peak_flops["float8"] / hardware.peak_flops["bfloat16"] == pytest.approx(2, rel=0.03)


def test_the_die_of_a_board_with_two_is_what_a_program_sees_as_one_gpu() -> None:
    half = KNOWN["mi250x"]
    assert (half.peak_flops["bfloat16"], half.memory_bytes) == (383e12 / 2, 64 * 1024**3)


def test_an_h200_is_known_by_the_name_that_its_driver_gives() -> None:
    h200 = find_hardware("NVIDIA H200", KNOWN)
    assert h200.peak_flops["bfloat16"] == pytest.approx(989.4e12, rel=1e-3)
