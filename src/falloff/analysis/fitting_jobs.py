"""Jobs that fit in memory: the fastest by recomputation and microbatch, and the fastest layout."""

import dataclasses

import numpy as np

from falloff.perfmodel.calibrate import Fit
from falloff.perfmodel.jobs import RECOMPUTES, Job, Jobs, stack
from falloff.perfmodel.memory import memory_bytes
from falloff.perfmodel.search import Question, divisors, enumerate_layouts, jobs_of_layouts
from falloff.perfmodel.step import predict_steps


def fastest_that_fits(job: Job, fit: Fit) -> Jobs | None:
    """Return a job in its own layout with the recomputation and microbatch that are fastest of those that fit, [1].

    The sequences of a rank in a step stay what they are. None where nothing fits.
    """
    local = job.microbatch * job.num_microbatches
    jobs = stack(
        [
            dataclasses.replace(job, recompute=mode, microbatch=micro, num_microbatches=local // micro)
            for mode in RECOMPUTES
            for micro in divisors(local)
        ]
    )
    fits = memory_bytes(jobs, fit.values).margin_bytes >= 0
    rates = np.where(fits, predict_steps(jobs, fit.values).tokens_per_gpu_s, 0.0)
    return jobs.take([int(np.argmax(rates))]) if fits.any() else None


def fastest_layout(question: Question, fit: Fit, *, most_cp: int = 1) -> Jobs | None:
    """Return the fastest layout that fits, [1], without context parallelism unless `most_cp` says so; None without any.

    At short sequences the model has context parallelism cost next to nothing, which nobody has measured.
    """
    columns = enumerate_layouts(question).columns
    kept = np.flatnonzero(columns["cp"] <= most_cp)
    if not len(kept):
        return None
    jobs = jobs_of_layouts(question.job, {name: column[kept] for name, column in columns.items()}, question.reshards)
    # of tens of thousands, most do not fit
    fitting = np.flatnonzero(memory_bytes(jobs, fit.values).margin_bytes >= 0)
    if not len(fitting):
        return None
    jobs = jobs.take(fitting)
    return jobs.take([int(np.argmax(predict_steps(jobs, fit.values).tokens_per_gpu_s))])
