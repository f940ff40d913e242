"""A site file against the answers of a cluster, without one."""

import dataclasses
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from falloff.doctor import Finding
from falloff.site_check import examine_site
from falloff.slurm.client import SlurmError
from falloff.spec.site import Container, Site

from .site_of_a_test import a_site

ROOT = Path(__file__).parents[1]
CONFIG = """\
Configuration data as of 2026-11-30T12:00:00
AccountingStorageEnforce = {enforce}
AccountingStorageType   = accounting_storage/{accounting}
MinJobAge               = {kept_s} sec
SLURM_VERSION           = 23.11.4
TopologyPlugin          = topology/{topology}
"""
NODES = """\
gpu01|batch*|96|1031000|gpu:h200:8(S:0-1)|ib,hopper|idle
gpu02|batch*|96|1031000|gpu:h200:8(S:0-1)|ib,hopper|mixed
gpu03|batch*|96|1031000|gpu:h200:8(S:0-1)|ib,hopper|drained*
cpu01|cpu|64|250000|(null)|(null)|idle
"""
PARTITION = "PartitionName={name} AllowGroups=ALL Default=YES MaxTime=1-00:00:00 State={state} {memory} TotalNodes=3\n"


def cluster(refuses: str | None = None, **changes: Any) -> Callable[[Sequence[str]], str]:
    """Return what answers like a cluster."""
    settings = {
        "enforce": "none",
        "accounting": "none",
        "kept_s": 300,
        "topology": "none",
        "state": "UP",
        "memory": "",
        **changes,
    }

    def ask(command: Sequence[str]) -> str:
        said = " ".join(command)
        if refuses is not None and refuses in said:
            raise SlurmError(f"{said}: allocation failure: Requested node configuration is not available")
        if "show config" in said:
            return CONFIG.format(**settings)
        if command[0] == "sinfo":
            return NODES
        if "show partition" in said:
            return PARTITION.format(name=command[-1], **settings)
        if command[0] == "sacctmgr":
            return str(settings["associations"])
        if "show reservation" in said:
            return "ReservationName=mine EndTime=2026-12-01T08:00:00 State=ACTIVE Nodes=gpu01\n"
        return str(settings.get("help", ""))

    return ask


@pytest.fixture(autouse=True)
def _slurm_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda command: f"/usr/bin/{command}")


def examined(site: Site, **changes: Any) -> dict[str, Finding]:
    return {finding.name: finding for finding in examine_site(site, cluster(**changes))}


def test_a_site_that_fits_its_cluster_lacks_nothing() -> None:
    found = examined(a_site(partition="batch", gpu_type="h200", cpus_per_node=96, constraint="ib&hopper"))
    assert {name: finding.state for name, finding in found.items() if finding.state not in ("ok", "absent")} == {}
    assert found["partition"].found == "batch, 3 nodes, 2 of them up, at most 1-00:00:00"
    assert found["gpus_per_node"].found == "gpu:h200:8: 3 of 3 nodes"
    assert found["nodes"].found.startswith("2 of 3 nodes are up and have all")


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"partition": "gpu"}, "partition", "this cluster has: batch, cpu"),
        ({"gpu_type": "h100"}, "gpus_per_node", "these nodes have gpu:h200:8"),
        ({"gpus_per_node": 16}, "gpus_per_node", "these nodes have gpu:h200:8"),
        ({"partition": "cpu"}, "gpus_per_node", "these nodes have none"),
        ({"cpus_per_node": 128}, "cpus_per_node", "these nodes have 96"),
        ({"memory_per_node_mb": 2_000_000}, "memory_per_node_mb", "these nodes have 1031000"),
        ({"constraint": "blackwell"}, "constraint", "these nodes have hopper, ib"),
        ({"max_time_s": 172_800.0}, "max_time_s", "state at most 86400"),
    ],
)
def test_what_the_cluster_does_not_have_is_named_with_what_it_has(
    changes: dict[str, Any], field: str, words: str
) -> None:
    found = examined(a_site(**changes))[field]
    assert found.state == "missing"
    assert words in str(found.advice)


def test_a_partition_that_is_down_takes_no_jobs() -> None:
    assert examined(a_site(), state="DOWN")["partition"].state == "missing"


