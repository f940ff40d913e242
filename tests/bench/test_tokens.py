import torch

from falloff.bench.tokens import TokenSource, global_tokens
from falloff.spec.cell import TrainCell
from falloff.spec.layout import Layout
from falloff.spec.network import Network

CPU = torch.device("cpu")
NETWORK = Network(name="tiny", layers=1, hidden=16, heads=2, kv_heads=2, ffn=24, vocab=11, source="a test")
CELL = TrainCell(network=NETWORK, layout=Layout(), seq=12, global_batch=4, microbatch=1)


def test_a_rank_draws_its_rows_and_no_others():
    whole = global_tokens(CELL, 3)
    assert whole.shape == (4, CELL.seq + 1)
    assert torch.equal(TokenSource(CELL, range(1, 3), CPU).of_step(3), whole[1:3])


def test_steps_and_sequences_have_tokens_of_their_own():
    first, second = global_tokens(CELL, 1), global_tokens(CELL, 2)
    assert not torch.equal(first, second)
    assert not torch.equal(first[0], first[1])
    assert first.min() >= 0
    assert first.max() < CELL.network.vocab
