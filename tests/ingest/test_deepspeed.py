from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from falloff.ingest.deepspeed_facts import read_facts
from falloff.ingest.frameworks import framework_of, read_framework_log
from falloff.ingest.steady import run_fields
from falloff.ingest.training_log import TrainingLog

DATA = Path(__file__).parents[1] / "data" / "deepspeed"
CONFIG = "[2023-04-24 13:26:47,823] [INFO] [config.py:957:print]   "
WriteLines = Callable[..., Path]


def read_run(path: Path) -> TrainingLog:
    (log,) = read_framework_log(path, "deepspeed")
    return log


def stamp(seconds: float) -> str:
    return f"[2024-07-17 19:{int(seconds) // 60:02}:{seconds % 60:06.3f}] [INFO] ".replace(".", ",")


def timer(step: int, seconds: float, *, micro: int = 1, current: float = 16.0) -> str:
    return (
        f"{stamp(seconds)}[timer.py:258:stop] epoch=0/micro_step={step * micro}/global_step={step}, "
        f"RunningAvgSamplesPerSec=15.5, CurrSamplesPerSec={current}, MemAllocated=0.02GB, MaxMemAllocated=0.97GB"
    )


def old_timer(calls: int, seconds: float) -> str:
    return f"{stamp(seconds)}[timer.py:160:stop] 0/{calls}, SamplesPerSec=8.685659507501002"


def rank_step(step: int, seconds: float, skipped: int = 0) -> str:
    said = f"[Rank 0] step={step}, skipped={skipped}, lr=[5e-05], mom=[[0.9, 0.999]]"
    return f"{stamp(seconds)}[logging.py:69:log_dist] {said}"


def pipeline(step: int, seconds: str = "1.200", rate: str = "106.667") -> str:
    return f"steps: {step} loss: 5.5508 lm loss: 5.5103 moe loss: 0.0405 iter time (s): {seconds} samples/sec: {rate}"


@pytest.mark.parametrize("path", sorted(DATA.glob("*.log")), ids=lambda path: path.name)
def test_a_log_of_deepspeed_is_told_by_its_content(path: Path) -> None:
    assert framework_of(path.read_text()) == "deepspeed"


def test_since_0_8_steps_are_optimizer_steps_and_rank_0s_line_says_the_same_step() -> None:
    log = read_run(DATA / "0.12-chat.log")
    assert [step.step for step in log.steps] == [10, 450, 460, 470]
    assert [step.more["micro step"] for step in log.steps] == ["40", "1800", "1840", "1880"]
    assert log.steps[2].samples_per_s == pytest.approx(25.7338, rel=1e-4)
    fields = run_fields(log)
    assert fields["step_s"] == pytest.approx((2.49478, 2.4979, 2.4984), rel=1e-4)
    assert fields["memory_bytes"] == pytest.approx(38.49 * 2**30)
    assert log.outcome == "ok"
    assert fields["task"] is None


def test_in_0_7_both_rates_stand_on_a_line_and_the_cut_one_is_counted() -> None:
    log = read_run(DATA / "0.7-notebook.log")
    assert [step.step for step in log.steps] == [20, 30]
    assert log.num_cut_lines == 1
    assert log.steps[1].samples_per_s == pytest.approx(227.45, rel=1e-4)
    assert log.steps[1].step_s == pytest.approx(2.2511)
    assert run_fields(log)["flags"] is None


def test_up_to_0_6_the_rate_is_a_running_mean_and_no_windows() -> None:
    log = read_run(DATA / "0.5-accumulating.log")
    fields = run_fields(log)
    assert fields["step_s"] == pytest.approx((0.08299, 0.08212, 0.08287, 0.08336))
    assert fields["reported_samples_per_s"] is None
    assert "mean since the run began" in fields["reported_convention"]
    assert any("calls of step()" in flag for flag in fields["flags"])


