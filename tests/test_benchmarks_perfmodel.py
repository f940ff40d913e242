"""The speed benchmark of the model: what it asks of both sides, and what it calls kept."""

import json
from pathlib import Path

import pytest

from benchmarks.perfmodel import Timed, beside_calculon, gpt3_layouts, table, timed, verdicts


def speeds(**changes: float) -> list[Timed]:
    seconds = {
        "one step of 8 GPUs": (1, 0.005),
        "one step of 100,000 GPUs": (1, 0.005),
        "published cells at once": (4000, 0.1),
        "one timeline, layer by layer": (1, 0.005),
        "search of 1,024 GPUs": (30_000, 0.5),
    }
    return [
        Timed(name=name, predictions=count, seconds=(changes.get(name, kept),) * 3)
        for name, (count, kept) in seconds.items()
    ]


def test_promises_that_are_kept_are_said_to_be() -> None:
    assert all(line.endswith("yes") for line in verdicts(speeds()))


@pytest.mark.parametrize("name", ["published cells at once", "one timeline, layer by layer", "search of 1,024 GPUs",
                                  "one step of 100,000 GPUs"])  # fmt: skip
def test_what_takes_ten_times_too_long_is_a_promise_broken(name: str) -> None:
    slow = {"published cells at once": 20.0, "search of 1,024 GPUs": 300.0}
    broken = [line for line in verdicts(speeds(**{name: slow.get(name, 0.05)})) if line.endswith("NO")]
    assert len(broken) == 1


def test_a_call_is_made_once_before_it_is_timed() -> None:
    calls: list[int] = []
    result = timed("x", 7, lambda: calls.append(1), turns=3)
    assert len(calls) == 4
    assert len(result.seconds) == 3
    assert result.predictions == 7


def test_the_layouts_asked_of_both_take_all_gpus_and_fill_their_stages() -> None:
    layouts = gpt3_layouts()
    assert len(layouts) > 10
    for layout in layouts:
        assert layout["tensor_par"] * layout["pipeline_par"] * layout["data_par"] == layout["num_procs"] == 1024
        assert layout["batch_size"] // layout["data_par"] >= layout["pipeline_par"]


def test_ratios_stand_beside_speeds() -> None:
    reference, other = Timed(name="a", predictions=1, seconds=(1.0,)), Timed(name="b", predictions=10, seconds=(2.0,))
    lines = table([reference, other], reference)
    assert lines[2].endswith("| 1.0 |")
    assert lines[3].endswith("| 5.0 |")


def test_a_folder_without_calculon_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="does not run: ModuleNotFoundError"):
        beside_calculon(tmp_path)


def test_a_result_is_json() -> None:
    assert json.loads(json.dumps([vars(result) for result in speeds()]))
