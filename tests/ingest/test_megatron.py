from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from falloff.ingest.frameworks import framework_of, read_framework_log
from falloff.ingest.steady import run_fields
from falloff.ingest.training_log import TrainingLog

DATA = Path(__file__).parents[1] / "data" / "megatron_lm"
WriteLines = Callable[..., Path]


def read_runs(path: Path) -> list[TrainingLog]:
    return read_framework_log(path, "megatron-lm")


def read_run(path: Path) -> TrainingLog:
    (log,) = read_runs(path)
    return log


def line(step: int, *, ms: str = "5000.0", loss: str | None = "7.1E+00", norm: str = "1.500", more: str = "") -> str:
    lm_loss = f" lm loss: {loss} |" if loss is not None else ""
    return (
        f" [2024-09-01 10:00:00] iteration {step:8d}/{100:8d} | consumed samples: {step * 128:12d} | elapsed time per "
        f"iteration (ms): {ms} |{more} learning rate: 3.000000E-04 | global batch size: {128:5d} |{lm_loss} "
        f"loss scale: 1.0 | grad norm: {norm} | number of skipped iterations:   0 | number of nan iterations:   0 |"
    )


@pytest.mark.parametrize("path", sorted(DATA.glob("*.log")), ids=lambda path: path.name)
def test_a_log_of_megatron_or_its_kin_is_told_by_its_content(path: Path) -> None:
    assert framework_of(path.read_text()) == "megatron-lm"


def test_two_jobs_in_one_file_are_two_runs_and_the_skipped_start_counts_for_nothing() -> None:
    first, second = read_runs(DATA / "core-0.7-two-jobs.log")
    assert [step.step for step in first.steps] == [10, 20, 30, 40, 50]
    assert [step.step for step in second.steps] == [10, 20, 30]
    # iterations 1 to 10 have no loss, as all of them were skipped: the run has not diverged
    assert first.steps[0].loss is None
    assert first.outcome == second.outcome == "killed"
    fields = run_fields(first)
    assert fields["step_s"] == pytest.approx((12.0688, 12.0363, 12.0561))
    assert "the loss scale overflowed" in fields["window"]
    assert fields["reported_tflops_per_gpu"] == pytest.approx(878.5)
    assert [run_fields(log)["memory_bytes"] for log in (first, second)] == [75682 * 2**20, 71202 * 2**20]


def test_the_window_after_a_checkpoint_is_left_out() -> None:
    log = read_run(DATA / "core-0.8-qwen2.log")
    fields = run_fields(log)
    assert "101-110 (a checkpoint was written)" in fields["window"]
    # 8 sequences of 128 tokens a step; the line of 90 is of ten steps, the lines between 20 and it are cut out
    assert fields["window_tokens"] == 1024 * (10 + 10 + 10 + 10)
    assert fields["flags"] is None


def test_megatron_deepspeed_is_told_by_its_fields_and_gives_its_gpus() -> None:
    fields = run_fields(read_run(DATA / "megatron-deepspeed-8gpu.log"))
    assert fields["framework"] == "megatron-deepspeed"
    # 32 sequences of 4096 tokens in 10.1543 s are 8 times 1613.503 tokens/s
    assert fields["num_gpus"] == 8
    assert fields["memory_bytes"] == 35824 * 2**20
    assert "does not tell" in fields["reported_convention"]


def test_gpt_neox_puts_its_rate_before_the_iteration_and_a_unit_behind_its_flops() -> None:
    log = read_run(DATA / "gpt-neox-2.0.log")
    (step,) = log.steps
    assert (step.step, step.total_steps, step.samples_per_s) == (34, 10000, 7.799)
    assert step.flops_per_gpu_s == pytest.approx(112.9e12)
    assert step.loss == pytest.approx(11.18665)
    assert run_fields(log)["framework"] == "gpt-neox"


