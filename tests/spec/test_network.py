"""Parameter counts and FLOPs per token against published values."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falloff.spec.network import (
    Network,
    active_params,
    attention_flops,
    model_flops_per_token,
    packed_seq,
    read_network,
)

MODELS = Path(__file__).parents[2] / "config" / "models"


@pytest.mark.parametrize(("name", "params"), [("llama3-8b", 8_030_261_248), ("llama2-7b", 6_738_415_616)])
def test_the_parameters_are_those_of_the_published_models(name: str, params: int) -> None:
    assert read_network(name, MODELS).params == params


@pytest.mark.parametrize(("name", "params"), [("llama-5m", 5.3e6), ("llama-25m", 24.7e6)])
def test_the_laptop_networks_are_of_about_the_size_they_are_called(name: str, params: float) -> None:
    assert read_network(name, MODELS).params == pytest.approx(params, rel=0.1)


def test_flops_per_token_are_those_that_torchtitan_prints_for_llama3_8b() -> None:
    network = read_network("llama3-8b", MODELS)
    flops = model_flops_per_token(
        params=network.params,
        embedding_params=network.embedding_params,
        layers=network.layers,
        hidden=network.hidden,
        seq=8192,
    )
    assert flops == pytest.approx(5.791e10, rel=1e-4)


def test_every_model_file_states_its_source_and_its_own_name() -> None:
    files = sorted(MODELS.glob("*.yaml"))
    assert len(files) >= 4
    for path in files:
        assert read_network(path.stem, MODELS).source


def test_an_unknown_network_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"network 'llama3-9b' has no file in .*; known: .*llama3-8b"):
        read_network("llama3-9b", MODELS)


def test_a_network_under_another_name_than_its_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "copy.yaml").write_text((MODELS / "llama-5m.yaml").read_text())
    with pytest.raises(ValueError, match=r"copy.yaml: name is 'llama-5m', the file says 'copy'"):
        read_network("copy", tmp_path)


def make_network(**changes: int) -> Network:
    shape = {"layers": 2, "hidden": 64, "heads": 4, "kv_heads": 2, "ffn": 96, "vocab": 128, **changes}
    return Network(name="tiny", source="test", **shape)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"heads": 3, "kv_heads": 3}, "hidden 64 is not divisible by heads 3"),
        ({"kv_heads": 3}, "heads 4 is not divisible by kv_heads 3"),
        ({"layers": 0}, "layers must be above zero"),
        ({"vocab": -1}, "vocab must be above zero"),
    ],
)
def test_an_impossible_shape_is_refused(changes: dict[str, int], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        make_network(**changes)


def test_the_parameters_add_up_from_their_parts() -> None:
    network = make_network()
    attention = 64 * 64 * 2 + 2 * 64 * 32
    assert network.head_size == 16
    assert network.layer_params == attention + 3 * 64 * 96 + 2 * 64
    assert network.params == 2 * network.layer_params + 2 * 128 * 64 + 64


def test_query_heads_count_in_attention_and_shared_keys_do_not() -> None:
    # 8 query heads over 2 key/value heads cost as 8 over 8
    shape = {"batch": 1, "query_heads": 8, "queries": 256, "keys": 256, "head_size": 64}
    assert attention_flops(**shape) == 4 * 8 * 256 * 256 * 64
    assert attention_flops(**shape, causal=True) == attention_flops(**shape) // 2


@given(layers=st.integers(1, 100), heads=st.integers(1, 128), head_size=st.integers(1, 256), seq=st.integers(1, 10**6))
def test_three_times_forward_attention_is_the_attention_term_of_the_model_flops(
    layers: int, heads: int, head_size: int, seq: int
) -> None:
    forward = attention_flops(batch=1, query_heads=heads, queries=seq, keys=seq, head_size=head_size)
    whole = model_flops_per_token(params=0, embedding_params=0, layers=layers, hidden=heads * head_size, seq=seq)
    assert 3 * layers * forward == pytest.approx(whole * seq)


@given(st.lists(st.integers(1, 10**5), min_size=1, max_size=20))
def test_packed_sequences_cost_at_most_what_one_as_long_as_their_longest_does(lengths: list[int]) -> None:
    assert min(lengths) <= packed_seq(lengths) * (1 + 1e-12)
    assert packed_seq(lengths) <= max(lengths) * (1 + 1e-12)


def test_packing_without_a_token_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"lengths must hold at least one token, found \[0\]"):
        packed_seq([0])


def test_a_token_meets_its_experts_and_all_that_is_no_expert() -> None:
    # Mixtral 8x7B: 8 experts of 32 layers with three matrices of 4096 x 14336 each, two experts a token
    experts = 32 * 8 * 3 * 4096 * 14336
    active = active_params(params=46_702_792_704, expert_params=experts, experts=8, experts_per_token=2)
    assert active == pytest.approx(12.88e9, rel=1e-3)


@pytest.mark.parametrize("experts_per_token", [0, 9])
def test_a_token_cannot_be_routed_to_no_or_to_more_experts_than_there_are(experts_per_token: int) -> None:
    with pytest.raises(ValueError, match=f"experts_per_token must be 1 to 8, .* found {experts_per_token}"):
        active_params(params=10, expert_params=8, experts=8, experts_per_token=experts_per_token)
