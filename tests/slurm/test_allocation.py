"""The job in which a launcher finds itself."""

import dataclasses
import random
import socket

import pytest

from falloff.slurm import allocation
from falloff.slurm.allocation import (
    Allocation,
    SlurmJob,
    current_allocation,
    free_port,
    is_loopback,
    lost_nodes,
    narrowed,
    node_addresses,
    reachable,
)
from falloff.slurm.client import SlurmError
from tests.site_of_a_test import a_site

JOB = Allocation(job_id="7", nodes=("n1", "n2", "n3"), addresses=("10.0.0.1", "10.0.0.2", "10.0.0.3"), port=20007)
NODES = (
    "NodeName=n1 Arch=x86_64 CPUTot=16 NodeAddr=10.0.0.1 NodeHostName=n1 State={} ThreadsPerCore=1 Reason=None\n"
    "NodeName=n2 Arch=x86_64 CPUTot=16 NodeAddr=10.0.0.2 NodeHostName=n2 State=ALLOCATED ThreadsPerCore=1\n"
)


def test_outside_of_a_job_there_is_no_allocation() -> None:
    assert current_allocation({"PATH": "/bin"}) is None


def test_an_allocation_is_what_the_controller_says_and_not_what_an_outer_step_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = {"hostnames": "n1\nn2\n", "node": NODES.format("ALLOCATED")}
    monkeypatch.setattr(allocation, "job_facts", lambda _: {"NodeList": "n[1-2]", "Restarts": "2"})
    monkeypatch.setattr(allocation, "run_command", lambda command: answers[command[-2]])
    found = current_allocation({"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n9", "SLURM_NNODES": "1"})
    assert found is not None
    assert (found.nodes, found.addresses) == (("n1", "n2"), ("10.0.0.1", "10.0.0.2"))
    assert found.restart_count == 2


def test_a_controller_that_is_away_when_a_job_begins_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {"hostnames": "n1\nn2\n", "node": NODES.format("ALLOCATED")}
    hiccups = [SlurmError("Socket timed out")] * 2

    def facts(_job_id: str) -> dict[str, str]:
        if hiccups:
            raise hiccups.pop()
        return {"NodeList": "n[1-2]"}

    monkeypatch.setattr(allocation, "START_PAUSES_S", (0.0, 0.0))
    monkeypatch.setattr(allocation, "job_facts", facts)
    monkeypatch.setattr(allocation, "run_command", lambda command: answers[command[-2]])
    found = current_allocation({"SLURM_JOB_ID": "7"})
    assert found is not None
    assert found.nodes == ("n1", "n2")
    hiccups.extend([SlurmError("Socket timed out")] * 9)
    with pytest.raises(SlurmError):
        current_allocation({"SLURM_JOB_ID": "7"})
    assert len(hiccups) == 9 - 3


def test_a_node_without_an_address_is_reached_by_its_name() -> None:
    assert node_addresses("NodeName=n1 State=IDLE\n") == {"n1": "n1"}


def test_nodes_that_are_all_one_machine_may_meet_on_its_loopback() -> None:
    assert reachable(["127.0.0.1", "127.0.0.1"], ["n1", "n2"]) == ("127.0.0.1", "127.0.0.1")


@pytest.mark.parametrize(
    ("address", "own"), [("127.0.1.1", True), ("::1", True), ("localhost", True), ("10.0.0.1", False), ("n1", False)]
)
def test_a_loopback_is_known_by_its_number(address: str, own: bool) -> None:
    assert is_loopback(address) is own


def test_a_port_that_is_taken_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    free = free_port()
    with socket.socket() as taken:
        taken.bind(("", 0))
        monkeypatch.setattr(random, "sample", lambda *_: [taken.getsockname()[1], free])
        assert free_port() == free
        monkeypatch.setattr(random, "sample", lambda *_: [taken.getsockname()[1]])
        with pytest.raises(ValueError, match="launch_error: no port from 20000 to 31999 is free"):
            free_port()


def test_a_cell_takes_the_first_nodes_of_its_job() -> None:
    job = SlurmJob(allocation=JOB, site=a_site())
    assert narrowed(job, 2).allocation.nodes == ("n1", "n2")
    assert narrowed(job, 2).allocation.addresses == ("10.0.0.1", "10.0.0.2")
    with pytest.raises(ValueError, match="the runs take 4 nodes of 8 ranks, and job 7 has 3"):
        narrowed(job, 4)


@pytest.mark.parametrize("state", ["DOWN", "ALLOCATED*", "MIXED+NOT_RESPONDING", "DOWN+DRAIN", "FAIL"])
def test_a_node_that_is_down_or_does_not_respond_is_lost(monkeypatch: pytest.MonkeyPatch, state: str) -> None:
    monkeypatch.setattr(allocation, "run_command", lambda *_, **__: NODES.format(state))
    assert lost_nodes(dataclasses.replace(JOB, nodes=("n1", "n2")).nodes) == ["n1"]


@pytest.mark.parametrize("state", ["ALLOCATED", "MIXED+DRAIN", "IDLE+COMPLETING"])
def test_a_node_that_takes_no_more_jobs_is_not_lost(monkeypatch: pytest.MonkeyPatch, state: str) -> None:
    monkeypatch.setattr(allocation, "run_command", lambda *_, **__: NODES.format(state))
    assert lost_nodes(("n1", "n2")) == []
