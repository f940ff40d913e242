import pytest
import torch

from falloff.bench.attention import allow_backend, backend_of, causal_attention

CPU = torch.device("cpu")
SHAPE = {"batch": 1, "heads": 4, "kv_heads": 2, "seq": 16, "head_size": 8, "dtype": torch.float32, "device": CPU}


@pytest.fixture(autouse=True)
def _all_backends_afterwards():
    yield
    allow_backend("auto")


@pytest.mark.parametrize(("asked", "found"), [("auto", "flash"), ("flash", "flash"), ("math", "math")])
def test_the_backend_that_runs_is_the_one_that_is_allowed(asked, found):
    allow_backend(asked)
    assert backend_of(**SHAPE) == found


def test_a_backend_that_a_device_lacks_is_said_and_not_replaced():
    allow_backend("cudnn")
    q = torch.randn(1, 4, 16, 8)
    with pytest.raises(RuntimeError, match=r"No viable backend|No available kernel"):
        causal_attention(q, q, q)


def test_shared_keys_and_values_serve_as_if_they_were_repeated():
    torch.manual_seed(2)
    q, k, v = (torch.randn(2, heads, 16, 8) for heads in (4, 2, 2))
    repeated = causal_attention(q, k.repeat_interleave(2, dim=1), v.repeat_interleave(2, dim=1))
    torch.testing.assert_close(causal_attention(q, k, v), repeated)
