import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from falloff.ingest.power import measure_power
from falloff.ingest.power_files import read_power
from falloff.ingest.power_samples import Meter, Samples, samples_of

MEASURED = Path(__file__).parents[1] / "data/power/h200_load_begins.csv"
LOAD_BEGINS_S = 1796027021.6323


def series(
    draw: Callable[[float], float],
    counter: Callable[[float], float] | None = None,
    reasons: float = np.nan,
    seconds: float = 10,
    **facts: object,
) -> Samples:
    """A sample every 0.1 s."""
    times = np.arange(0, seconds + 0.05, 0.1)
    return samples_of(
        times,
        draw_w=[draw(t) for t in times],
        energy_j=[counter(t) if counter else np.nan for t in times],
        clock_reasons=np.full(len(times), reasons),
        sm_clock_mhz=np.full(len(times), 1500.0),
        meter=Meter(device="0", **facts),  # type: ignore[arg-type]
    )


def constant(value: float) -> Callable[[float], float]:
    return lambda _: value


def step_draw(t: float) -> float:
    return 700.0 if 2 <= t <= 4 else 100.0


def trailing(t: float) -> float:
    return 100 + 600 * min(max(t - 2, 0), 1)


def test_the_mean_covers_the_measured_window_alone() -> None:
    power = measure_power({"0": series(step_draw)}, ["0"], [(2.2, 3.8)], "a meter")
    assert power.draw_w == pytest.approx(700)
    assert power.energy_j == power.energy_integral_j == pytest.approx(700 * 1.6)
    assert power.energy_counter_j is None
    assert power.source == "a meter, integral of power readings"
    assert power.sm_clock_mhz == 1500


def test_energy_is_of_all_devices_and_draw_of_one() -> None:
    samples = {"a": series(constant(100)), "b": series(constant(300)), "other": series(constant(999))}
    power = measure_power(samples, ["a", "b", "a"], [(1, 3), (5, 6)], "a meter")
    assert power.draw_w == pytest.approx(200)
    assert power.energy_j == pytest.approx(400 * 3)


def test_the_counter_is_preferred_to_readings_that_trail_and_both_are_kept() -> None:
    samples = {"0": series(trailing, lambda t: 100 * t + 600 * max(t - 2, 0), averaging="average")}
    power = measure_power(samples, ["0"], [(2, 4)], "a meter")
    assert power.energy_j == power.energy_counter_j == pytest.approx(1400)
    assert power.energy_integral_j == pytest.approx(1100)
    assert power.source == "a meter, energy counter, new every 0.1 s"
    assert "energy by integral is 0.79 of that by counter" in power.flags


@pytest.mark.parametrize(("reading", "ratio"), [("instant", 0.99), ("average", 0.79)])
def test_on_an_h200_the_average_loses_what_a_window_begins_with_and_the_instant_does_not(
    reading: str, ratio: float
) -> None:
    samples = read_power(MEASURED, reading=reading).devices  # type: ignore[arg-type]
    power = measure_power(samples, ["0"], [(LOAD_BEGINS_S, LOAD_BEGINS_S + 2)], "NVML")
    assert power.energy_counter_j == pytest.approx(1361, abs=5)
    assert power.energy_integral_j is not None
    assert power.energy_integral_j / power.energy_counter_j == pytest.approx(ratio, abs=0.01)


@pytest.mark.parametrize(("gpu", "energy_j"), [("NVIDIA H100 80GB HBM3", 1400), ("NVIDIA A100-SXM4-40GB", 1100)])
def test_the_default_reading_is_trimmed_where_it_trails_on_that_gpu(gpu: str, energy_j: float) -> None:
    power = measure_power(
        {"0": series(trailing, averaging="by generation", name=gpu)}, ["0"], [(2, 4)], "nvidia-smi power.draw"
    )
    assert power.energy_j == pytest.approx(energy_j)
    assert power.energy_integral_j == pytest.approx(1100)


def test_windows_no_longer_than_what_readings_average_over_give_no_energy() -> None:
    samples = {"0": series(trailing, averaging="average")}
    power = measure_power(samples, ["0"], [(2, 2.9), (4, 4.9)], "a meter")
    assert power.energy_j is None
    assert "too short for readings that average over 1 s" in power.source
    # windows that follow one another are one stretch of load
    assert measure_power(samples, ["0"], [(2, 2.9), (2.9, 3.8), (3.8, 4.7)], "a meter").draw_w == pytest.approx(700)


