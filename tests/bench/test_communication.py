"""The two controls: steps that send nothing, and steps whose collectives are longer by what was asked."""

import dataclasses
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from falloff.bench import communication
from falloff.bench.communication import Delay, NoCommunication, install_control
from falloff.spec.cell import TrainCell, cell_to_json
from falloff.spec.layout import Layout
from falloff.spec.network import Network

NETWORK = Network(name="tiny", layers=2, hidden=24, heads=4, kv_heads=2, ffn=38, vocab=66, source="a test")
CELL = TrainCell(network=NETWORK, layout=Layout(dp_shard=2), seq=8, global_batch=2, microbatch=1)
CHOICES = {
    "real": {},
    "none": {"communication": "none"},
    "none in turn": {"communication": "none", "prefetch_forward": 0, "prefetch_backward": 0},
    "delay": {"delay_factor": 2.0},
    "delay in turn": {"delay_factor": 2.0, "prefetch_forward": 0, "prefetch_backward": 0},
}
NUM_STEPS = 6
# per step: embedding and head once, two blocks twice; and a reduction each
NUM_GATHERS, NUM_REDUCTIONS = 6, 4


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Return what one launch of two ranks left of every choice, by rank."""
    folder = tmp_path_factory.mktemp("communication")
    cells = {name: cell_to_json(dataclasses.replace(CELL, **choice)) for name, choice in CHOICES.items()}
    (folder / "cells.json").write_text(json.dumps(cells))
    worker = Path(__file__).with_name("communication_worker.py")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1"]
    command += ["--nproc-per-node=2", str(worker), str(folder / "cells.json"), str(folder / "out.json")]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=240, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads((folder / "out.json").read_text())


def num_calls(event: dict, collective: str) -> int:
    return sum(call["num"] for call in event["calls"] if call["collective"] == collective)


def test_an_ordinary_cell_has_no_control_and_leaves_fsdp_its_own_collectives(results):
    for rank in results["real"]:
        assert rank["event"] is None
        assert all(name.startswith("torch.") for name in rank["comms"])
        assert rank["calls"] == NUM_STEPS * (NUM_GATHERS + NUM_REDUCTIONS + 1)  # and the gradients' norm
    assert install_control([], CELL, torch.device("cpu")) is None


@pytest.mark.parametrize("choice", ["none", "none in turn"])
def test_without_communication_no_rank_calls_the_process_group(results, choice):
    assert [rank["calls"] for rank in results[choice]] == [0, 0]


@pytest.mark.parametrize("choice", ["none", "none in turn"])
def test_without_communication_losses_stay_finite_and_weights_of_their_magnitude(results, choice):
    for rank, real in zip(results[choice], results["real"], strict=True):
        assert all(math.isfinite(loss) for loss in rank["losses"])
        assert rank["losses"][0] == pytest.approx(math.log(NETWORK.vocab), rel=0.1)
        assert rank["losses"][-1] < rank["losses"][0]
        assert rank["norms"] == pytest.approx(real["norms"], rel=0.05)


@pytest.mark.parametrize("choice", ["none", "none in turn", "delay", "delay in turn"])
def test_the_event_states_what_a_step_calls(results, choice):
    for rank in results[choice]:
        assert num_calls(rank["event"], "all_gather") == NUM_GATHERS
        assert num_calls(rank["event"], "reduce_scatter") == NUM_REDUCTIONS
        block = next(c for c in rank["event"]["calls"] if c["collective"] == "all_gather" and c["num"] == 4)
        rows = 3 * 24 * 38 + 2 * 24 * 24 + 2 * 24 * 12 + 2 * 24  # a block's matrices and norms divide by two
        assert block["message_bytes"] == 4 * rows
        assert block["num_ranks"] == 2


def test_the_event_without_communication_has_kind_and_no_times(results):
    event = results["none"][0]["event"]
    assert event["kind"] == "no_communication"
    assert {(call["base_s"], call["delay_s"]) for call in event["calls"]} == {(None, None)}


@pytest.mark.parametrize("choice", ["delay", "delay in turn"])
def test_a_delay_leaves_the_training_as_it_is(results, choice):
    for rank, real in zip(results[choice], results["real"], strict=True):
        assert rank["losses"] == real["losses"]
        assert rank["norms"] == real["norms"]


@pytest.mark.parametrize("choice", ["delay", "delay in turn"])
def test_ranks_agree_on_what_each_message_takes_and_each_is_longer_by_the_factor(results, choice):
    first, second = (rank["event"] for rank in results[choice])
    assert first == second
    assert first["kind"] == "delay"
    for call in first["calls"]:
        assert call["base_s"] > 0
        assert call["delay_s"] == 2.0 * call["base_s"]


@pytest.mark.parametrize("choice", ["delay", "delay in turn"])
def test_the_ranks_pause_in_turn_and_together_for_what_the_event_says(results, choice):
    ranks = results[choice]
    asked_s = sum(call["num"] * call["delay_s"] for call in ranks[0]["event"]["calls"])
    paused_s = [sum(rank["pauses_s"]) for rank in ranks]
    assert sum(paused_s) == pytest.approx((NUM_STEPS - 1) * asked_s, rel=1e-9)
    per_step = NUM_GATHERS + NUM_REDUCTIONS
    assert [len(rank["pauses_s"]) for rank in ranks] == [(NUM_STEPS - 1) * per_step // 2] * 2


def test_a_step_is_longer_where_its_collectives_are(results):
    asked_s = sum(call["num"] * call["delay_s"] for call in results["delay in turn"][0]["event"]["calls"])
    assert min(results["delay in turn"][0]["step_s"][1:]) > asked_s


class TwoRanks:
    """What the controls ask of a process group."""

    def size(self) -> int:
        return 2

    def rank(self) -> int:
        return 1


def test_a_gather_without_communication_fills_every_place_with_the_own_shard():
    output = torch.full((6,), -1.0)
    own = output[3:]
    own.copy_(torch.tensor([1.0, 2.0, 3.0]))
    assert NoCommunication().all_gather(output, own, TwoRanks(), async_op=True) is None
    assert output.tolist() == [1, 2, 3, 1, 2, 3]


@pytest.mark.parametrize(("op", "scale"), [(torch.distributed.ReduceOp.AVG, 1), (torch.distributed.ReduceOp.SUM, 2)])
def test_a_reduction_without_communication_has_the_magnitude_of_the_real_one(op, scale):
    given, output = torch.arange(6.0), torch.empty(3)
    assert NoCommunication().reduce_scatter(output, given, TwoRanks(), op, async_op=False) is None
    assert output.tolist() == [3 * scale, 4 * scale, 5 * scale]


def test_a_single_rank_sends_nothing_that_could_be_late():
    control = Delay(2.0, torch.device("cpu"))
    control.after_first_step()
    assert control.event_fields() == {"kind": "delay", "calls": []}


class LoggedStream:
    """What a control asks of a GPU's stream, noted."""

    def __init__(self, log: list[str]) -> None:
        self.log = log

    def record_event(self) -> str:
        self.log.append("end noted")
        return "end"

    def wait_event(self, event: str) -> None:
        self.log.append(f"wait for {event}")


