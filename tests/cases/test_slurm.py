"""Cases of the scheduler: what a job is asked for, where its ranks meet, what a state means, what must not leak in."""

import csv
import json
import shlex
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from falloff import rawlog
from falloff.bench.rank import own_device
from falloff.outcome import hang_in, judge
from falloff.ownership import set_aside_dead_attempt
from falloff.slurm import allocation
from falloff.slurm.allocation import current_allocation, reachable, shown_allocation, without_outer_step
from falloff.slurm.command import srun_command
from falloff.slurm.interfaces import chosen_interface
from falloff.slurm.resources import unless_stated
from falloff.slurm.states import classify
from falloff.spec.site import Site, read_site
from falloff.spec.study import Limits
from tests.site_of_a_test import a_site

from .compare import INPUTS, check

ROOT = Path(__file__).parents[2]
LOG = ROOT / "tests" / "data" / "native" / "laptop" / "llama-5m-dp_shard2-79881de5" / "1"

# Held by tests that run Snakemake, the benchmark or a cluster for real.
HELD_ELSEWHERE = {
    "U169": ("workflow/test_no_measurement_by_accident.py", "a_clone_that_carries_the_logs_measures_nothing"),
    "U170": ("workflow/test_no_measurement_by_accident.py", "a_new_commit_measures_nothing"),
    "U173": ("test_site_check.py", "the_controller_is_asked_whether_it_would_take_a_job_and_its_words_are_kept"),
    "U177": ("bench/test_outcomes.py", "a_rank_that_crashes_says_why_in_one_line_and_the_others_end_too"),
}


def given(case: str) -> Any:
    return json.loads((INPUTS / f"{case}.json").read_text())


def u175() -> dict[str, Any]:
    job, node = given("U175")
    return {"master_addr": [address_of_first(job), address_or_error(node["hostname_ip"].split())]}


