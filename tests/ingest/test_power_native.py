from pathlib import Path
from typing import Any

import pytest

from falloff.ingest.power_native import MeteredRun, power_of_log
from falloff.rawlog import FIRST_POWER_COLUMNS, POWER_COLUMNS

EVENT = {
    "source": "nvml",
    "scope": "gpu",
    "draw": "instant, by field",
    "devices": [{"index": n, "uuid": f"GPU-{n}", "name": "NVIDIA H200"} for n in range(4)],
    "period_s": 0.1,
    "file": "power.csv",
}


def run(**stated: Any) -> MeteredRun:
    base = {"uuids": ("GPU-1", "GPU-2"), "num_processes": 2, "num_nodes": 1, "limits_w": (700.0,)}
    return MeteredRun(**{**base, **stated})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = [f"{1.8e9 + n / 10},{gpu},{100 * (gpu + 1)},,1500,40,0" for n in range(100) for gpu in range(4)]
    (tmp_path / "power.csv").write_text("\n".join([",".join(FIRST_POWER_COLUMNS), *rows, ""]))
    return tmp_path


WINDOW = (1.8e9 + 1, 1.8e9 + 9)


def test_the_runs_own_gpus_are_told_by_uuid(folder: Path) -> None:
    power = power_of_log(folder, [EVENT], run(), WINDOW)
    assert power.draw_w == pytest.approx(250)
    assert power.source == "NVML gpu (instant, by field) every 0.1 s, integral of power readings"


@pytest.mark.parametrize(
    ("stated", "words"),
    [
        ({"uuids": ("GPU-1", "GPU-of-another-node"), "num_nodes": 2}, "1 of the run's 2 GPUs have no power samples"),
        ({"uuids": ()}, "does not say by UUID which of the node's GPUs"),
    ],
)
def test_a_part_of_the_runs_gpus_is_never_taken_for_all(folder: Path, stated: dict[str, Any], words: str) -> None:
    power = power_of_log(folder, [EVENT], run(**stated), WINDOW)
    assert power.energy_j is None
    assert words in power.source


def test_without_uuids_a_run_that_has_all_gpus_of_its_node_is_charged_all(folder: Path) -> None:
    assert power_of_log(folder, [EVENT], run(uuids=(), num_processes=4), WINDOW).draw_w == pytest.approx(250)


def test_packages_of_one_node_are_no_power_of_two(folder: Path) -> None:
    event = {**EVENT, "source": "rapl", "scope": "package", "draw": "mean since the reading before, from the counter"}
    assert power_of_log(folder, [event], run(), WINDOW).scope == "package"
    assert "2 ran" in power_of_log(folder, [event], run(num_nodes=2), WINDOW).source


def test_a_driver_before_the_instant_reading_is_trimmed_by_the_gpus_generation(folder: Path) -> None:
    event = {**EVENT, "draw": "nvmlDeviceGetPowerUsage, a mean over 1 s on most GPUs since Ampere"}
    assert "without each window's first 1 s" in power_of_log(folder, [event], run(), WINDOW).source


def test_a_file_that_is_not_there_is_a_reason(tmp_path: Path) -> None:
    assert power_of_log(tmp_path, [EVENT], run(), WINDOW).source.startswith("power.csv: cannot be read")


def on_two_nodes(folder: Path, **second: Any) -> list[dict[str, Any]]:
    """Return the meters of two nodes with a GPU each of the run; the second draws what the first does, in its file."""
    (folder / "power.node1.csv").write_bytes((folder / "power.csv").read_bytes())
    devices = [{**device, "uuid": f"GPU-b{device['index']}"} for device in EVENT["devices"]]
    return [EVENT, {**EVENT, "node": 1, "devices": devices, "file": "power.node1.csv", **second}]


TWO_NODES = {"uuids": ("GPU-1", "GPU-b3"), "num_nodes": 2}


def test_gpus_of_several_nodes_are_read_from_each_nodes_own_file(folder: Path) -> None:
    power = power_of_log(folder, on_two_nodes(folder), run(**TWO_NODES), WINDOW)
    # 200 and 400 W
    assert power.draw_w == pytest.approx(300)
    assert power.energy_j == pytest.approx(600 * 8)


def test_a_node_without_samples_leaves_no_power(folder: Path) -> None:
    meters = on_two_nodes(folder)
    assert "1 of the run's 2 GPUs" in power_of_log(folder, meters[:1], run(**TWO_NODES), WINDOW).source
    (folder / "power.node1.csv").unlink()
    assert power_of_log(folder, meters, run(**TWO_NODES), WINDOW).source.startswith("power.node1.csv: cannot be read")


def test_meters_of_two_kinds_are_no_sum(folder: Path) -> None:
    meters = on_two_nodes(folder, source="rapl", scope="package")
    power = power_of_log(folder, meters, run(**TWO_NODES), WINDOW)
    assert power.source == "the nodes' meters are not alike: nvml gpu and rapl package"


def test_packages_of_all_nodes_are_added_up(folder: Path) -> None:
    rapl = {"source": "rapl", "scope": "package", "devices": EVENT["devices"][:1]}
    first, second = on_two_nodes(folder, **rapl)
    power = power_of_log(folder, [{**first, **rapl}, second], run(uuids=(), num_nodes=2, limits_w=()), WINDOW)
    assert power.energy_j == pytest.approx(2 * 100 * 8)


def with_averages(folder: Path, draw_w: str) -> Path:
    rows = [f"{1.8e9 + n / 10},{gpu},{draw_w},{n * 30},1500,40,0,300,2619" for n in range(100) for gpu in range(4)]
    (folder / "power.csv").write_text("\n".join([",".join(POWER_COLUMNS), *rows, ""]))
    return folder


def test_the_average_beside_the_draw_counts_for_nothing(tmp_path: Path) -> None:
    power = power_of_log(with_averages(tmp_path, "500"), [EVENT], run(), WINDOW)
    assert power.energy_integral_j == pytest.approx(2 * 500 * 8)
    assert power.energy_counter_j == pytest.approx(2 * 300 * 8)


def test_where_the_draw_is_blank_the_average_does_not_stand_in_for_it(tmp_path: Path) -> None:
    power = power_of_log(with_averages(tmp_path, ""), [EVENT], run(), WINDOW)
    assert power.energy_integral_j is None
    assert power.plain_mean_w is None
    assert power.draw_w == pytest.approx(300)
