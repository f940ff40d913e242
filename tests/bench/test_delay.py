"""A pause takes as long as asked, and on a GPU by a timer that no clock changes."""

import time

import pytest
import torch

from falloff.bench.delay import _spin_kernel, pause_on
from falloff.ingest.kernel_names import classify


def test_a_pause_on_a_cpu_takes_as_long_as_asked():
    began_s = time.perf_counter()
    pause_on(torch.device("cpu"))(0.01)
    assert time.perf_counter() - began_s >= 0.01


# Needs no GPU: triton compiles for one that is not there. Where torch has no CUDA there is no triton.
@pytest.mark.parametrize("duration", ["i32", "i64"])
def test_the_kernel_reads_the_global_timer_until_the_time_has_passed(duration):
    triton = pytest.importorskip("triton")
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    source = ASTSource(fn=_spin_kernel(), signature={"duration_ns": duration}, constexprs={})
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 1})
    assert classify(compiled.metadata.name).kind == "communication"
    ptx = compiled.asm["ptx"]
    loop = ptx[ptx.index("This Inner Loop Header") :]
    assert "%globaltimer" in ptx[: ptx.index("This Inner Loop Header")]
    assert "%globaltimer" in loop[: loop.index("bra")]
