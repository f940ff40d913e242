import pytest
import torch

from falloff.bench.rank import UnstableError, failure_kind


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."), "oom"),
        (MemoryError(), "oom"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 4294967296 bytes."), "oom"),
        (RuntimeError("std::bad_alloc"), "oom"),
        (OSError(12, "Cannot allocate memory"), "oom"),
        (RuntimeError("CUDA error: out of memory"), "oom"),
        (UnstableError("the loss of step 3 is nan"), "unstable"),
        (RuntimeError("Connection closed by peer"), "crash"),
        (ValueError("seq"), "crash"),
    ],
)
def test_a_failure_has_its_kind(error, kind):
    assert failure_kind(error) == kind
