from typing import Any

import pytest

from falloff.spec.collectives_cell import CollectivesCell
from falloff.spec.reading import ImpossibleLayoutError


def make_sweep(**changes: Any) -> CollectivesCell:
    stated = {"num_processes": 8, "collectives": ("all_reduce",), "message_bytes": (1024,)}
    return CollectivesCell(**{**stated, **changes})


def test_only_what_has_both_forms_is_timed_in_both() -> None:
    cell = make_sweep(
        collectives=("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv"), in_place=(False, True)
    )
    assert [(point.collective, point.in_place) for point in cell.points] == [
        ("all_reduce", True),
        ("all_gather", False),
        ("all_gather", True),
        ("reduce_scatter", False),
        ("reduce_scatter", True),
        ("all_to_all", False),
        ("send_recv", False),
    ]


def test_sizes_go_up_and_small_ones_are_timed_as_loops() -> None:
    cell = make_sweep(message_bytes=(4096, 1024, 2048), iterations_per_lap=20, looped_bytes=2048)
    assert [(point.message_bytes, point.iterations_per_lap) for point in cell.points] == [
        (1024, 20),
        (2048, 20),
        (4096, 1),
    ]


def test_without_a_bound_every_size_is_timed_as_loops() -> None:
    cell = make_sweep(message_bytes=(1024, 2**30), iterations_per_lap=5)
    assert {point.iterations_per_lap for point in cell.points} == {5}


@pytest.mark.parametrize(("group_size", "ranks_and_groups"), [(None, (8, 1)), (8, (8, 1)), (2, (2, 4))])
def test_groups_share_out_the_processes(group_size: int | None, ranks_and_groups: tuple[int, int]) -> None:
    cell = make_sweep(group_size=group_size)
    assert (cell.num_ranks, cell.num_groups) == ranks_and_groups


def test_a_size_is_shared_out_in_its_group_and_not_among_all() -> None:
    assert make_sweep(message_bytes=(8,), group_size=2).num_ranks == 2
    with pytest.raises(ValueError, match="message_bytes 8 is not a positive multiple of 4 bytes times 8 ranks"):
        make_sweep(message_bytes=(8,))


@pytest.mark.parametrize("group_size", [1, 3, 16])
def test_a_group_that_does_not_share_out_the_processes_is_refused(group_size: int) -> None:
    with pytest.raises(ImpossibleLayoutError, match=f"group_size {group_size} must be 2 or more and divide"):
        make_sweep(group_size=group_size)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"group_across": True}, "group_across needs a group_size below num_processes"),
        ({"group_across": True, "group_size": 8}, "group_across needs a group_size below num_processes"),
        ({"in_place": ()}, "collectives, message_bytes, in_place must each name at least one"),
        ({"in_place": (True, True)}, "in_place names True twice"),
        ({"iterations_per_lap": 0}, "iterations_per_lap must be above zero"),
        ({"looped_bytes": -1}, "looped_bytes must be above zero"),
    ],
)
def test_a_mistake_in_a_sweep_is_a_sentence(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        make_sweep(**changes)
