import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from falloff.ingest.native import read_native_log
from falloff.ingest.torchtitan_facts import FLOAT8_FLAG, FLOAT8_LINEAR
from falloff.records import RunRecord
from falloff.spec.cell import TrainCell, cell_from_json, cell_to_json
from falloff.spec.layout import Layout

Event = dict[str, Any]
Read = Callable[..., RunRecord]

CHOICES = ("compile", "loss_chunks", "grad_clip", "reshard", "prefetch_forward", "communication", "delay_factor")


@pytest.fixture
def read(write_log: Callable[..., Path], cuda_run: list[Event]) -> Read:
    """Return what writes the log of a cell with some options changed, with events more, and reads it."""

    def read_changed(*more: Event, **options: Any) -> RunRecord:
        cell = cell_from_json(cuda_run[0]["cell"], "a test")
        assert isinstance(cell, TrainCell)
        first = {**cuda_run[0], "cell": cell_to_json(dataclasses.replace(cell, **options))}
        (run,), _ = read_native_log(write_log([first, *cuda_run[1:], *more]))
        return run

    return read_changed


def test_a_log_from_before_the_choices_states_none_of_them(
    write_log: Callable[..., Path], cuda_run: list[Event]
) -> None:
    old = ("network", "layout", "seq", "global_batch", "microbatch", "warmup_steps", "measured_steps", "profiled_steps")
    cell = {name: cuda_run[0]["cell"][name] for name in ("kind", *old)}
    (run,), _ = read_native_log(write_log([{**cuda_run[0], "cell": cell}, *cuda_run[1:]]))
    assert [getattr(run, name) for name in CHOICES] == [None] * len(CHOICES)


def test_what_a_cell_states_is_in_its_record(read: Read) -> None:
    run = read(compile=True, prefetch_forward=2, prefetch_backward=0, grad_clip=1.0, reshard_after_forward=False)
    assert (run.compile, run.loss_chunks, run.grad_clip, run.reshard) == (True, "none", "norm 1", "never")
    assert (run.prefetch_forward, run.prefetch_backward, run.communication, run.delay_factor) == (2, 0, "real", 0.0)


def test_a_group_to_which_parameters_are_resharded_is_named(read: Read) -> None:
    assert read(reshard_group=2).reshard == "to groups of 2"
    assert read().reshard == "after forward"


def test_a_choice_that_the_layout_has_no_use_for_is_null(read: Read) -> None:
    sharded = read()
    assert (sharded.pp_schedule, sharded.vpp, sharded.cp_method, sharded.async_tp) == (None,) * 4
    piped = read(layout=Layout(pp=2))
    assert (piped.pp_schedule, piped.vpp, piped.reshard, piped.prefetch_forward) == ("1f1b", 1, None, None)


def test_context_parallel_ranks_share_out_the_parameters_so_that_how_is_stated(read: Read) -> None:
    run = read(layout=Layout(cp=2))
    assert (run.cp_method, run.reshard, run.prefetch_forward) == ("all_gather", "after forward", 1)


def test_float8_is_a_precision_without_a_peak_as_in_imported_logs(read: Read) -> None:
    run = read(float8=True, param_dtype="bfloat16")
    assert run.param_dtype == FLOAT8_LINEAR
    assert run.flags is not None
    assert FLOAT8_FLAG in run.flags


def test_which_attention_ran_and_what_padding_makes_up_is_what_the_log_says(read: Read) -> None:
    attention = {"event": "attention", "backend": "cudnn", "kernels": ["cudnn_flash_fprop"]}
    sharding = {"event": "sharding", "param_elements": 100, "padded_elements": 104, "padded_share": 0.04, "wrapped": 3}
    run = read(attention, sharding, attention="auto")
    assert (run.attention, run.padded_share) == ("cudnn", 0.04)


def test_a_control_is_told_and_flagged_where_the_log_does_not_say_that_it_was_in_force(read: Read) -> None:
    run = read(communication="none")
    assert run.control == "no communication"
    assert run.flags is not None
    assert "'no communication'" in run.flags[0]


def test_a_control_in_force_has_no_flag(read: Read) -> None:
    gather = {"collective": "all_gather", "message_bytes": 64, "num_ranks": 2}
    calls = [
        {**gather, "num": 4, "base_s": 0.01, "delay_s": 0.015},
        {**gather, "num": 1, "base_s": 0.1, "delay_s": 0.15},
    ]
    run = read({"event": "control", "kind": "delay", "calls": calls}, delay_factor=1.5)
    assert (run.control, run.delay_factor, run.flags) == ("delay", 1.5, None)
    assert (run.base_communication_s, run.added_communication_s) == (pytest.approx(0.14), pytest.approx(0.21))


def test_an_ordinary_run_is_no_control(read: Read) -> None:
    assert read().control is None