def test_a_line_that_is_cut_at_its_end_counts_as_cut_and_as_no_step() -> None:
    log = read_run(DATA / "megatron-llm-0.1.log")
    assert [step.step for step in log.steps] == [122, 123, 124]
    assert log.num_cut_lines == 1


@pytest.mark.parametrize("place", range(30, len(line(44)), 7))
def test_wherever_a_line_is_cut_it_is_counted_and_not_guessed(write: WriteLines, place: int) -> None:
    whole = line(44)
    cut = whole[:place]
    log = read_run(write(line(43), cut, whole[place:], line(45)))
    assert [step.step for step in log.steps] == [43, 45]
    # what is left of the line's end may hold no name by which a step line is known
    assert log.num_cut_lines >= 1


def test_a_log_whose_last_line_has_no_newline_is_read_whole(write: WriteLines) -> None:
    assert [step.step for step in read_run(write(line(43), line(44), end="")).steps] == [43, 44]


def test_two_lines_in_one_are_garbled(write: WriteLines) -> None:
    log = read_run(write(line(43), line(44)[:120] + line(45), line(46)))
    assert [step.step for step in log.steps] == [43, 46]
    assert log.num_cut_lines == 1


def test_another_ranks_words_behind_a_whole_line_are_none_of_its_fields(write: WriteLines) -> None:
    memory = "[Rank 0] (after 43 iterations) memory (MB) | allocated: 10.0 | max reserved: 20.0"
    log = read_run(write(line(43) + memory, line(44)))
    assert [step.step for step in log.steps] == [43, 44]
    assert log.num_cut_lines == 0


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        (" throughput per GPU (TFLOP/s/GPU): 239.8 |", {"flops_per_gpu_s": 239.8e12}),
        (" throughput per GPU (TFLOP/s/GPU): 579.4/573.6 |", {"flops_per_gpu_s": 579.4e12}),
        (
            " energy per GPU (J/iter/GPU): 3100.0 | power per GPU (W/GPU): 620.0 |",
            {"energy_j": 3100.0, "draw_w": 620.0},
        ),
        (" energy per GPU (J/iter/GPU): 0.0 | power per GPU (W/GPU): 0.0 |", {"energy_j": None, "draw_w": None}),
        (" tokens per GPU (tokens/s/GPU): 10005.5/9903.7 |", {"tokens_per_gpu_s": 10005.5}),
        (" tokens/sec/GPU: 74994 |", {"tokens_per_gpu_s": 74994.0}),
        (" actual seqlen:  2048 | consumed tokens: 88899584 |", {"seq": 2048, "tokens_seen": 88899584.0}),
        (" samples per second: 1.883 | TFLOPs: 78.36 |", {"samples_per_s": 1.883, "flops_per_gpu_s": 78.36e12}),
        (" hip mem usage/free/total/usage_ratio: 153.81GB/102.17GB/255.98GB/60.09% |", {"step_s": 5.0}),
        (" a field of tomorrow: 12.5 |", {"step_s": 5.0}),
    ],
)
def test_fields_are_found_by_name_wherever_they_stand(write: WriteLines, field: str, expected: dict[str, Any]) -> None:
    (step,) = read_run(write(line(43, more=field))).steps
    for name, value in expected.items():
        assert getattr(step, name) == pytest.approx(value) if value is not None else getattr(step, name) is None


def test_blooms_fork_prints_seconds(write: WriteLines) -> None:
    text = line(43, ms="104.61", more=" samples per second: 19.577 | TFLOPs: 146.59 |").replace("(ms)", "(s)")
    path = write(f"[default7]:{text}")
    assert framework_of(path.read_text()) == "megatron-lm"
    (step,) = read_run(path).steps
    assert (step.step_s, step.rank) == (104.61, 7)


def test_the_sequence_follows_from_the_totals_of_tokens_and_samples() -> None:
    fields = run_fields(read_run(DATA / "bloom-176b.log"))
    assert (fields["seq"], fields["tokens_per_step"]) == (2048, 2048 * 2048)


