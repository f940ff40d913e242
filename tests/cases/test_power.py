"""Cases of power: what falloff gives for each input, against what is right."""

import csv
import dataclasses
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from falloff.bench.power import find_source
from falloff.ingest.frameworks import read_framework_log
from falloff.ingest.power import Power, measure_power
from falloff.ingest.power_averaging import averaging_s
from falloff.ingest.power_checks import energy_difference, implausible_draw
from falloff.ingest.power_counter import (
    COUNTER_STALE,
    counted_j,
    counter_range_j,
    energy_unit_j,
    read_counter,
    scaled_counter_j,
    unwrapped_total_j,
    wrapped_step_j,
)
from falloff.ingest.power_devices import devices_of_run, energy_once, idle_w
from falloff.ingest.power_files import read_power
from falloff.ingest.power_nvidia_smi import read_clock_reasons
from falloff.ingest.power_samples import Meter, Samples, samples_of
from falloff.ingest.steady import run_fields
from falloff.units import MICRO, MILLI

from .compare import EXPECTED, INPUTS, check

KWH_J = 3.6e6


def loaded(case: str) -> Any:
    return json.loads((INPUTS / f"{case}.json").read_text())


def steady(draw_w: float, device: str = "0", seconds: float = 10.0, **facts: Any) -> Samples:
    """Ten samples a second of one draw."""
    times = np.arange(0, seconds + 0.05, max(0.1, seconds / 1000))
    return samples_of(times, draw_w=np.full(len(times), draw_w), meter=Meter(device=device, **facts))


def counter_and_integral() -> dict[str, Any]:
    case = loaded("U060")
    ratio, flag = energy_difference(case["counter_j"], case["integrated_power_j"])
    assert flag is not None
    return {"ratio": ratio}


def trailing(window: tuple[float, float] = (2.0, 4.0)) -> Power:
    samples = read_power(INPUTS / "U061.csv", reading="average").devices
    return measure_power(samples, ["0"], [window], "NVML")


def trailing_average() -> dict[str, Any]:
    power = trailing()
    assert power.energy_j == power.energy_counter_j
    assert power.energy_counter_j is not None
    assert power.energy_integral_j is not None
    assert any("integral is 0.79 of that by counter" in flag for flag in power.flags)
    truth = measure_power(read_power(INPUTS / "U061.csv", reading="instant").devices, ["0"], [(2.0, 4.0)], "NVML")
    return {
        "window": [2.0, 4.0],
        "true_j": truth.energy_integral_j,
        "counter_j": power.energy_counter_j,
        "trailing_j": power.energy_integral_j,
        "underread_j": power.energy_counter_j - power.energy_integral_j,
    }


def scopes() -> dict[str, Any]:
    case = loaded("U064")
    return {
        f"{scope}_mean_w": float(
            samples_of(
                [s["t"] for s in case["samples"] if s["scope"] == scope],
                draw_w=[s["w"] for s in case["samples"] if s["scope"] == scope],
                meter=Meter(device="0", scope=scope),
            ).draw_w.mean()
        )
        for scope in ("module", "gpu")
    }


def allocated() -> dict[str, Any]:
    case = loaded("U065")
    node = {uuid: steady(watts, uuid, uuid=uuid) for uuid, watts in case["power_w"].items()}
    devices = devices_of_run(node, case["allocated"])
    return {"expected_w": measure_power(node, devices, [(1.0, 9.0)], "NVML").plain_mean_w}


def masked() -> dict[str, Any]:
    case = loaded("U066")
    node = {
        gpu["uuid"]: steady(gpu["power_w"], gpu["uuid"], uuid=gpu["uuid"], index=str(gpu["index"]), name=gpu["name"])
        for gpu in case["nvml"]
    }
    (device,) = devices_of_run(node, [gpu["uuid"] for gpu in case["job_view"]])
    assert node[device].name == "NVIDIA RTX A5000"
    return {"expected_power_w": measure_power(node, [device], [(1.0, 9.0)], "NVML").plain_mean_w}


def energy_of_a_failed_meter() -> dict[str, Any]:
    (log,) = read_framework_log(INPUTS / "U072.log", "megatron-lm")
    fields = run_fields(log)
    step = log.steps[0]
    return {"energy_j": fields.get("energy_j"), "power_w": fields.get("draw_w"), "ms": (step.step_s or math.nan) * 1e3}


