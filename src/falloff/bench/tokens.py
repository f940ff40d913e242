"""Synthetic tokens: seeded, the same in every layout and on every device."""

import torch
from torch import Tensor

from falloff.bench.network import seeded_generator
from falloff.spec.cell import TrainCell


def global_tokens(cell: TrainCell, step: int, rows: range | None = None) -> Tensor:
    """Return the tokens [rows, seq + 1] of a step; rows are all sequences of the global batch unless stated.

    Small numbers are likelier, so that there is something to learn: under evenly drawn tokens the loss would stay
    where it is however wrong the gradients. Each sequence has a seed of its own, so that a rank draws only its share.
    """
    chosen = range(cell.global_batch) if rows is None else rows
    return torch.stack([_sequence(cell, step, row) for row in chosen])


def _sequence(cell: TrainCell, step: int, row: int) -> Tensor:
    generator = seeded_generator(f"{cell.seed} tokens of step {step}, sequence {row}", torch.device("cpu"))
    drawn = torch.rand(cell.seq + 1, generator=generator, dtype=torch.float64)
    return (drawn**3 * cell.network.vocab).to(torch.int64)


class TokenSource:
    """A rank's tokens, step by step, on its device."""

    def __init__(self, cell: TrainCell, rows: range, device: torch.device) -> None:
        self._cell = cell
        self._rows = rows
        self._device = device

    def of_step(self, step: int) -> Tensor:
        """Return the tokens [rows, seq + 1] of a step, their copy to the device under way."""
        tokens = global_tokens(self._cell, step, self._rows)
        if self._device.type == "cuda":
            # From memory that is not pinned the copy would wait, on the host, for all that the GPU has yet to do.
            tokens = tokens.pin_memory()
        return tokens.to(self._device, non_blocking=True)