def test_on_a_gpu_the_late_rank_begins_to_be_late_when_the_call_before_has_ended(monkeypatch):
    log: list[str] = []
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _device: LoggedStream(log))
    monkeypatch.setattr(communication, "all_gather", lambda *_, **__: log.append("gather"))
    monkeypatch.setattr(communication, "reduce_scatter", lambda *_, **__: log.append("reduce"))
    control, group = Delay(3.0, torch.device("cuda", 0)), TwoRanks()
    control.pause = lambda seconds: log.append(f"pause {seconds:g}")
    whole, part, op = torch.zeros(4), torch.zeros(2), torch.distributed.ReduceOp.SUM
    control.all_gather(whole, part, group, async_op=False)
    control.reduce_scatter(part, whole, group, op, async_op=False)
    control.base_s = dict.fromkeys(control.num_calls, 2.0)
    log.clear()
    control.all_gather(whole, part, group, async_op=False)  # the second of its kind, so the second rank's turn
    control.all_gather(whole, part, group, async_op=False)
    control.reduce_scatter(part, whole, group, op, async_op=False)
    assert log == [
        "wait for end", "pause 6", "gather", "end noted",
        "gather", "end noted",
        "wait for end", "pause 6", "reduce", "end noted",
    ]  # fmt: skip


def test_a_call_that_runs_on_its_own_stream_is_waited_for_by_its_work(monkeypatch):
    log: list[str] = []

    class Work:
        def wait(self) -> None:
            log.append("wait for work")

    monkeypatch.setattr(communication, "all_gather", lambda *_, **__: Work())
    control, group = Delay(1.0, torch.device("cuda", 0)), TwoRanks()
    control.pause = lambda _: log.append("pause")
    for _ in range(2):
        control.base_s = dict.fromkeys(control.num_calls, 1.0)
        control.all_gather(torch.zeros(4), torch.zeros(2), group, async_op=True)
    assert log == ["wait for work", "pause"]