def no_counter() -> dict[str, Any]:
    case = loaded("U073")
    power = measure_power(
        {"0": steady(case["power_w"], seconds=case["seconds"])}, ["0"], [(0.0, case["seconds"])], "NVML"
    )
    assert power.energy_counter_j is None
    assert power.energy_j is not None
    return {"expected_kwh": power.energy_j / KWH_J}


def units() -> dict[str, Any]:
    case = loaded("U074")
    unit = [energy_unit_j(count, case["seconds"]) for count in case["counter_mj"]]
    assert unit == [MILLI, MILLI]
    joules = [count * (each or math.nan) for count, each in zip(case["counter_mj"], unit, strict=True)]
    return {"joules": joules, "watts": [energy_j / case["seconds"] for energy_j in joules]}


def stale() -> dict[str, Any]:
    case = loaded("U076")
    readings = [scaled_counter_j(r["power"], r["counter_resolution"]) for r in case["readings"]]
    energy_j, reason = counted_j(readings)
    assert reason == COUNTER_STALE
    resolution_uj = case["readings"][0]["counter_resolution"]
    return {"energy_stale": energy_j, "joules": scaled_counter_j(case["counter_example"]["counter"], resolution_uj)}


def every_process_reports() -> dict[str, Any]:
    case = loaded("U077")
    once, odd = energy_once([case["each_joules"]] * case["processes"])
    assert odd is None
    return {
        "expected_total_j": sum(once.values()),
        "wrong_total_j": case["processes"] * sum(case["each_joules"].values()),
    }


def windowed() -> dict[str, Any]:
    power = measure_power(read_power(INPUTS / "U079.csv").devices, ["0"], [(2.0, 4.0)], "nvidia-smi")
    return {"window": [2.0, 4.0], "mean_trapezoid_w": power.draw_w, "mean_plain_w": power.plain_mean_w}


def reset() -> dict[str, Any]:
    energy_j, reason = counted_j(loaded("U080")["counter_mj"], MILLI)
    return {"expected": energy_j, "reason": reason}


def clock_reasons() -> dict[str, Any]:
    reasons = read_clock_reasons((INPUTS / "U195.txt").read_text())
    assert reasons is not None
    capped = reasons.pop("sw_power_cap")
    assert set(reasons.values()) == {False}
    return {"sw_power_cap": capped, "others": any(reasons.values())}


def wrap() -> dict[str, Any]:
    case = loaded("U246")
    before_j, after_j = case["before_uj"] * MICRO, case["after_uj"] * MICRO
    return {
        "joules_with_range": wrapped_step_j(before_j, after_j, case["max_energy_range_uj"] * MICRO),
        "joules_without_range": wrapped_step_j(before_j, after_j, None),
    }


def glitch() -> dict[str, Any]:
    samples = read_power(INPUTS / "U247.csv").devices["0"]
    counter = read_counter(samples)
    energy_j = counter.between_j((0.0, 20.0))
    power = measure_power({"0": samples}, ["0"], [(0.0, 20.0)], "a meter")
    difference_uj = samples.energy_j[2] / MICRO - samples.energy_j[1] / MICRO
    return {
        "joules": energy_j,
        "watts": power.draw_w,
        "glitches": counter.num_glitches,
        # what an unsigned difference makes of it elsewhere
        "wrong_tw": (difference_uj + 2.0**64) * MICRO / 5 / 1e12,
    }


def wrapped_total() -> dict[str, Any]:
    rows = list(csv.DictReader((INPUTS / "U248.csv").read_text().splitlines()))
    (first_s, first_j), (second_s, second_j) = ((float(r["seconds"]), float(r["joules_read"])) for r in rows)
    first_w = first_j / first_s
    assert implausible_draw(second_j / second_s, like_w=first_w) is not None
    corrected_j = unwrapped_total_j(second_j, second_s, counter_range_j(32, 2.0**-14), near_w=first_w)
    return {"corrected_j": corrected_j, "watts": [first_w, corrected_j / second_s], "wrong_w": second_j / second_s}


def baseline() -> dict[str, Any]:
    return {"idle_w": idle_w(read_power(INPUTS / "U249.csv").devices["0"])}


