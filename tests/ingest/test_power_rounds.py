from pathlib import Path

import pytest

from falloff.ingest.power_files import read_power

HEADER = "timestamp, power.draw [W], utilization.gpu [%]\n"


def log(folder: Path, rounds: int, gpus: int, period_s: float = 0.1, odd: int | None = None) -> Path:
    """Rows as nvidia-smi prints them in a loop, a millisecond apart; GPU g draws 100 (g + 1) W."""
    rows = []
    for at in range(rounds):
        for gpu in range(gpus - (at == odd)):
            seconds = at * period_s + gpu * 0.001
            rows.append(f"2025/12/04 01:{int(seconds // 60):02d}:{seconds % 60:06.3f}, {100 * (gpu + 1)}.00 W, 9 %\n")
    path = folder / "smi.csv"
    path.write_text(HEADER + "".join(rows))
    return path


@pytest.mark.parametrize("gpus", [2, 4, 8])
def test_rows_of_several_gpus_without_an_index_are_told_apart_by_their_order(tmp_path: Path, gpus: int) -> None:
    found = read_power(log(tmp_path, 50, gpus))
    assert {name: set(samples.draw_w) for name, samples in found.devices.items()} == {
        str(gpu): {100.0 * (gpu + 1)} for gpu in range(gpus)
    }
    assert any(f"those of {gpus} GPUs that it does not name" in note for note in found.notes)


def test_a_round_with_a_row_too_few_is_left_out(tmp_path: Path) -> None:
    found = read_power(log(tmp_path, 50, 2, odd=20))
    assert [len(samples.time_s) for samples in found.devices.values()] == [49, 49]


def test_one_gpu_s_rows_stay_together(tmp_path: Path) -> None:
    found = read_power(log(tmp_path, 50, 1))
    assert list(found.devices) == ["0"]
    assert len(found.devices["0"].time_s) == 50
    assert not any("at a time" in note for note in found.notes)
