"""How fast the performance model predicts and searches, on one core, beside Calculon where there is a checkout of it.

python -m benchmarks.perfmodel [--calculon path/to/calculon]
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.traces import machine
from falloff.outputs import whole_file
from falloff.perfmodel.cells import read_cells
from falloff.perfmodel.compute import head_seconds, layer_seconds
from falloff.perfmodel.express import jobs_of
from falloff.perfmodel.jobs import Job, Shape, stack
from falloff.perfmodel.overlap import Parts
from falloff.perfmodel.prediction import predict, shipped_fit
from falloff.perfmodel.requests import Request, job_of_request, parse_layout, shape_by_name
from falloff.perfmodel.search import Question, search
from falloff.perfmodel.timeline import play
from falloff.perfmodel.traffic import data_parallel_seconds
from falloff.perfmodel.validate import TABLE
from falloff.spec.cluster import find_cluster
from falloff.units import MILLI

TURNS = 5
LEAST_BATCH_PER_S, MOST_TIMELINE_S, MOST_SEARCH_S, SEARCHED = 2000.0, 20 * MILLI, 10.0, 10_000
# 100,000 GPUs no slower than 8: the same arrays, so that all that may differ is chance
MOST_SCALE_RATIO = 1.25
_GPT3 = Shape(layers=96, hidden=12288, heads=96, kv_heads=96, ffn=49152, vocab=51200, mlp_matrices=2, tied=True)
_RUNNER = Path(__file__).parent / "analysers" / "run_calculon.py"
_LIMIT_S = 300.0


@dataclass(frozen=True, kw_only=True)
class Timed:
    """Seconds of one call over the turns, and how many predictions it made."""

    name: str
    predictions: int
    seconds: tuple[float, ...]

    @property
    def per_s(self) -> float:
        """Return predictions a second, by the median call."""
        return self.predictions / self.median_s

    @property
    def median_s(self) -> float:
        """Return the median call's seconds."""
        return statistics.median(self.seconds)


def timed(name: str, predictions: int, call: Callable[[], object], turns: int = TURNS) -> Timed:
    """Return how long a call takes, once warm."""
    call()
    seconds = []
    for _ in range(turns):
        started_s = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - started_s)
    return Timed(name=name, predictions=predictions, seconds=tuple(seconds))


def measure() -> list[Timed]:
    """Return the model's speeds."""
    fit = shipped_fit()
    _, jobs, _ = jobs_of(read_cells(TABLE))
    llama = [_llama(gpus) for gpus in (8, 100_000)]
    small, large = (stack([job]) for job in llama)
    question = Question(job=_llama(8), gpus=1024, global_batch=2048)
    return [
        timed("one step with its interval", 1, lambda: predict(small, fit)),
        timed("one step of 8 GPUs", 1, lambda: predict(small, fit, intervals=False), 4 * TURNS),
        timed("one step of 100,000 GPUs", 1, lambda: predict(large, fit, intervals=False), 4 * TURNS),
        timed("published cells at once", len(jobs), lambda: predict(jobs, fit, intervals=False)),
        timed("published cells with intervals", len(jobs), lambda: predict(jobs, fit), 1),
        timed("one timeline, layer by layer", 1, _timeline(llama[0])),
        timed("search of 1,024 GPUs", len(search(question, fit).jobs), lambda: search(question, fit)),
    ]


def _llama(gpus: int) -> Job:
    layout = parse_layout(f"dp_shard={gpus}", gpus)
    cluster = find_cluster("h100-sxm-ib400")
    return job_of_request(
        Request(shape=shape_by_name("llama2-7b"), cluster=cluster, layout=layout, seq=4096, local_batch=2)
    )


def _timeline(job: Job) -> Callable[[], object]:
    jobs, values = stack([job]), shipped_fit().values

    def run() -> object:
        layer, ends = layer_seconds(jobs, values), head_seconds(jobs, values)
        sent = data_parallel_seconds(jobs, values)
        return play(
            jobs,
            values,
            layers=job.shape.layers,
            forward=Parts(first=ends.embedding_forward.total_s, layer=layer.forward_s, last=ends.head_forward.total_s),
            backward=Parts(
                first=ends.embedding_backward.total_s, layer=layer.backward_s, last=ends.head_backward.total_s
            ),
            gather=sent.gather,
            reduce=sent.reduce,
            replicate=sent.replicate,
        )

    return run


def gpt3_layouts(gpus: int = 1024, batch: int = 1024) -> list[dict[str, int]]:
    """Return Calculon's names and degrees of layouts of GPT-3 175B on so many A100."""
    found = []
    for tp in (1, 2, 4, 8):
        for pp in (1, 2, 4, 8, 16, 32):
            dp = gpus // (tp * pp)
            if dp <= batch and batch // dp >= pp:
                found.append(
                    {"num_procs": gpus, "tensor_par": tp, "pipeline_par": pp, "data_par": dp, "batch_size": batch,
                     "microbatch_size": 1}
                )  # fmt: skip
    return found


