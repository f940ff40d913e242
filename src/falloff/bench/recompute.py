"""What the backward pass computes again: nothing, all but products and attention, every second product, everything."""

import functools
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from falloff.spec.cell import Recompute

_PRODUCTS = (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)
# Of float8, which elementwise keeps as any; selective by operator does not count it, and computes it again.
_FLOAT8_PRODUCT = torch.ops.aten._scaled_mm.default
_ALWAYS_KEPT = frozenset(
    {
        torch.ops.aten._scaled_dot_product_cudnn_attention.default,
        torch.ops.aten._scaled_dot_product_flash_attention.default,
        torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default,
        torch.ops.aten._scaled_dot_product_efficient_attention.default,
        torch.ops._c10d_functional.all_gather_into_tensor.default,
        torch.ops._c10d_functional.reduce_scatter_tensor.default,
        # float8 scales its operands by it
        torch.ops.aten.max.default,
    }
)


def run_recomputing(layer: Callable[[Tensor], Tensor], x: Tensor, mode: Recompute) -> Tensor:
    """Return the layer's output for x, keeping for its backward pass as little as `mode` says.

    selective keeps attention, collectives and every second matrix product, and computes the rest again: the policy
    that TorchTitan calls selective by operator, so that its published cells can be run alike. elementwise keeps every
    product: of Llama 3 8B 11.7 times a layer's input and not the 18.2 that torch.compile keeps by itself (torch 2.11
    and 2.13), for passes over memory alone.
    """
    y: Tensor
    if mode == "none":
        y = layer(x)
    elif mode == "full":
        y = checkpoint(layer, x, use_reentrant=False)
    else:
        kept = functools.partial(_contexts, 1 if mode == "elementwise" else 2)
        y = checkpoint(layer, x, use_reentrant=False, context_fn=kept)
    return y


def _contexts(one_in: int) -> Any:
    """Return what checkpoint asks for to keep one matrix product in so many, the first of them on."""
    seen: Counter[bool] = Counter()

    def keep(context: Any, operator: Any, *_inputs: Any, **_options: Any) -> CheckpointPolicy:
        # The operator of our own is context parallelism's attention with its collectives.
        kept = operator in _ALWAYS_KEPT or operator.namespace == "falloff"
        kept = kept or (one_in == 1 and operator == _FLOAT8_PRODUCT)
        if operator in _PRODUCTS:
            kept = seen[context.is_recompute] % one_in == 0
            seen[context.is_recompute] += 1
        return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(keep)  # type: ignore[no-untyped-call]
