import dataclasses
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from falloff.ingest.native import read_native_log
from falloff.records import CollectiveRecord, RunRecord, read_records
from falloff.spec.hardware import Hardware

Event = dict[str, Any]
WriteLog = Callable[..., Path]

H200 = Hardware(
    name="h200-sxm",
    aliases=("NVIDIA H200",),
    peak_flops={"bfloat16": 989.4e12},
    memory_bytes=141 * 10**9,
    power_limit_w=700,
    sources=("a test",),
)


MEASURED = ("cell_json", "outcome", "step_s", "rank_step_s", "window", "window_s", "window_tokens", "losses")


def change(events: list[Event], name: str, **fields: Any) -> list[Event]:
    return [{**event, **fields} if event["event"] == name else event for event in events]


def test_a_run_gives_the_slowest_rank_of_each_measured_step(write_log: WriteLog, cpu_run: list[Event]) -> None:
    (run,), collectives = read_native_log(write_log(cpu_run))
    assert collectives == []
    assert run.step_s == (0.9, 0.9, 0.9)
    assert run.rank_step_s is not None
    assert run.rank_step_s[2] == (0.9, pytest.approx(0.84))
    assert run.losses == (8.0, 7.0, 6.0)
    assert run.window is not None
    assert run.window.startswith("steps 2-4")
    assert run.window_s == pytest.approx(2.7)
    assert run.window_tokens == 3 * 64
    assert run.memory_bytes == 2000
    assert run.tokens_per_step == 64
    assert (run.dp, run.dp_shard, run.num_gpus, run.sharding) == (2, 2, 2, "fsdp")
    assert run.provenance == "measured"
    assert run.record_id == "a_study/tiny-dp_shard2-0123/1"


def test_the_window_is_the_slowest_rank_and_not_the_slowest_of_each_step(
    write_log: WriteLog, cpu_run: list[Event]
) -> None:
    for number, event in enumerate(event for event in cpu_run if event["event"] == "step"):
        event["rank_step_s"] = [0.5, 0.9] if number % 2 else [0.9, 0.5]
    (run,), _ = read_native_log(write_log(cpu_run))
    assert run.step_s == (0.9, 0.9, 0.9)
    assert run.window_s == pytest.approx(0.9 + 0.5 + 0.9)


def test_a_run_states_the_program_and_the_settings_that_it_ran_with(write_log: WriteLog, cpu_run: list[Event]) -> None:
    (run,), _ = read_native_log(write_log(cpu_run))
    assert (run.cpu, run.cores, run.threads_per_process, run.seed, run.warmup_steps) == ("A CPU", 2, 1, 0, 1)
    assert (run.commit, run.environment) == (None, "none set")


def test_a_changed_checkout_and_settings_of_nccl_are_told(write_log: WriteLog, sweep: list[Event]) -> None:
    sweep[0]["git"] = {"commit": "0123abc", "modified": True}
    sweep[0]["nodes"][0]["environment"] = {"NCCL_PROTO": "LL", "NCCL_ALGO": "Tree", "CUDA_VISIBLE_DEVICES": "1"}
    _, collectives = read_native_log(write_log(sweep))
    assert {c.commit for c in collectives} == {"0123abc+modified"}
    assert {c.environment for c in collectives} == {"NCCL_ALGO=Tree NCCL_PROTO=LL"}
    assert {(c.cpu, c.cores, c.threads_per_process, c.warmup_iterations) for c in collectives} == {("A CPU", 2, 1, 3)}


def test_a_node_has_the_gpus_it_has_however_many_ranks_it_runs(
    write_log: WriteLog, cuda_run: list[Event], cpu_run: list[Event]
) -> None:
    (run,), _ = read_native_log(write_log(cuda_run))
    assert (run.num_gpus, run.gpus_per_node) == (2, 4)