def test_lines_of_one_second_of_2020_are_read(write: WriteLines) -> None:
    lines = [
        "[INFO 2020-06-08 05:26:19] 0/2650, SamplesPerSec=13.19749106827976",
        "[INFO 2020-06-08 05:26:34] 0/2700, SamplesPerSec=13.198177991591365",
    ]
    assert run_fields(read_run(write(*lines)))["step_s"] == pytest.approx((0.3,))


def test_a_progress_bar_before_a_line_is_no_part_of_it(write: WriteLines) -> None:
    bar = "  8%|███       | 1999/24128 [1:52:09<20:27:23,  3.33s/it]"
    log = read_run(write(bar + rank_step(2000, 10), old_timer(2000, 10), rank_step(4000, 20), old_timer(4000, 20)))
    assert [step.step for step in log.steps] == [2000, 4000]
    assert log.steps[1].step_s == pytest.approx(0.005)


def test_gradient_accumulation_of_an_old_log_follows_from_rank_0s_steps(write: WriteLines) -> None:
    # four calls of step() make an optimizer step; both are reported every ten
    lines = []
    for calls in range(10, 121, 10):
        lines += [rank_step(calls // 4, calls / 2)] if calls % 40 == 0 else []
        lines += [old_timer(calls, calls / 2)]
    fields = run_fields(read_run(write(*lines)))
    assert fields["step_s"] == pytest.approx((2.0, 2.0))
    assert fields["flags"] is None


def test_an_old_log_whose_configuration_states_accumulation_is_counted_in_optimizer_steps(write: WriteLines) -> None:
    config = f"{CONFIG}gradient_accumulation_steps .. 5"
    log = read_run(write(config, *(old_timer(calls, calls / 2) for calls in range(10, 61, 10))))
    assert [step.step for step in log.steps] == [2, 4, 6, 8, 10, 12]
    assert log.steps[3].step_s == pytest.approx(2.5)


def test_the_pipeline_engines_line_has_its_own_seconds(write: WriteLines) -> None:
    lines = [text for n in (20, 30, 40) for text in (rank_step(n, n * 1.25), pipeline(n))]
    log = read_run(write(*lines))
    assert [(step.step, step.loss, step.step_s) for step in log.steps] == [(n, 5.5508, 1.2) for n in (20, 30, 40)]
    assert run_fields(log)["reported_samples_per_s"] == pytest.approx(106.667)


def test_seconds_that_an_older_pipeline_prints_in_milliseconds_are_told_by_the_clock(write: WriteLines) -> None:
    lines = [text for n in (20, 30, 40) for text in (rank_step(n, n * 1.2), pipeline(n, "1200.000", "0.107"))]
    log = read_run(write(*lines))
    assert [step.step_s for step in log.steps[1:]] == pytest.approx([1.2, 1.2])
    assert log.steps[2].samples_per_s == pytest.approx(107)
    assert any("milliseconds" in flag for flag in run_fields(log)["flags"])


def test_a_window_in_which_the_loss_scale_overflowed_is_left_out(write: WriteLines) -> None:
    lines = [
        text
        for n, skipped in ((20, 2), (30, 2), (40, 5), (50, 5))
        for text in (rank_step(n, n * 2, skipped), timer(n, n * 2))
    ]
    fields = run_fields(read_run(write(*lines)))
    assert "31-40 (3 of its steps were skipped: the loss scale overflowed)" in fields["window"]


def test_a_window_in_which_a_checkpoint_was_written_is_left_out(write: WriteLines) -> None:
    saving = f"{stamp(65)}[logging.py:96:log_dist] [Rank 0] [Torch] Checkpoint global_step30 is about to be saved!"
    fields = run_fields(read_run(write(timer(20, 40), timer(30, 60), saving, timer(40, 90), timer(50, 110))))
    assert fields["step_s"] == pytest.approx((2.0, 2.0))
    assert "31-40 (a checkpoint was written)" in fields["window"]


def test_a_rate_that_leaves_out_what_lies_between_steps_is_flagged(write: WriteLines) -> None:
    config = f"{CONFIG}train_batch_size ............. 32"
    fast = run_fields(read_run(write(config, timer(20, 40), timer(30, 60), timer(40, 80))))
    slow = run_fields(read_run(write(config, timer(20, 80), timer(30, 120), timer(40, 160))))
    assert fast["flags"] is None
    assert any("lies between steps" in flag for flag in slow["flags"])


def test_a_log_of_one_line_keeps_its_rate(write: WriteLines) -> None:
    fields = run_fields(read_run(write(f"{CONFIG}train_batch_size ............. 32", timer(4500, 40))))
    assert fields["reported_samples_per_s"] == 16
    assert fields["step_s"] == pytest.approx((2.0,))


def test_lines_of_other_timers_between_two_of_one_step_keep_them_together(write: WriteLines) -> None:
    noise = f"{stamp(40)}[logging.py:96:log_dist] [Rank 0] rank=0 time (ms) | forward: 652.41 | step: 1172.13"
    memory = f"{stamp(40)}[timer.py:160:stop] 0/20, vm percent: 4.4, swap percent: 0.0"
    log = read_run(write(rank_step(20, 40), noise, timer(20, 40), memory, rank_step(30, 60), noise, timer(30, 60)))
    assert [step.step for step in log.steps] == [20, 30]
    assert [step.more["skipped"] for step in log.steps] == ["0", "0"]
    assert log.num_cut_lines == 0


@pytest.mark.parametrize("place", range(60, len(timer(30, 60)) - 1, 5))
def test_wherever_a_line_is_cut_it_is_counted_and_not_guessed(write: WriteLines, place: int) -> None:
    cut = timer(30, 60)[:place]
    log = read_run(write(timer(20, 40), cut, timer(40, 80)))
    assert [step.step for step in log.steps] == [20, 40]
    assert log.num_cut_lines == ("SamplesPerSec=" in cut)
    assert log.steps[1].step_s == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (
            [
                "train_batch_size ............. 64",
                "train_micro_batch_size_per_gpu  2",
                "gradient_accumulation_steps .. 4",
                "world_size ................... 8",
                "zero_optimization_stage ...... 2",
                "fp16_enabled ................. False",
                "bfloat16_enabled ............. True",
            ],
            {
                "global_batch": 64,
                "microbatch": 2,
                "dp": 8,
                "num_gpus": 8,
                "sharding": "zero2",
                "param_dtype": "bfloat16",
            },
        ),
        (["zero_optimization_stage ...... 0", "fp16_enabled .. True"], {"sharding": "ddp", "param_dtype": "float16"}),
        (["fp16_enabled ................. False"], {"param_dtype": None, "sharding": None, "global_batch": None}),
    ],
)
def test_the_printed_configuration_states_batch_and_techniques(lines: list[str], expected: dict[str, Any]) -> None:
    facts = read_facts([CONFIG + text for text in lines])
    assert {name: facts.get(name) for name in expected} == expected


def test_the_configuration_as_json_states_the_batch_too() -> None:
    texts = [
        "    json = {",
        '    "train_batch_size": 32, ',
        '    "zero_optimization": {',
        '        "stage": 3',
        "    }",
    ]
    facts = read_facts(texts)
    assert (facts["global_batch"], facts["sharding"]) == (32, "zero3")


def test_processes_and_version_are_stated() -> None:
    version = (
        "[2024-03-07 15:00:00,000] [INFO] [logging.py:96:log_dist] [Rank -1] DeepSpeed info: version=0.14.0, git-hash"
    )
    topology = (
        "Using topology: {ProcessCoord(pipe=0, data=0, model=0): 0, ProcessCoord(pipe=0, data=1, model=0): 1, "
        "ProcessCoord(pipe=1, data=0, model=0): 2, ProcessCoord(pipe=1, data=1, model=0): 3}"
    )
    facts = read_facts([version, topology])
    assert facts["framework_version"] == "0.14.0"
    assert (facts["pp"], facts["dp"], facts["tp"], facts["num_gpus"]) == (2, 2, 1, 4)
    init = "Initialize: [comm.py] init_distributed: world_rank=0, world_size=16, master_addr=host"
    assert read_facts([init])["num_gpus"] == 16
