"""The study slurm_smoke on a real Slurm: from a clone with only its site file edited to the figure."""

import statistics
from pathlib import Path

import pandas as pd
import pytest

from falloff import rawlog
from falloff.spec.study import read_study
from tests.slurm.checkout import Checkout, NewCheckout, calls_a_cell
from tests.slurm.cluster import Cluster

pytestmark = pytest.mark.slurm


def test_the_smoke_study_comes_to_its_figure_though_slurm_has_hiccups(
    accounted: Cluster, checkout_on: NewCheckout
) -> None:
    checkout = checkout_on(accounted)
    study = read_study(checkout.folder / "config/studies/slurm_smoke.yaml", checkout.folder / "config/models")
    head = checkout.start_head("slurm_smoke", "figures/slurm_smoke.pdf")
    checkout.wait_until(lambda: len(checkout.jobs()) > 1, "no job was submitted")
    for command in ("squeue", "scontrol", "sacct"):
        accounted.fail(command, 2)
    head.wait()

    jobs = checkout.jobs("%T")
    assert len(jobs) == len(study.cells), "each cell is one job"
    assert list(jobs.values()) == [["COMPLETED"]] * len(jobs)
    assert (checkout.folder / "figures/slurm_smoke.pdf").is_file()
    coverage = pd.read_parquet(checkout.folder / "results/tables/slurm_smoke.coverage.parquet")
    assert set(coverage["status"]) == {"measured"}
    for cell in study.cells:
        record = checkout.record(study, cell)
        assert record["outcome"] == "ok"
        assert record["nodes"] == cell.cell.num_processes // 2
        _has_what_each_node_wrote(checkout, checkout.run_dir(study, cell), cell.cell.num_processes // 2)
    waits_s, begins_s = checkout.waiting_times_s(), checkout.seconds_to_first_event(study)
    print(
        f"\nslurm_smoke: {len(jobs)} cells; {calls_a_cell(accounted.calls(), len(jobs))}; "
        f"from submission to start {statistics.median(waits_s):.0f} s (median; all: {sorted(waits_s)}), "
        f"to ranks at work {statistics.median(begins_s):.0f} s"
    )

    accounted.forget_calls()
    checkout.start_head("slurm_smoke", "figures/slurm_smoke.pdf").wait()
    assert accounted.calls()["sbatch"] == 0, "what is measured is not measured again"


def _has_what_each_node_wrote(checkout: Checkout, run_dir: Path, num_nodes: int) -> None:
    first, *events = rawlog.read_events(run_dir / rawlog.SEALED_NAME)
    assert [event["time_s"] for event in events] == sorted(event["time_s"] for event in events)
    assert sorted(event["node"] for event in events if event["event"] == "node") == list(range(num_nodes))
    placement = first["placement"]
    assert len(placement["nodes"]) == num_nodes
    assert set(placement["nodes"]) <= set(checkout.cluster.nodes)
    assert not list(run_dir.glob("*.open.jsonl"))