def address_of_first(job: Mapping[str, Any]) -> str:
    """Return where the ranks of a job meet, by a Slurm that answers as the case's does."""
    answers = {
        "hostnames": "\n".join(job["scontrol"]),
        "node": "\n".join(f"NodeName={name} NodeAddr={name} State=IDLE" for name in job["scontrol"]),
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(allocation, "job_facts", lambda _: {"NodeList": job["nodelist"]})
        patch.setattr(allocation, "run_command", lambda command: answers[command[-2]])
        found = current_allocation({"SLURM_JOB_ID": "7", "SLURM_LAUNCH_NODE_IPADDR": job["launch_ip"]})
    assert found is not None
    return found.addresses[0]


def address_or_error(addresses: list[str]) -> str:
    """Return the case's words where a loopback beside another address is refused."""
    with pytest.raises(ValueError, match="launch_error: node gpu01 has the address 127"):
        reachable(addresses, ["gpu01", "gpu02"])
    return "10.1.0.7 or error"


def u172() -> dict[str, Any]:
    """Return what holds where a person states one resource on the command line and a site states four."""
    text = (INPUTS / "U172.yaml").read_text()
    of_site = yaml.safe_load(text)["default-resources"]
    line = text.rpartition("--default-resources ")[2]
    stated = dict(pair.split("=") for pair in line.split())
    return {"effective": {**unless_stated(of_site, stated), **stated}}


def u182() -> dict[str, Any]:
    states = [row["state"] for row in csv.DictReader((INPUTS / "U182.csv").read_text().splitlines())]
    return {"class": [classify(state) for state in states]}


def u263() -> dict[str, Any]:
    return {"result": [interface_or_error(item["ifname"], item["interfaces"]) for item in given("U263")]}


def interface_or_error(pattern: str, interfaces: list[str]) -> str:
    try:
        return chosen_interface(pattern, interfaces)
    except ValueError as error:
        return str(error).partition(":")[0]


GOT: dict[str, Callable[[], Any]] = {"U172": u172, "U175": u175, "U182": u182, "U263": u263}


@pytest.mark.parametrize("case", GOT)
def test_a_case_gives_what_it_should(case: str) -> None:
    check(case, GOT[case]())


@pytest.mark.parametrize("case", HELD_ELSEWHERE)
def test_what_another_test_holds_is_there(case: str) -> None:
    path, name = HELD_ELSEWHERE[case]
    assert f"def test_{name}(" in (ROOT / "tests" / path).read_text()


def srun_options(site: Site, num_nodes: int = 2) -> list[str]:
    return srun_command(shown_allocation(num_nodes), site, 12, ["python", "-m", "falloff.bench.node"])


def test_a_node_has_one_task_with_its_cpus() -> None:
    """U160: each of two tasks wrote the same file. U163: a task has one core unless srun itself is told otherwise."""
    options = srun_options(a_site())
    assert {"--nodes=2", "--ntasks=2", "--ntasks-per-node=1", "--cpus-per-task=12", "--overlap"} <= set(options)
    assert not [option for option in options if "per-gpu" in option or "gpus-per-task" in option]


@pytest.mark.parametrize(
    "name", ["SLURM_NTASKS", "SLURM_STEP_ID", "SRUN_CPUS_PER_TASK", "SBATCH_PARTITION", "PMIX_RANK"]
)
def test_what_an_outer_job_left_in_the_environment_reaches_no_rank(name: str) -> None:
    """U161: a workflow started within a job broke the jobs that it started."""
    left = without_outer_step({name: "4", "SLURM_JOB_ID": "7", "SLURM_CONF": "slurm.conf", "NCCL_DEBUG": "INFO"})
    assert left == {"SLURM_JOB_ID": "7", "SLURM_CONF": "slurm.conf", "NCCL_DEBUG": "INFO"}


def test_a_log_is_complete_by_its_own_last_event_and_not_by_its_being_there(tmp_path: Path) -> None:
    """U167: Snakemake's own record called the output of a job that had failed complete."""
    path = tmp_path / rawlog.SEALED_NAME
    path.write_text("".join((LOG / rawlog.SEALED_NAME).read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(ValueError, match="cut short"):
        rawlog.read_events(path)


def test_a_job_that_is_started_again_sets_aside_what_it_left(tmp_path: Path) -> None:
    """U168: after a requeue the outputs of the first start were in the way for ever."""
    shutil.copytree(LOG, tmp_path / "run")
    (tmp_path / "run" / rawlog.SEALED_NAME).rename(tmp_path / "run" / rawlog.OPEN_NAME)
    for _ in range(2):
        assert set_aside_dead_attempt(tmp_path / "run")
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["attempt-1"]


def test_ranks_that_end_badly_after_all_was_measured_lose_nothing() -> None:
    """U178: a barrier after the last step hung for 30 minutes, and the whole run counted as failed."""
    output = (INPUTS / "U178.log").read_text()
    assert hang_in(" ".join(output.split())) == (0, "ALLREDUCE of 1 elements not done after 1800 s")
    outcome, reason = judge([{"event": "completed"}], 134, False, Limits())
    assert outcome == "ok"
    assert reason == "all was measured; then the ranks ended by signal 6 (SIGABRT)"


@pytest.mark.parametrize(("visible", "index"), [(1, 0), (8, 3)])
def test_a_rank_takes_the_only_gpu_that_it_sees_else_the_one_of_its_number(
    monkeypatch: pytest.MonkeyPatch, visible: int, index: int
) -> None:
    """U179: with --gpus-per-task=1 each rank sees one GPU, which has number 0."""
    monkeypatch.setenv("LOCAL_RANK", "3")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: visible)
    monkeypatch.setattr(torch.cuda, "set_device", lambda _: None)
    assert own_device("cuda") == torch.device("cuda", index)


def test_sites_that_differ_in_their_network_differ_in_nothing_else_that_is_run() -> None:
    """U264: a pattern of interfaces copied from another cluster left none that had an address."""
    a, b = (srun_options(a_site(network_interface=name)) for name in ("ens6", "^docker0,lo"))
    assert a == b


def test_a_site_file_sets_no_interface_unless_it_states_one() -> None:
    """U263: an image's eth0 was no interface of the nodes."""
    assert read_site(ROOT / "profiles" / "slurm" / "site.yaml").network_interface is None


def test_commands_are_words_and_no_shell_takes_them_apart() -> None:
    """U180: what a login shell or conda puts in the way is left to the site's own lines, which come first."""
    shell = srun_options(a_site(setup=("module load cuda/12",)))[-1]
    lines = shell.splitlines()
    assert lines[:2] == ["set -e", "module load cuda/12"]
    assert shlex.split(lines[2])[:1] == ["exec"]
