"""What comes before the window, and that the window is led into; one rank, in a process group of its own."""

import dataclasses
import gc
import json
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn

from falloff import rawlog
from falloff.bench import warmup
from falloff.bench.parallelize import Parallel
from falloff.bench.rank import Rank
from falloff.bench.settling import MANY_POINTS
from falloff.bench.steps import Steps
from falloff.bench.train import _append_attention, _measure
from falloff.spec.cell import TrainCell
from falloff.spec.layout import Layout
from falloff.spec.network import Network

CPU = torch.device("cpu")
NETWORK = Network(name="tiny", layers=1, hidden=16, heads=2, kv_heads=2, ffn=24, vocab=12, source="a test")
CELL = TrainCell(
    network=NETWORK, layout=Layout(), seq=12, global_batch=2, microbatch=1, warmup_steps=3, measured_steps=2,
    settle_s=60.0,
)  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _process_group():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.fixture
def rank(tmp_path: Path) -> Rank:
    (tmp_path / rawlog.OPEN_NAME).touch()
    return Rank(run_dir=tmp_path, cell=CELL, cpu_name="a CPU", device=CPU, index=0, size=1)


def events_of(rank: Rank, name: str) -> list[dict]:
    events = [json.loads(line) for line in (rank.run_dir / rawlog.OPEN_NAME).read_text().splitlines()]
    return [event for event in events if event["event"] == name]


def steps_of(cell: TrainCell) -> Steps:
    module = nn.Linear(cell.seq + 1, 3)

    def backward(tokens: torch.Tensor) -> torch.Tensor:
        loss = module(tokens.float()).square().mean()
        loss.backward()
        return loss.detach()

    parallel = Parallel(
        modules=[module], sequences=slice(0, 2), positions=None, backward=backward, loss_share=1.0, mesh=None,
        gradient_norm=lambda: torch.zeros(()),
    )  # fmt: skip
    return Steps(cell, parallel, CPU)


def test_the_warm_up_ends_with_the_fastest_of_its_steps_the_first_left_out(rank):
    fastest_s = warmup.warm_up(rank, CELL, steps_of(CELL))
    logged = [event["rank_step_s"][0] for event in events_of(rank, "step")]
    assert len(logged) == 3
    assert fastest_s == min(logged[1:])


def test_a_cell_that_asks_for_no_rest_gets_none(rank):
    steps = steps_of(CELL)
    assert warmup.settle(rank, dataclasses.replace(CELL, settle_s=0.0), steps, 0.25) == 0.25
    assert steps.done == 0


def test_steps_go_on_until_they_hold_still_and_the_log_says_what_was_judged(rank, monkeypatch):
    points = iter([(seconds, clock) for seconds, clock in zip([2.0, 1.5, *[1.0] * 60], [1980.0] * 62, strict=True)])
    monkeypatch.setattr(warmup, "_run_point", lambda *_arguments: next(points))
    fastest_s = warmup.settle(rank, CELL, steps_of(CELL), 3.0)
    (settled,) = events_of(rank, "settled")
    assert fastest_s == 1.0
    assert settled["settled"]
    assert len(settled["point_s"]) == len(settled["sm_clock_mhz"]) == 2 + MANY_POINTS
    assert (settled["step_drift_share"], settled["clock_drift_share"]) == (0.0, 0.0)
    assert (settled["step_drift_margin"], settled["clock_drift_margin"]) == (0.0, 0.0)


def test_too_few_points_end_without_a_drift_and_without_rest(rank):
    steps = steps_of(CELL)
    warmup.settle(rank, dataclasses.replace(CELL, settle_s=1e-9), steps, 1.0)
    (settled,) = events_of(rank, "settled")
    assert (settled["settled"], settled["step_drift_share"], settled["clock_drift_share"]) == (False, None, None)
    assert settled["steps"] == steps.done <= 1


@pytest.mark.parametrize(("fastest_s", "count"), [(2.0, 1), (0.41, 1), (0.29, 2), (0.01, 50)])
def test_a_point_is_about_half_a_second_of_steps(rank, monkeypatch, fastest_s, count):
    counts = []
    monkeypatch.setattr(warmup, "_run_point", lambda _rank, _steps, count: (counts.append(count), (1.0, None))[1])
    warmup.settle(rank, CELL, steps_of(CELL), fastest_s)
    assert counts[0] == count


def test_a_window_is_led_into_by_a_second_of_steps_that_it_does_not_count(rank):
    steps = steps_of(CELL)
    _measure(rank, dataclasses.replace(CELL, window_s=1.5), steps, 0.4)
    (window,) = events_of(rank, "window")
    assert (window["first_step"], window["lead_steps"], window["steps"]) == (4, 3, 4)
    logged = events_of(rank, "step")
    assert [(event["step"], event["phase"]) for event in logged] == [
        *((step, "warmup") for step in (1, 2, 3)), *((step, "measured") for step in (4, 5, 6, 7)),
    ]  # fmt: skip
    starts_s = [event["start_time_s"] for event in logged]
    assert starts_s == sorted(starts_s)


def test_a_window_without_rest_begins_with_the_next_step(rank):
    _measure(rank, dataclasses.replace(CELL, settle_s=0.0), steps_of(CELL), 0.4)
    (window,) = events_of(rank, "window")
    assert (window["first_step"], window["lead_steps"], window["steps"]) == (1, 0, 2)
    assert [event["phase"] for event in events_of(rank, "step")] == ["measured"] * 2
    assert gc.isenabled()


@pytest.mark.parametrize("layout", [Layout(), Layout(cp=2), Layout(tp=2)])
def test_every_layout_says_which_kernel_attends(rank, layout):
    _append_attention(rank, dataclasses.replace(CELL, layout=layout))
    (attention,) = events_of(rank, "attention")
    assert (attention["backend"], attention["asked"]) == ("flash", "auto")
