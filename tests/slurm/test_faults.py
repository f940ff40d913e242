"""What goes wrong on a cluster, on a real Slurm: each ends in a record, and the rest of the study goes on."""

import os
import re
import signal
from dataclasses import dataclass

import pytest

from falloff import rawlog
from falloff.analysis.coverage import study_coverage
from falloff.records import RunRecord, read_records
from falloff.spec.study import Study, StudyCell
from tests.slurm.checkout import Checkout, NewCheckout
from tests.slurm.cluster import Cluster

pytestmark = pytest.mark.slurm

HEAD = """\
question: Does a failure become a result?
measure_on: [slurm]
limits: {timeout_s: 240, collective_timeout_s: 20}
fixed: {network: tiny, seq: 16, global_batch: 4, microbatch: 1, warmup_steps: 1, measured_steps: 2, profiled_steps: 0}
grids:
"""
ENDLESS = "measured_steps: 1000000"
# 120 million parameters take 2 GB with their gradients and the optimizer's states; a job with half a node gets 1.2 GB.
GREEDY_NETWORK = """\
name: greedy
layers: 8
hidden: 1024
heads: 8
kv_heads: 8
ffn: 2816
vocab: 8192
source: the tests' own
"""


def study_of(checkout: Checkout, name: str, **cells: str) -> tuple[Study, dict[str, StudyCell]]:
    """Return a study of cells, each by its name and what it states, and the cells by their names."""
    (checkout.folder / "config/models/greedy.yaml").write_text(GREEDY_NETWORK)
    seeds = {cell: number for number, cell in enumerate(cells, start=1)}
    stated = [f"  - fixed: {{seed: {seeds[cell]}, {fields}}}\n" for cell, fields in cells.items()]
    study = checkout.ask(name, HEAD + "".join(stated))
    by_seed = {cell.stated["seed"]: cell for cell in study.cells}
    return study, {name: by_seed[seed] for name, seed in seeds.items()}


@dataclass(frozen=True)
class Ended:
    """A fault as it ended, for the log of the tests."""

    fault: str
    outcome: str
    reason: str | None
    jobs: int
    attempts: int


def ended(checkout: Checkout, study: Study, cells: dict[str, StudyCell]) -> dict[str, Ended]:
    """Return how each cell ended, and print it; its jobs are counted by what Slurm remembers."""
    found = {}
    for name, cell in cells.items():
        record, run_dir = checkout.record(study, cell), checkout.run_dir(study, cell)
        found[name] = Ended(
            name,
            record["outcome"],
            record["outcome_reason"],
            len(checkout.jobs_of(cell)),
            len(list(run_dir.glob("attempt-*"))),
        )
        print(f"\n{name}: {found[name]}", end="")
    return found


def coverage_of(checkout: Checkout, study: Study) -> list[str]:
    runs = read_records([checkout.folder / path for path in checkout.records(study)], RunRecord)
    return sorted(row.status for row in study_coverage("faults", study, runs))


def ranks_of(cluster: Cluster, cell: StudyCell) -> list[int]:
    """Return the processes that are a cell's ranks, in the order in which they were started."""
    rank = re.compile(rf"python\S* (-u )?-m falloff.bench.worker \S*{re.escape(cell.cell_id)}/")
    return sorted(pid for pid, line in cluster.processes().items() if rank.search(line) and "--nnodes" not in line)


