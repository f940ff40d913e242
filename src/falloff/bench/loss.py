"""Cross-entropy over the vocabulary, of whole logits or of a part of them at a time."""

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own habit)
from torch import Tensor


def token_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross-entropy, taken in float32, of logits [batch, seq, vocab] for targets [batch, seq]."""
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def chunked_loss(x: Tensor, weight: Tensor, targets: Tensor, chunk_tokens: int, *, compiled: bool) -> Tensor:
    """Return the mean cross-entropy of the logits x @ weight.T without ever holding all of them.

    x is [batch, seq, hidden], weight [vocab, hidden], targets [batch, seq]. Gradients are computed with the loss,
    since both need the same logits; a chunk's logits live until its gradients are there.
    """
    part = compiled_once(_loss_and_gradient) if compiled else _loss_and_gradient
    loss: Tensor = _ChunkedLoss.apply(  # type: ignore[no-untyped-call]
        x.flatten(0, 1), weight, targets.flatten(), chunk_tokens, part
    )
    return loss


class _ChunkedLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, targets: Tensor, chunk_tokens: int, part: Any) -> Tensor:
        count = targets.numel()
        total = torch.zeros((), dtype=torch.float32, device=x.device)
        weight_gradient = torch.zeros(weight.shape, dtype=torch.float32, device=x.device)
        x_gradient = torch.empty_like(x)
        for begin in range(0, count, chunk_tokens):
            rows = slice(begin, min(begin + chunk_tokens, count))
            loss, gradient = part(x[rows] @ weight.t(), targets[rows], count)
            total += loss
            torch.mm(gradient, weight, out=x_gradient[rows])
            _add_product(weight_gradient, gradient.t(), x[rows])
        ctx.save_for_backward(x_gradient, weight_gradient.to(weight.dtype))
        return total

    @staticmethod
    def backward(ctx: Any, *outputs: Tensor) -> tuple[Tensor | None, ...]:
        x_gradient, weight_gradient = ctx.saved_tensors
        scale = outputs[0]
        return (
            x_gradient * scale.to(x_gradient.dtype),
            weight_gradient * scale.to(weight_gradient.dtype),
            None,
            None,
            None,
        )


def _add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """Add a @ b to a float32 total, without rounding the product to the dtype of a and b where the device allows."""
    if a.is_cuda and a.dtype != total.dtype:
        torch.addmm(total, a, b, out_dtype=total.dtype, out=total)
    else:
        total += a @ b


def _loss_and_gradient(logits: Tensor, targets: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the sum of the rows' cross-entropy over `count`, and its gradient by the logits in their dtype."""
    wide = logits.float()
    logsumexp = wide.logsumexp(dim=-1, keepdim=True)
    at_target = wide.gather(-1, targets[:, None])
    is_target = torch.arange(wide.shape[-1], device=wide.device) == targets[:, None]
    gradient = ((wide - logsumexp).exp() - is_target.float()) / count
    return (logsumexp - at_target).sum() / count, gradient.to(logits.dtype)


@functools.cache
def compiled_once(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function compiled for the shapes that it meets; the same one for every call, which guards look up."""
    compiled: Callable[..., Any] = torch.compile(function, fullgraph=True, dynamic=False)
    return compiled
