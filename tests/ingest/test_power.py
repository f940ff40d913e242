from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from falloff.ingest.power import Samples, measure_power, read_native_power, read_nvidia_smi
from falloff.rawlog import POWER_COLUMNS

SAMPLE = Path("data/external/torchtitan-h200x2/power.csv")
COLUMNS = (
    "timestamp",
    "index",
    "power.draw.instant",
    "power.draw.average",
    "clocks.sm",
    "temperature.gpu",
    "clocks_event_reasons.active",
)


def series(
    draw: Callable[[float], float], counter: Callable[[float], float] | None = None, reasons: float = np.nan
) -> Samples:
    """Ten seconds, a sample every 0.1 s."""
    times = np.arange(0, 10.05, 0.1)
    return Samples(
        time_s=times,
        draw_w=np.array([draw(t) for t in times]),
        energy_j=np.array([counter(t) if counter else np.nan for t in times]),
        clock_reasons=np.full(len(times), reasons),
    )


def constant(value: float) -> Callable[[float], float]:
    return lambda _: value


def step_draw(t: float) -> float:
    return 700.0 if 2 <= t <= 4 else 100.0


def test_the_mean_covers_the_measured_window_alone() -> None:
    power = measure_power({"0": series(step_draw)}, ["0"], [(2.2, 3.8)], "a meter")
    assert power.draw_w == pytest.approx(700)
    assert power.energy_j == pytest.approx(700 * 1.6)
    assert power.source == "a meter, integral of power readings"


def test_energy_is_of_all_devices_and_draw_of_one() -> None:
    samples = {"a": series(constant(100)), "b": series(constant(300)), "other": series(constant(999))}
    power = measure_power(samples, ["a", "b"], [(1, 3), (5, 6)], "a meter")
    assert power.draw_w == pytest.approx(200)
    assert power.energy_j == pytest.approx(400 * 3)


def test_the_counter_is_preferred_to_readings_that_trail() -> None:
    def trailing(t: float) -> float:
        return 100 + 600 * min(max(t - 2, 0), 1)

    def counter(t: float) -> float:
        return 100 * t + 600 * max(t - 2, 0)

    power = measure_power({"0": series(trailing, counter)}, ["0"], [(2, 4)], "a meter")
    assert power.energy_j == pytest.approx(1400)
    assert "energy counter" in power.source
    assert "0.79 of that" in power.source


def test_a_counter_without_readings_of_power_is_enough() -> None:
    power = measure_power({"0": series(constant(np.nan), lambda t: 50 * t)}, ["0"], [(1, 3)], "RAPL package")
    assert power.draw_w == pytest.approx(50)


@pytest.mark.parametrize(
    ("counter", "words"),
    [
        (lambda t: 100 * t if t < 2.5 else 100 * t - 240, "a reset"),
        (constant(5000), "stood still"),
    ],
)
def test_a_counter_that_cannot_be_trusted_gives_way_to_the_readings(
    counter: Callable[[float], float], words: str
) -> None:
    power = measure_power({"0": series(constant(100), counter)}, ["0"], [(2, 4)], "a meter")
    assert power.energy_j == pytest.approx(200)
    assert words in power.source


def test_a_broken_counter_alone_is_no_energy_and_never_a_part_of_it() -> None:
    samples = {"0": series(constant(np.nan), lambda t: 100 * t if t < 2.5 else 0)}
    power = measure_power(samples, ["0"], [(2, 4)], "a meter")
    assert (power.energy_j, power.draw_w) == (None, None)
    assert "a reset" in power.source


def test_a_single_low_reading_of_the_counter_is_passed_over() -> None:
    samples = {"0": series(constant(50), lambda t: 200.0 if abs(t - 3) < 0.01 else 22e6 + 50 * t)}
    assert measure_power(samples, ["0"], [(2, 4)], "a meter").energy_j == pytest.approx(100)


@pytest.mark.parametrize(
    ("devices", "window", "words"),
    [
        (["0", "7"], (2, 4), "no power samples of device 7"),
        ([], (2, 4), "no device"),
        (["0"], (9, 11), "do not cover"),
        (["0"], (2.0, 2.25), "too few"),
    ],
)
def test_what_cannot_be_measured_is_a_reason(devices: list[str], window: tuple[float, float], words: str) -> None:
    power = measure_power({"0": series(step_draw)}, devices, [window], "a meter")
    assert power.energy_j is None
    assert words in power.source


