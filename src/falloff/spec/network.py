"""The network: the shape of one decoder-only transformer, and what its shape alone determines."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from falloff.spec.reading import build, read_yaml, require_positive


@dataclass(frozen=True, kw_only=True)
class Network:
    """A decoder-only transformer whose LM head is not tied to its embedding.

    style llama: RMSNorm, SwiGLU, rotary positions at rope_theta, no biases. style gpt: LayerNorm, GELU, learned
    positions of which there are `positions`, biases everywhere but in the LM head.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocab: int
    source: str
    style: Literal["llama", "gpt"] = "llama"
    rope_theta: float = 10000.0
    positions: int | None = None

    def __post_init__(self) -> None:
        require_positive(self, "layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "rope_theta", "positions")
        if (self.style == "gpt") != (self.positions is not None):
            raise ValueError(f"positions belong to style gpt and to it alone, found {self.positions} in {self.style}")
        if self.hidden % self.heads:
            raise ValueError(f"hidden {self.hidden} is not divisible by heads {self.heads}")
        if self.heads % self.kv_heads:
            raise ValueError(f"heads {self.heads} is not divisible by kv_heads {self.kv_heads}")

    @property
    def head_size(self) -> int:
        """Return the width of one attention head."""
        return self.hidden // self.heads

    @property
    def layer_params(self) -> int:
        """Return the parameters of one layer: attention, feed-forward and its two norms."""
        kv_width = self.kv_heads * self.head_size
        attention = 2 * self.hidden * self.hidden + 2 * self.hidden * kv_width
        if self.style == "llama":
            return attention + 3 * self.hidden * self.ffn + 2 * self.hidden
        biases = 2 * self.hidden + 2 * kv_width + self.ffn + self.hidden
        return attention + 2 * self.hidden * self.ffn + 4 * self.hidden + biases

    @property
    def embedding_params(self) -> int:
        """Return the parameters of the input embeddings, which multiply nothing: of tokens and learned positions."""
        return (self.vocab + (self.positions or 0)) * self.hidden

    @property
    def params(self) -> int:
        """Return all parameters: layers, embeddings, LM head and final norm."""
        norm = self.hidden if self.style == "llama" else 2 * self.hidden
        return self.layers * self.layer_params + self.embedding_params + self.vocab * self.hidden + norm


def model_flops_per_token(*, params: float, embedding_params: float, layers: int, hidden: int, seq: int) -> float:
    """Return the FLOPs that training one token needs, forward and backward, in falloff's convention.

    6 (N - N_embedding) + 12 L h s: six per parameter that multiplies (the LM head does, the embedding looks
    up), attention scores and values over the full square, recomputation not counted. Kaplan et al. 2020
    (arXiv 2001.08361, section 2.1) for 6N, Narayanan et al. 2021 (arXiv 2104.04473, appendix) for the
    attention term; it is TorchTitan's own count, 5.791e10 for Llama 3 8B at a sequence of 8192.
    """
    return 6 * (params - embedding_params) + 12 * layers * hidden * seq


def attention_flops(
    *, batch: int, query_heads: int, queries: int, keys: int, head_size: int, causal: bool = False
) -> int:
    """Return the forward FLOPs of attention's scores and values: 4 B Hq M N D, half of them where causal.

    Heads that share keys and values (grouped queries) still each meet every key, so that only query heads count.
    Times three, forward and backward, it is the attention term of model_flops_per_token at M = N = s. Causal is the
    convention of counting half the square; the triangle with its diagonal is larger by 1/N.
    """
    whole = 4 * batch * query_heads * queries * keys * head_size
    return whole // 2 if causal else whole


def packed_seq(lengths: Sequence[int]) -> float:
    """Return the sequence length at which attention costs a token as much as in sequences of these lengths, packed.

    Attention stays within each sequence, so a token meets sum(L^2) / sum(L) positions on average, not the row's all.
    ValueError where there is no token.
    """
    if sum(lengths) <= 0:
        raise ValueError(f"lengths must hold at least one token, found {list(lengths)}")
    return sum(length * length for length in lengths) / sum(lengths)


def active_params(*, params: float, expert_params: float, experts: int, experts_per_token: int) -> float:
    """Return the parameters that one token meets in a mixture of experts.

    expert_params are those of all routed experts of all layers; shared experts and routers are met by every token and
    are not among them. ValueError where a token is routed to more experts than there are.
    """
    if not 0 < experts_per_token <= experts:
        raise ValueError(f"experts_per_token must be 1 to {experts}, the experts of a layer, found {experts_per_token}")
    return params - expert_params * (experts - experts_per_token) / experts


def read_network(name: str, folder: Path) -> Network:
    """Return the network that `folder`/`name`.yaml describes; ValueError names the known ones."""
    path = folder / f"{name}.yaml"
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in folder.glob("*.yaml")))
        raise ValueError(f"network {name!r} has no file in {folder}; known: {known}")
    network = build(Network, read_yaml(path), str(path))
    if network.name != name:
        raise ValueError(f"{path}: name is {network.name!r}, the file says {name!r}")
    return network
