"""What FSDP gathers, in which order and how often, for every choice that a cell has; and what shards pad."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from falloff.bench.fsdp import padded_elements, sharding_report, uses_fsdp
from falloff.bench.loss import token_loss
from falloff.bench.network import Decoder, materialize
from falloff.spec.cell import TrainCell, cell_to_json
from falloff.spec.layout import Layout
from falloff.spec.network import Network

NETWORK = Network(name="tiny", layers=3, hidden=24, heads=4, kv_heads=2, ffn=38, vocab=66, source="a test")
CELL = TrainCell(network=NETWORK, layout=Layout(dp_shard=4), seq=8, global_batch=4, microbatch=1)
CHOICES = {
    "depth 0": {"prefetch_forward": 0, "prefetch_backward": 0},
    "depth 1": {},
    "depth 2": {"prefetch_forward": 2, "prefetch_backward": 2},
    "depth 0 forward": {"prefetch_forward": 0},
    "depth 0 backward": {"prefetch_backward": 0},
    "kept": {"reshard_after_forward": False},
    "group": {"reshard_group": 2},
    "group of all": {"reshard_group": 4},
    "group of one": {"reshard_group": 1},
}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Return what one launch of four ranks left of every choice."""
    folder = tmp_path_factory.mktemp("fsdp")
    cells = {name: cell_to_json(dataclasses.replace(CELL, **choice)) for name, choice in CHOICES.items()}
    (folder / "cells.json").write_text(json.dumps(cells))
    worker = Path(__file__).with_name("fsdp_worker.py")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1"]
    command += ["--nproc-per-node=4", str(worker), str(folder / "cells.json"), str(folder / "out.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads((folder / "out.json").read_text())


def events(results, choice: str) -> list[str]:
    """Return the events of a choice in short: gathers without their number of ranks."""
    return [event.partition(" over ")[0] for event in results[choice]["events"]]


def forward_of(listed: list[str]) -> list[str]:
    return listed[: listed.index("forward norm") + 1]


def backward_of(listed: list[str]) -> list[str]:
    return listed[listed.index("forward norm") + 1 :]


@pytest.mark.parametrize("choice", ["depth 0", "depth 0 forward"])
def test_at_depth_0_each_part_is_gathered_in_turn_with_the_computation_of_the_forward_pass(results, choice):
    expected = [
        f"{word} {part}" for part in ("embedding", "0", "1", "2", "norm") for word in ("gather in turn", "forward")
    ]
    assert forward_of(events(results, choice)) == expected


@pytest.mark.parametrize("choice", ["depth 1", "depth 0 backward"])
def test_at_depth_1_a_gather_of_the_forward_pass_waits_for_no_computation(results, choice):
    expected = [f"{word} {part}" for part in ("embedding", "0", "1", "2", "norm") for word in ("gather", "forward")]
    assert forward_of(events(results, choice)) == expected


def test_at_depth_2_two_parts_ahead_are_gathered_before_a_part_computes(results):
    assert forward_of(events(results, "depth 2")) == [
        "gather embedding", "gather 0", "gather 1", "forward embedding",
        "gather 2", "forward 0", "gather norm", "forward 1", "forward 2", "forward norm",
    ]  # fmt: skip


@pytest.mark.parametrize("choice", ["depth 0", "depth 0 backward"])
def test_at_depth_0_a_block_is_gathered_in_turn_after_the_backward_pass_of_the_one_behind_it(results, choice):
    assert backward_of(events(results, choice)) == [
        "backward norm", "reduce norm",
        "gather in turn 2", "backward 2", "reduce 2",
        "gather in turn 1", "backward 1", "reduce 1",
        "gather in turn 0", "backward 0", "reduce 0",
        "backward embedding", "reduce embedding",
    ]  # fmt: skip


@pytest.mark.parametrize("choice", ["depth 1", "depth 0 forward", "group", "group of all"])
def test_at_depth_1_a_block_is_gathered_before_the_backward_pass_of_the_one_behind_it(results, choice):
    assert backward_of(events(results, choice)) == [
        "gather 2", "backward norm", "reduce norm",
        "gather 1", "backward 2", "reduce 2",
        "gather 0", "backward 1", "reduce 1",
        "backward 0", "reduce 0",
        "backward embedding", "reduce embedding",
    ]  # fmt: skip


def test_at_depth_2_two_blocks_are_gathered_before_the_backward_pass_of_the_one_behind_them(results):
    assert backward_of(events(results, "depth 2")) == [
        "gather 2", "gather 1", "backward norm", "reduce norm",
        "gather 0", "backward 2", "reduce 2",
        "backward 1", "reduce 1",
        "backward 0", "reduce 0",
        "backward embedding", "reduce embedding",
    ]  # fmt: skip


# A block twice, once where it is kept; the embedding and the head once, in the forward pass.
@pytest.mark.parametrize(
    ("choice", "gathers"),
    [(name, 5 if name in ("kept", "group of one") else 8) for name in CHOICES],
)
def test_a_step_gathers_a_block_twice_where_it_is_freed_and_once_where_it_is_kept(results, choice, gathers):
    listed = events(results, choice)
    assert sum(event.startswith("gather") for event in listed) == gathers
    assert sum(event.startswith("reduce") for event in listed) == 5


def test_a_group_gathers_for_the_backward_pass_among_its_own_ranks(results):
    over = [event.rpartition(" over ")[2] for event in results["group"]["events"] if event.startswith("gather")]
    assert over == ["4"] * 5 + ["2"] * 3
    assert {e.rpartition(" over ")[2] for e in results["depth 1"]["events"] if e.startswith("gather")} == {"4"}


@pytest.fixture(scope="module")
def plain():
    """Return the loss and the gradients' norms of the same tokens in plain torch."""
    decoder = Decoder(NETWORK, CELL.seq, torch.device("cpu"))
    materialize(decoder, "", CELL.seed, torch.device("cpu"))
    tokens = torch.arange(CELL.seq + 1).view(1, -1) * 7 % NETWORK.vocab
    loss = token_loss(decoder(tokens[:, :-1]), tokens[:, 1:])
    loss.backward()
    return loss.item(), {name: parameter.grad.norm().item() for name, parameter in decoder.named_parameters()}


@pytest.mark.parametrize("choice", CHOICES)
def test_no_choice_changes_the_loss_or_a_gradient(results, plain, choice):
    assert results[choice]["loss"] == pytest.approx(plain[0], rel=1e-5)
    assert results[choice]["gradients"] == pytest.approx(plain[1], rel=1e-4)


def test_the_report_counts_every_parameter_and_what_its_shards_pad(results):
    rows = {66: 2 * 24, 24: 3 * (2 * 24 + 38), 12: 3 * 2 * 24, 38: 3 * 2 * 24}  # rows of the matrices: columns in all
    expected = sum(-(-row // 4) * 4 * columns for row, columns in rows.items()) + 7 * 24  # and 7 norms
    assert results["depth 1"]["report"] == {
        "param_elements": NETWORK.params,
        "padded_elements": expected,
        "padded_share": pytest.approx(expected / NETWORK.params - 1),
        "wrapped": 5,
    }


@pytest.mark.parametrize(
    ("shape", "shards", "expected"),
    [
        ((11008, 4096), 2048, 12288 * 4096),
        ((11008, 4096), 256, 11008 * 4096),
        ((3,), 8, 8),
        ((5, 2, 3), 1, 30),
        ((), 4, 4),
    ],
)
def test_rows_are_padded_to_a_multiple_of_the_shards(shape, shards, expected):
    assert padded_elements(shape, shards) == expected


def test_the_ffn_of_llama_2_7b_pads_by_an_eighth_over_2048_ranks():
    assert padded_elements((11008, 4096), 2048) / (11008 * 4096) - 1 == pytest.approx(0.116, abs=5e-4)


def test_without_fsdp_nothing_is_wrapped_or_padded():
    cell = dataclasses.replace(CELL, layout=Layout(tp=2), global_batch=1)
    assert not uses_fsdp(cell)
    report = sharding_report([Decoder(NETWORK, CELL.seq, torch.device("cpu"))], cell)
    assert (report["padded_share"], report["wrapped"]) == (0, 0)
