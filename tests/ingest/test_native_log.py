"""Logs of runs over several nodes, sorted out."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from falloff.ingest.native import read_native_log
from falloff.ingest.native_log import read_log

Event = dict[str, Any]
WriteLog = Callable[..., Path]


def over_nodes(events: list[Event], *switches: str | None, placement: list[str | None] | None = None) -> list[Event]:
    """Return a run's events with those of as many nodes as there are switches, each with two GPUs of its own."""
    first, *rest = events
    names = [f"n{number}" for number, _ in enumerate(switches)]
    stated = {"job_id": "7", "restart_count": 0, "nodes": names, "switches": placement}
    return [{**first, "placement": stated}, *(node(first, number, at) for number, at in enumerate(switches)), *rest]


def node(first: Event, number: int, switch: str | None) -> Event:
    gpus = [{**gpu, "uuid": f"GPU-{2 * number + gpu['index']}"} for gpu in first["nodes"][0]["gpus"][:2]]
    fingerprint = {**first["nodes"][0], "host": f"n{number}", "site": "there", "gpus": gpus}
    return {"event": "node", "node": number, "switch": switch, "fingerprint": fingerprint}


def test_nodes_are_those_that_spoke_in_the_order_of_the_job(write_log: WriteLog, cuda_run: list[Event]) -> None:
    first, a, b, *rest = over_nodes(cuda_run, None, None)
    log = read_log(write_log([first, b, a, *rest]), anywhere=False)
    assert [found["host"] for found in log.first["nodes"]] == ["n0", "n1"]
    assert log.num_nodes == 2
    assert log.events[0] is log.first


@pytest.mark.parametrize("broken", [{"node": None}, {"node": "1"}, {"fingerprint": 7}])
def test_a_node_s_event_that_is_none_is_refused_in_a_sentence(
    write_log: WriteLog, cuda_run: list[Event], broken: Event
) -> None:
    first, own, *rest = over_nodes(cuda_run, None)
    with pytest.raises(ValueError, match="a node's event needs its number and its fingerprint"):
        read_log(write_log([first, {**own, **broken}, *rest]), anywhere=False)


def test_gpus_of_all_nodes_are_the_runs(write_log: WriteLog, cuda_run: list[Event]) -> None:
    (run,), _ = read_native_log(write_log(over_nodes(cuda_run, None, None)))
    assert (run.nodes, run.gpus_per_node, run.site) == (2, 2, "there")
    # ranks are on GPU 1 of the first node and GPU 2, the first of the second
    assert (run.gpu_uuids, run.power_limit_w) == (("GPU-1", "GPU-2"), 700.0)


def test_a_run_whose_nodes_never_spoke_ran_on_those_of_its_job(write_log: WriteLog, cuda_run: list[Event]) -> None:
    first = over_nodes(cuda_run, None, None, None)[0]
    end = {"event": "outcome", "outcome": "crash", "reason": "no", "exit_code": 1, "wall_s": 3.0}
    (run,), _ = read_native_log(write_log([first], end))
    assert (run.nodes, run.outcome) == (3, "crash")


@pytest.mark.parametrize(
    ("told", "known", "placement"),
    [
        (("leaf1", "leaf1"), None, "1 leaf switch"),
        (("leaf1", "leaf2"), None, "2 leaf switches"),
        ((None, None), ["leaf1", "leaf2"], "2 leaf switches"),
        # what a node says of itself, by the site's own command, goes first
        (("rail1", "rail1"), ["leaf1", "leaf2"], "1 leaf switch"),
        (("leaf1", None), None, None),
        ((None, None), ["leaf1", None], None),
    ],
)
def test_a_placement_is_how_many_switches_lie_between_the_nodes(
    write_log: WriteLog,
    cpu_run: list[Event],
    told: tuple[str | None, ...],
    known: list[str | None] | None,
    placement: str | None,
) -> None:
    (run,), _ = read_native_log(write_log(over_nodes(cpu_run, *told, placement=known)))
    assert run.placement == placement


def test_a_log_from_outside_of_a_cluster_has_no_placement(write_log: WriteLog, cpu_run: list[Event]) -> None:
    (run,), _ = read_native_log(write_log(cpu_run))
    assert (run.placement, run.nodes) == (None, 1)
