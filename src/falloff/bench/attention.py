"""Causal attention by torch's own kernels, and which of them a cell's shapes reach."""

from typing import Literal

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own habit)
from torch import Tensor
from torch.nn.attention import SDPBackend

from falloff.spec.cell import TrainCell

Backend = Literal["auto", "cudnn", "flash", "math"]

_NAMES = {
    SDPBackend.MATH: "math",
    SDPBackend.FLASH_ATTENTION: "flash",
    SDPBackend.EFFICIENT_ATTENTION: "efficient",
    SDPBackend.CUDNN_ATTENTION: "cudnn",
}


def allow_backend(backend: Backend) -> None:
    """Let scaled_dot_product_attention use one backend alone in this process, or with auto whichever torch prefers.

    Switches of the process and not a context around each call: a context is one more thing to trace and to guard in
    a compiled block. What a forbidden backend leaves without any kernel, torch says at the first call.
    """
    torch.backends.cuda.enable_cudnn_sdp(backend in ("auto", "cudnn"))
    torch.backends.cuda.enable_flash_sdp(backend in ("auto", "flash"))
    torch.backends.cuda.enable_mem_efficient_sdp(backend == "auto")
    torch.backends.cuda.enable_math_sdp(backend in ("auto", "math"))


def causal_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return attention [batch, heads, seq, head_size] of each query to itself and what stands before it.

    k and v may have fewer heads, each shared by as many query heads.
    """
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1])


def backend_of(
    *, batch: int, heads: int, kv_heads: int, seq: int, head_size: int, dtype: torch.dtype, device: torch.device
) -> str:
    """Return the backend that torch chooses for these shapes under what allow_backend left: 'cudnn', 'flash', ..."""
    q, k = (
        torch.empty(batch, seq, count, head_size, dtype=dtype, device=device, requires_grad=True).transpose(1, 2)
        for count in (heads, kv_heads)
    )
    # torch's own choice, as scaled_dot_product_attention itself makes it; there is no public name for it (torch 2.13)
    chosen = torch._fused_sdp_choice(q, k, k, is_causal=True, enable_gqa=heads != kv_heads)
    return _NAMES.get(SDPBackend(chosen), f"backend {chosen}")


def backend_of_cell(cell: TrainCell, dtype: torch.dtype, device: torch.device) -> str:
    """Return the backend for what one rank attends to at once: its heads, and under cp its part of a sequence."""
    network, layout = cell.network, cell.layout
    return backend_of(
        batch=cell.microbatch,
        heads=network.heads // layout.tp,
        kv_heads=network.kv_heads // layout.tp,
        seq=cell.seq // layout.cp,
        head_size=network.head_size,
        dtype=dtype,
        device=device,
    )
