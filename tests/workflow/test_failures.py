"""A failure is a result, and a death is survived."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pandas as pd

from falloff.ownership import processes_of
from falloff.rawlog import read_events

from .workspace import TINY_NETWORK, Workspace

HEAD_LOG = "head.log"

# A learning rate that ends in NaN, a network whose embedding alone is 8 GiB, and one that meets a planted bug.
FAILING_GRIDS = """\
  - fixed: {layout: {dp_shard: 1}}
    grid:
      learning_rate: [1.0e+30]
  - fixed: {layout: {dp_shard: 1}}
    grid:
      network: [wide]
  - fixed: {layout: {dp_shard: 1}}
    grid:
      recompute: [full]
"""
PLANTED_BUG = """
    if cell.recompute == "full":
        raise RuntimeError("planted")
    parallel = parallelize("""


def outcomes(workspace: Workspace) -> list[str]:
    return sorted(read_events(path)[-1]["outcome"] for path in workspace.logs())


def failures_in_coverage(workspace: Workspace) -> list[str]:
    coverage = pd.read_parquet(workspace.folder / "results/tables/this_machine.coverage.parquet")
    return sorted(coverage[coverage["status"] == "failed"]["reason"])


def test_failing_cells_stop_nobody_and_show_in_coverage_with_their_logs_kept(unmeasured: Workspace) -> None:
    study = unmeasured.folder / "config/studies/laptop.yaml"
    text = study.read_text().replace("timeout_s: 120", "timeout_s: 120, process_memory_bytes: 6000000000")
    study.write_text(text.replace("\ncollectives:", "\n" + FAILING_GRIDS + "collectives:", 1))
    wide = TINY_NETWORK.replace("name: tiny", "name: wide").replace("vocab: 128", "vocab: 67108864")
    (unmeasured.folder / "config/models/wide.yaml").write_text(wide)
    unmeasured.edit("src/falloff/bench/train.py", "\n    parallel = parallelize(", PLANTED_BUG)
    head = start(unmeasured, "figures/this_machine.pdf")
    kill_a_rank(wait_for_open_log(unmeasured, head, "dp_shard2"))
    assert head.wait(timeout=300) == 0, complaints(unmeasured)
    assert outcomes(unmeasured) == ["crash", "killed", "ok", "ok", "oom", "unstable"]
    assert [reason.partition(":")[0].split()[0] for reason in failures_in_coverage(unmeasured)] == [
        "crash",
        "killed",
        "oom",
        "unstable",
    ]


def test_a_cell_past_its_time_shows_as_timeout(unmeasured: Workspace) -> None:
    endless = "  - {grid: {layout: [{dp_shard: 1}]}, fixed: {measured_steps: 1000000}}\n"
    unmeasured.edit("config/studies/laptop.yaml", "timeout_s: 120", "timeout_s: 30")
    unmeasured.edit("config/studies/laptop.yaml", "\ncollectives:", f"\n{endless}collectives:")
    unmeasured.snakemake("figures/this_machine.pdf")
    assert outcomes(unmeasured) == ["ok", "ok", "ok", "timeout"]
    (reason,) = failures_in_coverage(unmeasured)
    assert reason.startswith("timeout: not done after 30 s")


def test_a_failing_notebook_is_named_with_its_cell_and_leaves_no_figure(workspace: Workspace) -> None:
    notebook = workspace.folder / "notebooks/h200.ipynb"
    document = json.loads(notebook.read_text())
    code = [number for number, cell in enumerate(document["cells"]) if cell["cell_type"] == "code"]
    document["cells"][code[-1]]["source"] = ["raise RuntimeError('no such column')"]
    notebook.write_text(json.dumps(document))
    said = workspace.snakemake("figures/h200.pdf", succeeds=False)
    assert f"notebooks/h200.ipynb: cell {code[-1] + 1} failed with RuntimeError: no such column" in said
    assert not (workspace.folder / "figures/h200.pdf").exists()
    assert (workspace.folder / "logs/figures/h200.ipynb").exists()


def test_a_killed_head_is_started_again_and_nothing_is_lost_or_doubled(unmeasured: Workspace) -> None:
    head = start(unmeasured, "figures/this_machine.pdf")
    open_log = wait_for_open_log(unmeasured, head)
    os.kill(head.pid, signal.SIGKILL)
    head.wait()
    run_id = run_id_of(open_log)
    unmeasured.snakemake("figures/this_machine.pdf")
    logs = {path.parent: read_events(path) for path in unmeasured.logs()}
    assert len(logs) == 3
    assert {events[-1]["outcome"] for events in logs.values()} == {"ok"}
    # the run that was under way when the head died is the one that was kept
    assert logs[open_log.parent][0]["run_id"] == run_id
    assert list(unmeasured.folder.glob("data/raw/laptop/*/*/attempt-*")) == []
    assert list(unmeasured.folder.glob("data/raw/laptop/*/*/events.open.jsonl")) == []


def test_a_second_head_beside_a_living_one_is_refused_with_a_sentence(unmeasured: Workspace) -> None:
    head = start(unmeasured, "figures/this_machine.pdf")
    wait_for_open_log(unmeasured, head)
    said = unmeasured.snakemake("figures/this_machine.pdf", succeeds=False)
    assert "another Snakemake is at work in this checkout" in said
    assert unmeasured.planned("figures/h200.pdf")
    head.send_signal(signal.SIGINT)
    head.wait(timeout=60)
    for path in unmeasured.folder.glob("data/raw/laptop/*/*/events.open.jsonl"):
        assert processes_of(run_id_of(path)) == []


def start(workspace: Workspace, target: str) -> "subprocess.Popen[bytes]":
    with (workspace.folder / HEAD_LOG).open("wb") as log:
        return subprocess.Popen(
            workspace.command(target),
            cwd=workspace.folder,
            env=workspace.environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def complaints(workspace: Workspace) -> str:
    """Return the lines of the head's log that complain, or its end where none does."""
    said = (workspace.folder / HEAD_LOG).read_text()
    return "\n".join(line for line in said.splitlines() if "error" in line.lower()) or said[-2000:]


def run_id_of(open_log: Path) -> str:
    return str(json.loads(open_log.read_text().splitlines()[0])["run_id"])


def wait_for_open_log(workspace: Workspace, head: "subprocess.Popen[bytes]", cell: str = "") -> Path:
    """Return the open log of a run that has begun, of the cell whose id holds `cell`."""
    deadline_s = time.monotonic() + 200
    while time.monotonic() < deadline_s:
        for path in workspace.folder.glob(f"data/raw/laptop/*{cell}*/*/events.open.jsonl"):
            if path.read_text().count("\n") >= 1:
                return path
        assert head.poll() is None, complaints(workspace)
        time.sleep(0.05)
    raise AssertionError("no measurement began")


def kill_a_rank(open_log: Path) -> None:
    """Send SIGKILL to one rank of the run, as the kernel does when memory runs out."""
    deadline_s = time.monotonic() + 60
    while time.monotonic() < deadline_s:
        for pid in processes_of(run_id_of(open_log)):
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            if b"falloff.bench.worker" in command and b"falloff.bench.agent" not in command:
                os.kill(pid, signal.SIGKILL)
                return
        time.sleep(0.05)
    raise AssertionError("no rank began")
