from collections.abc import Callable
from pathlib import Path

import pytest

from falloff.ingest.frameworks import read_framework_log
from falloff.ingest.steady import find_steady_windows, run_fields, with_defaults
from falloff.ingest.training_log import TrainingLog

DATA = Path(__file__).parents[1] / "data" / "nanochat"
LINE = (
    "step {n:05d}/00500 (2.00%) | loss: 9.798287 | grad norm: 1.2345 | lrm: 0.28 | dt: 100.00ms | tok/sec: 5,242,880 "
    "| mfu: 40.00 | total time: 0.00m"
)
Write = Callable[..., Path]


def read(path: Path) -> TrainingLog:
    (log,) = read_framework_log(path, "nanochat")
    return log


def test_every_step_is_read_also_the_one_behind_a_stray_escape() -> None:
    log = read(DATA / "2025-10.log")
    assert [step.step for step in log.steps] == [0, 1, 2, 3, 4, 5, 6]
    assert log.num_cut_lines == 0
    first = log.steps[0]
    assert (first.loss, first.step_s, first.tokens_per_s) == (11.090355, pytest.approx(23.15674), 22640.0)
    assert first.peak_flops_share == pytest.approx(0.01)
    assert first.more == {"lrm": "1.00", "total time": "0.00m"}


def test_the_header_states_network_batch_and_gpus() -> None:
    facts = read(DATA / "2025-10.log").facts
    expected = {
        "vocab": 65536,
        "layers": 20,
        "hidden": 1280,
        "heads": 10,
        "kv_heads": 10,
        "params": 560988160.0,
        "microbatch": 32,
        "seq": 2048,
        "num_gpus": 8,
        "tokens_per_step": 524288.0,
        "tokens_are": "all",
    }
    assert {name: facts.get(name) for name in expected} == expected


def test_a_header_in_json_is_read_too() -> None:
    facts = read(DATA / "2026-unknown-gpu.log").facts
    assert (facts["layers"], facts["heads"], facts["hidden"], facts["vocab"]) == (4, 2, 256, 32768)
    assert (facts["params"], facts["num_gpus"], facts["tokens_per_step"]) == (36700242.0, 1, 262144.0)


def test_its_rate_is_of_all_gpus_and_agrees_with_its_seconds() -> None:
    log = read(DATA / "2025-10.log")
    fields = run_fields(log)
    assert fields["window"].startswith("steps 2, 3, 4, 5, 6; left out: 0 (the first step)")
    assert fields["window_tokens"] == 5 * 524288
    for window in find_steady_windows(log)[0]:
        assert window.tokens_per_s == pytest.approx(window.line.tokens_per_s, rel=1e-4)
    assert fields["reported_tokens_per_gpu_s"] == pytest.approx(1076113 / 8)


def test_its_peak_is_the_one_that_its_version_hard_wires_unless_the_log_says_it(write: Write) -> None:
    fields = with_defaults(run_fields(read(DATA / "2025-10.log")))
    assert fields["reported_peak_flops"] == 989e12
    assert "989 TFLOP/s whatever the GPU is" in fields["note"]
    said = "GPU: NVIDIA A100-SXM4-80GB | Peak FLOPS (BF16): 3.12e+14"
    fields = with_defaults(run_fields(read(write(said, "Estimated FLOPs per token: 3.491758e+09", LINE.format(n=5)))))
    assert (fields["reported_peak_flops"], fields["gpu_name"]) == (312e12, "NVIDIA A100-SXM4-80GB")
    assert fields["reported_convention"] == "nanochat: 3.492e+09 FLOPs a token over 312 TFLOP/s"


def test_an_mfu_of_zero_stands_for_a_gpu_without_a_peak() -> None:
    log = read(DATA / "2026-unknown-gpu.log")
    assert {step.peak_flops_share for step in log.steps} == {None}
    assert "reported_peak_flops" not in with_defaults(run_fields(log))
    assert log.outcome == "ok"  # its last step is one less than there are


def test_a_gradient_norm_and_an_estimate_come_and_go_with_versions(write: Write) -> None:
    log = read(write(LINE.format(n=10), LINE.format(n=11) + " | eta: 20.3m"))
    assert [step.grad_norm for step in log.steps] == [1.2345, 1.2345]
    assert (log.num_rows, log.num_cut_lines) == (2, 0)


@pytest.mark.parametrize("end", ["dt: 100.0", "tok/sec: 5,242", "loss: 9.79", "tok/sec: 5,242,880 | mfu: 4"])
def test_a_line_that_is_cut_is_counted(write: Write, end: str) -> None:
    line = LINE.format(n=12)
    log = read(write(LINE.format(n=10), LINE.format(n=11), line[: line.index(end) + len(end)], end=""))
    assert (log.num_rows, log.num_cut_lines) == (2, 1)


def test_nanogpts_time_is_of_one_iteration_and_its_first_mfu_is_none() -> None:
    log = read(DATA / "nanogpt-2023.log")
    assert [(step.step, step.num_steps) for step in log.steps][:2] == [(0, 1), (10, 1)]
    assert [step.peak_flops_share for step in log.steps][:2] == [None, pytest.approx(0.1668)]
    fields = with_defaults(run_fields(log))
    assert (fields["framework"], fields["reported_peak_flops"]) == ("nanogpt", 312e12)
    assert fields["window_s"] == pytest.approx(0.89376 + 0.89488 + 0.8935 + 0.89408 + 0.89531)


def test_nanogpt_before_it_had_an_mfu_is_read() -> None:
    log = read(DATA / "nanogpt-before-mfu.log")
    assert [step.step_s for step in log.steps] == [pytest.approx(s) for s in (0.56194, 0.56315, 0.56211)]
    assert "reported_peak_flops" not in with_defaults(run_fields(log))


def test_an_iteration_with_an_evaluation_in_it_is_left_out(write: Write) -> None:
    path = write(
        "tokens per iteration will be: 491,520",
        "number of parameters: 123.59M",
        "iter 240: loss 2.5, time 10.00ms, mfu 30.00%",
        "step 250: train loss 1.5440, val loss 1.7220",
        "iter 250: loss 2.4, time 9000.00ms, mfu 27.00%",
        "iter 260: loss 2.5, time 10.00ms, mfu 30.00%",
        "iter 270: loss 2.5, time 10.00ms, mfu 30.00%",
    )
    log = read(path)
    assert [window.line.step for window in find_steady_windows(log)[0]] == [240, 260, 270]
    assert (log.facts["tokens_per_step"], log.facts["params"]) == (491520.0, pytest.approx(123.59e6))


def test_the_mfu_of_a_run_is_of_the_lines_that_print_one(write: Write) -> None:
    # nanoGPT's first five lines of a launch print -100 %, also where every iteration is logged
    lines = [f"iter {n}: loss 2.5000, time 13.7{n}ms, mfu {26.9 if n > 4 else -100:.2f}%" for n in range(8)]
    (log,) = read_framework_log(write(*lines), "nanochat")
    assert run_fields(log)["reported_mfu"] == pytest.approx(0.269)