def test_a_rate_that_is_not_batch_over_seconds_is_flagged(write: WriteLines) -> None:
    # 128 samples in 5 s
    flags = [
        run_fields(read_run(write(line(43, more=f" samples per second: {rate} |"))))["flags"]
        for rate in ("25.600", "0.026")
    ]
    assert flags[0] is None
    assert "samples per second is 0.026" in flags[1][0]


def test_before_version_2_some_fields_had_no_colon(write: WriteLines) -> None:
    text = " iteration      100/  500000 | elapsed time per iteration (ms): 528.9 | learning rate 1.495E-04 | lm loss "
    log = read_run(write(text + "9.1E+00 | loss scale 1.0 |", text))
    (step,) = log.steps
    assert (step.loss, step.step_s, step.more["learning rate"]) == (9.1, pytest.approx(0.5289), "1.495E-04")
    assert log.num_cut_lines == 1


def test_the_rate_of_all_gpus_is_told_from_that_of_one(write: WriteLines) -> None:
    (step,) = read_run(write(line(43, more=" rate (tokens/sec): 48123.10 |"))).steps
    assert (step.tokens_per_s, step.tokens_per_gpu_s) == (48123.10, None)


def test_the_current_step_of_primus_counts_and_not_its_mean_so_far(write: WriteLines) -> None:
    prefix = "[20251202 06:56:28][rank-7/8][INFO ] [--------trainer.py:2560] :"
    text = line(43, ms="13100.0/13240.9").replace(" [2024-09-01 10:00:00]", prefix)
    (step,) = read_run(write(text)).steps
    assert step.step_s == pytest.approx(13.1)
    assert step.time is not None
    assert step.time.isoformat() == "2025-12-02T06:56:28"


def test_fields_without_a_place_are_kept_as_printed(write: WriteLines) -> None:
    (step,) = read_run(write(line(43, more=" mtp_1 loss: 8.1E+00 | params norm: 8660.607 |"))).steps
    assert step.more["mtp_1 loss"] == "8.1E+00"
    assert step.more["params norm"] == "8660.607"


@pytest.mark.parametrize("ms", ["0.0", "-5.0", "nan", "inf", "5000.0.0", "", "12 13"])
def test_seconds_that_are_none_make_a_line_garbled(write: WriteLines, ms: str) -> None:
    log = read_run(write(line(43), line(44, ms=ms)))
    assert [step.step for step in log.steps] == [43]
    assert log.num_cut_lines == 1


@pytest.mark.parametrize(
    ("lines", "outcome"),
    [
        ([line(43), line(44)], "killed"),
        ([line(43), line(44, loss=None, norm="nan")], "unstable"),
        ([line(43), line(44, loss=None)], "unstable"),
        ([line(43), line(44, loss="nan")], "unstable"),
        ([line(43), line(44, norm="nan")], "unstable"),
        ([line(43), line(44, norm="nan"), line(45)], "killed"),
        ([line(43), line(44, loss=None).replace("skipped iterations:   0", "skipped iterations:   1")], "killed"),
        ([line(43, loss=None).replace("nan iterations:   0", "nan iterations:   1")], "unstable"),
        ([line(43), "[after training is done] datetime: 2024-09-01 11:00:00"], "ok"),
        ([line(43), "[exiting program at iteration 43] datetime: 2024-09-01 11:00:00"], "ok"),
        ([line(43), "[exiting program after receiving SIGTERM.] datetime: 2024-09-01 11:00:00"], "killed"),
        ([line(99), line(100)], "ok"),
        ([line(43), "torch.OutOfMemoryError: CUDA out of memory."], "oom"),
    ],
)
def test_how_the_run_went_is_read_from_its_lines(write: WriteLines, lines: list[str], outcome: str) -> None:
    assert read_run(write(*lines)).outcome == outcome


