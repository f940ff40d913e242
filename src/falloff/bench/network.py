"""The network as torch modules: a Llama-architecture decoder, and weights that do not depend on the layout."""

import zlib
from collections.abc import Iterable

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own habit)
from torch import Tensor, nn

from falloff.spec.network import Network

ROPE_THETA = 10000.0  # Su et al. 2021 (arXiv 2104.09864), and Llama 2
NORM_EPS = 1e-5  # Llama 2
INIT_STD = 0.02  # GPT-2's, also Llama's in TorchTitan for embedding-sized weights


class Attention(nn.Module):
    """Causal self-attention with rotary positions and, where kv_heads < heads, grouped queries."""

    def __init__(self, network: Network, seq: int, device: torch.device) -> None:
        super().__init__()
        self.head_size = network.head_size
        self.grouped = network.kv_heads < network.heads
        kv_width = network.kv_heads * network.head_size
        self.wq = _linear(network.hidden, network.hidden)
        self.wk = _linear(network.hidden, kv_width)
        self.wv = _linear(network.hidden, kv_width)
        self.wo = _linear(network.hidden, network.hidden)
        # A plain attribute: as a buffer it would be cast to the parameters' dtype, and rotations want float32.
        self.rotation = rotation_table(seq, network.head_size, device)

    def forward(self, x: Tensor) -> Tensor:
        """Return the attention's output for x [batch, seq, hidden]; heads may be the local ones of a tp rank."""
        batch, seq, _ = x.shape
        q, k, v = (w(x).view(batch, seq, -1, self.head_size).transpose(1, 2) for w in (self.wq, self.wk, self.wv))
        q, k = rotate(q, self.rotation), rotate(k, self.rotation)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.grouped)
        y: Tensor = self.wo(out.transpose(1, 2).reshape(batch, seq, -1))
        return y


class FeedForward(nn.Module):
    """SwiGLU (Shazeer 2020, arXiv 2002.05202)."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.w1 = _linear(network.hidden, network.ffn)
        self.w2 = _linear(network.ffn, network.hidden)
        self.w3 = _linear(network.hidden, network.ffn)

    def forward(self, x: Tensor) -> Tensor:
        """Return w2(silu(w1 x) * w3 x) for x [batch, seq, hidden]."""
        y: Tensor = self.w2(F.silu(self.w1(x)) * self.w3(x))
        return y


class Block(nn.Module):
    """One decoder layer. With `recompute` its activations are thrown away and computed again in the backward pass."""

    def __init__(self, network: Network, seq: int, device: torch.device, *, recompute: bool) -> None:
        super().__init__()
        self.attention_norm = _norm(network.hidden)
        self.attention = Attention(network, seq, device)
        self.ffn_norm = _norm(network.hidden)
        self.ffn = FeedForward(network)
        self.recompute = recompute

    def forward(self, x: Tensor) -> Tensor:
        """Return the layer's output for x [batch, seq, hidden]."""
        if not self.recompute:
            return self._layer(x)
        # Here, inside of what FSDP wraps, so that the parameters are gathered once for recomputation and backward.
        from torch.utils.checkpoint import checkpoint

        y: Tensor = checkpoint(self._layer, x, use_reentrant=False)
        return y

    def _layer(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        y: Tensor = x + self.ffn(self.ffn_norm(x))
        return y


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
        recompute: bool = False,
        layers: Iterable[int] | None = None,
        with_embedding: bool = True,
        with_head: bool = True,
    ) -> None:
        super().__init__()
        numbers = range(network.layers) if layers is None else layers
        self.embedding = nn.Embedding(network.vocab, network.hidden, device="meta") if with_embedding else None
        self.layers = nn.ModuleDict({str(n): Block(network, seq, device, recompute=recompute) for n in numbers})
        self.norm = _norm(network.hidden) if with_head else None
        self.head = _linear(network.hidden, network.vocab) if with_head else None

    def forward(self, x: Tensor) -> Tensor:
        """Return logits [batch, seq, vocab] for tokens [batch, seq]; a stage takes or returns hidden states."""
        if self.embedding is not None:
            x = self.embedding(x)
        for layer in self.layers.values():
            x = layer(x)
        if self.norm is not None and self.head is not None:
            x = self.head(self.norm(x))
        return x


def rotation_table(seq: int, head_size: int, device: torch.device) -> Tensor:
    """Return cosines and sines of the rotary positions as float32 [2, seq, head_size / 2]."""
    frequencies = ROPE_THETA ** (-torch.arange(0, head_size, 2, dtype=torch.float32) / head_size)
    angles = torch.outer(torch.arange(seq, dtype=torch.float32), frequencies)
    return torch.stack((angles.cos(), angles.sin())).to(device)


def rotate(x: Tensor, table: Tensor) -> Tensor:
    """Return x [batch, heads, seq, head_size] with its two halves rotated by position, in float32 inside."""
    cos, sin = table[0], table[1]
    first, second = x.float().chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).to(x.dtype)


def token_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross-entropy, taken in float32, of logits [batch, seq, vocab] for targets [batch, seq]."""
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def materialize(module: nn.Module, prefix: str, seed: int, device: torch.device) -> None:
    """Give a module its initial weights on `device`, whole and before any sharding.

    Each weight is drawn from a seed of its own, made of the cell's seed and the weight's name in the whole network
    (`prefix` plus its name here), so that it is the same in every layout whatever else a rank holds.
    """
    for name, parameter in list(module.named_parameters()):
        owner = module.get_submodule(name.rpartition(".")[0])
        weight = torch.empty_like(parameter, device=device)
        if weight.dim() == 1:  # a norm's gain
            nn.init.ones_(weight)
        else:
            nn.init.normal_(weight, std=INIT_STD, generator=seeded_generator(f"{seed} {prefix}{name}", device))
        setattr(owner, name.rpartition(".")[2], nn.Parameter(weight))


def seeded_generator(words: str, device: torch.device) -> torch.Generator:
    """Return a generator seeded by a text, through 32 bits: torch's generator on the CPU drops any more."""
    return torch.Generator(device).manual_seed(zlib.crc32(words.encode()))


def _linear(inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=False, device="meta")


def _norm(width: int) -> nn.RMSNorm:
    return nn.RMSNorm(width, eps=NORM_EPS, device="meta")
