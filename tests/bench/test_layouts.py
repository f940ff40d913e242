"""Every layout trains the same network on the same tokens: losses and gradients agree with plain torch."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from falloff.bench.loss import token_loss
from falloff.bench.network import Decoder, materialize
from falloff.bench.train import BETAS, WEIGHT_DECAY, global_tokens
from falloff.spec.cell import TrainCell, cell_to_json
from falloff.spec.layout import Layout
from falloff.spec.network import Network

# Sizes that four ranks do not divide evenly wherever FSDP may cut, and fewer key than query heads.
NETWORK = Network(name="tiny", layers=5, hidden=48, heads=8, kv_heads=4, ffn=76, vocab=132, source="a test")
CELL = TrainCell(
    network=NETWORK, layout=Layout(), seq=16, global_batch=8, microbatch=2, learning_rate=1e-2, warmup_steps=1,
    measured_steps=2, profiled_steps=1, seed=7,
)  # fmt: skip
NUM_STEPS = 4

LAYOUTS = {
    1: [Layout()],
    2: [Layout(dp_shard=2), Layout(dp_replicate=2), Layout(tp=2), Layout(pp=2)],
    4: [
        Layout(dp_shard=4),
        Layout(dp_replicate=2, dp_shard=2),
        Layout(tp=4),
        Layout(dp_shard=2, tp=2),
        Layout(pp=4),
    ],
}


def cells_at(num_processes: int) -> dict[str, TrainCell]:
    cells = {}
    for layout in LAYOUTS[num_processes]:
        cell = dataclasses.replace(CELL, layout=layout)
        cells[layout.label] = cell
        cells[f"{layout.label}, recompute"] = dataclasses.replace(cell, recompute="full")
        if num_processes < 4:
            cells[f"{layout.label}, bfloat16"] = dataclasses.replace(cell, param_dtype="bfloat16")
    return cells


NAMES = {num_processes: list(cells_at(num_processes)) for num_processes in LAYOUTS}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Return what each process group's one launch left, launching it when it is first asked for."""
    kept = {}

    def of(num_processes: int) -> dict:
        if num_processes not in kept:
            kept[num_processes] = None  # so that a launch that fails is not tried again for every test
            kept[num_processes] = launch(num_processes, tmp_path_factory.mktemp(f"at{num_processes}"))
        assert kept[num_processes] is not None, f"the launch of {num_processes} processes failed"
        return kept[num_processes]

    return of


def launch(num_processes: int, folder: Path) -> dict:
    stated = {name: cell_to_json(cell) for name, cell in cells_at(num_processes).items()}
    (folder / "cells.json").write_text(json.dumps(stated))
    worker = Path(__file__).with_name("layouts_worker.py")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1"]
    command += [f"--nproc-per-node={num_processes}", str(worker), str(folder / "cells.json"), str(folder / "out.pt")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-4000:]
    return torch.load(folder / "out.pt")


@pytest.fixture(scope="module")
def reference():
    """Return losses and first gradients of the same training in plain torch: whole batch, one process, no wrapper."""
    network = Decoder(NETWORK, CELL.seq, torch.device("cpu"))
    materialize(network, "", CELL.seed, torch.device("cpu"))
    optimizer = torch.optim.AdamW(network.parameters(), lr=CELL.learning_rate, betas=BETAS, weight_decay=WEIGHT_DECAY)
    losses, gradients = [], {}
    for step in range(1, NUM_STEPS + 1):
        tokens = global_tokens(CELL, step)
        optimizer.zero_grad()
        loss = token_loss(network(tokens[:, :-1]), tokens[:, 1:])
        loss.backward()
        if step == 1:
            gradients = {name: p.grad.clone() for name, p in network.named_parameters()}
        optimizer.step()
        losses.append(loss.item())
    return losses, gradients


def cases(*, low: bool):
    return [(n, name) for n, names in NAMES.items() for name in names if name.endswith("bfloat16") == low]


@pytest.mark.parametrize(("num_processes", "name"), cases(low=False))
def test_a_layout_reaches_the_loss_of_plain_torch(results, reference, num_processes, name):
    assert results(num_processes)[name]["losses"] == pytest.approx(reference[0], rel=1e-4)


# Adam divides a gradient's scale away, so a sum taken for a mean does not show in the losses.
@pytest.mark.parametrize(("num_processes", "name"), cases(low=False))
def test_gradients_are_the_mean_over_the_global_batch(results, reference, num_processes, name):
    gradients = results(num_processes)[name]["gradients"]
    assert set(gradients) == set(reference[1])
    for parameter, expected in reference[1].items():
        torch.testing.assert_close(gradients[parameter], expected, rtol=1e-4, atol=1e-6, msg=parameter)


@pytest.mark.parametrize(("num_processes", "name"), cases(low=True))
def test_a_layout_in_bfloat16_stays_near_the_loss_in_float32(results, reference, num_processes, name):
    assert results(num_processes)[name]["losses"] == pytest.approx(reference[0], rel=1e-2)
    assert all(g.dtype == torch.float32 for g in results(num_processes)[name]["gradients"].values())


def test_the_loss_falls_so_that_a_wrong_gradient_would_show(reference):
    assert reference[0][-1] < 0.96 * reference[0][0]


@pytest.mark.parametrize(("layout", "least"), [("dp_shard 4", 0.25), ("tp 4", 0.25), ("pp 4", 0.15)])
def test_ranks_hold_parts_of_the_parameters(results, layout, least):
    rank_params = results(4)[layout]["rank_params"]
    assert max(rank_params) < 0.5 * NETWORK.params
    assert sum(rank_params) >= NETWORK.params
    assert min(rank_params) >= least * NETWORK.params * 0.9


def test_the_modules_hold_as_many_parameters_as_the_network_states(reference):
    assert sum(gradient.numel() for gradient in reference[1].values()) == NETWORK.params


def test_tokens_do_not_depend_on_the_layout():
    other = dataclasses.replace(CELL, layout=Layout(dp_shard=4), microbatch=1)
    assert torch.equal(global_tokens(CELL, 3), global_tokens(other, 3))
    assert not torch.equal(global_tokens(CELL, 3), global_tokens(CELL, 4))
    assert not torch.equal(global_tokens(CELL, 3), global_tokens(dataclasses.replace(CELL, seed=8), 3))
