import copy
import dataclasses

import pytest
import torch
from torch import nn

from falloff.bench.parallelize import Parallel
from falloff.bench.steps import BETAS, WEIGHT_DECAY, Steps
from falloff.bench.timing import HostClock
from falloff.spec.cell import TrainCell
from falloff.spec.layout import Layout
from falloff.spec.network import Network

CPU = torch.device("cpu")
NETWORK = Network(name="tiny", layers=1, hidden=16, heads=2, kv_heads=2, ffn=24, vocab=11, source="a test")
CELL = TrainCell(network=NETWORK, layout=Layout(), seq=12, global_batch=2, microbatch=1, learning_rate=0.1)


def parallel_of(module: nn.Module) -> Parallel:
    """Return what trains a module alone, its loss the mean square of what it makes of the tokens."""

    def backward(tokens: torch.Tensor) -> torch.Tensor:
        loss = module(tokens.float()).square().mean()
        loss.backward()
        return loss.detach()

    def norm() -> torch.Tensor:
        return torch.nn.utils.get_total_norm([parameter.grad for parameter in module.parameters()])

    return Parallel(
        modules=[module], sequences=slice(0, 2), positions=None, backward=backward, loss_share=1.0, mesh=None,
        gradient_norm=norm,
    )  # fmt: skip


@pytest.mark.parametrize("max_norm", [None, 0.01, 1e9])
def test_steps_are_those_of_adamw_with_gradients_clipped_as_torch_clips_them(max_norm):
    torch.manual_seed(4)
    module = nn.Linear(CELL.seq + 1, 3)
    expected = copy.deepcopy(module)
    plain = torch.optim.AdamW(
        expected.parameters(), lr=CELL.learning_rate, betas=BETAS, weight_decay=WEIGHT_DECAY, foreach=False
    )
    steps = Steps(dataclasses.replace(CELL, grad_clip=max_norm), parallel_of(module), CPU)
    trained = parallel_of(expected)
    for step in range(1, 4):
        plain.zero_grad()
        loss = trained.backward(steps._tokens.of_step(step))
        norm = trained.gradient_norm()
        if max_norm is not None:
            torch.nn.utils.clip_grad_norm_(expected.parameters(), max_norm)
        plain.step()
        found_loss, found_norm, data_s = steps.run(HostClock())
        torch.testing.assert_close(found_loss, loss)
        assert (found_norm is None) == (max_norm is None)
        if found_norm is not None:
            torch.testing.assert_close(found_norm, norm)
        assert data_s > 0
    for found, wanted in zip(module.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(found, wanted)


def test_a_step_is_timed_in_two_parts_of_which_the_optimizer_is_the_second():
    steps, clock = Steps(CELL, parallel_of(nn.Linear(CELL.seq + 1, 3)), CPU), HostClock()
    for _ in range(3):
        steps.run(clock)
    laps = clock.laps()
    assert len(laps.lap_s) == len(laps.first_part_s) == len(laps.start_time_s) == 3
    assert all(0 < part < lap for part, lap in zip(laps.first_part_s, laps.lap_s, strict=True))