@pytest.mark.parametrize(
    "begins",
    [
        "[before the start of training step] datetime: 2024-09-01 10:00:00",
        "  successfully loaded checkpoint from /x [ t 1/1, p 1/1 ] at iteration 44",
        "[rank0]: successfully loaded checkpoint from /x at iteration 44",
    ],
)
def test_a_restart_that_goes_on_where_the_run_stopped_is_another_run(begins: str, write: WriteLines) -> None:
    restart = ["[2024-09-01 10:00:00] something", begins]
    first, second = read_runs(write(line(43), line(44), *restart, line(45), line(46), line(47)))
    assert (len(first.steps), len(second.steps)) == (2, 3)
    assert second.starts
    assert run_fields(second)["window"].startswith("steps 47")


def test_a_line_that_is_written_twice_is_one_step(write: WriteLines) -> None:
    diverged = line(44, loss="nan", norm="nan")
    assert [step.step for step in read_run(write(line(43), line(43), diverged, diverged)).steps] == [43, 44]


def test_a_batch_that_grows_is_no_one_batch(write: WriteLines) -> None:
    arguments = ["------------------------ arguments ------------------------", "  global_batch_size ... 256"]
    grown = [line(step).replace("global batch size:   128", f"global batch size: {step}") for step in (43, 44)]
    fields = run_fields(read_run(write(*arguments, *grown)))
    assert fields["global_batch"] is None


def conventions_of(path: Path) -> str:
    found: str = run_fields(read_run(path))["reported_convention"]
    return found


@pytest.mark.parametrize(
    ("stamp", "more", "words"),
    [
        (" [2024-09-01 10:00:00]", "", "full square"),
        ("", "", "full square"),
        (" [2025-06-01 10:00:00]", "", "does not tell"),
        (" [2025-06-01 10:00:00]", " energy per GPU (J/iter/GPU): 0.0 |", "causal half"),
        (" [2026-03-01 10:00:00.123456]", "", "causal half"),
    ],
)
def test_the_spans_of_versions_tell_how_its_flops_count(write: WriteLines, stamp: str, more: str, words: str) -> None:
    text = line(43, more=" throughput per GPU (TFLOP/s/GPU): 239.8 |" + more)
    assert words in conventions_of(write(text.replace(" [2024-09-01 10:00:00]", stamp)))


@pytest.mark.parametrize(
    ("granularity", "words"), [("full", "hardware FLOPs"), ("None", "nothing is recomputed"), ("selective", "not tell")]
)
def test_whether_the_formula_of_2021_counts_recomputation_depends_on_it(
    write: WriteLines, granularity: str, words: str
) -> None:
    argument = f"  recompute_granularity ........................... {granularity}"
    path = write(argument, line(43, more=" TFLOPs: 160.00 | tokens-per-second-per-gpu: 3000.5 |"))
    assert words in conventions_of(path)
    assert run_fields(read_run(path))["framework"] == "megatron-lm"


LLAMA_8B = """\
using world size: 64, data-parallel size: 64, context-parallel size: 1, tensor-model-parallel size: 1
------------------------ arguments ------------------------
  add_bias_linear ................................. False
  ffn_hidden_size ................................. 14336
  group_query_attention ........................... True
  hidden_size ..................................... 4096
  normalization ................................... RMSNorm
  num_attention_heads ............................. 32
  num_layers ...................................... 32
  num_query_groups ................................ 8
  padded_vocab_size ............................... 128256
  position_embedding_type ......................... rope
  seq_length ...................................... 8192
  swiglu .......................................... True
  untie_embeddings_and_output_weights ............. True"""


@pytest.mark.parametrize(("printed", "words"), [("189.8", "full square"), ("168.7", "causal half")])
def test_where_the_shape_is_printed_its_own_figures_tell_how_its_flops_count(
    write: WriteLines, printed: str, words: str
) -> None:
    text = line(43, more=f" throughput per GPU (TFLOP/s/GPU): {printed} |").replace("2024-09-01", "2025-06-01")
    assert words in conventions_of(write(LLAMA_8B, text))


