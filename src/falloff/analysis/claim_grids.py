"""Steps of the model over which a claim's mechanism is switched off, each grid a frame of what its jobs are.

The figures' tables hold what the model says; a term cannot be switched off in a table, so the jobs stand here again.
All are the paper's setting unless said otherwise: Llama 2 networks under FSDP over all ranks, sequences of 4,096
tokens, no recomputation, by TorchTitan's habits, not compiled.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from falloff.analysis.model_points import job
from falloff.analysis.node_size import with_domain
from falloff.analysis.predicted_series import GPUS, LOCAL_BATCH, MACHINES
from falloff.perfmodel.calibrate import Fit
from falloff.perfmodel.jobs import RECOMPUTES, Job, Jobs, stack
from falloff.perfmodel.memory import memory_bytes
from falloff.perfmodel.step import predict_steps

DEGREES = (1, 2, 4, 8, 16)


@dataclass(frozen=True)
class Grid:
    """Jobs [n] and a frame of n rows that says what each is: x, and the columns that tell them apart."""

    frame: pd.DataFrame
    jobs: Jobs

    def where(self, query: str) -> "Grid":
        """Return the part of the grid that a query over its frame picks; ValueError where that is none."""
        if not query:
            return self
        kept = self.frame.query(query)
        if kept.empty:
            raise ValueError(f"{query!r} leaves nothing of the grid")
        return Grid(kept.reset_index(drop=True), self.jobs.take(kept.index.to_numpy()))


_Rows = Iterator[tuple[dict[str, Any], Job]]


def weak_7b() -> _Rows:
    """Yield the 7B at a local batch of 2 over GPUs, by machine."""
    for machine, cluster in MACHINES.items():
        if machine != "H200":
            for gpus in GPUS:
                yield {"x": gpus, "machine": machine}, job("llama2-7b", cluster, gpus, local_batch=LOCAL_BATCH)


def strong_7b() -> _Rows:
    """Yield the 7B at a global batch of 1,024 over GPUs, in microbatches of 2 and less."""
    for gpus in GPUS:
        local = 1024 // gpus
        if local:
            more: dict[str, Any] = {"microbatch": min(2, local), "global_batch": 1024}
            yield {"x": gpus, "machine": "H100"}, job("llama2-7b", MACHINES["H100"], gpus, **more)


def layouts_of_256() -> _Rows:
    """Yield the 7B on 256 H100 at a global batch of 512, by every TP and PP of DEGREES; x is their product."""
    yield from _layouts("H100", 256, 512)


def layouts_by_gpus() -> _Rows:
    """Yield the 7B at 2 sequences a GPU over GPUs and machines, by every TP and PP of DEGREES; mp is their product."""
    for machine in ("A100", "H100"):
        for gpus in GPUS:
            for told, one in _layouts(machine, gpus, LOCAL_BATCH * gpus):
                yield {**told, "x": gpus}, one


def networks() -> _Rows:
    """Yield Llama 2 networks on 512 H100, two sequences a GPU, as figure model_size; x is billions of parameters."""
    for x, name in ((1, "llama2-1b"), (7, "llama2-7b"), (13, "llama2-13b"), (70, "llama2-70b")):
        for recompute, microbatch in itertools.product(RECOMPUTES, (1, LOCAL_BATCH)):
            more: dict[str, Any] = {"microbatch": microbatch, "global_batch": LOCAL_BATCH * 512, "recompute": recompute}
            yield {"x": x, "network": name}, job(name, MACHINES["H100"], 512, **more)


def context_parallel() -> _Rows:
    """Yield the 7B at 8,192 tokens a GPU over GPUs by the degree of context parallelism, as figure context_parallel."""
    for cp in (1, 4, 8):
        for gpus in GPUS:
            if gpus > cp:
                one = job("llama2-7b", MACHINES["H100"], gpus, layout=f"cp={cp}", local_batch=LOCAL_BATCH * cp)
                yield {"x": gpus, "cp": cp}, one


def fleet() -> _Rows:
    """Yield 70B on 2,048 H100 and 7B on all and an eighth of them, at 1,024 sequences; x jobs share the fleet."""
    for count, name in ((1, "llama2-70b"), (1, "llama2-7b"), (8, "llama2-7b")):
        for recompute in RECOMPUTES:
            for told, one in _layouts("H100", 2048 // count, 1024, network=name, recompute=recompute):
                if told["pp"] <= 4:
                    yield {"x": count, "network": name}, one


def node_sizes() -> _Rows:
    """Yield 70B on 1,152 H100 with NVLink domains of 8 to 72 GPUs, the NIC of each GPU held; x is the domain."""
    from_cluster = job("llama2-70b", MACHINES["H100"], 1152, local_batch=1, recompute="full")
    for domain in (8, 16, 36, 72):
        yield {"x": domain}, dataclasses.replace(from_cluster, cluster=with_domain(from_cluster.cluster, domain))


def _layouts(machine: str, gpus: int, global_batch: int, network: str = "llama2-7b", **fixed: Any) -> _Rows:
    """Yield every TP and PP that there is with its microbatches and stages a rank, of which the fastest is kept.

    Parameters are let go of after the forward pass in a pipeline too, as in the figures of layouts (layout_choice.py).
    """
    for tp, pp, vpp, microbatch in itertools.product(DEGREES, DEGREES, (1, 2, 4, 8), (1, 2, 4, 8)):
        layout = f"tp={tp},pp={pp},vpp={vpp}"
        more = {"microbatch": microbatch, "global_batch": global_batch, "reshard_after_forward": True, **fixed}
        try:
            one = job(network, MACHINES[machine], gpus, layout=layout, **more)
        except ValueError:  # no such layout: too few GPUs, sequences or layers
            continue
        yield {"x": tp * pp, "mp": tp * pp, "tp": tp, "pp": pp, "machine": machine}, one


GRIDS: Mapping[str, Callable[[], _Rows]] = {
    one.__name__: one
    for one in (
        weak_7b,
        strong_7b,
        layouts_of_256,
        layouts_by_gpus,
        networks,
        context_parallel,
        fleet,
        node_sizes,
    )
}


def grid_by_name(name: str, fit: Fit) -> Grid:
    """Return a grid of GRIDS; ValueError names those that there are.

    Of jobs that its frame does not tell apart it has the fastest one that fits into memory.
    """
    if name not in GRIDS:
        raise ValueError(f"grid {name!r} is unknown; known: {', '.join(GRIDS)}")
    told, jobs = zip(*GRIDS[name](), strict=True)
    stacked = stack(jobs)
    frame = pd.DataFrame(list(told))
    # with all that the allocator would keep, as the figures have it
    fits = memory_bytes(stacked, fit.values).margin_bytes >= 0
    rates = np.where(fits, predict_steps(stacked, fit.values).tokens_per_gpu_s, np.nan)
    fastest = frame.assign(rate=rates).dropna(subset=["rate"]).groupby(list(frame.columns), sort=False)["rate"].idxmax()
    kept = fastest.to_numpy()
    return Grid(frame.loc[kept].reset_index(drop=True), stacked.take(kept))
