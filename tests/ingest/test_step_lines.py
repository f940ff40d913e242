from collections.abc import Callable
from pathlib import Path

import pytest

from falloff.ingest.frameworks import framework_of, read_framework_log
from falloff.ingest.steady import run_fields
from falloff.ingest.training_log import TrainingLog

DATA = Path(__file__).parents[1] / "data"
Read = Callable[[str], TrainingLog]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def read_text(text: str) -> TrainingLog:
        path = tmp_path / "run.log"
        path.write_text(text)
        name = framework_of(text)
        assert name is not None
        (log,) = read_framework_log(path, name)
        return log

    return read_text


def test_torchtune_prints_tokens_of_one_gpu_and_peaks_in_gib(read: Read) -> None:
    row = "Step {0} | loss:2.0{0} lr:2e-05 tokens_per_second_per_gpu:40{0}.5 peak_memory_reserved:13.25 \n"
    bar = "1|{0}|Loss: 2.08:   1%|          | {0}/880 [00:05<1:12:00,  4.9s/it]\r"
    log = read("".join(row.format(step) + bar.format(step) for step in range(1, 6)))
    fields = run_fields(log)
    assert (log.framework, len(log.steps), log.num_cut_lines) == ("torchtune", 5, 0)
    assert fields["reported_tokens_per_gpu_s"] == 404.5
    assert fields["memory_bytes"] == 13.25 * 2**30
    assert fields["window"].startswith("steps 3, 4, 5; left out: 1 (the first step)")


def test_torchtune_of_before_it_counted_tokens_has_a_loss_alone(read: Read) -> None:
    log = read("Step 0 | loss:1.75 lr:2e-05 gpu_resources:13708965376 \n")
    assert (log.steps[0].loss, log.steps[0].tokens_per_gpu_s) == (1.75, None)


def test_maxtext_prints_seconds_and_rates_of_one_device(read: Read) -> None:
    row = "completed step: {0}, seconds: 1.34{0}, TFLOP/s/device: 257.9, Tokens/s/device: 36653.2, loss: 9.5\n"
    fields = run_fields(read("".join(row.format(step) for step in range(2, 5))))
    assert fields["step_s"] == pytest.approx((1.342, 1.343, 1.344))
    assert (fields["reported_tflops_per_gpu"], fields["reported_tokens_per_gpu_s"]) == (pytest.approx(257.9), 36653.2)


def test_llm_c_prints_milliseconds_and_tokens_of_all_gpus(read: Read) -> None:
    row = (
        "step  {0}/190 | loss {1} (+nanz)| norm 0.5 (+1.2z)| lr 3.00e-04 | 360.6 ms | 14.9% bf16 MFU | 1449806 tok/s\n"
    )
    log = read(row.format(149, 3.25) + row.format(150, "nan"))
    assert [(step.step_s, step.tokens_per_s) for step in log.steps] == [(pytest.approx(0.3606), 1449806.0)] * 2
    assert log.steps[0].peak_flops_share == pytest.approx(0.149)
    assert log.outcome == "unstable"


def test_modded_nanogpts_seconds_are_those_that_its_clock_rose_by(read: Read) -> None:
    log = read(
        "step:0/1480 val_loss:7.7109 train_time:0ms step_avg:nanms\n"
        "step:125/1480 val_loss:4.3719 train_time:29736ms step_avg:258.57ms\n"
        "step:250/1480 val_loss:3.9992 train_time:62563ms step_avg:260.68ms\n"
        "step:375/1480 val_loss:3.8241 train_time:96107ms step_avg:263.31ms\n"
    )
    assert run_fields(log)["step_s"] == pytest.approx(((62.563 - 29.736) / 125, (96.107 - 62.563) / 125))


@pytest.mark.parametrize("cut", ["Step 3 | loss:2.0", "Step 3 | loss:", "Step 3 | lr:2e-05 loss:2.03x\n"])
def test_a_line_that_is_cut_is_counted(read: Read, cut: str) -> None:
    log = read("Step 2 | loss:2.02 lr:2e-05 tokens_per_second_per_gpu:402.5\n" + cut)
    assert ([step.step for step in log.steps], log.num_cut_lines) == ([2], 1)


def test_internevo_prints_tokens_of_one_gpu_between_commas_and_later_between_blanks() -> None:
    (log,) = read_framework_log(DATA / "internevo" / "2023-07.log", "internevo")
    fields = run_fields(log)
    assert [step.step for step in log.steps] == [0, 1, 2, 3]
    assert fields["window"].startswith("steps 2, 3; left out: 0 (the first step)")
    assert (fields["tokens_per_step"], fields["reported_tokens_per_gpu_s"]) == (131072.0, (4300.69 + 4252.55) / 2)
    (log,) = read_framework_log(DATA / "internevo" / "2024-08-32k.log", "internevo")
    # 'real_tgs' leaves the padding out, 'tgs/tgs_avg' is a mean over steps
    assert (log.steps[0].step, log.steps[0].tokens_per_gpu_s) == (199, 2511.37)
    assert log.steps[0].flops_per_gpu_s == pytest.approx(252.447e12, rel=1e-5)


def test_a_profiler_that_stops_maxtexts_steps_is_an_event(read: Read) -> None:
    row = "completed step: {0}, seconds: 10.34{0}, TFLOP/s/device: 346.9, Tokens/s/device: 19006.4, loss: 12.979\n"
    profiler = "I0811 21:55:27.300535       7 profiler_session.cc:136] Profiler session started.\n"
    log = read(row.format(2) + row.format(3) + profiler + row.format(4) + row.format(5))
    assert [step.event for step in log.steps] == [None, None, "a profiler ran", None]


def test_blanks_at_the_end_of_a_line_and_its_end_of_windows_change_nothing(read: Read) -> None:
    row = "completed step: {0}, seconds: 1.34{0}, TFLOP/s/device: 257.9, loss: 9.5   \r\n"
    assert [step.step_s for step in read(row.format(2) + row.format(3)).steps] == [1.342, 1.343]
