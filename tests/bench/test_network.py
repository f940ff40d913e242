import dataclasses

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from falloff.bench.loss import token_loss
from falloff.bench.network import Decoder, materialize, rotate, rotation_table
from falloff.bench.pipeline import stage_layers
from falloff.spec.network import Network

CPU = torch.device("cpu")
NETWORK = Network(name="tiny", layers=3, hidden=48, heads=8, kv_heads=2, ffn=76, vocab=100, source="a test")


def decoder(network: Network = NETWORK, seed: int = 3, **kept) -> Decoder:
    module = Decoder(network, 16, CPU, **kept)
    materialize(module, "", seed, CPU)
    return module


def test_it_holds_the_parameters_that_the_network_states():
    assert sum(p.numel() for p in decoder().parameters()) == NETWORK.params
    assert sum(p.numel() for p in decoder().layers["0"].parameters()) == NETWORK.layer_params


def test_a_token_sees_none_after_it():
    module = decoder()
    tokens = torch.randint(0, 100, (1, 16))
    changed = tokens.clone()
    changed[0, 9] = (tokens[0, 9] + 1) % 100
    same, other = module(tokens), module(changed)
    torch.testing.assert_close(same[:, :9], other[:, :9])
    assert (same[:, 9:] - other[:, 9:]).abs().amax(dim=-1).min() > 0


def test_grouped_queries_attend_as_if_keys_and_values_were_repeated():
    grouped = decoder().layers["0"].attention
    plain = decoder(dataclasses.replace(NETWORK, kv_heads=8)).layers["0"].attention
    with torch.no_grad():
        plain.wq.weight.copy_(grouped.wq.weight)
        plain.wo.weight.copy_(grouped.wo.weight)
        for name in ("wk", "wv"):
            heads = getattr(grouped, name).weight.view(2, 6, 48)
            getattr(plain, name).weight.copy_(heads.repeat_interleave(4, dim=0).reshape(48, 48))
    x = torch.randn(2, 16, 48)
    torch.testing.assert_close(grouped(x), plain(x))


def test_rotation_keeps_lengths_and_depends_on_distance_alone():
    q, k = torch.randn(1, 1, 1, 8).expand(1, 1, 16, 8), torch.randn(1, 1, 1, 8).expand(1, 1, 16, 8)
    table = rotation_table(16, 8, 10000.0, CPU)
    rotated_q, rotated_k = rotate(q, table), rotate(k, table)
    torch.testing.assert_close(rotated_q.norm(dim=-1), q.norm(dim=-1))
    scores = (rotated_q @ rotated_k.transpose(-1, -2))[0, 0]
    for distance in range(-15, 16):
        diagonal = scores.diagonal(distance)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal), rtol=1e-4, atol=1e-5)


def test_rotation_computes_in_float32_and_gives_back_the_dtype():
    x = torch.randn(1, 2, 16, 8, dtype=torch.bfloat16)
    table = rotation_table(16, 8, 10000.0, CPU)
    torch.testing.assert_close(rotate(x, table), rotate(x.float(), table).bfloat16())


def test_a_weight_is_the_same_whatever_else_a_rank_holds():
    whole = dict(decoder().named_parameters())
    stage = dict(decoder(layers=[1], with_embedding=False).named_parameters())
    assert {name.partition(".")[0] for name in stage} == {"layers", "norm", "head"}
    assert all(torch.equal(parameter, whole[name]) for name, parameter in stage.items())


def test_the_seed_decides_the_weights():
    first, second = decoder().head.weight, decoder(seed=4).head.weight
    assert torch.equal(first, decoder().head.weight)
    assert not torch.equal(first, second)
    assert first.std().item() == pytest.approx(0.02, rel=0.1)


def test_recomputation_changes_no_gradient():
    tokens = torch.randint(0, 100, (2, 17))
    gradients = []
    for recompute in (False, True):
        module = decoder(recompute=recompute)
        token_loss(module(tokens[:, :-1]), tokens[:, 1:]).backward()
        gradients.append([p.grad for p in module.parameters()])
    torch.testing.assert_close(*gradients)


def test_the_loss_of_low_precision_logits_is_taken_in_float32():
    logits, targets = torch.randn(2, 4, 100, dtype=torch.bfloat16), torch.randint(0, 100, (2, 4))
    expected = F.cross_entropy(logits.float().view(8, 100), targets.view(8))
    assert token_loss(logits, targets) == expected


@pytest.mark.parametrize(("num_layers", "num_stages"), [(4, 4), (5, 4), (32, 8), (3, 2)])
def test_every_layer_is_in_one_stage_and_no_stage_is_empty(num_layers, num_stages):
    stages = [stage_layers(num_layers, num_stages, stage) for stage in range(num_stages)]
    assert [layer for stage in stages for layer in stage] == list(range(num_layers))
    assert max(map(len, stages)) - min(map(len, stages)) <= 1
    assert all(stages)
