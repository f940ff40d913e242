"""The network as torch modules: a decoder-only transformer, and weights that do not depend on the layout."""

import zlib
from collections.abc import Callable, Iterable

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own habit)
from torch import Tensor, nn

from falloff.bench.attention import causal_attention
from falloff.bench.loss import chunked_loss, compiled_once, token_loss
from falloff.bench.recompute import run_recomputing
from falloff.spec.cell import Recompute
from falloff.spec.network import Network

NORM_EPS = 1e-5  # Llama 2's, and GPT-2's
INIT_STD = 0.02  # GPT-2's, also Llama's in TorchTitan for embedding-sized weights


class Attention(nn.Module):
    """Causal self-attention with rotary positions (llama) and, where kv_heads < heads, grouped queries.

    `core` is what attends once queries, keys and values are there; context parallelism puts its own in its place, and
    cuts `rotation` to the positions that a rank holds.
    """

    def __init__(self, network: Network, seq: int, device: torch.device) -> None:
        super().__init__()
        self.head_size = network.head_size
        bias, kv_width = network.style == "gpt", network.kv_heads * network.head_size
        self.wq = _linear(network.hidden, network.hidden, bias=bias)
        self.wk = _linear(network.hidden, kv_width, bias=bias)
        self.wv = _linear(network.hidden, kv_width, bias=bias)
        self.wo = _linear(network.hidden, network.hidden, bias=bias)
        self.core: Callable[[Tensor, Tensor, Tensor], Tensor] = causal_attention
        # A plain attribute: as a buffer it would be cast to the parameters' dtype, and rotations want float32.
        self.rotation: Tensor | None = None
        if network.style == "llama":
            self.rotation = rotation_table(seq, network.head_size, network.rope_theta, device)

    def forward(self, x: Tensor) -> Tensor:
        """Return the attention's output for x [batch, seq, hidden]; heads may be the local ones of a tp rank."""
        batch, seq, _ = x.shape
        q, k, v = (w(x).view(batch, seq, -1, self.head_size).transpose(1, 2) for w in (self.wq, self.wk, self.wv))
        if self.rotation is not None:
            q, k = rotate(q, self.rotation), rotate(k, self.rotation)
        out = self.core(q, k, v)
        y: Tensor = self.wo(out.transpose(1, 2).reshape(batch, seq, -1))
        return y


