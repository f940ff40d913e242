"""Attention of some queries to some keys, kept with its log-sum-exp so that parts over different keys add up.

torch's kernels that give the log-sum-exp and take it back have no public name (torch 2.13); they are those that
scaled_dot_product_attention itself runs.
"""

from typing import Any, Literal

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own habit)
from torch import Tensor

Kernel = Literal["cpu_flash", "flash", "cudnn", "efficient"]

_EFFICIENT_ROWS = 32  # the efficient kernel keeps its log-sum-exp in whole tiles of so many queries


def attend(kernel: Kernel, q: Tensor, k: Tensor, v: Tensor, *, causal: bool) -> tuple[Tensor, Tensor]:
    """Return the attention [batch, heads, queries, head_size] and its float32 log-sum-exp [batch, heads, queries].

    k and v may have fewer heads. causal is for as many keys as queries: kernels disagree on what else it means.
    """
    assert not causal or q.shape[2] == k.shape[2]
    aten = torch.ops.aten
    if kernel == "cpu_flash":
        out, lse = aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal)
    elif kernel == "flash":
        out, lse = aten._scaled_dot_product_flash_attention(q, k, v, 0.0, causal)[:2]
    elif kernel == "cudnn":
        out, lse = aten._scaled_dot_product_cudnn_attention(q, k, v, None, True, 0.0, causal)[:2]
    else:
        heads = q.shape[1]
        k, v = _spread(k, heads), _spread(v, heads)
        out, lse = aten._scaled_dot_product_efficient_attention(q, k, v, None, True, 0.0, causal)[:2]
    # cuDNN's has one more dimension, the efficient kernel's is as long as its tiles
    return out, lse.flatten(2)[:, :, : q.shape[2]]


def attend_backward(
    kernel: Kernel, grad_out: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, *, causal: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return what these keys add to the gradient by q, and the gradients by k and v.

    out and lse are those over all keys of each query, whichever part of the keys is given (Dao 2023,
    arXiv 2307.08691, section 3.1: the scores of a block are known from them alone).
    """
    aten = torch.ops.aten
    tensors = (grad_out, q, k, v, out)
    lse = lse.contiguous()
    lengths = (q.shape[2], k.shape[2])
    grads: Any
    if kernel == "cpu_flash":
        grads = aten._scaled_dot_product_flash_attention_for_cpu_backward(*tensors, lse, 0.0, causal)
    elif kernel == "flash":
        grads = aten._scaled_dot_product_flash_attention_backward(
            *tensors, lse, None, None, *lengths, 0.0, causal, *_no_dropout(q.device)
        )
    elif kernel == "cudnn":
        grads = aten._scaled_dot_product_cudnn_attention_backward(
            *tensors, lse.unsqueeze(-1), *_no_dropout(q.device), None, None, None, *lengths, 0.0, causal
        )
    else:
        grads = _efficient_backward(*tensors, lse, causal=causal)
    return grads[0], grads[1], grads[2]


def _efficient_backward(
    grad_out: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, *, causal: bool
) -> tuple[Tensor, Tensor, Tensor]:
    heads = q.shape[1]
    padded = F.pad(lse, (0, -lse.shape[2] % _EFFICIENT_ROWS), value=float("inf"))
    needed = [True, True, True, False]
    dq, dk, dv, _ = torch.ops.aten._scaled_dot_product_efficient_attention_backward(
        grad_out,
        q,
        _spread(k, heads),
        _spread(v, heads),
        None,
        out,
        padded,
        *_no_dropout(q.device),
        0.0,
        needed,
        causal,
    )
    return dq, _gathered(dk, k.shape[1]), _gathered(dv, v.shape[1])


def _no_dropout(device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the seed and the offset of a dropout that is off; the kernels read them all the same."""
    seed = torch.zeros(2, dtype=torch.int64, device=device)
    return seed, seed


def _spread(k: Tensor, heads: int) -> Tensor:
    """Return keys or values once for each query head, for a kernel that does not group queries."""
    return k if k.shape[1] == heads else k.repeat_interleave(heads // k.shape[1], dim=1)


def _gathered(gradient: Tensor, kv_heads: int) -> Tensor:
    batch, heads, rows, size = gradient.shape
    return gradient if heads == kv_heads else gradient.reshape(batch, kv_heads, -1, rows, size).sum(dim=2)


def merge(first: tuple[Tensor, Tensor], second: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Return attention, in float32, and log-sum-exp over the keys of both parts.

    The weights of the two parts are exp(lse) over their sum, written so that nothing overflows.
    """
    (a, lse_a), (b, lse_b) = first, second
    a = a.float()
    share_b = torch.sigmoid(lse_b - lse_a).unsqueeze(-1)
    return a - share_b * (a - b), lse_a - F.logsigmoid(lse_a - lse_b)