def test_without_a_measured_window_there_is_no_power_and_a_reason() -> None:
    power = measure_power({"0": series(constant(100))}, ["0"], [], "a meter")
    assert (power.draw_w, power.energy_j, power.source) == (None, None, "no measured window with times")


def test_a_hole_in_the_samples_is_not_bridged() -> None:
    full = series(step_draw)
    kept = (full.time_s < 3) | (full.time_s > 5)
    holed = Samples(
        time_s=full.time_s[kept],
        draw_w=full.draw_w[kept],
        energy_j=full.energy_j[kept],
        clock_reasons=full.clock_reasons[kept],
    )
    assert "hole of 2." in measure_power({"0": holed}, ["0"], [(2, 6)], "a meter").source


def test_a_meter_that_answers_zero_does_not_answer() -> None:
    assert measure_power({"0": series(constant(0.0))}, ["0"], [(2, 4)], "a meter").energy_j is None


def test_what_held_the_clocks_down_is_said() -> None:
    held = measure_power({"0": series(step_draw, reasons=4)}, ["0"], [(2, 4)], "a meter")
    free = measure_power({"0": series(step_draw, reasons=1)}, ["0"], [(2, 4)], "a meter")
    assert held.throttling == "clocks held down: software power cap in 100% of the power samples"
    assert free.throttling is None


def test_native_samples_keep_blanks_as_missing(tmp_path: Path) -> None:
    path = tmp_path / "power.csv"
    path.write_text(",".join(POWER_COLUMNS) + "\n2.5,GPU-a,300.5,,1500,40,4\n1.5,GPU-a,,12.25,,,\n")
    samples = read_native_power(path)["GPU-a"]
    assert list(samples.time_s) == [1.5, 2.5]
    assert np.isnan(samples.draw_w[0])
    assert samples.draw_w[1] == 300.5
    assert samples.energy_j[0] == 12.25


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "line 1 is ''"),
        ("time,watts\n", "line 1 is 'time,watts'"),
        (",".join(POWER_COLUMNS) + "\n1.5,GPU-a,300\n", "line 2 is not a power sample .3 values for 7 columns"),
        (",".join(POWER_COLUMNS) + "\n1.5,GPU-a,3x0,,,,\n", "line 2 is not a power sample"),
    ],
)
def test_a_garbled_power_file_is_a_sentence_with_its_line(tmp_path: Path, content: str, words: str) -> None:
    path = tmp_path / "power.csv"
    path.write_text(content)
    with pytest.raises(ValueError, match=words):
        read_native_power(path)


def test_the_reading_that_is_named_is_the_one_that_is_read(tmp_path: Path) -> None:
    path = tmp_path / "power.csv"
    path.write_text("2026/11/30 02:37:12.283, 0, 79.07, 78.03, 345, 32, 0x0000000000000001\n")
    instant = read_nvidia_smi(path, COLUMNS, "instant", "UTC")["0"]
    average = read_nvidia_smi(path, COLUMNS, "average", "UTC")["0"]
    assert (instant.draw_w[0], average.draw_w[0]) == (79.07, 78.03)
    assert instant.time_s[0] == pytest.approx(1_796_006_232.283)
    assert instant.clock_reasons[0] == 1


def test_what_a_gpu_does_not_answer_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "power.csv"
    path.write_text("2026/11/30 02:37:12.283, 0, [N/A], 78.03, 345, 32, [N/A]\n")
    assert np.isnan(read_nvidia_smi(path, COLUMNS, "instant", "UTC")["0"].draw_w[0])


def test_columns_that_lack_the_reading_are_an_error() -> None:
    with pytest.raises(ValueError, match=r"lack 'power\.draw\.average'"):
        read_nvidia_smi(SAMPLE, ("timestamp", "index", "power.draw.instant"), "average", "UTC")


def test_an_unknown_time_zone_is_an_error() -> None:
    with pytest.raises(ValueError, match="timezone 'Mars' is unknown"):
        read_nvidia_smi(SAMPLE, COLUMNS, "instant", "Mars")


def test_the_shipped_samples_are_of_both_gpus() -> None:
    samples = read_nvidia_smi(SAMPLE, COLUMNS, "instant", "UTC")
    assert {gpu: len(values.time_s) for gpu, values in samples.items()} == {"0": 1731, "1": 1731}