@pytest.mark.parametrize("accounting", [False, True], ids=["squeue", "slurmdbd"])
def test_a_failure_is_a_result_and_the_rest_goes_on(
    accounting: bool, checkout_on: NewCheckout, request: pytest.FixtureRequest
) -> None:
    cluster: Cluster = request.getfixturevalue("accounted" if accounting else "plain")
    checkout = checkout_on(cluster, memory_per_node_mb=2400)
    study, cells = study_of(
        checkout,
        "faults",
        time_limit=f"layout: {{dp_shard: 2}}, {ENDLESS}",
        cancelled=f"layout: {{dp_shard: 2}}, {ENDLESS}",
        rank_killed=f"layout: {{dp_shard: 4}}, {ENDLESS}",
        hung=f"layout: {{dp_shard: 4}}, {ENDLESS}",
        memory="layout: {dp_shard: 1}, network: greedy",
        diverged="layout: {dp_shard: 1}, learning_rate: 1.0e+30, measured_steps: 20",
        good="layout: {dp_shard: 2}",
    )
    head = checkout.start_head("faults", *checkout.records(study))
    killed, hung = cells["rank_killed"], cells["hung"]
    checkout.break_at_work(
        study,
        {
            # the least that Slurm knows is a minute, from the job's start
            "time_limit": (
                cells["time_limit"],
                lambda job: cluster.run("scontrol", "update", f"jobid={job}", "timelimit=1"),
            ),
            "cancelled": (cells["cancelled"], lambda job: cluster.run("scancel", str(job))),
            "hung": (hung, lambda _: os.kill(ranks_of(cluster, hung)[0], signal.SIGSTOP)),
            "rank_killed": (killed, lambda _: os.kill(ranks_of(cluster, killed)[-1], signal.SIGKILL)),
        },
    )
    head.wait()

    found = ended(checkout, study, cells)
    assert {name: end.outcome for name, end in found.items()} == {
        "time_limit": "timeout",
        "cancelled": "killed",
        "rank_killed": "killed",
        "hung": "timeout",
        "memory": "oom",
        "diverged": "unstable",
        "good": "ok",
    }
    assert {end.jobs for end in found.values()} == {1}, "a cell's own fault is not tried again"
    assert {end.attempts for end in found.values()} == {0}
    assert coverage_of(checkout, study) == ["failed"] * 6 + ["measured"]
    said = "".join(path.read_text(errors="replace") for path in checkout.run_dir(study, hung).glob("output*.txt"))
    assert said.count("train.py") >= 3, "each rank that can be heard says where it stands"
    assert not cluster.processes()


def test_what_is_not_a_cells_fault_is_tried_again(plain: Cluster, checkout_on: NewCheckout) -> None:
    checkout = checkout_on(plain, exclusive=True, jobs_in_flight=8)
    long = "layout: {dp_shard: 4}, measured_steps: 300"
    study, cells = study_of(checkout, "losses", first_node=long, preempted=long)
    head = checkout.start_head("losses", *checkout.records(study))
    job = checkout.wait_for_work(study, cells["first_node"])
    lost = plain.nodes_of(job)[0]
    plain.crash_node(lost)
    plain.wait_for(lambda: plain.jobs()[job] == "NODE_FAIL", "the job outlives its node")
    plain.repair_node(lost)
    job = checkout.wait_for_work(study, cells["preempted"])
    urgent = ["--partition=urgent", f"--nodelist={plain.nodes_of(job)[0]}", "--exclusive", "--output=/dev/null"]
    plain.run("sbatch", *urgent, "--wrap", "sleep 1")
    head.wait()

    found = ended(checkout, study, cells)
    assert {end.outcome for end in found.values()} == {"ok"}
    assert {name: (end.jobs, end.attempts) for name, end in found.items()} == {
        "first_node": (2, 1),
        "preempted": (2, 1),
    }


def test_the_second_node_of_a_run_may_be_lost_as_well(plain: Cluster, checkout_on: NewCheckout) -> None:
    checkout = checkout_on(plain)
    study, cells = study_of(checkout, "second", second_node="layout: {dp_shard: 4}, measured_steps: 300")
    head = checkout.start_head("second", *checkout.records(study))
    job = checkout.wait_for_work(study, cells["second_node"])
    plain.crash_node(plain.nodes_of(job)[1])
    head.wait()
    end = ended(checkout, study, cells)["second_node"]
    assert (end.outcome, end.jobs, end.attempts) == ("ok", 2, 1)


def test_a_head_that_was_killed_and_started_again_loses_and_doubles_no_job(
    plain: Cluster, checkout_on: NewCheckout
) -> None:
    checkout = checkout_on(plain, exclusive=True, jobs_in_flight=8)
    long = "layout: {dp_shard: 2}, measured_steps: 300"
    study, cells = study_of(checkout, "heads", **{f"cell_{number}": long for number in range(6)})
    head = checkout.start_head("heads", *checkout.records(study))
    plain.wait_for(lambda: len(plain.jobs_at_work()) == 6, "not all cells were submitted")
    head.kill()
    # four run, two wait for a node, and one ends while nobody looks
    checkout.wait_until(
        lambda: any(rawlog.is_sealed(checkout.run_dir(study, cell)) for cell in study.cells), "no cell ended"
    )
    assert plain.jobs_at_work()
    checkout.start_head("heads", *checkout.records(study)).wait()

    found = ended(checkout, study, cells)
    assert {end.outcome for end in found.values()} == {"ok"}
    assert {end.jobs for end in found.values()} == {1}
    assert {end.attempts for end in found.values()} == {0}
    assert coverage_of(checkout, study) == ["measured"] * 6
