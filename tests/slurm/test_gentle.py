"""How often a real Slurm is asked: runs that share a job, and a study of two thousand cells that waits in the queue."""

import time

import pytest

from tests.slurm.checkout import NewCheckout, calls_a_cell
from tests.slurm.cluster import Cluster

pytestmark = pytest.mark.slurm

STUDY = """\
question: How many jobs are that?
measure_on: [slurm]
limits: {{timeout_s: 60, collective_timeout_s: 20}}
fixed: {{network: tiny, seq: 16, global_batch: 4, microbatch: 1, warmup_steps: 1, measured_steps: 2, profiled_steps: 0}}
grids:
  - grid: {{layout: [{{dp_shard: 2}}], seed: {seeds}}}
"""
WATCHED_S = 40.0


def test_runs_that_may_share_processes_share_a_job(plain: Cluster, checkout_on: NewCheckout) -> None:
    checkout = checkout_on(plain, runs_per_job=3)
    study = checkout.ask("packed", STUDY.format(seeds=list(range(6))))
    checkout.start_head("packed", *checkout.records(study)).wait()
    assert len(checkout.jobs()) == 2
    assert {checkout.record(study, cell)["outcome"] for cell in study.cells} == {"ok"}
    print(f"\n6 cells in packs of 3: {calls_a_cell(plain.calls(), 6)}")


def test_two_thousand_cells_wait_without_hammering_the_controller(plain: Cluster, checkout_on: NewCheckout) -> None:
    checkout = checkout_on(plain, runs_per_job=20, jobs_in_flight=60, seconds_between_polls=5, startup_s=30)
    study = checkout.ask("many", STUDY.format(seeds=list(range(2000))))
    assert len(study.cells) == 2000
    plain.drain()
    head = checkout.start_head("many", *checkout.records(study))
    plain.wait_for(lambda: len(checkout.jobs()) == 60, "the jobs that may be in flight are not")
    submitted = plain.calls()
    time.sleep(WATCHED_S)
    calls = plain.calls()
    head.kill()
    assert len(checkout.jobs()) == 60
    assert calls["sbatch"] == 60
    polls = calls["squeue"] - submitted["squeue"]
    print(
        f"\n2,000 cells in packs of 20, 60 jobs in flight: {dict(calls)} in all; {polls} calls of squeue in "
        f"{WATCHED_S:g} s, asked to be at least 5 s apart"
    )
    assert polls <= WATCHED_S / 5 + 1
    assert calls.total() <= 60 + 60