def test_a_run_on_a_cpu_has_no_gpus_in_a_node(write_log: WriteLog, cpu_run: list[Event]) -> None:
    (run,), _ = read_native_log(write_log(cpu_run))
    assert run.gpus_per_node is None


def test_a_run_on_gloo_has_no_exposure_and_says_why(write_log: WriteLog, cpu_run: list[Event]) -> None:
    (run,), _ = read_native_log(write_log(cpu_run))
    assert run.trace_exposed_comm_s is None
    assert run.trace_note is not None
    assert "gloo" in run.trace_note


def test_a_run_without_a_meter_has_no_power_and_says_why(write_log: WriteLog, cpu_run: list[Event]) -> None:
    (run,), _ = read_native_log(write_log(cpu_run))
    assert run.draw_w is None
    assert run.energy_j is None
    assert run.power_source == "no NVIDIA driver and no readable RAPL"


def test_a_run_on_a_cpu_has_no_hardware_and_names_its_cpu(write_log: WriteLog, cpu_run: list[Event]) -> None:
    (run,), _ = read_native_log(write_log(cpu_run), {"h200-sxm": H200})
    assert run.hardware is None
    assert run.gpu_name is None
    assert run.note == "CPU A CPU, 2 cores"


def write_power(folder: Path) -> None:
    lines = ["time_s,device,draw_w,energy_j,sm_clock_mhz,temperature_c,throttle_reasons"]
    for sample in range(80):
        time_s = 1_800_000_000.0 + sample / 10
        for device in range(4):
            draw_w = 100.0 * (device + 1)
            lines.append(f"{time_s},{device},{draw_w},{draw_w * sample / 10 + 50},1500,40,0")
    (folder / "power.csv").write_text("\n".join(lines) + "\n")


def with_meter(events: list[Event]) -> list[Event]:
    devices = [{"index": index, "uuid": f"GPU-{index}", "name": "NVIDIA H200"} for index in range(4)]
    return change(
        events, "power", source="nvml", reason=None, scope="gpu", devices=devices, file="power.csv", counter=True
    )


def test_only_the_gpus_of_the_run_are_charged(write_log: WriteLog, cuda_run: list[Event]) -> None:
    path = write_log(with_meter(cuda_run))
    write_power(path.parent)
    (run,), _ = read_native_log(path, {"h200-sxm": H200})
    # ranks on GPU 1 and 2, at 200 and 300 W, from step 2's start over the 2.7 s of the slowest rank
    assert run.draw_w == pytest.approx(250)
    assert run.energy_j == pytest.approx(500 * 2.7)
    assert run.power_source == "NVML gpu every 0.1 s, energy counter, new every 0.1 s"
    assert run.energy_counter_j == run.energy_j == pytest.approx(run.energy_integral_j)
    assert run.sm_clock_mhz == 1500
    # 2.7 s are 27 periods of the counter
    assert run.flags is not None
    assert any("27 readings of the energy counter, fewer than 300" in flag for flag in run.flags)


def test_a_missing_power_file_is_a_reason_and_not_an_error(write_log: WriteLog, cuda_run: list[Event]) -> None:
    (run,), _ = read_native_log(write_log(with_meter(cuda_run)))
    assert run.draw_w is None
    assert run.power_source is not None
    assert run.power_source.startswith("power.csv: cannot be read")


def test_a_gpu_is_matched_to_its_hardware_and_identity(write_log: WriteLog, cuda_run: list[Event]) -> None:
    (run,), _ = read_native_log(write_log(cuda_run), {"h200-sxm": H200})
    assert run.hardware == "h200-sxm"
    assert run.gpu_name == "NVIDIA H200"
    assert run.gpu_uuids == ("GPU-1", "GPU-2")
    assert (run.driver, run.power_limit_w) == ("580.159.04", 700.0)


