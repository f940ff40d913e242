"""Runs that never begin, on a real Slurm: each is a record or is named, nothing is repeated, and the rest goes on."""

import pytest

from falloff import rawlog
from falloff.spec.study import Study
from tests.slurm.checkout import Checkout, NewCheckout
from tests.slurm.cluster import Cluster

pytestmark = pytest.mark.slurm

# The partition has 4 nodes, of two ranks each: the last cell is for 8.
STUDY = """\
question: What becomes of a cell that cannot begin?
measure_on: [slurm]
limits: {timeout_s: 120, collective_timeout_s: 20}
fixed: {network: tiny, seq: 16, global_batch: 16, microbatch: 1, warmup_steps: 1, measured_steps: 2, profiled_steps: 0}
grids:
  - fixed: {layout: {dp_shard: 2}}
  - fixed: {layout: {dp_shard: 1}}
  - fixed: {layout: {dp_shard: 16}}
"""


# Slurm itself refuses by the site's settings, and the test cluster refuses nothing; the next one in PATH is its own.
REFUSING_SBATCH = """\
#!/bin/bash
case "$*" in
  *tiny-dp_shard1-*)
    echo "sbatch: error: Batch job submission failed: Requested node configuration is not available" >&2
    exit 1 ;;
esac
PATH=${PATH#*:} exec sbatch "$@"
"""


def refuse(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put an sbatch before the cluster's that refuses the cell on one rank."""
    script = checkout.folder.parent / "bin" / "sbatch"
    script.parent.mkdir()
    script.write_text(REFUSING_SBATCH)
    script.chmod(0o755)
    before = checkout.environment
    environment = {**before, "PATH": f"{script.parent}:{before['PATH']}"}
    monkeypatch.setattr(Checkout, "environment", environment)


def ends(checkout: Checkout, study: Study) -> list[tuple[str | None, str | None]]:
    """Return outcome and reason of each cell, None for one without a sealed log."""
    found: list[tuple[str | None, str | None]] = []
    for cell in study.cells:
        log = checkout.run_dir(study, cell) / rawlog.SEALED_NAME
        last = rawlog.read_events(log)[-1] if log.is_file() else {}
        found.append((last.get("outcome"), last.get("reason")))
    return found


def test_a_cell_that_sbatch_refuses_is_recorded_one_that_waits_for_ever_is_named_and_the_rest_goes_on(
    plain: Cluster, checkout_on: NewCheckout, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout = checkout_on(plain)
    refuse(checkout, monkeypatch)
    study = checkout.ask("refused", STUDY)
    good, refused, endless = study.cells
    head = checkout.start_head("refused", *checkout.records(study))
    checkout.wait_until(lambda: "PartitionNodeLimit" in head.said(), "the cell that waits for ever is not named")
    checkout.wait_until(lambda: rawlog.is_sealed(checkout.run_dir(study, good)), "the good cell did not end")
    for job in checkout.jobs_of(endless):
        plain.run("scancel", str(job))
    said = head.wait(succeeds=False)

    assert said.count("PartitionNodeLimit") == 1
    (good_end, refused_end, endless_end) = ends(checkout, study)
    assert good_end == ("ok", None)
    assert refused_end[0] == "crash"
    assert str(refused_end[1]).startswith("launch_error: sbatch refused its job: ")
    assert endless_end == (None, None)
    assert [len(checkout.jobs_of(cell)) for cell in study.cells] == [1, 0, 1]
    assert checkout.record(study, refused)["outcome"] == "crash"


def test_a_line_of_the_site_that_fails_is_a_launch_error_and_not_repeated(
    plain: Cluster, checkout_on: NewCheckout
) -> None:
    checkout = checkout_on(plain, setup=["module load cuda"])
    study = checkout.ask("setup", STUDY[: STUDY.index("  - fixed: {layout: {dp_shard: 1}")])
    checkout.start_head("setup", *checkout.records(study)).wait()
    ((outcome, reason),) = ends(checkout, study)
    assert outcome == "crash"
    assert str(reason).startswith("launch_error: no rank began: ")
    assert "module" in str(reason)
    assert len(checkout.jobs()) == 1


def test_a_job_whose_launcher_cannot_start_is_a_launch_error_and_not_repeated(
    plain: Cluster, checkout_on: NewCheckout
) -> None:
    checkout = checkout_on(plain)
    study = checkout.ask("launcher", STUDY[: STUDY.index("  - fixed: {layout: {dp_shard: 1}")])
    (checkout.folder / "workflow_scripts/measure_run.py").write_text("raise SystemExit('no module named torch')\n")
    checkout.start_head("launcher", *checkout.records(study)).wait()
    ((outcome, reason),) = ends(checkout, study)
    assert outcome == "crash"
    assert "ended as FAILED before its launcher began: no module named torch" in str(reason)
    assert len(checkout.jobs()) == 1