def beside_calculon(checkout: Path) -> list[Timed]:
    """Return the speeds of Calculon and of this model over the same layouts; ValueError where it does not run."""
    layouts = gpt3_layouts()
    asked = json.dumps({"checkout": str(checkout.resolve()), "layouts": layouts * TURNS})
    environment = {**os.environ, "PYTHONPATH": str(checkout.resolve())}
    done = subprocess.run(
        [sys.executable, str(_RUNNER)],
        input=asked,
        capture_output=True,
        text=True,
        env=environment,
        timeout=_LIMIT_S,
        check=False,
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no word"])[-1]
        raise ValueError(f"Calculon at {checkout} does not run: {last}")
    theirs = json.loads(done.stdout)["seconds"]
    fit = shipped_fit()
    jobs = [_gpt3(layout) for layout in layouts]
    single, together = [stack([job]) for job in jobs], stack(jobs * 100)
    return [
        Timed(name="Calculon, one by one", predictions=1, seconds=tuple(theirs)),
        timed("falloff, one by one", len(jobs), lambda: [predict(one, fit, intervals=False) for one in single]),
        timed(
            "falloff, the same a hundred times at once", len(together), lambda: predict(together, fit, intervals=False)
        ),
    ]


def _gpt3(layout: dict[str, int]) -> Job:
    return Job(
        shape=_GPT3,
        cluster=find_cluster("a100-80gb-sxm-ib200"),
        seq=2048,
        microbatch=layout["microbatch_size"],
        num_microbatches=layout["batch_size"] // layout["data_par"],
        dp_shard=layout["data_par"],
        tp=layout["tensor_par"],
        pp=layout["pipeline_par"],
        sharding="zero1",
        recompute="full",
        precision="float16",
        framework="megatron",
    )


def verdicts(results: Sequence[Timed]) -> list[str]:
    """Return a line for each promise of the model's speed, and whether it is kept."""
    by_name = {result.name: result for result in results}
    batch, plan = by_name["published cells at once"], by_name["search of 1,024 GPUs"]
    line, eight = by_name["one timeline, layer by layer"], by_name["one step of 8 GPUs"]
    ratio = by_name["one step of 100,000 GPUs"].median_s / eight.median_s
    search_s = plan.median_s * SEARCHED / plan.predictions
    checks = (
        (f"{batch.per_s:,.0f} predictions/s in a batch (at least {LEAST_BATCH_PER_S:,.0f})",
         batch.per_s >= LEAST_BATCH_PER_S),
        (f"one timeline in {line.median_s / MILLI:.1f} ms (below {MOST_TIMELINE_S / MILLI:.0f})",
         line.median_s < MOST_TIMELINE_S),
        (f"{SEARCHED:,} layouts searched in {search_s:.2f} s (below {MOST_SEARCH_S:.0f})", search_s < MOST_SEARCH_S),
        (f"100,000 GPUs take {ratio:.2f} times as long as 8 (at most {MOST_SCALE_RATIO})", ratio <= MOST_SCALE_RATIO),
    )  # fmt: skip
    return [f"- {words}: {'yes' if kept else 'NO'}" for words, kept in checks]


def table(results: Sequence[Timed], reference: Timed | None = None) -> list[str]:
    """Return a Markdown table of speeds; beside a reference, how many times faster each is."""
    head = ["what", "predictions", "ms (median, range)", "predictions/s", *(["times faster"] if reference else [])]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for result in results:
        low, high = min(result.seconds) / MILLI, max(result.seconds) / MILLI
        cells = [
            result.name,
            f"{result.predictions:,}",
            f"{result.median_s / MILLI:,.2f} ({low:,.2f} to {high:,.2f})",
            f"{result.per_s:,.0f}",
            *([f"{result.per_s / reference.per_s:,.1f}"] if reference else []),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def main() -> int:
    """Measure on one core, print, write; 1 where a promise is not kept."""
    parser = argparse.ArgumentParser(description="Speed of the performance model, beside Calculon.")
    parser.add_argument("--folder", type=Path, default=Path("results/benchmarks"))
    parser.add_argument("--calculon", type=Path, help="a checkout of calculon-ai/calculon; it is on no package index")
    given = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    np.seterr(all="ignore")
    results = measure()
    promises = verdicts(results)
    lines = [*table(results), "", *promises]
    rivals: list[Timed] = []
    if given.calculon is None:
        lines += ["", "NOTICE: Calculon is left out; name a checkout of calculon-ai/calculon by --calculon"]
    else:
        rivals = beside_calculon(given.calculon)
        lines += ["", "GPT-3 175B on 1,024 A100, the same layouts:", "", *table(rivals, rivals[0])]
    print("\n".join(lines))
    report: dict[str, Any] = {
        "machine": machine(),
        "ours": list(map(asdict, results)),
        "beside": list(map(asdict, rivals)),
    }
    given.folder.mkdir(parents=True, exist_ok=True)
    for name, text in (("perfmodel.json", json.dumps(report, indent=1)), ("perfmodel.txt", "\n".join(lines))):
        with whole_file(given.folder / name) as path:
            path.write_text(text + "\n")
    return 0 if all(line.endswith("yes") for line in promises) else 1


if __name__ == "__main__":
    sys.exit(main())