@pytest.mark.parametrize(
    ("memory", "changes", "state", "words"),
    [
        ("DefMemPerNode=1000", {}, "differs", "a job gets 1,000 MB of a node"),
        ("DefMemPerCPU=4000", {}, "ok", "a job gets 32,000 MB of a node"),
        ("DefMemPerCPU=4000", {"cpus_per_node": 2, "gpus_per_node": 8}, "differs", "a job gets 8,000 MB of a node"),
    ],
)
def test_what_a_job_gets_that_asks_for_no_memory_is_said(
    memory: str, changes: dict[str, Any], state: str, words: str
) -> None:
    found = examined(a_site(**changes), memory=memory)["memory_per_node_mb"]
    assert found.state == state
    assert words in found.found
    assert "memory_per_node_mb" not in examined(a_site(), memory="DefMemPerNode=UNLIMITED")
    # who has a node alone asks for all of its memory
    assert "memory_per_node_mb" not in examined(a_site(**changes, exclusive=True), memory=memory)


def test_without_accounting_an_account_is_not_checked_and_that_is_said() -> None:
    found = examined(a_site(account="physics"))
    assert found["accounting"].state == "absent"
    assert "physics cannot be checked" in found["accounting"].found
    assert "account" not in found


@pytest.mark.parametrize(
    ("changes", "field", "state"),
    [
        ({"account": "physics"}, "account", "ok"),
        ({"account": "chemistry"}, "account", "missing"),
        ({"account": "physics", "qos": "long"}, "qos", "ok"),
        ({"account": "physics", "qos": "urgent"}, "qos", "missing"),
        ({"account": "physics", "jobs_in_flight": 400}, "jobs_in_flight", "missing"),
    ],
)
def test_with_accounting_account_and_qos_are_those_of_the_user(changes: dict[str, Any], field: str, state: str) -> None:
    associations = "physics||normal,long|200\nteaching||normal|10\n"
    found = examined(a_site(**changes), accounting="slurmdbd", associations=associations)
    assert found[field].state == state


def test_a_controller_that_does_not_answer_is_one_finding() -> None:
    (found,) = examine_site(a_site(), cluster(refuses="show config"))
    assert (found.name, found.state) == ("controller", "missing")


def test_no_slurm_is_one_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    (found,) = examine_site(a_site(), cluster())
    assert (found.name, found.state) == ("Slurm", "missing")


def test_jobs_that_leave_squeue_before_the_next_polls_are_said() -> None:
    found = examined(a_site(seconds_between_polls=120))["seconds_between_polls"]
    assert found.state == "differs"
    assert "MinJobAge below 360 s" in str(found.advice)


def test_a_container_that_is_not_there_is_missing() -> None:
    pyxis = Container(image="org/image:1", runtime="pyxis")
    assert examined(a_site(container=pyxis))["container"].state == "missing"
    assert examined(a_site(container=pyxis), help="--container-image=[USER@]IMAGE")["container"].state == "ok"
    file = Container(image="/nowhere/image.sif", runtime="apptainer")
    assert examined(a_site(container=file))["container"].state == "missing"
    address = Container(image="docker://org/image:1", runtime="apptainer")
    assert examined(a_site(container=address))["container"].state == "ok"


def test_a_reservation_is_looked_up() -> None:
    assert examined(a_site(reservation="mine"))["reservation"].state == "ok"
    assert examined(a_site(reservation="mine"), refuses="reservation")["reservation"].state == "missing"


def test_switches_are_slurms_own_or_those_of_the_sites_command() -> None:
    assert examined(a_site())["topology"].state == "absent"
    assert examined(a_site(), topology="tree")["topology"].found == "tree"
    assert examined(a_site(topology_command="switch_of"))["topology"].state == "ok"


def test_the_controller_is_asked_whether_it_would_take_a_job_and_its_words_are_kept() -> None:
    shape = ["sbatch", "--nodes=2", "--gres=gpu:9"]
    asked = examine_site(a_site(), cluster(refuses="gpu:9"), [shape, [*shape, "-t", "5"], ["sbatch"]])
    *_, taken, refused = asked
    assert (taken.state, taken.found) == ("ok", "the controller would take 1 of 3 kinds of job")
    assert (refused.name, refused.state) == ("submission", "missing")
    words = "allocation failure: Requested node configuration is not available (and 1 more kinds of job)"
    assert (refused.found, refused.advice) == (words, "refused: sbatch --nodes=2 --gres=gpu:9")
    assert examine_site(a_site(), cluster(), [shape])[-1].state == "ok"


def test_every_field_of_the_site_file_is_in_the_file_that_ships_and_is_explained() -> None:
    shipped = yaml.safe_load((ROOT / "profiles" / "slurm" / "site.yaml").read_text())
    explained = (ROOT / "docs" / "cluster.md").read_text()
    names = [field.name for field in dataclasses.fields(Site)]
    assert sorted(shipped) == sorted(names)
    table = "\n".join(line.split("|")[1] for line in explained.splitlines() if line.startswith("| `"))
    assert [name for name in names if f"`{name}`" not in table] == []
