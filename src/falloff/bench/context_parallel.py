"""Context parallelism: each rank holds two parts of every sequence, and its queries meet the keys of all.

Rank i of n holds chunks i and 2n - 1 - i of the 2n that a sequence is cut into, so that causal attention is the same
work for all. Two ways to the others' keys: all_gather brings them at once (Llama 3, arXiv 2407.21783, section 3.3.2),
ring passes them on from rank to rank (Liu et al. 2023, arXiv 2310.01889) by torch's own code for it.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup

from falloff.bench.attention import backend_of_cell
from falloff.bench.block_attention import Kernel, attend, attend_backward, merge
from falloff.bench.rank import TORCH_DTYPES
from falloff.spec.cell import TrainCell

_KERNELS: dict[str, Kernel] = {"cudnn": "cudnn", "flash": "flash", "efficient": "efficient"}

# A compiled graph holds a group by its name.
_GROUPS: dict[str, ProcessGroup] = {}


def positions_of(rank: int, size: int, seq: int, device: torch.device) -> Tensor:
    """Return the positions [seq / size] in the whole sequence of the tokens that a context-parallel rank holds."""
    chunks = torch.arange(seq, device=device).chunk(2 * size)
    return torch.cat((chunks[rank], chunks[2 * size - 1 - rank]))


def context_attention(
    cell: TrainCell, device: torch.device, group: ProcessGroup
) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Return causal attention of this rank's queries to the whole sequence's keys, in place of `causal_attention`.

    Every rank of `group` calls it with its own part of the sequence, [batch, heads, seq / cp, head_size].
    ValueError where no kernel that gives the log-sum-exp takes the cell's shapes.
    """
    kernel = _kernel(cell, device)
    name = group.group_name
    _GROUPS[name] = group
    if cell.cp_method == "ring":
        _let_torch_pass_keys_on()
    method = cell.cp_method

    def core(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out: Tensor = _attention(q, k, v, name, method, kernel)[0]
        return out.transpose(1, 2)

    return core


def _kernel(cell: TrainCell, device: torch.device) -> Kernel:
    """Return the kernel that the cell's attention would run on one rank, as far as parts of it can be put together."""
    backend = backend_of_cell(cell, TORCH_DTYPES[cell.param_dtype], device)
    if device.type == "cpu":
        return "cpu_flash"
    if backend in _KERNELS:
        return _KERNELS[backend]
    raise ValueError(
        f"cp {cell.layout.cp} needs attention by cudnn, flash or efficient, and torch chooses {backend} here"
    )


# Operators of our own, so that a compiled block holds them whole and selective recomputation can keep what they return.
@torch.library.custom_op("falloff::context_attention", mutates_args=())
def _attention(q: Tensor, k: Tensor, v: Tensor, group: str, method: str, kernel: str) -> tuple[Tensor, Tensor, Tensor]:
    """Return attention [batch, seq, heads, head_size], log-sum-exp, and what is kept of others' keys and values."""
    forward = _ring_forward if method == "ring" else _gather_forward
    out, lse, kept = forward(_GROUPS[group], kernel, q, k, v)  # type: ignore[arg-type]
    return out.to(q.dtype).transpose(1, 2).contiguous(), lse.contiguous(), kept


@_attention.register_fake
def _(q: Tensor, k: Tensor, _v: Tensor, group: str, method: str, _kernel: str) -> tuple[Tensor, Tensor, Tensor]:
    batch, heads, seq, head_size = q.shape
    rows = 0 if method == "ring" else dist.get_world_size(_GROUPS[group]) * seq
    return (
        q.new_empty(batch, seq, heads, head_size),
        q.new_empty(batch, heads, seq, dtype=torch.float32),
        k.new_empty(rows, 2, batch, k.shape[1], head_size),
    )


@torch.library.custom_op("falloff::context_attention_backward", mutates_args=())
def _attention_backward(
    grad_out: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, kept: Tensor,
    group: str, method: str, kernel: str,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    grad_out, out = grad_out.contiguous().transpose(1, 2), out.transpose(1, 2)
    if method == "ring":
        grads = _ring_backward(_GROUPS[group], kernel, grad_out, q, k, v, out, lse)  # type: ignore[arg-type]
    else:
        grads = _gather_backward(_GROUPS[group], kernel, grad_out, q, k, v, out, lse, kept)  # type: ignore[arg-type]
    dq, dk, dv = (gradient.to(q.dtype).contiguous() for gradient in grads)
    return dq, dk, dv


@_attention_backward.register_fake
def _(_grad_out: Tensor, q: Tensor, k: Tensor, v: Tensor, *_others: Any) -> tuple[Tensor, Tensor, Tensor]:
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


def _keep_for_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    q, k, v, *ctx.how = inputs
    ctx.save_for_backward(q, k, v, *output)
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)


def _pass_back(ctx: Any, grad_out: Tensor, *_unused: Any) -> tuple[Tensor | None, ...]:
    return (*_attention_backward(grad_out, *ctx.saved_tensors, *ctx.how), None, None, None)


_attention.register_autograd(_pass_back, setup_context=_keep_for_backward)


def _gather_forward(
    group: ProcessGroup, kernel: Kernel, q: Tensor, k: Tensor, v: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Attend to the own keys while the others' are on their way, then to those."""
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    sent = torch.stack((k.permute(2, 0, 1, 3), v.permute(2, 0, 1, 3)), dim=1)
    gathered = sent.new_empty(size * sent.shape[0], *sent.shape[1:])
    work = dist.all_gather_into_tensor(gathered, sent, group=group, async_op=True)
    # Of the two chunks, one after the other: each sees itself, and the later one the earlier.
    part = attend(kernel, q, k, v, causal=True)
    work.wait()
    if rank > 0:
        part = merge(part, attend(kernel, q, *_earlier(gathered, rank, size), causal=False))
    if rank < size - 1:
        half = q.shape[2] // 2
        late = merge(_rows(part, half), attend(kernel, q[:, :, half:], *_later(gathered, rank, size), causal=False))
        part = (torch.cat((part[0][:, :, :half], late[0]), dim=2), torch.cat((part[1][:, :, :half], late[1]), dim=2))
    return *part, gathered


def _rows(part: tuple[Tensor, Tensor], half: int) -> tuple[Tensor, Tensor]:
    return part[0][:, :, half:], part[1][:, :, half:]


def _earlier(gathered: Tensor, rank: int, size: int) -> tuple[Tensor, Tensor]:
    """Return the keys and values of the chunks before both of this rank's: the first of each rank before it."""
    return _as_heads(_by_chunk(gathered, size)[:rank, 0].flatten(0, 1))


def _by_chunk(gathered: Tensor, size: int) -> Tensor:
    """Return gathered rows as a view [rank, which of its two chunks, row, ...]."""
    return gathered.view(size, 2, gathered.shape[0] // (2 * size), *gathered.shape[1:])


def _later(gathered: Tensor, rank: int, size: int) -> tuple[Tensor, Tensor]:
    """Return the keys and values of the chunks between this rank's two: all of each rank after it.

    Their order does not matter, since each of the queries sees all of them.
    """
    return _as_heads(gathered[(rank + 1) * (gathered.shape[0] // size) :])


def _as_heads(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return keys and values [batch, heads, rows, head_size], views of rows [rows, 2, batch, heads, head_size]."""
    k, v = rows.permute(1, 2, 3, 0, 4).unbind()
    return k, v


def _gather_backward(
    group: ProcessGroup, kernel: Kernel, grad_out: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor,
    gathered: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Send the others the gradients of their keys while those of the own are computed."""
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    half = q.shape[2] // 2
    sent = torch.zeros_like(gathered)
    dq = torch.zeros(q.shape, dtype=torch.float32, device=q.device)
    if rank > 0:
        early = _earlier(gathered, rank, size)
        added, dk, dv = attend_backward(kernel, grad_out, q, *early, out, lse, causal=False)
        dq += added
        _by_chunk(sent, size)[:rank, 0] = _as_rows(dk, dv).reshape(rank, half, *sent.shape[1:])
    if rank < size - 1:
        late = _later(gathered, rank, size)
        of_late = (x[:, :, half:] for x in (out, lse))
        added, dk, dv = attend_backward(kernel, grad_out[:, :, half:], q[:, :, half:], *late, *of_late, causal=False)
        dq[:, :, half:] += added
        sent[(rank + 1) * 2 * half :] = _as_rows(dk, dv)
    received = sent.new_empty(2 * half, *sent.shape[1:])
    work = dist.reduce_scatter_tensor(received, sent, group=group, async_op=True)
    added, dk, dv = attend_backward(kernel, grad_out, q, k, v, out, lse, causal=True)
    work.wait()
    dk_of_others, dv_of_others = _as_heads(received)
    return dq + added, dk + dk_of_others, dv + dv_of_others


def _as_rows(dk: Tensor, dv: Tensor) -> Tensor:
    return torch.stack((dk, dv)).permute(3, 0, 1, 2, 4)


def _let_torch_pass_keys_on() -> None:
    """Make torch's ring a ring: by itself it gathers all keys in the first of its steps."""
    # The ring has no public entry on the CPU, nor one that a compiled block could hold (torch 2.13).
    from torch.distributed.tensor.experimental._context_parallel._attention import set_rotate_method

    set_rotate_method("alltoall")


def _ring_forward(
    group: ProcessGroup, kernel: Kernel, q: Tensor, k: Tensor, v: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    from torch.distributed.tensor.experimental._context_parallel._attention import _templated_ring_attention

    def step(q: Tensor, k: Tensor, v: Tensor, *, is_causal: bool) -> tuple[Tensor, Tensor]:
        return attend(kernel, q, k, v, causal=is_causal)

    out, lse = _templated_ring_attention(group, 2, step, q, k, v, is_causal=True)  # type: ignore[arg-type]
    return out, lse, k.new_empty(0, 2, k.shape[0], k.shape[1], k.shape[3])


def _ring_backward(
    group: ProcessGroup, kernel: Kernel, grad_out: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    from torch.distributed.tensor.experimental._context_parallel._attention import _templated_ring_attention_backward

    def step(query: Tensor, key: Tensor, value: Tensor, **rest: Any) -> tuple[Tensor, ...]:
        of_queries = (rest["out"], rest["logsumexp"])
        return attend_backward(kernel, rest["grad_out"], query, key, value, *of_queries, causal=rest["is_causal"])

    dq, dk, dv, *_ = _templated_ring_attention_backward(
        group, 2, step, grad_out, "grad_out", query=q, key=k, value=v, out=out, logsumexp=lse, is_causal=True
    )
    return dq, dk.clone(), dv  # dk and dv are two parts of one tensor, which an operator must not return
