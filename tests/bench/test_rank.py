import pytest
import torch

from falloff.bench.rank import _used_bytes, own_device, require_distinct_gpus


@pytest.mark.parametrize(
    ("local_rank", "visible", "index"),
    # all ranks see all GPUs, or each rank its own alone
    [(0, 1, 0), (1, 2, 1), (3, 8, 3), (1, 1, 0), (7, 1, 0)],
)
def test_a_rank_takes_the_gpu_that_it_is_shown(monkeypatch, local_rank, visible, index):
    taken = show_gpus(monkeypatch, local_rank, visible)
    assert own_device("cuda") == torch.device("cuda", index)
    assert taken == [torch.device("cuda", index)]


def test_a_rank_that_is_shown_fewer_gpus_than_ranks_but_not_one_has_none(monkeypatch):
    show_gpus(monkeypatch, 2, 2)
    with pytest.raises(ValueError, match="local rank 2 has no GPU of its own: torch sees 2"):
        own_device("cuda")


def show_gpus(monkeypatch, local_rank: int, visible: int) -> list[torch.device]:
    taken: list[torch.device] = []
    monkeypatch.setenv("LOCAL_RANK", str(local_rank))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: visible)
    monkeypatch.setattr(torch.cuda, "set_device", taken.append)
    return taken


def test_two_ranks_on_one_gpu_are_an_error_that_names_them(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    require_distinct_gpus(["GPU-a", "GPU-b"])
    with pytest.raises(ValueError, match=r"ranks 0 and 2 are both on GPU-a, .*CUDA_VISIBLE_DEVICES here is '0'"):
        require_distinct_gpus(["GPU-a", "GPU-b", "GPU-a"])


def test_what_is_used_of_a_gpu_is_all_that_is_not_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _device: (30, 100))
    assert _used_bytes(torch.device("cuda", 0)) == 70
    assert _used_bytes(torch.device("cpu")) == 0