GOT: dict[str, Callable[[], Any]] = {
    "U060": counter_and_integral,
    "U061": trailing_average,
    "U064": scopes,
    "U065": allocated,
    "U066": masked,
    "U072": energy_of_a_failed_meter,
    "U073": no_counter,
    "U074": units,
    "U076": stale,
    "U077": every_process_reports,
    "U079": windowed,
    "U080": reset,
    "U195": clock_reasons,
    "U246": wrap,
    "U247": glitch,
    "U248": wrapped_total,
    "U249": baseline,
}


@pytest.mark.parametrize("case", sorted(GOT))
def test_a_case_of_power_gives_what_is_right(case: str) -> None:
    got = GOT[case]()
    assert got.keys() == EXPECTED[case].keys() - {"tol"}
    check(case, got)


@pytest.mark.parametrize(
    ("gpu", "seconds"),
    [("NVIDIA A100-SXM4-80GB", 0.0), ("NVIDIA H100 80GB HBM3", 1.0), ("NVIDIA A10", 1.0), ("Tesla V100-SXM2", 0.0)],
)
def test_the_default_reading_is_instantaneous_on_ga100_and_before_and_a_mean_after(gpu: str, seconds: float) -> None:
    assert averaging_s("by generation", gpu) == seconds


def test_without_a_counter_the_trailing_second_is_left_out() -> None:
    samples = read_power(INPUTS / "U061.csv", reading="average").devices["0"]
    bare = dataclasses.replace(samples, energy_j=np.full(len(samples.time_s), np.nan))
    power = measure_power({"0": bare}, ["0"], [(2.0, 4.0)], "NVML")
    assert power.energy_j == pytest.approx(1400, rel=0.02)
    assert power.energy_integral_j == pytest.approx(1100)
    assert "without each window's first 1 s" in power.source


def test_a_sensor_that_sees_a_quarter_of_the_time_and_a_short_window_are_flagged() -> None:
    power = measure_power(
        {"0": steady(700, averaging="instant", name="NVIDIA H100 80GB HBM3")}, ["0"], [(1, 4)], "NVML"
    )
    assert any("sees 25% of the time" in flag for flag in power.flags)
    assert any("power quality low" in flag for flag in power.flags)


def test_energy_of_less_than_a_second_is_not_reported() -> None:
    power = measure_power({"0": steady(700)}, ["0"], [(1.0, 1.9)], "NVML")
    assert power.energy_j is None
    assert "too short" in power.source


def test_scopes_are_never_put_into_one_sum() -> None:
    both = {"0": steady(560), "0 module": steady(720, scope="module")}
    assert "unlike scope" in measure_power(both, ["0", "0 module"], [(1, 9)], "NVML").source
    assert measure_power(both, ["0 module"], [(1, 9)], "NVML").scope == "module"


def test_indices_in_cudas_order_are_refused_where_the_order_is_not_nvmls() -> None:
    node = {str(n): steady(100 + n, str(n), index=str(n)) for n in range(2)}
    with pytest.raises(ValueError, match="FASTEST_FIRST"):
        devices_of_run(node, cuda_indices=[0])
    assert devices_of_run(node, cuda_indices=[0], cuda_device_order="PCI_BUS_ID") == ["0"]
    # whoever has all GPUs of a node has them in any order
    assert devices_of_run(node, cuda_indices=[0, 1]) == ["0", "1"]


def test_a_driver_that_is_not_permitted_leaves_a_reason_and_no_zero(tmp_path: Path) -> None:
    source, reason = find_source(None, tmp_path, on_gpus=True)
    assert source is None
    assert reason is not None
    silent = samples_of(np.arange(0, 10, 0.1), draw_w=np.full(100, math.nan))
    power = measure_power({"0": silent}, ["0"], [(1, 9)], "NVML")
    assert (power.energy_j, power.draw_w) == (None, None)
    assert "neither power readings nor a usable counter" in power.source


def test_a_draw_beyond_the_boards_limit_or_below_any_load_is_flagged() -> None:
    assert implausible_draw(690.0, 700.0) is None
    assert implausible_draw(800.0, 700.0) is not None
    assert implausible_draw(1.7) is not None


def test_three_samples_are_too_few() -> None:
    power = measure_power({"0": samples_of([0, 1, 2], draw_w=[70, 71, 69])}, ["0"], [(0, 2)], "NVML")
    assert power.energy_j is None
    assert "too few samples" in power.source
