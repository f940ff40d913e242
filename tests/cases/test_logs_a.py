"""Cases of logs of TorchTitan, nanochat, Composer, fms-fsdp and LlamaFactory, read by falloff."""

import dataclasses
import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from falloff.analysis.conventions import rescaled_mfu
from falloff.ingest.frameworks import framework_of, read_framework_log
from falloff.ingest.logtext import clean, read_lines
from falloff.ingest.published import HARDWARE
from falloff.ingest.steady import find_steady_windows, run_fields
from falloff.ingest.step_windows import tokens_after, windows_of
from falloff.ingest.torchtitan import step_seconds_of_scalars
from falloff.ingest.training_log import TrainingLog
from falloff.spec.cell import TrainCell
from falloff.spec.hardware import find_hardware, read_all_hardware

from .compare import INPUTS, check

COMPOSER_BLOCKS = """[batch={n}/40]:
\t Train loss/train/total: 7.1
\t Train throughput/batches_per_sec: 0.5
\t Train throughput/samples_per_sec: 16.0
\t Train throughput/tokens_per_sec: {tokens}
"""


def read(case: str) -> list[TrainingLog]:
    """Return the runs of a case's log, by the framework that its content tells."""
    path = INPUTS / f"{case}.log"
    name = framework_of(clean(path.read_text()))
    assert name is not None
    return read_framework_log(path, name)


def flagged(log: TrainingLog) -> list[int]:
    """Return the steps whose windows an event or a doubt keeps from the rates."""
    return [step.step for step in log.steps if step.event or step.unusable]


def mfu_over_another_peak() -> dict[str, Any]:
    # the lines do not say which GPU it is; whoever posted them does
    peak = find_hardware("A100-80GB-SXM", read_all_hardware(HARDWARE)).peak_flops["bfloat16"]
    (log,) = read("U011")
    share = log.steps[0].peak_flops_share
    assert share is not None
    return {"peak": peak, "mfu_first": share, "mfu_if_989": rescaled_mfu(share, peak, 989e12), "rows": log.num_rows}


def quantised() -> dict[str, Any]:
    (log,) = read("U015")
    (step,) = log.steps
    fields = run_fields(log)
    return {
        "rows": log.num_rows,
        "tps": step.tokens_per_gpu_s,
        "tflops": fields["reported_tflops_per_gpu"],
        "mfu": fields["reported_mfu"],
    }


def tokens_whatever_the_context_parallel_degree() -> dict[str, Any]:
    logs = [dataclasses.replace(log, facts={**log.facts, "global_batch": 32, "seq": 2048}) for log in read("U030")]
    without_cp, with_cp = (tokens_after(log) for log in logs)
    assert without_cp == with_cp
    return {"tokens_after_5_steps": with_cp}


def rates_by_rises_of_counters() -> dict[str, Any]:
    before, resumed = read("U038")
    kept, _ = find_steady_windows(before)
    (row,) = resumed.steps
    return {
        "tok_s": [window.tokens_per_s for window in kept],
        "resumed_row_invalid": row.unusable is not None and find_steady_windows(resumed)[0] == [],
    }


def seconds_of_windows_of_unequal_length() -> dict[str, Any]:
    given = json.loads((INPUTS / "U040.json").read_text())
    steps = [window["step"] for window in given["windows"]]
    printed = [window["end_to_end_printed"] for window in given["windows"]]
    return {"true": list(step_seconds_of_scalars(steps, printed, given["log_freq"]))}


def a_checkpoint_between_lines() -> dict[str, Any]:
    (log,) = read("U041")
    fields = run_fields(log)
    (step,) = flagged(log)
    assert "a checkpoint was written" in fields["window"]
    per_token = [
        (line.flops_per_gpu_s or 0.0) / (line.tokens_per_gpu_s or 1.0) for line in log.steps if line.step != step
    ]
    return {
        "steady_tps": fields["reported_tokens_per_gpu_s"],
        "flagged_step": step,
        "flops_per_token": statistics.median(per_token),
    }


def a_profilers_dump_between_lines() -> dict[str, Any]:
    (log,) = read("U042")
    rates = [step.tokens_per_gpu_s or 0.0 for step in log.steps]
    (step,) = flagged(log)
    return {
        "median_all": statistics.median(rates),
        "median_clean": run_fields(log)["reported_tokens_per_gpu_s"],
        "mean_all": statistics.mean(rates),
        "flagged_step": step,
    }


