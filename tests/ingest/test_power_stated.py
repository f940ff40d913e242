import dataclasses
from pathlib import Path

import pytest

from falloff.ingest.power_stated import power_of_run
from falloff.spec.source import PowerFile

WINDOW = (1_800_000_001.0, 1_800_000_009.0)


def rows(columns: str, gpus: dict[str, float]) -> str:
    lines = [f"{1.8e9 + n / 10},{uuid},{watts},{watts + 160}" for n in range(100) for uuid, watts in gpus.items()]
    return "\n".join([columns, *lines, ""])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    header = "time_s,gpu_uuid,power_w,module_power_w"
    (tmp_path / "a.csv").write_text(rows(header, {"GPU-a": 400.0, "GPU-b": 560.0}))
    (tmp_path / "b.csv").write_text(rows(header, {"GPU-a": 400.0, "GPU-b": 560.0}))
    return tmp_path


ONE = PowerFile(file="a.csv", format="power-table", uuids=("GPU-b",))


def test_only_the_runs_gpu_is_charged(folder: Path) -> None:
    power = power_of_run(folder, ONE, [WINDOW])
    assert power.draw_w == pytest.approx(560)
    assert power.scope == "gpu"
    assert power.source == "a table of power, integral of power readings, clock offset 0 s"


def test_files_of_every_rank_count_each_gpu_once(folder: Path) -> None:
    both = PowerFile(file="a.csv", format="power-table", uuids=("GPU-a", "GPU-b"), more_files=("b.csv",))
    assert power_of_run(folder, both, [WINDOW]).energy_j == pytest.approx(8 * 960)


def test_the_module_is_measured_where_it_is_asked_for(folder: Path) -> None:
    power = power_of_run(folder, dataclasses.replace(ONE, scope="module"), [WINDOW])
    assert (power.scope, power.draw_w) == ("module", pytest.approx(720))


def test_the_offset_of_clocks_moves_the_window_and_is_said(folder: Path) -> None:
    ahead = dataclasses.replace(ONE, clock_offset_s=3600.0)
    shifted = (WINDOW[0] - 3600, WINDOW[1] - 3600)
    assert power_of_run(folder, ahead, [shifted]).source.endswith("clock offset 3600 s")
    assert power_of_run(folder, ONE, [shifted]).source == ("device GPU-b: the samples do not cover the measured window")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("t_s,power_w\n" + "".join(f"{n},100\n" for n in range(20)), "times count from a start"),
        ("time,power_w\n2026/11/30 02:37:12.283,100\n", "time zone of the samples' time stamps"),
    ],
)
def test_times_that_cannot_be_joined_are_a_reason(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "a.csv").write_text(text)
    item = PowerFile(file="a.csv", format="power-table", gpus=(0,))
    assert words in power_of_run(tmp_path, item, [WINDOW]).source


def test_a_monitor_without_times_is_placed_by_what_is_stated(tmp_path: Path) -> None:
    header = "#Entity         POWER       TOTEC\nID              W           mJ\n"
    lines = [f"GPU 0           300.000     {300_000 * n}" for n in range(20)]
    (tmp_path / "a.csv").write_text(header + "\n".join(lines) + "\n")
    item = PowerFile(file="a.csv", format="dcgmi-dmon", gpus=(0,))
    assert "begin_s and period_s" in power_of_run(tmp_path, item, [WINDOW]).source
    placed = dataclasses.replace(item, begin_s=1.8e9, period_s=1.0)
    power = power_of_run(tmp_path, placed, [WINDOW], gpu_name="NVIDIA H200")
    assert power.energy_counter_j == pytest.approx(2400)


def test_a_gpu_that_the_file_lacks_is_an_error(folder: Path) -> None:
    with pytest.raises(ValueError, match="no power samples of GPU GPU-c"):
        power_of_run(folder, dataclasses.replace(ONE, uuids=("GPU-c",)), [WINDOW])


@pytest.mark.parametrize(
    ("stated", "words"),
    [
        ({"uuids": ()}, "either gpus or uuids"),
        ({"gpus": (0,)}, "either gpus or uuids"),
        ({"format": "nvidia-smi"}, "timezone must be stated"),
        ({"period_s": 0.0}, "period_s must be above zero"),
        ({"clock_offset_s": float("inf")}, "clock_offset_s must be finite"),
    ],
)
def test_what_is_stated_has_to_hold_together(stated: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        dataclasses.replace(ONE, **stated)  # type: ignore[arg-type]
