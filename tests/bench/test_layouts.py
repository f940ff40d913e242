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
from falloff.bench.steps import BETAS, WEIGHT_DECAY
from falloff.bench.tokens import global_tokens
from falloff.spec.cell import TrainCell, cell_to_json
from falloff.spec.layout import Layout
from falloff.spec.network import Network

# Sizes that four ranks do not divide evenly wherever FSDP may cut, and fewer key than query heads.
LLAMA = Network(name="tiny", layers=5, hidden=48, heads=8, kv_heads=4, ffn=76, vocab=132, source="a test")
GPT = dataclasses.replace(LLAMA, name="tiny-gpt", style="gpt", kv_heads=8, positions=20)
CELL = TrainCell(
    network=LLAMA, layout=Layout(), seq=16, global_batch=8, microbatch=2, learning_rate=1e-2, warmup_steps=1,
    measured_steps=2, profiled_steps=1, seed=7,
)  # fmt: skip
NUM_STEPS = 2

GPTS = {"network": GPT}
FULL, SELECTIVE, LOW = {"recompute": "full"}, {"recompute": "selective"}, {"param_dtype": "bfloat16"}
RING = {"cp_method": "ring"}
COMPILED = {"compile": True}
INTERLEAVED = {"pp_schedule": "interleaved", "vpp": 2}
ZERO_BUBBLE = {"pp_schedule": "zero_bubble", "vpp": 2, "reshard_after_forward": False}

# Each axis alone at two ranks in every way it can compute, and its compositions at four.
VARIANTS = {
    1: [
        ({}, [{}, SELECTIVE, LOW, GPTS, {"microbatch": 8}]),
    ],
    2: [
        ({"dp_shard": 2}, [{}, FULL, SELECTIVE, LOW, GPTS, {"microbatch": 4}]),
        ({"dp_replicate": 2}, [{}, FULL, LOW]),
        ({"tp": 2}, [{}, FULL, SELECTIVE, LOW, GPTS, COMPILED]),
        ({"pp": 2}, [{}, FULL, SELECTIVE, LOW, GPTS, INTERLEAVED, INTERLEAVED | FULL, ZERO_BUBBLE]),
        ({"cp": 2}, [{}, FULL, LOW, GPTS, COMPILED | SELECTIVE, RING, RING | FULL, RING | LOW]),
    ],
    4: [
        ({"dp_shard": 4}, [{}, FULL]),
        ({"dp_replicate": 2, "dp_shard": 2}, [{}, FULL]),
        ({"dp_replicate": 2, "tp": 2}, [{}]),
        ({"dp_shard": 2, "tp": 2}, [{}, GPTS]),
        ({"dp_shard": 2, "pp": 2}, [{}, FULL, INTERLEAVED, ZERO_BUBBLE]),
        ({"dp_shard": 2, "cp": 2}, [{}, RING]),
        ({"dp_replicate": 2, "cp": 2}, [{}]),
        ({"tp": 4}, [{}]),
        ({"tp": 2, "pp": 2}, [{}, GPTS, LOW, ZERO_BUBBLE]),
        ({"tp": 2, "cp": 2}, [SELECTIVE, GPTS]),
        ({"pp": 4}, [{}, FULL]),
        ({"pp": 2, "cp": 2}, [{}, GPTS | FULL]),
        ({"cp": 4}, [{}, RING]),
    ],
}  # fmt: skip


def label(cell: TrainCell) -> str:
    words = [cell.layout.label, *([] if cell.network is LLAMA else [cell.network.style])]
    for name in ("recompute", "param_dtype", "pp_schedule", "cp_method", "microbatch"):
        value = getattr(cell, name)
        words += [] if value == getattr(CELL, name) else [f"{name} {value}"]
    return ", ".join([*words, *(["compiled"] if cell.compile else [])])


def cells_at(num_processes: int) -> dict[str, TrainCell]:
    cells = [
        dataclasses.replace(CELL, layout=Layout(**axes), **options)
        for axes, variants in VARIANTS[num_processes]
        for options in variants
    ]
    return {label(cell): cell for cell in cells}


