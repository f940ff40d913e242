"""What jobs hold of a cluster, by limits and by what was measured."""

import json
from pathlib import Path

import pytest

from falloff.cost import costs_of, gpu_limit, total_of, walls_of
from falloff.launch import Run
from falloff.spec.collectives_cell import CollectivesCell
from falloff.spec.hardware import read_all_hardware
from falloff.spec.study import Limits

from .site_of_a_test import a_site

KNOWN = read_all_hardware(Path(__file__).parents[1] / "config" / "hardware")


def a_run(cell_id: str, num_processes: int = 16, repeat: int = 1) -> Run:
    cell = CollectivesCell(num_processes=num_processes, collectives=("all_reduce",), message_bytes=(1024,))
    return Run(
        study="s",
        cell_id=cell_id,
        repeat=repeat,
        cell=cell,
        limits=Limits(timeout_s=600.0),
        run_dir=Path("s", cell_id, str(repeat)),
        device="cuda",
    )


def test_a_job_that_nobody_has_measured_is_held_to_its_limit() -> None:
    (job,) = costs_of([[a_run("a")]], a_site(), {})
    assert (job.nodes, job.gpus, job.held_s, job.rule) == (2, 16, 900.0, "limit")
    assert job.gpu_hours == pytest.approx(4.0)
    assert job.node_hours == pytest.approx(0.5)


def test_a_cell_with_logs_takes_as_long_as_they_did_and_starts_once_a_job() -> None:
    runs = [a_run("a", repeat=3), a_run("b", repeat=3)]
    (job,) = costs_of([runs], a_site(), {"a": [100.0, 120.0]})
    assert (job.held_s, job.rule) == (300 + 110 + 600, "measured")
    assert job.runs == ("a/3", "b/3")


def test_a_node_that_nobody_else_gets_is_held_with_all_its_gpus() -> None:
    alone, beside = (
        costs_of([[a_run("a", 2)]], a_site(exclusive=exclusive), {})[0].gpus for exclusive in (True, False)
    )
    assert (alone, beside) == (8, 2)


def test_ranks_on_cpus_hold_nodes_and_no_gpus() -> None:
    (job,) = costs_of([[a_run("a")]], a_site(gpu_resource=None, exclusive=True), {})
    assert (job.gpus, job.gpu_hours, job.nodes) == (0, 0.0, 2)


def test_totals_are_sums_and_energy_is_at_the_power_limit() -> None:
    jobs = costs_of([[a_run("a")], [a_run("b", 8)]], a_site(), {})
    watts, rule = gpu_limit("NVIDIA H200", KNOWN)
    total = total_of(jobs, watts)
    assert (total.num_jobs, total.num_runs, total.gpu_hours) == (2, 2, pytest.approx(6.0))
    assert total.energy_kwh == pytest.approx(6.0 * 0.7)
    assert "h200-sxm, 700 W" in rule


def test_without_a_gpu_that_is_named_there_is_no_energy_and_the_rule_says_so() -> None:
    watts, rule = gpu_limit(None, KNOWN)
    assert total_of(costs_of([[a_run("a")]], a_site(), {}), watts).energy_kwh is None
    assert "--hardware" in rule
    with pytest.raises(ValueError, match="leaves open which of"):
        gpu_limit("h200", KNOWN)


def test_seconds_are_those_of_sealed_logs_whatever_their_outcome(tmp_path: Path) -> None:
    for repeat, (outcome, wall_s) in enumerate([("ok", 50.0), ("oom", 20.0), ("killed", None)], start=1):
        folder = tmp_path / "a" / str(repeat)
        folder.mkdir(parents=True)
        events = [
            {"event": "run_started", "schema": 1},
            {"event": "outcome", "outcome": outcome, "reason": None, "wall_s": wall_s},
        ]
        (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    assert walls_of(tmp_path) == {"a": [50.0, 20.0]}