def test_an_unknown_gpu_has_no_hardware_and_a_flag_that_says_so(write_log: WriteLog, cuda_run: list[Event]) -> None:
    events = change(cuda_run, "process_group", device_names=["NVIDIA H200 NVL"] * 2)
    (run,), _ = read_native_log(write_log(events), {"h200-sxm": H200})
    assert run.hardware is None
    assert run.flags is not None
    assert "'NVIDIA H200 NVL' is unknown" in run.flags[0]


def test_a_trace_on_cuda_gives_the_exposure(write_log: WriteLog, cuda_run: list[Event]) -> None:
    path = write_log(cuda_run)
    kernels = [
        {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 1, "ts": 0, "dur": 10},
        {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllGather_RING_LL(x)", "pid": 1, "ts": 5, "dur": 10},
    ]
    (path.parent / "trace.rank0.json.gz").write_text(json.dumps({"traceEvents": kernels}))
    (run,), _ = read_native_log(path)
    assert run.trace_span_s == pytest.approx(15e-6)
    assert run.trace_exposed_comm_s == pytest.approx(5e-6)
    assert run.trace_ref == "trace.rank0.json.gz"


def test_a_missing_trace_does_not_void_the_run(write_log: WriteLog, cuda_run: list[Event]) -> None:
    (run,), _ = read_native_log(write_log(cuda_run))
    assert run.step_s is not None
    assert run.trace_span_s is None
    assert run.trace_note is not None
    assert "is not beside the log" in run.trace_note


@pytest.mark.parametrize("outcome", ["oom", "timeout", "crash", "killed", "unstable"])
def test_a_failed_run_gives_its_outcome_and_no_rates(write_log: WriteLog, cpu_run: list[Event], outcome: str) -> None:
    end = {"event": "outcome", "outcome": outcome, "reason": "rank 1: no", "exit_code": 1, "wall_s": 3.0}
    (run,), _ = read_native_log(write_log(cpu_run, end))
    assert (run.outcome, run.outcome_reason) == (outcome, "rank 1: no")
    assert run.step_s is None
    assert run.network == "tiny"


def test_a_run_that_failed_before_its_ranks_met_gives_a_record(write_log: WriteLog, cuda_run: list[Event]) -> None:
    end = {"event": "outcome", "outcome": "crash", "reason": "no", "exit_code": 1, "wall_s": 3.0}
    (run,), _ = read_native_log(write_log(cuda_run[:1], end))
    assert run.outcome == "crash"
    assert run.num_gpus == 2
    assert run.gpu_name == "NVIDIA H200"


def test_a_log_of_another_cell_than_its_directory_is_an_error(write_log: WriteLog, cpu_run: list[Event]) -> None:
    path = write_log(change(cpu_run, "run_started", repeat=2))
    with pytest.raises(ValueError, match="a log of another cell"):
        read_native_log(path)


@pytest.mark.parametrize(
    ("break_it", "words"),
    [
        (lambda text: text[:0], "empty"),
        (lambda text: text[: len(text) // 2], "cut or garbled"),
        (lambda text: "\n".join(text.splitlines()[:-1]), "not outcome"),
        (lambda text: text.replace('"phase": "measured"', '"phase": "warmup"', 1), "2 measured steps"),
        (
            lambda text: text.replace('"step": 4', '"step": 2'),
            "3 measured steps are in it, 2, 3, 2; .* asks for 2 to 4",
        ),
        (lambda text: text.replace('"rank_step_s": [0.9', '"rank_step_s": ["a0"'), "could not convert string"),
        (lambda text: text.replace('"repeat": 1', '"repeat": "1"'), "repeat must be a whole number, found '1'"),
        (lambda text: text.replace('"rank_step_s": [0.9, ', '"rank_step_s": [-0.9, -', 2), "above zero"),
        (lambda text: text.replace('"tokens": 64', '"tokens": 63'), "63 tokens"),
        (lambda text: text.replace('"rank_step_s"', '"rank_seconds"'), "lacks a field"),
        (lambda text: text.replace('"microbatch"', '"microbach"'), "unknown key 'microbach'"),
    ],
)
def test_a_broken_log_is_one_sentence_that_names_the_file(
    write_log: WriteLog, cpu_run: list[Event], break_it: Callable[[str], str], words: str
) -> None:
    path = write_log(cpu_run)
    path.write_text(break_it(path.read_text()))
    with pytest.raises(ValueError, match=words) as error:
        read_native_log(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def read_or_error(path: Path) -> RunRecord | ValueError:
    try:
        return read_native_log(path)[0][0]
    except ValueError as error:
        return error


def test_any_line_cut_or_garbled_is_a_sentence_or_a_record(write_log: WriteLog, cpu_run: list[Event]) -> None:
    path = write_log(cpu_run)
    (whole,), _ = read_native_log(path)
    lines = path.read_text().splitlines()
    for number, line in enumerate(lines):
        for broken in (line[: len(line) // 2], line.replace("[", "{"), "null", '{"event": 3}', '{"event": "step"}'):
            path.write_text("\n".join([*lines[:number], broken, *lines[number + 1 :]]) + "\n")
            run = read_or_error(path)
            if isinstance(run, ValueError):
                assert str(path) in str(run)
                continue
            # what comes back has lost nothing that was measured
            assert {name: getattr(run, name) for name in MEASURED} == {name: getattr(whole, name) for name in MEASURED}


def test_a_sweep_gives_a_record_for_each_collective_and_size(write_log: WriteLog, sweep: list[Event]) -> None:
    runs, collectives = read_native_log(write_log(sweep))
    assert runs == []
    assert [(c.collective, c.message_bytes) for c in collectives] == [
        ("all_reduce", 1024),
        ("all_reduce", 4096),
        ("all_gather", 1024),
        ("all_gather", 4096),
    ]
    assert collectives[0].times_s == (0.001, 0.002)
    assert collectives[0].num_ranks == 2


def test_a_failed_sweep_keeps_its_points_without_times(write_log: WriteLog, sweep: list[Event]) -> None:
    end = {"event": "outcome", "outcome": "timeout", "reason": "slow", "exit_code": 1, "wall_s": 3.0}
    _, collectives = read_native_log(write_log(sweep[:3], end))
    assert len(collectives) == 4
    assert {(c.outcome, c.times_s) for c in collectives} == {("timeout", None)}


def test_a_wrong_result_is_no_measurement(write_log: WriteLog, sweep: list[Event]) -> None:
    _, collectives = read_native_log(write_log(change(sweep, "collective", correct=False)))
    assert collectives[0].outcome == "crash"
    assert collectives[0].times_s is None


def test_a_sweep_that_lacks_a_size_is_an_error(write_log: WriteLog, sweep: list[Event]) -> None:
    path = write_log([event for event in sweep if event.get("message_bytes") != 4096])
    with pytest.raises(ValueError, match="all_reduce of 4096 bytes is not in it"):
        read_native_log(path)


def test_a_sweep_that_holds_a_size_twice_is_an_error(write_log: WriteLog, sweep: list[Event]) -> None:
    path = write_log([*sweep[:3], sweep[2], *sweep[3:]])
    with pytest.raises(ValueError, match="all_reduce of 1024 bytes is in it twice"):
        read_native_log(path)


@pytest.mark.parametrize("read", ["run", "sweep"])
def test_a_repeat_of_another_loan_stands_beside_the_first_and_is_named_by_its_folder(
    write_log: WriteLog, cpu_run: list[Event], sweep: list[Event], read: str
) -> None:
    first = write_log(cpu_run if read == "run" else sweep)
    beside = first.parent.with_name("1-loan2")
    beside.mkdir()
    again = beside / first.name
    again.write_bytes(first.read_bytes())
    records = [[*runs, *collectives] for runs, collectives in map(read_native_log, (first, again))]
    cell = "/".join(first.parts[-4:-2])
    for found, folder in zip(records, ("1", "1-loan2"), strict=True):
        assert {record.record_id.split("/", 3)[2] for record in found} == {folder}
        assert all(record.record_id.startswith(f"{cell}/{folder}") and record.repeat == 1 for record in found)
        assert all("read from elsewhere" not in str(record.flags) for record in found)


@pytest.mark.parametrize("folder", ["2", "2-loan1", "loan1", "11", "-1"])
def test_a_folder_that_begins_with_another_repeat_is_not_the_logs_own(
    write_log: WriteLog, cpu_run: list[Event], folder: str
) -> None:
    log = write_log(cpu_run)
    with pytest.raises(ValueError, match="a log of another cell"):
        read_native_log(log.parent.rename(log.parent.with_name(folder)) / log.name)


def test_a_copied_log_is_read_where_that_is_asked_for_and_says_whose_it_is(
    write_log: WriteLog, cpu_run: list[Event], tmp_path: Path
) -> None:
    copy = tmp_path / "elsewhere.log"
    copy.write_bytes(write_log(cpu_run).read_bytes())
    with pytest.raises(ValueError, match="a log of another cell"):
        read_native_log(copy)
    (run,), _ = read_native_log(copy, anywhere=True)
    assert run.record_id == "a_study/tiny-dp_shard2-0123/1"
    assert (run.study, run.cell_id, run.repeat) == ("a_study", "tiny-dp_shard2-0123", 1)
    assert run.flags == ("read from elsewhere: it is the log of a_study/tiny-dp_shard2-0123/1",)


def run_script(path: Path, out: Path, *more: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "workflow_scripts/ingest_run.py", "--log", str(path), *map(str, more)]
    kinds = ("runs", "collectives", "kernels")
    outputs = [part for kind in kinds for part in (f"--{kind}", str(out / f"x.{kind}.parquet"))]
    return subprocess.run([*command, *outputs], capture_output=True, text=True, check=False)


def test_the_script_writes_the_three_record_files(write_log: WriteLog, cpu_run: list[Event], tmp_path: Path) -> None:
    path = write_log(cpu_run)
    done = run_script(path, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    runs = read_records([tmp_path / "x.runs.parquet"], RunRecord)
    assert list(runs["step_s"].iloc[0]) == [0.9, 0.9, 0.9]
    assert read_records([tmp_path / "x.collectives.parquet"], CollectiveRecord).empty
    assert set(runs.columns) == {field.name for field in dataclasses.fields(RunRecord)}


def test_the_script_writes_the_records_of_several_logs_into_one_file_each(
    write_log: WriteLog, cpu_run: list[Event], tmp_path: Path
) -> None:
    path = write_log(cpu_run)
    other = tmp_path / "a_study" / "tiny-dp_shard2-0123" / "2" / "events.jsonl"
    other.parent.mkdir()
    other.write_text(path.read_text().replace('"repeat": 1', '"repeat": 2'))
    done = run_script(path, tmp_path, other)
    assert (done.returncode, done.stderr) == (0, "")
    runs = read_records([tmp_path / "x.runs.parquet"], RunRecord)
    assert list(runs["record_id"]) == [f"a_study/tiny-dp_shard2-0123/{repeat}" for repeat in (1, 2)]


def test_the_script_says_what_is_wrong_and_writes_nothing(
    write_log: WriteLog, cpu_run: list[Event], tmp_path: Path
) -> None:
    path = write_log(cpu_run)
    path.write_text("")
    done = run_script(path, tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert not list(tmp_path.glob("*.parquet"))


REAL_GPU_LOG = Path(__file__).parents[1] / "data/native/laptop/llama-5m-dp_shard2-79881de5/1/events.jsonl"


def test_a_real_log_of_two_gpus_gives_steps_power_and_identity() -> None:
    (run,), _ = read_native_log(REAL_GPU_LOG, {"h200-sxm": H200})
    assert run.outcome == "ok"
    assert (run.backend, run.num_gpus, run.hardware, run.nccl) == ("nccl", 2, "h200-sxm", "2.28.9")
    assert run.step_s is not None
    assert len(run.step_s) == 10
    assert run.power_limit_w == 700
    # the counters change every 0.1 s, so that half a second of steps says too little
    assert run.window_s == pytest.approx(0.526, abs=1e-3)
    assert (run.energy_j, run.draw_w) == (None, None)
    assert run.power_source == "the measured window of 0.53 s is too short for power (at least 1 s)"
    assert run.trace_note is not None


@pytest.mark.parametrize(
    ("share", "flags"), [(None, None), (0.05, None), (0.62, "busy machine: other processes used 62 %")]
)
def test_a_run_beside_other_work_is_flagged(
    write_log: WriteLog, cpu_run: list[Event], share: float | None, flags: str | None
) -> None:
    outcome = {
        "event": "outcome",
        "outcome": "ok",
        "reason": None,
        "exit_code": 0,
        "wall_s": 9.0,
        "other_cpu_share": share,
    }
    (run,), _ = read_native_log(write_log(cpu_run, outcome))
    if flags is None:
        assert run.flags is None
    else:
        assert run.flags is not None
        assert run.flags[0].startswith(flags)


def settled(**changes: Any) -> Event:
    """The event that ends a warm-up which waited for rest."""
    ended = {"steps": 40, "seconds": 33.0, "settled": True, "step_drift_share": 0.0004, "clock_drift_share": -0.0001}
    return {"event": "settled", **ended, **changes}


def with_window(events: list[Event], *, first_step: int = 2, steps: int = 3, asked_s: float = 2.0) -> list[Event]:
    """The events of a run whose log states its window, under a cell that asked to settle."""
    first = {**events[0], "cell": {**events[0]["cell"], "settle_s": 60.0, "measured_steps": 2}}
    window = {"event": "window", "first_step": first_step, "steps": steps, "asked_s": asked_s}
    return [first, *events[1:3], window, *events[3:]]


def test_the_window_that_a_log_states_is_what_its_steps_must_be(write_log: WriteLog, cpu_run: list[Event]) -> None:
    (run,), _ = read_native_log(write_log([*with_window(cpu_run), settled()]))
    assert run.step_s is not None
    assert (len(run.step_s), run.window_first_step, run.settled, run.flags) == (3, 2, True, None)
    # the same whichever steps those were
    assert run.window == "2 s or more once step time and clock held still"


def test_steps_of_another_window_than_the_log_states_are_an_error(write_log: WriteLog, cpu_run: list[Event]) -> None:
    with pytest.raises(ValueError, match=r"3 measured steps are in it, 2, 3, 4; its window is 3 to 5"):
        read_native_log(write_log(with_window(cpu_run, first_step=3)))


def test_a_window_of_fewer_steps_than_the_cell_asks_for_is_an_error(write_log: WriteLog, cpu_run: list[Event]) -> None:
    with pytest.raises(ValueError, match=r"a window of 1 steps; the cell asks for 2 or more"):
        read_native_log(write_log(with_window(cpu_run, steps=1)))


def test_a_run_that_did_not_settle_is_flagged_with_its_slopes(write_log: WriteLog, cpu_run: list[Event]) -> None:
    restless = settled(settled=False, step_drift_share=0.031, clock_drift_share=None)
    (run,), _ = read_native_log(write_log([*with_window(cpu_run), restless]))
    assert run.settled is False
    assert run.flags == ("not settled after 40 steps, 33 s of warm-up (step time +3.10%)",)
    assert run.window is not None
    assert "did not" in run.window
    brief = settled(settled=False, step_drift_share=None, clock_drift_share=None)
    (run,), _ = read_native_log(write_log([*with_window(cpu_run), brief]))
    assert run.flags == ("not settled after 40 steps, 33 s of warm-up (too few points)",)


def test_a_window_shorter_than_asked_for_is_flagged(write_log: WriteLog, cpu_run: list[Event]) -> None:
    (run,), _ = read_native_log(write_log([*with_window(cpu_run, asked_s=30), settled()]))
    assert run.flags == ("the window of 2.7 s is shorter than the 30 s asked for",)


def test_host_data_and_optimizer_seconds_are_medians_of_the_slowest_rank(
    write_log: WriteLog, cpu_run: list[Event]
) -> None:
    for event in cpu_run:
        if event["event"] == "step":
            number = event["step"]
            parts = {"rank_host_s": [0.1, 0.1 * number], "rank_data_s": [0.0, 0.001], "rank_optimizer_s": [0.2, 0.1]}
            event |= {**parts, "grad_norm": 10.0 / number}
    (run,), _ = read_native_log(write_log(cpu_run))
    assert (run.host_s, run.data_s, run.optimizer_s) == (pytest.approx(0.3), 0.001, 0.2)
    assert run.grad_norms == (5.0, pytest.approx(10 / 3), 2.5)


@pytest.mark.parametrize(("lead", "host_s"), [(None, 0.4), (0, 0.4), (1, 0.2)])
def test_on_a_gpu_the_hosts_seconds_are_those_of_the_step_that_begins_after_a_pause(
    write_log: WriteLog, cpu_run: list[Event], lead: int | None, host_s: float
) -> None:
    window = {
        "event": "window",
        "first_step": 2,
        "steps": 3,
        "asked_s": 0,
        **({} if lead is None else {"lead_steps": lead}),
    }
    steps = [
        event | {"rank_host_s": [0.1, 0.2 * event["step"]]} if event["event"] == "step" else event for event in cpu_run
    ]
    (run,), _ = read_native_log(write_log([*change(steps, "run_started", device="cuda")[:3], window, *steps[3:]]))
    assert run.host_s == pytest.approx(host_s)


def test_what_a_log_does_not_time_is_null(write_log: WriteLog, cpu_run: list[Event]) -> None:
    (run,), _ = read_native_log(write_log(cpu_run))
    assert (run.host_s, run.data_s, run.optimizer_s, run.grad_norms, run.settled) == (None,) * 5
    assert (run.reserved_memory_bytes, run.launch_place) == (None, None)


def test_memory_reserved_and_the_place_in_a_batch_are_read(write_log: WriteLog, cpu_run: list[Event]) -> None:
    events = change(change(cpu_run, "memory", rank_reserved_bytes=[3000, 2500]), "run_started", launch_place=4)
    (run,), _ = read_native_log(write_log(events))
    assert (run.memory_bytes, run.reserved_memory_bytes, run.launch_place) == (2000, 3000, 4)


def test_the_shipped_cell_that_went_out_of_a_gpus_memory_is_a_result() -> None:
    (run,), _ = read_native_log(Path("data/raw/smoke/lab-wide-dp_shard1-75e34694/1/events.jsonl"), {"h200-sxm": H200})
    assert (run.record_id, run.outcome) == ("smoke/lab-wide-dp_shard1-75e34694/1", "oom")
    assert (run.device, run.hardware, run.step_s) == ("cuda", "h200-sxm", None)
    assert run.outcome_reason is not None
    assert run.outcome_reason.startswith("rank 0: CUDA out of memory")


def test_no_shipped_log_names_a_folder_an_address_or_a_host_of_its_own() -> None:
    private = re.compile(r"/(?:root|home|tmp|work|mnt|opt|usr)/|\b\d{1,3}(?:\.\d{1,3}){3}\b")
    logs = [log for study in ("h200", "smoke") for log in Path("data/raw", study).glob("*/*/events.jsonl")]
    texts = {log: log.read_text(encoding="utf-8") for log in logs}
    assert len(texts) > 50
    assert [str(log) for log, text in texts.items() if private.search(text)] == []
    hosts = {node["host"] for text in texts.values() for node in json.loads(text.split("\n", 1)[0])["nodes"]}
    assert hosts == {"vm"}
