import pytest
import torch

from falloff.bench.loss import chunked_loss, token_loss


@pytest.fixture
def case():
    torch.manual_seed(5)
    x = torch.randn(2, 9, 12, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(17, 12, dtype=torch.float64, requires_grad=True)
    return x, weight, torch.randint(0, 17, (2, 9))


@pytest.mark.parametrize("chunk_tokens", [1, 5, 18, 100])
def test_a_loss_in_chunks_is_the_loss_of_whole_logits_and_so_are_its_gradients(case, chunk_tokens):
    x, weight, targets = case
    x32, weight32 = (part.detach().float().requires_grad_() for part in (x, weight))
    (token_loss(x32 @ weight32.t(), targets) * 3).backward()
    mine = [part.detach().float().requires_grad_() for part in (x, weight)]
    loss = chunked_loss(mine[0], mine[1], targets, chunk_tokens, compiled=False)
    (loss * 3).backward()
    torch.testing.assert_close(loss, token_loss(x32 @ weight32.t(), targets))
    torch.testing.assert_close(mine[0].grad, x32.grad)
    torch.testing.assert_close(mine[1].grad, weight32.grad)


def test_the_weights_gradient_is_summed_over_chunks_without_rounding_between_them(case):
    x, weight, targets = (case[0].detach().bfloat16(), case[1].detach().bfloat16(), case[2])
    grads = []
    for chunk_tokens in (1, 18):
        leaf = weight.clone().requires_grad_()
        chunked_loss(x, leaf, targets, chunk_tokens, compiled=False).backward()
        grads.append(leaf.grad)
    torch.testing.assert_close(grads[0], grads[1], rtol=2e-2, atol=1e-3)