def a_rank_without_the_loss() -> dict[str, Any]:
    (log,) = read("U044")
    (loss,) = {step.loss for step in log.steps}
    assert log.outcome != "unstable"
    return {
        "rows": log.num_rows,
        "loss": loss,
        "steady_tps": run_fields(log)["reported_tokens_per_gpu_s"],
        "drop_step": windows_of(log)[0].line.step,
    }


def a_line_that_is_cut() -> dict[str, Any]:
    (log,) = read("U141")
    rates = {step.step: step.tokens_per_gpu_s for step in log.steps}
    return {"rows": log.num_rows, "cut": log.num_cut_lines, "tps_step23": rates[23]}


def lines_that_end_after_tps() -> dict[str, Any]:
    (log,) = read("U142")
    (share,) = {step.peak_flops_share for step in log.steps}
    return {"rows": log.num_rows, "tps": [step.tokens_per_gpu_s for step in log.steps], "mfu": share}


def colours_and_a_validation() -> dict[str, Any]:
    (log,) = read("U144")
    (step,) = log.steps
    return {"rows": log.num_rows, "step": step.step, "tps": step.tokens_per_gpu_s}


def blocks_before_a_window_is_full() -> dict[str, Any]:
    (log,) = read("U153")
    return {
        "blocks": log.num_rows,
        "throughput": [step.tokens_per_gpu_s for step in log.steps],
        "mfu": run_fields(log)["reported_mfu"],
    }


def one_value_a_line() -> dict[str, Any]:
    (log,) = read("U156")
    return {
        "blocks": log.num_rows,
        "current_tps": [step.tokens_per_gpu_s for step in log.steps],
        "overall_tps": [int(step.more["overall token per gpu per sec"]) for step in log.steps],
    }


GOT: dict[str, Callable[[], Any]] = {
    "U011": mfu_over_another_peak,
    "U015": quantised,
    "U030": tokens_whatever_the_context_parallel_degree,
    "U038": rates_by_rises_of_counters,
    "U040": seconds_of_windows_of_unequal_length,
    "U041": a_checkpoint_between_lines,
    "U042": a_profilers_dump_between_lines,
    "U044": a_rank_without_the_loss,
    "U141": a_line_that_is_cut,
    "U142": lines_that_end_after_tps,
    "U144": colours_and_a_validation,
    "U153": blocks_before_a_window_is_full,
    "U156": one_value_a_line,
}


@pytest.mark.parametrize("case", GOT)
def test_a_case_gives_what_it_expects(case: str) -> None:
    check(case, GOT[case]())


def test_a_cell_has_nothing_that_stops_its_steps() -> None:
    """U043: in short runs checkpoints dominate; ours write none, evaluate nothing and log once a step."""
    stops = ("checkpoint", "eval", "save", "log")
    assert not [field.name for field in dataclasses.fields(TrainCell) if any(word in field.name for word in stops)]


def test_what_counts_as_a_token_is_told_apart(tmp_path: Path) -> None:
    """U048: until 0.17.1 Composer multiplies samples by max_seq_len, since then it takes what its loader counts."""
    rates = {"padded": [32768.0, 32768.0], "counted": [30011.7, 29764.2]}
    found = {}
    for name, values in rates.items():
        path = tmp_path / f"{name}.log"
        path.write_text("".join(COMPOSER_BLOCKS.format(n=10 * (n + 1), tokens=v) for n, v in enumerate(values)))
        (log,) = read_framework_log(path, "composer")
        found[name] = run_fields(log)["tokens_are"]
    assert found == {"padded": "all, padding included", "counted": "all but padding"}


def test_escapes_of_all_kinds_are_taken_off_and_carriage_returns_split() -> None:
    """U155: CSI, OSC and lone escapes of rich and tqdm."""
    texts = [line.text for line in read_lines(INPUTS / "U155.log")]
    assert not any("\x1b" in text or "\x07" in text for text in texts)
    assert [text.partition("[")[0] for text in texts if "/100 [" in text] == [
        " 10%|#         | 10/100 ",
        " 20%|##        | 20/100 ",
    ]
    (log,) = read("U155")
    assert [(step.step, step.tokens_per_gpu_s) for step in log.steps] == [(22, 193831)]