class FeedForward(nn.Module):
    """SwiGLU (Shazeer 2020, arXiv 2002.05202), or in the style of GPT two matrices with GELU between them."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        bias = network.style == "gpt"
        self.w1 = _linear(network.hidden, network.ffn, bias=bias)
        self.w2 = _linear(network.ffn, network.hidden, bias=bias)
        self.w3 = _linear(network.hidden, network.ffn) if network.style == "llama" else None

    def forward(self, x: Tensor) -> Tensor:
        """Return w2(silu(w1 x) * w3 x), or w2(gelu(w1 x)), for x [batch, seq, hidden]."""
        inner = F.gelu(self.w1(x), approximate="tanh") if self.w3 is None else F.silu(self.w1(x)) * self.w3(x)
        y: Tensor = self.w2(inner)
        return y


class Block(nn.Module):
    """One decoder layer; `recompute` says which of its activations are computed again in the backward pass."""

    def __init__(self, network: Network, seq: int, device: torch.device, *, recompute: Recompute) -> None:
        super().__init__()
        self.attention_norm = _norm(network)
        self.attention = Attention(network, seq, device)
        self.ffn_norm = _norm(network)
        self.ffn = FeedForward(network)
        self.recompute = recompute
        self._run = self._recomputing_layer

    def compile_layer(self) -> None:
        """Compile what the layer computes, recomputation included.

        FSDP's hooks stay outside: they hang on the module's call, and traced they would break the graph.
        """
        self._run = torch.compile(self._recomputing_layer, fullgraph=True)

    def forward(self, x: Tensor) -> Tensor:
        """Return the layer's output for x [batch, seq, hidden]."""
        return self._run(x)

    def _recomputing_layer(self, x: Tensor) -> Tensor:
        # Inside of what FSDP wraps, so that the parameters are gathered once for recomputation and backward.
        return run_recomputing(self._layer, x, self.recompute)

    def _layer(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        y: Tensor = x + self.ffn(self.ffn_norm(x))
        return y


class Head(nn.Linear):
    """The LM head: logits, or where the targets are given their loss."""

    def __init__(self, network: Network) -> None:
        super().__init__(network.hidden, network.vocab, bias=False, device="meta")
        self.compiled = False
        self.chunk_tokens: int | None = None

    def forward(self, x: Tensor, targets: Tensor | None = None) -> Tensor:
        """Return logits [batch, seq, vocab] for x [batch, seq, hidden], or the mean loss for targets [batch, seq]."""
        if targets is None:
            return super().forward(x)
        if self.chunk_tokens is not None:
            return chunked_loss(x, self.weight, targets, self.chunk_tokens, compiled=self.compiled)
        loss: Callable[[Tensor, Tensor], Tensor] = compiled_once(token_loss) if self.compiled else token_loss
        return loss(super().forward(x), targets)


class Decoder(nn.Module):
    """The network, or the part of it that one pipeline stage holds; all weights on the meta device at first.

    Layers are named by their number in the whole network, so that a weight has one name in every layout.
    """

    def __init__(
        self,
        network: Network,
        seq: int,
        device: torch.device,
        *,
        recompute: Recompute = "none",
        layers: Iterable[int] | None = None,
        with_embedding: bool = True,
        with_head: bool = True,
    ) -> None:
        super().__init__()
        numbers = range(network.layers) if layers is None else layers
        self.embedding = nn.Embedding(network.vocab, network.hidden, device="meta") if with_embedding else None
        self.places = None
        if with_embedding and network.positions is not None:
            self.places = nn.Embedding(network.positions, network.hidden, device="meta")
            self.positions = torch.arange(seq, device=device)  # those of this rank, where sequences are cut
        self.layers = nn.ModuleDict({str(n): Block(network, seq, device, recompute=recompute) for n in numbers})
        self.norm = _norm(network) if with_head else None
        self.head = Head(network) if with_head else None

    def forward(self, x: Tensor, targets: Tensor | None = None) -> Tensor:
        """Return logits [batch, seq, vocab] for tokens [batch, seq], or their mean loss where targets are given.

        A stage takes or returns hidden states.
        """
        if self.embedding is not None:
            x = self.embedding(x)
        if self.places is not None:
            x = x + self.places(self.positions)
        for layer in self.layers.values():
            x = layer(x)
        if self.norm is not None and self.head is not None:
            x = self.head(self.norm(x)) if targets is None else self.head(self.norm(x), targets)
        return x


def rotation_table(seq: int, head_size: int, theta: float, device: torch.device) -> Tensor:
    """Return cosines and sines of the rotary positions as float32 [2, seq, head_size / 2].

    Su et al. 2021 (arXiv 2104.09864); theta is their 10000, 500000 in Llama 3.
    """
    frequencies = theta ** (-torch.arange(0, head_size, 2, dtype=torch.float32) / head_size)
    angles = torch.outer(torch.arange(seq, dtype=torch.float32), frequencies)
    return torch.stack((angles.cos(), angles.sin())).to(device)


def rotate(x: Tensor, table: Tensor) -> Tensor:
    """Return x [batch, heads, seq, head_size] with its two halves rotated by position, in float32 inside."""
    cos, sin = table[0], table[1]
    first, second = x.float().chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).to(x.dtype)


def materialize(module: nn.Module, prefix: str, seed: int, device: torch.device) -> None:
    """Give a module its initial weights on `device`, whole and before any sharding.

    Each weight is drawn from a seed of its own, made of the cell's seed and the weight's name in the whole network
    (`prefix` plus its name here), so that it is the same in every layout whatever else a rank holds.
    """
    for name, parameter in list(module.named_parameters()):
        owner = module.get_submodule(name.rpartition(".")[0])
        weight = torch.empty_like(parameter, device=device)
        if name.endswith("bias"):
            nn.init.zeros_(weight)
        elif weight.dim() == 1:  # a norm's gain
            nn.init.ones_(weight)
        else:
            nn.init.normal_(weight, std=INIT_STD, generator=seeded_generator(f"{seed} {prefix}{name}", device))
        setattr(owner, name.rpartition(".")[2], nn.Parameter(weight))


def seeded_generator(words: str, device: torch.device) -> torch.Generator:
    """Return a generator seeded by a text, through 32 bits: torch's generator on the CPU drops any more."""
    return torch.Generator(device).manual_seed(zlib.crc32(words.encode()))


def _linear(inputs: int, outputs: int, *, bias: bool = False) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=bias, device="meta")


def _norm(network: Network) -> nn.Module:
    kind = nn.RMSNorm if network.style == "llama" else nn.LayerNorm
    return kind(network.hidden, eps=NORM_EPS, device="meta")
