"""Where a job runs, by a Slurm that answers as the real one did."""

from collections.abc import Sequence

import pytest

from falloff.slurm.allocation import Allocation
from falloff.slurm.client import SlurmError
from falloff.slurm.placement import expanded, leaf_switches, placement_of

TOPOLOGY = """\
SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=node1,node2
SwitchName=leaf2 Level=0 LinkSpeed=1 Nodes=node[3-4]
SwitchName=spine Level=1 LinkSpeed=1 Nodes=node[1-4] Switches=leaf[1-2]
"""
JOB = Allocation(job_id="7", nodes=("node2", "node3"), addresses=("a", "b"), port=1, restart_count=1)
RUNNING = "7|node[2-3]\n8|node2\n9|node4\n"


def slurm_that_says(**answers: str) -> list[Sequence[str]]:
    asked: list[Sequence[str]] = []

    def ask(command: Sequence[str]) -> str:
        asked.append(command)
        answer = answers.get(command[0])
        if answer is None:
            raise SlurmError("no answer")
        return answer

    placement = placement_of(JOB, ask)
    return [asked, placement]  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("short", "names"),
    [
        ("", ()),
        ("node1", ("node1",)),
        ("node1,login2", ("node1", "login2")),
        ("node[1-3,7],x", ("node1", "node2", "node3", "node7", "x")),
        ("gpu[08-10]", ("gpu08", "gpu09", "gpu10")),
        ("r[1-2]n[01-02]", ("r1n01", "r1n02", "r2n01", "r2n02")),
        ("n[1-2]-ib", ("n1-ib", "n2-ib")),
    ],
)
def test_slurms_short_form_of_names_is_read(short: str, names: tuple[str, ...]) -> None:
    assert expanded(short) == names


def test_leaf_switches_are_those_below_all_others() -> None:
    assert leaf_switches(TOPOLOGY) == {"leaf1": ("node1", "node2"), "leaf2": ("node3", "node4")}
    assert leaf_switches("No topology information available\n") == {}


def test_a_placement_names_nodes_and_their_switches_and_counts_the_neighbours() -> None:
    asked, placement = slurm_that_says(scontrol=TOPOLOGY, squeue=RUNNING)
    assert placement == {
        "job_id": "7",
        "restart_count": 1,
        "nodes": ["node2", "node3"],
        "switches": ["leaf1", "leaf2"],
        "other_jobs_on_nodes": 1,
        "other_jobs_on_switches": 2,
    }
    assert "--nodelist=node1,node2,node3,node4" in asked[1]


def test_without_a_known_network_neighbours_are_those_on_the_nodes() -> None:
    asked, placement = slurm_that_says(scontrol="", squeue=RUNNING)
    assert (placement["switches"], placement["other_jobs_on_switches"]) == (None, None)
    assert placement["other_jobs_on_nodes"] == 1
    assert "--nodelist=node2,node3" in asked[1]


def test_a_slurm_that_does_not_answer_ends_no_run() -> None:
    _, placement = slurm_that_says()
    assert placement["nodes"] == ["node2", "node3"]
    assert placement["switches"] is placement["other_jobs_on_nodes"] is placement["other_jobs_on_switches"] is None