CELLS = {num_processes: cells_at(num_processes) for num_processes in VARIANTS}


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
    stated = {name: cell_to_json(cell) for name, cell in CELLS[num_processes].items()}
    (folder / "cells.json").write_text(json.dumps(stated))
    worker = Path(__file__).with_name("layouts_worker.py")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1"]
    command += [f"--nproc-per-node={num_processes}", str(worker), str(folder / "cells.json"), str(folder / "out.pt")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-6000:]
    return torch.load(folder / "out.pt")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reference:
    """Losses, gradient norms and first gradients of the same training in plain torch."""

    losses: list[float]
    norms: list[float]
    gradients: dict[str, torch.Tensor]


@pytest.fixture(scope="module")
def references():
    return {network.name: train_in_plain_torch(network) for network in (LLAMA, GPT)}


def train_in_plain_torch(network: Network) -> Reference:
    """Return what the whole batch gives in one process and without a wrapper."""
    decoder = Decoder(network, CELL.seq, torch.device("cpu"))
    for name, part in decoder.named_children():
        materialize(part, f"{name}.", CELL.seed, torch.device("cpu"))
    optimizer = torch.optim.AdamW(decoder.parameters(), lr=CELL.learning_rate, betas=BETAS, weight_decay=WEIGHT_DECAY)
    losses, norms, gradients = [], [], {}
    for step in range(1, NUM_STEPS + 1):
        tokens = global_tokens(dataclasses.replace(CELL, network=network), step)
        optimizer.zero_grad()
        loss = token_loss(decoder(tokens[:, :-1]), tokens[:, 1:])
        loss.backward()
        norms.append(torch.cat([p.grad.flatten().double() for p in decoder.parameters()]).norm().item())
        if step == 1:
            gradients = {name: p.grad.clone() for name, p in decoder.named_parameters()}
        optimizer.step()
        losses.append(loss.item())
    return Reference(losses=losses, norms=norms, gradients=gradients)


def cases(*, low: bool):
    return [(n, name) for n, cells in CELLS.items() for name in cells if ("bfloat16" in name) == low]


@pytest.fixture
def reference(references, num_processes, name):
    return references[CELLS[num_processes][name].network.name]


@pytest.mark.parametrize(("num_processes", "name"), cases(low=False))
def test_a_layout_reaches_the_loss_of_plain_torch(results, reference, num_processes, name):
    assert results(num_processes)[name]["losses"] == pytest.approx(reference.losses, rel=1e-4)


# Adam divides a gradient's scale away, so a sum taken for a mean does not show in the losses.
@pytest.mark.parametrize(("num_processes", "name"), cases(low=False))
def test_gradients_are_the_mean_over_the_global_batch(results, reference, num_processes, name):
    gradients = results(num_processes)[name]["gradients"]
    assert set(gradients) == set(reference.gradients)
    for parameter, expected in reference.gradients.items():
        torch.testing.assert_close(gradients[parameter], expected, rtol=1e-4, atol=1e-6, msg=parameter)


@pytest.mark.parametrize(("num_processes", "name"), cases(low=False))
def test_the_norm_is_that_of_all_gradients_wherever_they_lie(results, reference, num_processes, name):
    assert results(num_processes)[name]["norms"] == pytest.approx(reference.norms, rel=1e-4)


@pytest.mark.parametrize(("num_processes", "name"), cases(low=True))
def test_a_layout_in_bfloat16_stays_near_the_loss_in_float32(results, reference, num_processes, name):
    result = results(num_processes)[name]
    assert result["losses"] == pytest.approx(reference.losses, rel=1e-2)
    assert result["norms"] == pytest.approx(reference.norms, rel=5e-2)
    assert all(g.dtype == torch.float32 for g in result["gradients"].values())


def test_the_loss_falls_so_that_a_wrong_gradient_would_show(references):
    for reference in references.values():
        assert reference.losses[-1] < 0.99 * reference.losses[0]


@pytest.mark.parametrize(
    ("layout", "least"),
    [("dp_shard 4", 0.25), ("tp 4", 0.25), ("pp 4", 0.15), ("cp 4", 0.25), ("dp_shard 2 × tp 2", 0.25)],
)
def test_ranks_hold_parts_of_the_parameters(results, layout, least):
    rank_params = results(4)[layout]["rank_params"]
    assert max(rank_params) < 0.5 * LLAMA.params
    assert sum(rank_params) >= LLAMA.params
    assert min(rank_params) >= least * LLAMA.params * 0.9


@pytest.mark.parametrize("network", [LLAMA, GPT], ids=lambda network: network.style)
def test_the_modules_hold_as_many_parameters_as_the_network_states(references, network):
    assert sum(gradient.numel() for gradient in references[network.name].gradients.values()) == network.params
