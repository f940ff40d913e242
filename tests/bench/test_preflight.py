import json
import time
from pathlib import Path

import pytest
import torch

from falloff.bench import preflight
from falloff.bench.power_source import Meter, Reading
from falloff.bench.preflight import PLANS, Watch, Worker, loads_of, rank_lines


def test_ranks_meet_their_gpus_meters_by_uuid_and_within_the_load_alone() -> None:
    watch = Watch("cpu")
    watch.meters = (Meter(index=4, uuid="GPU-a", name="NVIDIA H200"), Meter(index=5, uuid="GPU-b", name="NVIDIA H200"))
    watch.readings = [
        Reading(time_s=time_s, device=device, draw_w=100.0 * device + time_s, sm_clock_mhz=1980, throttle_reasons=4)
        for time_s in (1.0, 2.0, 3.0)
        for device in (4, 5)
    ]
    lines = [
        {"measure": "uuid", "ranks": [0], "uuid": "GPU-b"},
        {"measure": "product", "ranks": [0], "window": [1.5, 3.0]},
        {"measure": "uuid", "ranks": [1], "uuid": "GPU-of-no-meter"},
    ]
    first, second = loads_of(lines, watch)
    assert (first["rank"], first["index"], first["draw_w"]) == (0, 5, [502.0, 503.0])
    assert first["throttle_reasons"] == [4, 4]
    assert (second["index"], second["draw_w"], second["sm_clock_mhz"]) == (None, [], [])


def test_a_line_that_a_death_cut_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "rates.rank0.jsonl").write_text('{"measure": "a"}\n{"measure": "b"')
    (tmp_path / "rates.rank1.jsonl").write_text('{"measure": "c"}\n')
    assert [line["measure"] for line in rank_lines(tmp_path)] == ["a", "c"]


def test_rates_are_of_flops_and_of_bytes_read_and_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker(0, 1, PLANS["cpu"], tmp_path)
    taken: list[int] = []

    def seconds(call: object, calls: int) -> float:
        taken.append(calls)
        return 0.5

    monkeypatch.setattr(worker, "seconds", seconds)
    preflight.measure_memory(worker)
    preflight.measure_products(worker)
    rates = {line["measure"]: (line["unit"], set(line["repeats"])) for line in rank_lines(tmp_path)}
    array_bytes = PLANS["cpu"].array_bytes
    assert rates["memory copy"] == ("B/s", {2 * array_bytes / 0.5})
    assert rates["memory triad"] == ("B/s", {3 * array_bytes / 0.5})
    assert rates["product float32 128, burst"] == ("FLOP/s", {2 * 128**3 / 0.5})
    assert rates["product float32 128, sustained"] == ("FLOP/s", {2 * 128**3 / 0.5})


def test_a_product_that_is_not_finite_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(a: torch.Tensor, _: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
        return out.fill_(float("inf"))

    monkeypatch.setattr(torch, "mm", broken)
    with pytest.raises(ValueError, match="rank 0: the product of finite numbers is not finite"):
        preflight.measure_products(Worker(0, 1, PLANS["cpu"], tmp_path))


def test_what_a_rank_writes_is_json_a_line(tmp_path: Path) -> None:
    Worker(0, 1, PLANS["cpu"], tmp_path).write("copy", "B/s", [0], [1.0, 2.0])
    text = (tmp_path / "rates.rank0.jsonl").read_text()
    assert json.loads(text) == {"measure": "copy", "unit": "B/s", "ranks": [0], "repeats": [1.0, 2.0]}


def test_ranks_that_are_not_done_in_time_are_ended(tmp_path: Path) -> None:
    began_s = time.monotonic()
    with pytest.raises(TimeoutError, match=r"not done after 0\.2 s"):
        preflight.run_ranks(1, PLANS["cpu"], tmp_path, 0.2)
    assert time.monotonic() - began_s < 5
