"""The network that Megatron's arguments describe, and its parameters where the arguments are all there.

The count is Megatron's own module by module (megatron/core/models/gpt, as of core_v0.8): padded vocabulary, biases of
the linear layers and of LayerNorm, two norms a layer and one at the end, learned positions, tied embeddings. Where the
log prints what the first rank holds, the count has to give the same number, else it is another network than this one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from falloff.ingest.header_text import count_of
from falloff.records import joined_notes

# Any of these makes a network that the count below is not about.
_UNCOUNTED = (
    "num_experts",
    "mtp_num_layers",
    "kv_lora_rank",
    "q_lora_rank",
    "spec",
    "hybrid_override_pattern",
    "hybrid_layer_pattern",
)
_UNCOUNTED_SWITCHES = (
    "multi_latent_attention",
    "qk_layernorm",
    "is_hybrid_model",
    "heterogeneous_layers_config_path",
    "apply_query_key_layer_norm",
    "add_gate",
)
_TIED = "embedding and LM head are one matrix, which multiplies: none of it is left out"


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Parameters of one layer (split by tensor parallelism or not), of embedding, LM head, positions and last norm."""

    layer_split: int
    layer_whole: int
    embedding: int
    head: int
    positions: int
    last: int

    def total(self, layers: int) -> int:
        """Return the parameters of the whole network."""
        return layers * (self.layer_split + self.layer_whole) + self.embedding + self.head + self.positions + self.last

    def of_first_rank(self, layers: int, tp: int, pp: int) -> int:
        """Return the parameters on rank 0 of tensor and pipeline parallelism, layers spread evenly."""
        held = layers // pp * (self.layer_split // tp + self.layer_whole) + self.embedding // tp + self.positions
        return held + (self.head // tp + self.last if pp == 1 else 0)


def whole(arguments: Mapping[str, str], name: str) -> int | None:
    """Return a count above zero that the arguments have, None for None, for 0 and where there is none."""
    return count_of(arguments.get(name, ""))


def is_on(arguments: Mapping[str, str], name: str) -> bool | None:
    """Return a switch's position, None where the arguments do not have it."""
    return {"True": True, "False": False}.get(arguments.get(name, ""))


def shape_of(
    arguments: Mapping[str, str], vocab: int | None, of_first_rank: int | None, found: Mapping[str, Any]
) -> dict[str, Any]:
    """Return shape, parameters and embedding as RunRecord fields, None where the arguments do not tell."""
    heads = whole(arguments, "num_attention_heads")
    groups = _kv_heads(arguments, heads)
    experts = whole(arguments, "num_experts")
    shape: dict[str, Any] = {
        "layers": whole(arguments, "num_layers"),
        "hidden": whole(arguments, "hidden_size"),
        "heads": heads,
        "kv_heads": groups,
        "ffn": whole(arguments, "ffn_hidden_size"),
        "vocab": whole(arguments, "padded_vocab_size") or vocab,
        "arch": None if heads is None else "moe" if experts and experts > 1 else "dense",
    }
    parts = _parts(arguments, shape)
    tp, pp = found.get("tp"), found.get("pp")
    if parts is None:
        return (
            shape | {"params": float(of_first_rank)}
            if of_first_rank and tp == pp == (found.get("ep") or 1) == 1
            else shape
        )
    layers = shape["layers"]
    if of_first_rank is not None and not (tp and pp and parts.of_first_rank(layers, tp, pp) == of_first_rank):
        return shape | ({"params": float(of_first_rank)} if tp == pp == 1 else {})
    is_tied = parts.head == 0
    note = joined_notes(found.get("note"), _TIED if is_tied else None)
    embedding = parts.positions + (0 if is_tied else parts.embedding)
    return shape | {"params": float(parts.total(layers)), "embedding_params": float(embedding), "note": note}


def _kv_heads(arguments: Mapping[str, str], heads: int | None) -> int | None:
    """Return the heads of keys and values: Megatron-LM's groups, Megatron-DeepSpeed's and GPT-NeoX's own names."""
    if is_on(arguments, "group_query_attention"):
        return whole(arguments, "num_query_groups")
    return whole(arguments, "num_key_value_heads") or whole(arguments, "num_kv_heads") or heads


def _parts(arguments: Mapping[str, str], shape: Mapping[str, Any]) -> Parts | None:
    """Return the parameters part by part, None where an argument that it takes is not printed or means another one."""
    needed = ("layers", "hidden", "heads", "kv_heads", "ffn", "vocab")
    switches = {
        name: arguments.get(name) for name in ("untie_embeddings_and_output_weights", "swiglu", "add_bias_linear")
    }
    is_other = any(arguments.get(name, "None") != "None" for name in _UNCOUNTED)
    is_other |= any(arguments.get(name, "False") not in ("False", "None") for name in _UNCOUNTED_SWITCHES)
    norm = {"LayerNorm": 2, "RMSNorm": 1}.get(arguments.get("normalization", ""))
    positions = _positions(arguments, shape["hidden"])
    if is_other or norm is None or positions is None or None in [shape[name] for name in needed]:
        return None
    if any(value not in ("True", "False") for value in switches.values()):
        return None
    hidden, heads, ffn = shape["hidden"], shape["heads"], shape["ffn"]
    head_size = whole(arguments, "kv_channels") or hidden // heads
    query, kv = heads * head_size, 2 * shape["kv_heads"] * head_size
    up = 2 * ffn if switches["swiglu"] == "True" else ffn
    has_bias = switches["add_bias_linear"] == "True"
    has_qkv_bias = has_bias or arguments.get("add_qkv_bias") == "True"
    return Parts(
        layer_split=hidden * (2 * query + kv + up + ffn) + has_qkv_bias * (query + kv) + has_bias * up,
        layer_whole=2 * norm * hidden + has_bias * 2 * hidden,
        embedding=shape["vocab"] * hidden,
        head=shape["vocab"] * hidden if switches["untie_embeddings_and_output_weights"] == "True" else 0,
        positions=positions,
        last=norm * hidden,
    )


def _positions(arguments: Mapping[str, str], hidden: int | None) -> int | None:
    """Return the parameters of learned positions; None where the kind of positions is not printed or not known."""
    kind = arguments.get("position_embedding_type")
    most = whole(arguments, "max_position_embeddings")
    if kind in ("rope", "none", "yarn", "mrope"):
        return 0
    return most * hidden if kind == "learned_absolute" and most and hidden else None