def test_a_default_reading_of_a_gpu_without_a_name_is_flagged() -> None:
    power = measure_power({"0": series(constant(500), averaging="by generation")}, ["0"], [(1, 9)], "NVML")
    assert power.energy_j == pytest.approx(4000)
    assert any("may average over the last second" in flag for flag in power.flags)


def test_a_counter_without_readings_of_power_is_enough() -> None:
    power = measure_power({"0": series(constant(np.nan), lambda t: 50 * t)}, ["0"], [(1, 3)], "RAPL package")
    assert power.draw_w == pytest.approx(50)


@pytest.mark.parametrize(
    ("counter", "words"),
    [
        (lambda t: 100 * t if t < 2.5 else 100 * t - 240, "counter reset"),
        (constant(5000), "counter stale"),
        (lambda t: 100 * min(t, 2.5), "stood still for"),
    ],
)
def test_a_counter_that_cannot_be_trusted_gives_way_to_the_readings(
    counter: Callable[[float], float], words: str
) -> None:
    power = measure_power({"0": series(constant(100), counter)}, ["0"], [(2, 4)], "a meter")
    assert power.energy_j == pytest.approx(200)
    assert power.energy_counter_j is None
    assert words in power.source


def test_a_broken_counter_alone_is_no_energy_and_never_a_part_of_it() -> None:
    samples = {"0": series(constant(np.nan), lambda t: 100 * t if t < 2.5 else 0, reasons=4)}
    power = measure_power(samples, ["0"], [(2, 4)], "a meter")
    assert (power.energy_j, power.draw_w) == (None, None)
    assert "counter reset" in power.source
    assert power.power_cap_share == 1


def test_a_reset_outside_the_window_does_not_matter() -> None:
    samples = {"0": series(constant(np.nan), lambda t: 100 * t if t < 6 else 100 * t - 590)}
    assert measure_power(samples, ["0"], [(2, 4)], "a meter").energy_j == pytest.approx(200)


def test_a_wrap_is_undone_where_the_range_is_known() -> None:
    samples = {"0": series(constant(np.nan), lambda t: (900 + 50 * t) % 1000)}
    assert measure_power(samples, ["0"], [(1, 3)], "RAPL", range_j=1000).energy_j == pytest.approx(100)
    assert measure_power(samples, ["0"], [(1, 3)], "RAPL").energy_j is None


def test_a_single_low_reading_of_the_counter_is_passed_over() -> None:
    samples = {"0": series(constant(50), lambda t: 200.0 if abs(t - 3) < 0.01 else 22e6 + 50 * t)}
    power = measure_power(samples, ["0"], [(2, 4)], "a meter")
    assert power.energy_j == pytest.approx(100)
    assert power.num_glitches == 1


@pytest.mark.parametrize(
    ("devices", "window", "words"),
    [
        (["0", "7"], (2, 4), "no power samples of device 7"),
        ([], (2, 4), "no device"),
        (["0"], (9, 11), "do not cover"),
        (["0"], (2.0, 2.25), "too short"),
    ],
)
def test_what_cannot_be_measured_is_a_reason(devices: list[str], window: tuple[float, float], words: str) -> None:
    power = measure_power({"0": series(step_draw)}, devices, [window], "a meter")
    assert power.energy_j is None
    assert words in power.source


def test_too_few_samples_are_a_reason() -> None:
    sparse = samples_of(np.arange(0, 10.0, 2), draw_w=np.full(5, 300.0))
    assert "too few samples: 2" in measure_power({"0": sparse}, ["0"], [(1, 4.5)], "a meter").source


def test_without_a_measured_window_there_is_no_power_and_a_reason() -> None:
    power = measure_power({"0": series(constant(100))}, ["0"], [], "a meter")
    assert (power.draw_w, power.energy_j, power.source) == (None, None, "no measured window with times")


def test_samples_without_times_are_a_reason() -> None:
    timeless = samples_of(np.full(20, np.nan), draw_w=np.full(20, 300.0))
    assert "no times" in measure_power({"0": timeless}, ["0"], [(1, 4)], "a meter").source


def test_a_hole_in_the_samples_is_not_bridged() -> None:
    full = series(step_draw)
    kept = (full.time_s < 3) | (full.time_s > 5)
    holed = samples_of(full.time_s[kept], draw_w=full.draw_w[kept])
    assert "hole of 2." in measure_power({"0": holed}, ["0"], [(2, 6)], "a meter").source


