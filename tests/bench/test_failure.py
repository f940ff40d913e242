import pytest
import torch

from falloff.bench.failure import UnstableError, failure_kind


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
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), "oom"),
        (RuntimeError("NCCL error\nLast error:\nCuda failure 2 'out of memory'"), "oom"),
        (RuntimeError("[unbound_buffer.cc:78] Timed out waiting 2000ms for recv operation to complete"), "hang"),
        (RuntimeError("Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1)"), "hang"),
        (RuntimeError("Timed out after 121 seconds waiting for clients. 1/2 clients joined."), "hang"),
        (RuntimeError("Connection closed by peer"), "crash"),
        (RuntimeError("Connection timed out"), "crash"),
        (ValueError("seq"), "crash"),
    ],
)
def test_a_failure_has_its_kind(error, kind):
    assert failure_kind(error) == kind
