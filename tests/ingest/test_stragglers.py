"""Straggling nodes: from a log's table of slow ranks, and from the times of each rank of our own runs."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from falloff.ingest.recognise import read_any
from falloff.ingest.stragglers import is_slow_steps, left_out, read_slow_steps, read_slow_steps_file, straggler

# As xtuner's analysis of its logs prints it (InternLM/xtuner pull request 1790), two steps, rows left out.
LOG = """=== 2. Data-bound steps -- slowest ranks ===

[step 173] step_time=381.06s  dt_med=0.0028s  dt_max=332.46s
  Top 10 slowest ranks by data_time (step_time_med=381.06s):
     rank   data_time   step_time
      144     332.459      48.455
      145     332.214      48.553
      147     311.960      68.953
      146     195.487     185.265
      160       0.053     381.009
      138       0.022     381.038
    [hint] contiguous rank groups: [[138, 139, 140], [144, 145, 146, 147]]

[step 199] step_time=1123.72s  dt_med=0.0026s  dt_max=1085.33s
  Top 10 slowest ranks by data_time (step_time_med=1123.72s):
     rank   data_time   step_time
      157    1085.331      38.098
      156    1060.093      63.326
      159    1059.593      63.893
      158    1058.120      65.351
       84       0.007    1123.715
"""


def test_the_ranks_that_wait_for_data_are_one_node() -> None:
    first, second = read_slow_steps(LOG)
    assert first.groups() == ((144, 145, 146, 147),)
    assert second.groups() == ((156, 157, 158, 159),)
    assert first.data_bound
    assert second.num_cut_lines == 0


def test_a_step_bound_by_data_is_left_out_of_the_steady_state_with_who_waited() -> None:
    (first, second) = left_out(read_slow_steps(LOG))
    assert (first.first, first.last) == (173, 173)
    assert first.reason == "bound by data: ranks 144-147 waited up to 332.5 of 381.1 s"
    assert second.reason == "bound by data: ranks 156-159 waited up to 1085 of 1124 s"


def test_columns_are_told_by_name_in_any_order_and_colours_and_ranks_before_a_line_do_no_harm() -> None:
    text = "[default0]:\x1b[32m[step 7] step_time: 10.0s\x1b[0m\nstep_time rank data_time\n 2.0 3 8.0\n 9.9 4 0.01\n"
    (step,) = read_slow_steps(text)
    assert step.rank_data_s == {3: 8.0, 4: 0.01}
    assert step.groups() == ((3,),)


def test_a_cut_row_is_counted_and_not_guessed() -> None:
    (step,) = read_slow_steps("[step 1] step_time=10s\nrank data_time step_time\n 1 9.0 1.0\n 2 9.\n 3 x 1.0\n")
    assert step.rank_data_s == {1: 9.0}
    assert step.num_cut_lines == 2


def test_nodes_that_lie_beside_each_other_are_told_apart_where_the_ranks_of_a_node_are_known() -> None:
    rows = "\n".join(f"{rank} 9.0 1.0" for rank in range(4, 12))
    (step,) = read_slow_steps(f"[step 1] step_time=10s\nrank data_time step_time\n{rows}\n")
    assert step.groups() == (tuple(range(4, 12)),)
    assert step.groups(ranks_per_node=4) == ((4, 5, 6, 7), (8, 9, 10, 11))


def test_a_step_without_a_table_is_bound_by_data_where_its_longest_wait_says_so() -> None:
    bound, healthy = read_slow_steps(
        "[step 5] step_time=300ms dt_max=100ms\n[step 6] step_time=300ms dt_max=1ms\nstep_time=1s\n"
    )
    assert (bound.data_bound, healthy.data_bound) == (True, False)
    assert [step.first for step in left_out([bound, healthy])] == [5]


@pytest.mark.parametrize("text", ["", "step: 1 loss: 2.0", "rank data_time step_time\n1 2 3"])
def test_a_text_without_such_a_step_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="no step with its slowest ranks"):
        read_slow_steps(text)


@given(st.binary(max_size=400))
def test_anything_ends_in_steps_or_one_error(garbage: bytes) -> None:
    text = LOG[:200] + garbage.decode("utf-8", "replace") + LOG[200:]
    assert left_out(read_slow_steps(text)) is not None


def times(num_steps: int = 10, num_ranks: int = 12, *, seed: int = 0) -> np.ndarray[Any, Any]:
    return 1 + 0.01 * np.random.default_rng(seed).standard_normal((num_steps, num_ranks))


def test_a_node_whose_steps_are_longer_is_named() -> None:
    slow = times()
    slow[:, 4:8] *= 1.2
    assert straggler(slow.tolist(), 4) == "ranks 4-7 (node 1) take 1.20 times the steps of the others"


def test_a_node_that_comes_late_is_named_though_its_own_steps_are_shorter() -> None:
    late = times()
    late[:, 8:] *= 0.13
    found = straggler(late.tolist(), 4)
    assert found == "ranks 8-11 (node 2) are late, the others wait: their own steps are 0.13 of the others'"


@given(st.integers(0, 1000), st.integers(3, 20), st.sampled_from([1, 2, 3, 4]))
def test_ranks_that_scatter_alike_have_no_straggler(seed: int, num_steps: int, ranks_per_node: int) -> None:
    assert straggler(times(num_steps, seed=seed).tolist(), ranks_per_node) is None


@given(st.floats(1e-3, 1e3), st.permutations(range(10)))
def test_neither_the_unit_nor_the_order_of_steps_changes_who_straggles(unit: float, order: list[int]) -> None:
    slow = times()
    slow[:, :4] *= 1.5
    assert straggler((unit * slow[order]).tolist(), 4) == straggler(slow.tolist(), 4)


def test_one_odd_step_or_one_odd_rank_is_no_straggling_node() -> None:
    once = times()
    once[3, 4:8] *= 10
    assert straggler(once.tolist(), 4) is None
    alone = times()
    alone[:, 5] *= 1.5
    assert straggler(alone.tolist(), 4) is None


@pytest.mark.parametrize("ranks_per_node", [0, 5, 6, 12])
def test_fewer_than_three_whole_nodes_tell_nothing(ranks_per_node: int) -> None:
    slow = times()
    slow[:, : max(1, ranks_per_node)] *= 1.5
    assert straggler(slow.tolist(), ranks_per_node) is None


def test_no_steps_and_ragged_steps_tell_nothing() -> None:
    assert straggler([], 4) is None
    assert straggler([[1.0] * 12] * 2, 4) is None


@pytest.mark.parametrize("prefix", ["", "0: ", "[1,0]<stdout>:"])
def test_a_file_of_slow_steps_is_told_by_its_content(tmp_path: Path, prefix: str) -> None:
    path = tmp_path / "analysis.txt"
    path.write_text("".join(f"{prefix}{line}\n" for line in LOG.splitlines()))
    reading = read_any(path)
    assert (reading.kind, reading.is_something) == ("slow-steps", True)
    assert reading.slow_steps == tuple(read_slow_steps(LOG))


@pytest.mark.parametrize(
    "text",
    ["[step 1] step_time=10s\n", "[step 1] step_time=10s\nrank data_time\n 1 9.0\n", "rank data_time step_time\n"],
)
def test_a_step_without_its_ranks_is_no_such_file(text: str) -> None:
    assert not is_slow_steps(text)


def test_a_garbled_file_of_slow_steps_names_itself(tmp_path: Path) -> None:
    path = tmp_path / "analysis.txt"
    path.write_text("nothing\n")
    with pytest.raises(ValueError, match=r"analysis\.txt: no step with its slowest ranks"):
        read_slow_steps_file(path)