def test_energy_of_all_gpus_follows_from_that_of_one(write: WriteLines) -> None:
    energy = " energy per GPU (J/iter/GPU): 3100.0 | power per GPU (W/GPU): 620.0 |"
    lines = [line(step, more=energy) for step in (43, 44, 45, 46)]
    fields = run_fields(read_run(write("using world size: 8, data-parallel-size: 8, ", *lines)))
    # 43 and 44 are the start
    assert fields["energy_j"] == 8 * 2 * 3100
    assert fields["draw_w"] == 620
    assert "index" in fields["power_source"]


@pytest.mark.parametrize(
    ("visible", "is_flagged"),
    [("", True), ("export CUDA_VISIBLE_DEVICES=0,1,2,3", False), ("CUDA_VISIBLE_DEVICES: '4,5'", True)],
)
def test_energy_is_doubted_unless_devices_are_counted_from_0(write: WriteLines, visible: str, is_flagged: bool) -> None:
    energy = " energy per GPU (J/iter/GPU): 3100.0 | power per GPU (W/GPU): 620.0 |"
    flags = run_fields(read_run(write(visible, line(43, more=energy))))["flags"] or ()
    assert any("masked" in flag for flag in flags) == is_flagged


def test_a_window_in_which_many_iterations_were_skipped_is_not_steady(write: WriteLines) -> None:
    skipped = [
        line(step).replace("skipped iterations:   0", f"skipped iterations:   {n}") for step, n in ((60, 8), (70, 1))
    ]
    fields = run_fields(read_run(write(line(40), line(50), *skipped, line(80))))
    assert fields["window"] == (
        "steps 31-40, 41-50, 61-70, 71-80; left out: 51-60 "
        "(8 of its iterations were skipped: the loss scale overflowed)"
    )


def test_argonnes_fork_names_its_fields_with_underscores(write: WriteLines) -> None:
    row = (
        "[2024-04-19 13:2{0}:45][INFO][training:1251] -  iteration=       {0}/   10000 | "
        "consumed_samples=        {1} | consumed_tokens=     {2} | elapsed_time_per_iteration_ms=63383.5 | "
        "learning_rate=0.000006 | global_batch_size= 1152 | lm loss=11.198063 | loss_scale=1.0 | actual_seqlen= 4096 | "
        "number_of_skipped_iterations=  0 | number_of_nan_iterations=  0 | samples_per_second=18.175 | "
        "tokens_per_gpu_per_second_tgs=3101.882 | TFLOPs=72.38 |"
    )
    path = write(*(row.format(step, step * 1152, step * 1152 * 4096) for step in (3, 4)))
    assert framework_of(path.read_text()) == "megatron-lm"
    log = read_run(path)
    assert [(step.step, step.step_s, step.loss, step.global_batch, step.seq) for step in log.steps] == [
        (step, pytest.approx(63.3835), 11.198063, 1152, 4096) for step in (3, 4)
    ]
    fields = run_fields(log)
    assert (fields["framework"], fields["num_gpus"], fields["reported_tflops_per_gpu"]) == (
        "megatron-deepspeed",
        24,
        pytest.approx(72.38),
    )


def test_primus_tells_its_ranks_and_the_memory_in_use(write: WriteLines) -> None:
    row = (
        "[20260521 12:10:0{0}][rank-31/32][INFO ] [--------trainer.py:2488] :  iteration    1212{0}/   36000 | "
        "consumed samples:      3104000 | elapsed time per iteration (ms): 2701.3/2712.7 | hip mem usage/free/total/"
        "usage_ratio: 227.35GB/28.63GB/255.98GB/88.81% | compute per GPU (TFLOP/s/GPU): 615.5 (avg 615.1) | "
        "tokens/s/GPU inst/harmonic mean: 11941.8/11940.8 | learning rate: 1.587349E-04 | global batch size:   256 | "
        "lm loss: 2.352391E+00 | loss scale: 1.0 | grad norm: 0.132 | number of skipped iterations:   0 | "
        "number of nan iterations:   0 |"
    )
    log = read_run(write(row.format(5), row.format(8)))
    fields = run_fields(log)
    assert (fields["num_gpus"], fields["reported_tokens_per_gpu_s"]) == (32, 11941.8)
    assert fields["reported_tflops_per_gpu"] == pytest.approx(615.5)
    assert fields["memory_bytes"] == pytest.approx(227.35 * 2**30)