def test_readings_that_were_not_answered_for_long_are_a_hole_too() -> None:
    power = measure_power({"0": series(lambda t: np.nan if 3 < t < 5 else 100.0)}, ["0"], [(2, 6)], "a meter")
    assert power.energy_j is None
    single = measure_power({"0": series(lambda t: np.nan if 3 < t < 3.15 else 100.0)}, ["0"], [(2, 6)], "a meter")
    assert single.energy_j == pytest.approx(400)


def test_many_short_windows_are_integrated_together() -> None:
    windows = [(n, n + 0.3) for n in range(1, 8)]
    assert measure_power({"0": series(constant(200))}, ["0"], windows, "m").energy_j == pytest.approx(200 * 2.1)


def test_a_meter_that_answers_zero_does_not_answer() -> None:
    assert measure_power({"0": series(constant(0.0))}, ["0"], [(2, 4)], "a meter").energy_j is None
    # and a counter that stands at 0 is none
    power = measure_power({"0": series(constant(26.0), constant(0.0))}, ["0"], [(2, 4)], "a meter")
    assert power.source == "a meter, integral of power readings"


def test_what_held_the_clocks_down_is_said_and_shared_out() -> None:
    held = measure_power({"0": series(step_draw, reasons=4)}, ["0"], [(2, 4)], "a meter")
    hot = measure_power({"0": series(step_draw, reasons=0x48)}, ["0"], [(2, 4)], "a meter")
    free = measure_power({"0": series(step_draw, reasons=1)}, ["0"], [(2, 4)], "a meter")
    silent = measure_power({"0": series(step_draw)}, ["0"], [(2, 4)], "a meter")
    assert held.throttling == "clocks held down: software power cap in 100% of the power samples"
    assert (held.power_cap_share, held.thermal_share) == (1, 0)
    assert (hot.power_cap_share, hot.thermal_share) == (0, 1)
    assert (free.throttling, free.power_cap_share) == (None, 0)
    assert (silent.power_cap_share, silent.thermal_share) == (None, None)


def test_the_clock_offset_is_applied_and_said() -> None:
    power = measure_power({"0": series(step_draw)}, ["0"], [(1.2, 2.8)], "a meter", clock_offset_s=1.0)
    assert power.draw_w == pytest.approx(700)
    assert power.source.endswith("clock offset 1 s")


def test_few_periods_of_the_counter_are_flagged_and_many_are_not() -> None:
    samples = {"0": series(constant(100), lambda t: 100 * t, seconds=60)}
    assert any("20 readings of the energy counter" in f for f in measure_power(samples, ["0"], [(2, 4)], "m").flags)
    assert not measure_power(samples, ["0"], [(10, 50)], "m").flags


def test_a_mean_above_the_boards_limit_is_flagged_by_what_is_stated_or_sampled() -> None:
    samples = series(constant(800))
    limited = dataclasses.replace(samples, limit_w=np.full(len(samples.time_s), 700.0))
    stated = measure_power({"0": samples}, ["0"], [(1, 9)], "m", limit_w=700)
    sampled = measure_power({"0": limited}, ["0"], [(1, 9)], "m")
    for power in (stated, sampled):
        assert any("above the board's limit of 700 W" in flag for flag in power.flags)
    assert not measure_power({"0": samples}, ["0"], [(1, 9)], "m", limit_w=1000).flags


def test_the_fields_of_a_record_are_all_that_power_has() -> None:
    fields = measure_power({"0": series(step_draw, lambda t: 100 * t)}, ["0"], [(5, 9)], "m").fields()
    assert fields["power_scope"] == "gpu"
    assert fields["energy_counter_j"] == pytest.approx(400)


@given(
    draws=st.lists(st.floats(10, 1000), min_size=20, max_size=60),
    cut=st.floats(2.0, 3.0),
)
def test_energy_of_two_windows_that_touch_is_that_of_both(draws: list[float], cut: float) -> None:
    times = np.linspace(0, 6, len(draws))
    samples = {"0": samples_of(times, draw_w=draws)}
    whole = measure_power(samples, ["0"], [(0.5, 5.5)], "m").energy_j
    parts = measure_power(samples, ["0"], [(0.5, cut), (cut, 5.5)], "m").energy_j
    assert whole == pytest.approx(parts)
    assert min(draws) * 5 <= (whole or 0) + 1e-6
    assert (whole or 0) <= max(draws) * 5 + 1e-6
