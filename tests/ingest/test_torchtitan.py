from collections.abc import Callable
from pathlib import Path
from time import process_time

import pytest

from falloff.ingest.frameworks import framework_of, read_framework_log
from falloff.ingest.steady import find_steady_windows, measured_windows, run_fields
from falloff.ingest.torchtitan import step_seconds_of_scalars
from falloff.ingest.training_log import LoggedStep, TrainingLog
from falloff.spec.network import model_flops_per_token
from falloff.spec.source import LeftOut
from falloff.units import GIB

FOLDER = Path("data/external/torchtitan-h200x2")
DATA = Path(__file__).parents[1] / "data" / "torchtitan"
COMPILED, EAGER = FOLDER / "compile_bs2.log", FOLDER / "eager_bs2.log"
PROFILED = (LeftOut(first=16, last=20, reason="the profiler was active"),)
PREFIX = "[rank0]:[titan] 2026-04-12 12:{minute:02}:09,436 - root - INFO - "

WriteLines = Callable[..., Path]


def read_torchtitan_log(path: Path) -> TrainingLog:
    (log,) = read_framework_log(path, "torchtitan")
    return log


def read_steps(path: Path) -> list[LoggedStep]:
    return list(read_torchtitan_log(path).steps)


def step_line(step: int, tps: str = "5,900", loss: str = "8.5802", rank: int | None = 0) -> str:
    prefix = PREFIX.format(minute=step // 10).replace("[rank0]:", "" if rank is None else f"[rank{rank}]:")
    return f"{prefix}step: {step}  loss:  {loss}  memory: 49.66GiB(52.28%)  tps: {tps}  tflops: 341.21  mfu: 34.50%"


def test_every_logged_line_of_the_shipped_runs_is_read() -> None:
    compiled = {step.step: step for step in read_steps(COMPILED)}
    assert list(compiled) == [1, 5, 10, 15, 20]
    assert compiled[10].tokens_per_gpu_s == 9445
    assert compiled[15].tokens_per_gpu_s == 9486
    assert compiled[10].loss == 4.43631
    assert compiled[10].grad_norm == 15.5314
    assert compiled[10].memory_bytes == pytest.approx(98.60 * GIB)
    assert compiled[10].flops_per_gpu_s == pytest.approx(547.03e12)
    assert compiled[10].peak_flops_share == pytest.approx(0.5531)
    assert [step.tokens_per_gpu_s for step in read_steps(EAGER)] == [4645, 8995, 9018, 9041, 9068]


def test_the_shipped_log_states_network_mesh_and_batch() -> None:
    facts = read_torchtitan_log(COMPILED).facts
    expected = {
        "network": "llama3-8b",
        "params": 8_030_261_248,
        "embedding_params": 128256 * 4096,
        "layers": 32,
        "hidden": 4096,
        "heads": 32,
        "kv_heads": 8,
        "ffn": 14336,
        "vocab": 128256,
        "attention": "sdpa",
        "dp_replicate": 1,
        "dp_shard": 2,
        "tp": 1,
        "pp": 1,
        "cp": 1,
        "num_gpus": 2,
        "sharding": "fsdp",
        "seq": 8192,
        "microbatch": 2,
        "global_batch": 4,
        "tokens_per_step": 32768,
        "recompute": "selective",
        "compile": True,
        "gpu_name": "NVIDIA H200",
    }
    assert {name: facts.get(name) for name in expected} == expected
    assert "framework_version" not in facts  # the log says 0.0.0+unknown
    assert read_torchtitan_log(EAGER).facts["compile"] is False


def test_rates_leave_out_the_start_and_what_the_source_names() -> None:
    kept, words = find_steady_windows(read_torchtitan_log(COMPILED), PROFILED)
    assert [(window.first, window.line.step) for window in kept] == [(6, 10), (11, 15)]
    assert "1 (the first step)" in words
    assert "16-20 (the profiler was active)" in words


def test_step_seconds_follow_from_the_tps_field_and_agree_with_the_clock() -> None:
    fields = run_fields(read_torchtitan_log(COMPILED), PROFILED)
    assert fields["step_s"] == pytest.approx((8192 * 2 / 9445, 8192 * 2 / 9486))
    assert fields["steps_per_sample"] == 5
    (window,) = measured_windows(read_torchtitan_log(COMPILED), PROFILED, "UTC")
    # step 5's line to step 15's: 02:37:52.898 to 02:38:10.208
    assert window[1] - window[0] == pytest.approx(17.310)
    assert window[1] - window[0] == pytest.approx(fields["window_s"], rel=1e-3)
    assert fields["window_tokens"] == 10 * 32768
    assert fields["flags"] is None


def test_windows_of_unequal_length_weigh_by_their_steps(write: WriteLines) -> None:
    mesh = "[rank0]:[titan] x - Building device mesh with parallelism: pp=1, dp_replicate=1, dp_shard=8, cp=1, tp=1"
    batch = (
        "[rank0]:[titan] x - Trainer is initialized with local batch size 1, global batch size 8, sequence length 8192"
    )
    fields = run_fields(read_torchtitan_log(write(mesh, batch, step_line(20), step_line(30), step_line(35, "2,950"))))
    # 20 steps at 5,900 tokens/s a GPU and 5 at half of that
    assert fields["window_tokens"] == 25 * 8 * 8192
    assert fields["window_s"] == pytest.approx(20 * 8192 / 5900 + 5 * 8192 / 2950)


@pytest.mark.parametrize("path", [COMPILED, EAGER])
def test_mfu_recomputed_in_our_convention_agrees_with_the_log(path: Path) -> None:
    log = read_torchtitan_log(path)
    facts = log.facts
    per_token = model_flops_per_token(
        params=facts["params"],
        embedding_params=facts["embedding_params"],
        layers=facts["layers"],
        hidden=facts["hidden"],
        seq=facts["seq"],
    )
    assert per_token == pytest.approx(5.791e10, rel=1e-4)
    for step in log.steps:
        assert step.peak_flops_share is not None
        # within 0.3 %, or the last printed digit where that is coarser
        assert per_token * step.tokens_per_gpu_s / 989.4e12 == pytest.approx(step.peak_flops_share, rel=0.003)


def test_reported_values_are_the_logs_own() -> None:
    fields = run_fields(read_torchtitan_log(COMPILED), PROFILED)
    assert fields["reported_tokens_per_gpu_s"] == pytest.approx((9445 + 9486) / 2)
    assert fields["reported_mfu"] == pytest.approx((0.5531 + 0.5555) / 2)
    assert fields["reported_tflops_per_gpu"] == pytest.approx((547.03 + 549.37) / 2)
    assert fields["memory_bytes"] == pytest.approx(98.60 * GIB)
    assert fields["outcome"] == "ok"


def test_a_range_left_out_that_the_log_does_not_have_is_an_error() -> None:
    with pytest.raises(ValueError, match="left_out_steps 60-70"):
        run_fields(read_torchtitan_log(COMPILED), (LeftOut(first=60, last=70, reason="x"),))


def test_colours_and_validation_lines_do_not_matter(write: WriteLines) -> None:
    path = write(
        "[titan] 2026-04-12 12:56:09,436 - root - INFO - \x1b[31mstep: 10  \x1b[32mloss:  8.58020  "
        "\x1b[38;2;180;60;0mgrad_norm:  2.1034  \x1b[38;2;54;234;195mmemory: 49.66GiB(52.28%)  \x1b[34mtps: 5,917  "
        "\x1b[36mtflops: 342.67  \x1b[35mmfu: 34.65%\x1b[39m",
        "[titan] 2026-04-12 12:56:12,001 - root - INFO - \x1b[33mvalidate step: 10  \x1b[32mloss:  8.6001  tps: 15,020",
        "\x1b]8;;file://x\x07link\x1b]8;;\x07",
    )
    assert [step.tokens_per_gpu_s for step in read_steps(path)] == [5917]


@pytest.mark.parametrize(
    ("line", "tps", "share"),
    [
        ("step: 20  loss:  7.1  memory: 49.66GiB(52.28%)  wps: 8,532  mfu: 34.50%", 8532, 0.345),
        ("step: 20  loss:  7.1  memory: 49.66GiB(52.28%)  tps: 14,006", 14006, None),
        ("step: 20  loss:  7.1  memory: 49.66GiB(52.28%)  tps: 28", 28, None),
        (
            "step: 20  loss:  7.1  grad_norm: 1.2  memory: 49.66GiB(52.28%)  tps: 8,532  tflops: 1,494.13  mfu: N/A",
            8532,
            None,
        ),
    ],
)
def test_fields_are_read_by_name_over_versions(write: WriteLines, line: str, tps: float, share: float | None) -> None:
    (step,) = read_steps(write("[rank0]:2024-10-01 10:00:00,000 - root - INFO - " + line))
    assert step.tokens_per_gpu_s == tps
    assert step.peak_flops_share == (None if share is None else pytest.approx(share))


def test_cut_and_garbled_lines_are_counted_and_never_guessed(write: WriteLines) -> None:
    good = step_line(30)
    path = write(
        step_line(10),
        step_line(20),
        good,
        good.replace("step: 30", "step: 40")[: good.index("tps") + 6],
        good.replace("step: 30", "step: 50").replace("5,900", "5,9x0"),
        good.replace("step: 30", "step: 60").replace("  tflops: 341.21  mfu: 34.50%", ""),
        "00  memory: 49.66GiB(52.28%)  tps: 5,900  tflops: 341.21  mfu: 34.50%",
    )
    log = read_torchtitan_log(path)
    assert [step.step for step in log.steps] == [10, 20, 30]
    assert log.num_cut_lines == 4
    assert run_fields(log)["num_cut_lines"] == 4


def test_any_cut_of_the_shipped_log_gives_whole_lines_or_a_sentence(tmp_path: Path) -> None:
    text = COMPILED.read_text()
    whole = {step.step: step.tokens_per_gpu_s for step in read_steps(COMPILED)}
    path = tmp_path / "cut.log"
    for end in range(0, len(text), 61):
        path.write_text(text[:end])
        try:
            steps = read_steps(path)
        except ValueError:
            continue
        assert {step.step: step.tokens_per_gpu_s for step in steps}.items() <= whole.items()


def test_windows_with_a_checkpoint_or_a_profilers_dump_are_left_out(write: WriteLines) -> None:
    path = write(
        step_line(20),
        "[rank0]:[titan] 2026-04-12 12:02:10,000 - root - INFO - Dumping profiler traces at step 20",
        step_line(30, "5,593"),
        step_line(40, "5,868"),
        "[rank0]:[titan] 2026-04-12 12:04:10,000 - root - INFO - Saving the checkpoint (or staging).",
        step_line(50, "2,397"),
        step_line(60, "5,864"),
    )
    kept, words = find_steady_windows(read_torchtitan_log(path))
    assert [window.line.step for window in kept] == [20, 40, 60]
    assert "21-30 (a profiler trace was written)" in words
    assert "41-50 (a checkpoint was written)" in words


def test_ranks_that_print_the_same_step_are_one_reading(write: WriteLines) -> None:
    lines = [step_line(step, tps, rank=rank) for step in (10, 20) for rank, tps in ((0, "5,900"), (1, "5,800"))]
    assert [step.tokens_per_gpu_s for step in read_steps(write(*lines))] == [5800, 5800]
    bare = [step_line(step, rank=None) for step in (10, 10, 20, 20)]
    assert len(read_steps(write(*bare))) == 2


def test_a_pipeline_rank_without_the_loss_has_none(write: WriteLines) -> None:
    alone = read_steps(write(step_line(10, loss="-1.0000")))
    both = read_steps(write(step_line(10, loss="-1.0000"), step_line(10, loss="7.5", rank=7)))
    assert [step.loss for step in (*alone, *both)] == [None, 7.5]


def test_a_loss_that_is_no_number_makes_the_run_unstable(write: WriteLines) -> None:
    log = read_torchtitan_log(write(step_line(10), step_line(20, loss="nan"), "Training completed"))
    assert (log.outcome, log.outcome_reason) == ("unstable", "the loss of step 20 is nan")


@pytest.mark.parametrize(
    ("line", "outcome"),
    [
        ("[rank0]:[titan] 2026-04-12 12:56:09,436 - root - INFO - Training completed", "ok"),
        ("[rank0]:torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", "oom"),
        ("[rank0]:RuntimeError: something else", "crash"),
        ("", "killed"),
    ],
)
def test_how_the_run_ended_is_read_from_the_log(write: WriteLines, line: str, outcome: str) -> None:
    assert read_torchtitan_log(write(step_line(10), line)).outcome == outcome


def test_a_run_that_failed_before_its_first_step_is_a_record(write: WriteLines) -> None:
    log = read_torchtitan_log(write("[rank0]:torch.OutOfMemoryError: CUDA out of memory."))
    assert run_fields(log)["step_s"] is None
    assert log.outcome == "oom"


@pytest.mark.parametrize(
    "lines",
    [
        [step_line(10), step_line(20), step_line(10)],
        [step_line(10), step_line(10).replace("12:01", "13:01")],
        [step_line(10, rank=None), step_line(10, rank=None).replace("12:01", "13:01")],
    ],
)
def test_two_runs_in_one_file_are_two_runs(write: WriteLines, lines: list[str]) -> None:
    logs = read_framework_log(write(*lines), "torchtitan")
    assert [len(log.steps) for log in logs] == [len(lines) - 1, 1]


def test_a_line_that_is_written_twice_is_one_step_of_one_run(write: WriteLines) -> None:
    log = read_torchtitan_log(write(step_line(10), step_line(10), step_line(20), step_line(20)))
    assert [step.step for step in log.steps] == [10, 20]


@pytest.mark.parametrize("lines", [[""], ["nothing here"], ["step: x  tps: 5"]])
def test_a_log_without_steps_is_a_sentence(write: WriteLines, lines: list[str]) -> None:
    with pytest.raises(ValueError, match="no whole step line"):
        read_steps(write(*lines))


def test_time_stamps_that_contradict_the_rate_are_flagged(write: WriteLines) -> None:
    mesh = "[rank0]:[titan] x - Building device mesh with parallelism: pp=1, dp_replicate=1, dp_shard=8, cp=1, tp=1"
    batch = (
        "[rank0]:[titan] x - Trainer is initialized with local batch size 1, global batch size 8, sequence length 8192"
    )
    # a minute between lines of ten steps, and a rate of 8192 / 5,900 = 1.4 s a step
    fields = run_fields(read_torchtitan_log(write(mesh, batch, step_line(20), step_line(30))))
    assert fields["step_s"] == pytest.approx((8192 / 5900,) * 2)
    assert "time stamps say 6.000 s a step" in fields["flags"][0]


def test_older_spellings_of_shape_and_mesh_are_read(write: WriteLines) -> None:
    facts = read_torchtitan_log(
        write(
            "[rank0]:2024-10-01 10:00:00,000 - root - INFO - Building 2-D device mesh with ['dp_shard', 'tp'], [4, 2]",
            "[rank0]:2024-10-01 10:00:00,000 - root - INFO - Building llama3 8B with ModelArgs(dim=4096, n_layers=32, "
            "n_heads=32, n_kv_heads=8, vocab_size=128256, multiple_of=1024, ffn_dim_multiplier=1.3, norm_eps=1e-05)",
            step_line(10),
        )
    ).facts
    assert (facts["dp_shard"], facts["tp"], facts["num_gpus"]) == (4, 2, 8)
    assert (facts["network"], facts["ffn"], facts["kv_heads"]) == ("llama3-8b", 14336, 8)


@pytest.mark.parametrize(
    ("line", "dtype"),
    [
        ("Float8 tensorwise scaled training active", "float8 in linear layers"),
        ("Swapped to Float8Linear layers with enable_fsdp_float8_all_gather=True", "float8 in linear layers"),
        ("Failed to swap to Float8Linear because float8 is only supported on SM89 or later", None),
        ("Compiling each TransformerBlock with torch.compile", None),
    ],
)
def test_float8_in_a_log_is_a_dtype_without_a_peak(write: WriteLines, line: str, dtype: str | None) -> None:
    facts = read_torchtitan_log(write(PREFIX.format(minute=0) + line, step_line(10))).facts
    assert facts.get("param_dtype") == dtype
    assert ("flags" in facts) == (dtype is not None)


@pytest.mark.parametrize(
    ("line", "step", "loss", "step_s"),
    [
        ("step: 5, current loss: 10.53, lr: [0.0003]", 5, 10.53, None),
        ("step: 5,  current loss: 10.53, lr: 0.0003", 5, 10.53, None),
        ("current loss: 10.53 at iter 5", 5, 10.53, None),
        ("step:  5  loss:  7.7162  iter:  0.1842  data: 0.0104  lr: 0.0003", 5, 7.7162, 0.1842),
        ("step:  5  loss:  7.7162  iter:  0.1842  data: 0.0104  ", 5, 7.7162, 0.1842),
    ],
)
def test_lines_of_early_2024_without_a_rate_are_read(
    write: WriteLines, line: str, step: int, loss: float, step_s: float | None
) -> None:
    path = write("[rank0]:2024-02-26 10:00:00,000 - root - INFO - " + line)
    assert framework_of(path.read_text()) == "torchtitan"
    (found,) = read_steps(path)
    assert (found.step, found.loss, found.step_s, found.tokens_per_gpu_s) == (step, loss, step_s, None)


def test_time_stamps_tell_the_seconds_of_lines_without_a_rate(write: WriteLines) -> None:
    line = "2024-02-10 10:00:{s:06.3f} - root - INFO - step: {n}, current loss: 10.5, lr: [0.0003]"
    path = write(*(line.format(s=0.25 * n, n=n).replace(".", ",", 1) for n in (1, 2, 3, 4)))
    assert run_fields(read_torchtitan_log(path))["step_s"] == pytest.approx((0.25, 0.25))


@pytest.mark.parametrize(
    ("name", "steps", "rates"),
    [
        ("2024-03-wps.log", [1, 11, 21, 31, 41, 51, 61], [313, 1894, 2829, 2825, 2825, 2828, 2812]),
        ("2025-11-h200.log", [1, 2, 3, 4], [5756, 301092, 359546, 347712]),
        ("2026-02-every-rank.log", [4, 5], [10049, 10007]),
        ("2026-02-another-logger.log", [1], [8550]),
        ("2026-07-mxfp8.log", [1, 2, 3, 4, 5], [589, 72915, 75562, 73908, 75442]),
    ],
)
def test_real_lines_of_five_versions_are_read(name: str, steps: list[int], rates: list[int]) -> None:
    log = read_torchtitan_log(DATA / name)
    assert [(step.step, step.tokens_per_gpu_s) for step in log.steps] == list(zip(steps, rates, strict=True))
    assert log.num_cut_lines == 0


def test_every_ranks_line_without_a_prefix_is_one_step_of_the_slowest() -> None:
    log = read_torchtitan_log(DATA / "2026-02-every-rank.log")
    assert (log.num_rows, len(log.steps)) == (8, 2)


def test_an_mfu_that_is_not_given_is_none_and_the_rates_stay() -> None:
    fields = run_fields(read_torchtitan_log(DATA / "2026-07-mxfp8.log"))
    assert (fields["reported_mfu"], fields["reported_tokens_per_gpu_s"]) == (None, 75442)
    assert fields["reported_tflops_per_gpu"] == pytest.approx(40.96)


def test_fields_that_have_no_place_are_kept(write: WriteLines) -> None:
    (step,) = read_steps(write(step_line(10).replace("  tps:", "  aux_loss: 0.01  tps:")))
    assert step.more == {"aux_loss": "0.01"}
    assert step.tokens_per_gpu_s == 5900


def test_seconds_of_tensorboard_are_divided_by_the_steps_that_a_window_holds() -> None:
    assert step_seconds_of_scalars([1, 10, 20], [0.76, 0.3298, 0.3668], 10) == pytest.approx((7.6, 3.298 / 9, 0.3668))


def test_a_mesh_with_one_dp_axis_or_a_split_one_gives_the_gpus(write: WriteLines) -> None:
    prefix = "[rank0]:2024-03-27 14:30:01,182 - root - INFO - "
    older = read_torchtitan_log(
        write(prefix + "Building 2-D device mesh with ['dp', 'tp'], [2, 2]", step_line(1))
    ).facts
    assert (older["dp_shard"], older["tp"], older["num_gpus"]) == (2, 2, 4)
    split = prefix + "Building 4-D device mesh with ['pp', 'dp_shard_mod_ep', 'dp_shard_in_ep', 'tp'], [2, 2, 4, 2]"
    newer = read_torchtitan_log(write(split, step_line(1))).facts
    assert (newer["dp_shard"], newer["ep"], newer["num_gpus"]) == (8, 4, 32)


def test_a_batch_in_tokens_and_a_network_of_experts_are_read(write: WriteLines) -> None:
    facts = read_torchtitan_log(
        write(
            PREFIX.format(minute=0) + "Total parameter count: dense 1,000, sparse 9,000, vision 0, active 3,500",
            PREFIX.format(minute=0) + "Model deepseek_v3 16B size: 15,706,484,224 total parameters",
            PREFIX.format(minute=0) + "Applied FullAC activation checkpointing to the model",
            PREFIX.format(minute=0) + "Trainer is initialized with 16384 tokens per DP rank, 131072 tokens per train "
            "step, gradient accumulation steps 1, maximum context length 4096, total steps 10 (warmup 2)",
            step_line(1),
        )
    ).facts
    expected = {
        "network": "deepseek_v3-16b",
        "arch": "moe",
        "active_params": 3500.0,
        "params": 15706484224.0,
        "tokens_per_step": 131072,
        "global_batch": 32,
        "seq": 4096,
        "recompute": "full",
    }
    assert {name: facts.get(name) for name in expected} == expected


def test_garbage_collection_of_some_hundredths_of_a_second_is_steady_state(write: WriteLines) -> None:
    line = (
        "[rank0]:[titan] 2026-05-18 16:05:25,746 - root - INFO - [GC] Performing periodic GC collection took {} seconds"
    )
    path = write(step_line(10), line.format("0.06"), step_line(20), line.format("2.50"), step_line(30), step_line(40))
    events = [step.event for step in read_steps(path)]
    assert events == [None, None, "garbage was collected for a second or more", None]


def test_a_peak_that_is_an_a100s_for_want_of_the_gpus_own_is_flagged(write: WriteLines) -> None:
    line = PREFIX.format(minute=0).replace("INFO", "WARNING") + "Peak flops undefined for: NVIDIA X, fallback to A100"
    peak = PREFIX.format(minute=0) + "Peak FLOPS used for computing MFU: 3.120e+14"
    fields = run_fields(read_torchtitan_log(write(line, peak, step_line(1))))
    assert fields["reported_peak_flops"] == 312e12
    assert fields["flags"] == ("TorchTitan knows no peak of this GPU, and its MFU is over an A100's",)


def test_a_field_that_is_not_known_is_none_and_its_line_whole(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    row = (
        "[titan] 2026-03-01 10:00:0{0},123 - root - INFO - step: {0}  loss:  6.1  memory: 49.66GiB(52.28%)  tps: 5,892"
    )
    path.write_text("".join(row.format(step) + "  tflops: N/A  mfu: N/A\n" for step in (3, 4)))
    (log,) = read_framework_log(path, "torchtitan")
    assert [(step.tokens_per_gpu_s, step.flops_per_gpu_s) for step in log.steps] == [(5892.0, None)] * 2
    assert log.num_cut_lines == 0


def test_a_log_of_2024_that_fails_before_its_first_step_is_torchtitans() -> None:
    text = "[rank0]:2024-03-27 14:30:01,182 - root - INFO - Building 2-D device mesh with ['dp', 'tp'], [2, 2]\n"
    assert framework_of(text) == "torchtitan"


def test_a_long_log_without_seconds_takes_time_in_proportion() -> None:
    steps = tuple(LoggedStep(step=step, tokens_per_gpu_s=5892.0) for step in range(1, 20_001))
    log = TrainingLog(
        framework="torchtitan",
        steps=steps,
        num_rows=len(steps),
        num_cut_lines=0,
        facts={},
        starts=True,
        outcome="killed",
        outcome_reason="the log ends",
    )
    begin_s = process_time()
    kept, _ = find_steady_windows(log)
    # every window looking at every other one takes half a minute
    assert process_time() - begin_s < 5
    assert len(kept) == 20_000 - 2