def test_a_clock_that_goes_far_back_begins_another_run(write: WriteLines) -> None:
    assert len(read_runs(write(line(43).replace("09-01", "09-04"), line(44)))) == 2
    assert len(read_runs(write(line(43).replace("10:00:00", "10:30:00"), line(44)))) == 1


def test_megatron_bridge_prints_its_rate_on_a_line_before_and_a_window_under_nsys_is_left_out() -> None:
    log = read_run(DATA / "bridge-2025-10.log")
    assert [step.flops_per_gpu_s for step in log.steps] == [None, pytest.approx(58.2e12)]
    # the rate of the window under nsys has no line of its own
    assert log.steps[1].event is None
    fields = run_fields(log)
    assert (fields["framework"], fields["reported_tflops_per_gpu"]) == ("megatron-bridge", pytest.approx(58.2))
    assert "causal half" in fields["reported_convention"]


def test_megatron_bridges_rate_is_of_the_iteration_of_the_same_seconds_alone(write: WriteLines) -> None:
    rate = "Step Time : 5.00s GPU utilization: {}MODEL_TFLOP/s/GPU"
    path = write(
        rate.format("663.5"), line(1), rate.format("660.0"), line(2, ms="7000.0"), rate.format("0.0"), line(3), line(4)
    )
    # it prints 0 for networks whose FLOPs it does not count
    assert [step.flops_per_gpu_s for step in read_run(path).steps] == [pytest.approx(663.5e12), None, None, None]


def test_a_window_in_which_nsys_captured_is_left_out(write: WriteLines) -> None:
    capture = ("Capture range started in the application.", "Generating '/tmp/nsys-report-3660.qdstrm'")
    path = write(line(10), line(20), *capture, line(30), line(40))
    assert "21-30 (a profiler ran)" in run_fields(read_run(path))["window"]


def test_a_bridge_log_with_the_prefix_of_nemo_run_is_read() -> None:
    log = read_run(DATA / "bridge-2025-12.log")
    (step,) = log.steps
    assert (step.step, step.step_s, step.flops_per_gpu_s) == (50, 9.089, pytest.approx(663.5e12))
    assert (log.outcome, step.more["load_balancing_loss"]) == ("ok", "1.000000E+00")


def test_another_ranks_words_behind_the_line_do_not_cut_it_and_memory_is_read_in_gigabytes() -> None:
    log = read_run(DATA / "bridge-2025-12-two-ranks.log")
    (step,) = log.steps
    assert (step.step_s, step.loss) == (pytest.approx(20.2891), pytest.approx(12.58695))
    assert (log.num_cut_lines, log.outcome, step.memory_bytes) == (0, "ok", 216.89e9)


def test_tokens_so_far_beside_megatrons_own_rate_are_a_fork_of_megatron_lm(write: WriteLines) -> None:
    # as a fork for Apertus prints it: a public log of 2026-05, its loss and learning rate changed
    more = " eta: 0:00:00 | tokens/sec/gpu: 8000.5 | throughput per GPU (TFLOP/s/GPU): 412.3 |"
    row = line(299, ms="131064.1", more=more).replace("| elapsed", "| consumed tokens: 1.258B | elapsed")
    log = read_run(write(row, row.replace("299/", "300/")))
    assert run_fields(log)["framework"] == "megatron-lm"
    assert (log.steps[0].tokens_seen, log.steps[0].tokens_per_gpu_s) == (1.258e9, 8000.5)
