"""What a node's task does before its agent: numbers, interfaces, folders, limits, by a job that is made up."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from falloff import rawlog
from falloff.bench import node
from falloff.bench.node import agent_options, main, set_interface, set_scratch, set_switch
from falloff.bench.worker import SWITCH_VARIABLE
from falloff.slurm.command import TOPOLOGY_VARIABLE


def test_each_agent_is_told_its_own_address_and_the_first_keeps_the_store() -> None:
    addresses = ["10.0.0.1", "10.0.0.2"]
    assert agent_options(0, addresses) == ["--local-addr=10.0.0.1", "--rdzv-conf=is_host=true"]
    assert agent_options(1, addresses) == ["--local-addr=10.0.0.2", "--rdzv-conf=is_host=false"]


def test_gloo_takes_the_interface_that_is_stated_for_nccl_and_no_other() -> None:
    environment = {"NCCL_SOCKET_IFNAME": "^lo"}
    set_interface(environment, ["lo", "ens6"])
    assert environment["GLOO_SOCKET_IFNAME"] == "ens6"
    nothing_stated: dict[str, str] = {}
    set_interface(nothing_stated, ["lo", "ens6"])
    assert nothing_stated == {}
    both = {"NCCL_SOCKET_IFNAME": "ib0", "GLOO_SOCKET_IFNAME": "ens6"}
    set_interface(both, ["ens6", "ib0"])
    assert both["GLOO_SOCKET_IFNAME"] == "ens6"


def test_an_images_interface_that_this_node_lacks_is_an_error() -> None:
    with pytest.raises(ValueError, match="launch_error: no interface is meant by 'eth0'"):
        set_interface({"NCCL_SOCKET_IFNAME": "eth0"}, ["lo", "ens6"])


def test_scratch_may_name_a_variable_of_the_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODE_DISK", str(tmp_path))
    environment = {rawlog.SCRATCH_VARIABLE: "$NODE_DISK/falloff"}
    set_scratch(environment)
    assert environment[rawlog.SCRATCH_VARIABLE] == f"{tmp_path}/falloff"
    assert (tmp_path / "falloff").is_dir()


def test_scratch_by_a_variable_that_the_node_lacks_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"scratch is '\$NO_SUCH/falloff', which is no whole path on this node"):
        set_scratch({rawlog.SCRATCH_VARIABLE: "$NO_SUCH/falloff"})


@pytest.mark.parametrize(
    ("stated", "switch"),
    [
        ({"SLURM_TOPOLOGY_ADDR": "spine.leaf1.node1"}, "leaf1"),
        ({"SLURM_TOPOLOGY_ADDR": "node1"}, None),
        ({}, None),
        ({TOPOLOGY_VARIABLE: "echo rail2", "SLURM_TOPOLOGY_ADDR": "spine.leaf1.node1"}, "rail2"),
        ({TOPOLOGY_VARIABLE: "false", "SLURM_TOPOLOGY_ADDR": "spine.leaf1.node1"}, "leaf1"),
        ({TOPOLOGY_VARIABLE: "false"}, None),
    ],
)
def test_a_nodes_switch_is_what_the_site_says_else_what_slurm_does(stated: dict[str, str], switch: str | None) -> None:
    environment = dict(stated)
    set_switch(environment)
    assert environment.get(SWITCH_VARIABLE) == switch


def start(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch, addresses: str = "10.0.0.1,10.0.0.2", **environment: str
) -> list[list[str]]:
    """Run the second node's task with an agent that only says what it is told; return that."""
    told: list[list[str]] = []
    run_dir.mkdir()
    limits = {"process_memory_bytes": None}
    rawlog.append_event(run_dir, "run_started", limits=limits)
    rawlog.make_open_logs(run_dir, 2)
    monkeypatch.setenv("SLURM_PROCID", "1")
    monkeypatch.setenv(rawlog.NODE_VARIABLE, "")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(node, "run_agent", lambda options: told.append(list(options)) or 0)
    monkeypatch.setattr(resource, "setrlimit", lambda *_: None)
    exit_code = main(["--addresses", addresses, "--nnodes=2", "-m", "falloff.bench.worker", str(run_dir)])
    assert exit_code == (0 if told else 1)
    return told


def test_a_node_starts_its_agent_with_what_the_launcher_says_and_its_own_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (told,) = start(tmp_path / "run", monkeypatch)
    assert told == [*agent_options(1, ["10.0.0.1", "10.0.0.2"]), "--nnodes=2", "-m", "falloff.bench.worker", told[-1]]
    assert os.environ[rawlog.NODE_VARIABLE] == "1"
    (ended,) = rawlog.read_own_events(tmp_path / "run")
    assert (ended["event"], ended["node"]) == ("node_ended", 1)
    assert ended["cpu_s"] > 0


def test_a_node_that_cannot_start_its_ranks_says_so_in_the_log_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert start(tmp_path / "run", monkeypatch, NCCL_SOCKET_IFNAME="=eth99") == []
    (event,) = map(json.loads, (tmp_path / "run" / rawlog.open_name(1)).read_text().splitlines())
    assert (event["event"], event["kind"], event["rank"], event["node"]) == ("failure", "launch", None, 1)
    assert event["message"].startswith("node 1: launch_error: no interface is meant by '=eth99'; this node has: ")


def test_a_node_that_the_others_cannot_reach_is_said_before_they_wait_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert start(tmp_path / "run", monkeypatch, "127.0.1.1,10.0.0.2") == []
    (event,) = rawlog.read_own_events(tmp_path / "run")
    assert event["message"].startswith("node 1: launch_error: node 0 has the address 127.0.1.1 (NodeAddr of ")


def test_a_task_without_addresses_is_a_sentence() -> None:
    with pytest.raises(ValueError, match=r"--addresses A,B,\.\.\. must come first, found"):
        main(["--nnodes=2"])


def test_a_study_limits_the_memory_of_each_process_on_a_node() -> None:
    code = (
        "import resource; from falloff.bench.node import limit_memory\n"
        "limit_memory({'process_memory_bytes': 2**40})\n"
        "print(resource.getrlimit(resource.RLIMIT_DATA)[0], resource.getrlimit(resource.RLIMIT_CORE)[0])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(2**40), "0"]
