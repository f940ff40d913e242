import json
from pathlib import Path
from typing import Any

import pytest

from falloff.ingest.frameworks import read_framework_log
from falloff.ingest.mlperf import OF_SAMPLES
from falloff.ingest.recognise import read_any
from falloff.ingest.steady import run_fields

DATA = Path(__file__).parents[1] / "data" / "mlperf"


def event(key: str, time_s: float, value: Any = None, **metadata: Any) -> str:
    content = {"namespace": "", "time_ms": int(1e3 * time_s), "event_type": "", "key": key, "value": value}
    return f":::MLLOG {json.dumps({**content, 'metadata': metadata})}\n"


def test_a_blocks_rate_is_of_its_samples_and_holds_no_evaluation() -> None:
    (log,) = read_framework_log(DATA / "llama2-lora-2024-07.log", "mlperf")
    (step,) = log.steps
    assert (step.step, step.samples_seen, log.outcome) == (3072, 3072.0, "ok")
    # 384 samples in 199.434 s, as the submitter's own figure says too
    assert step.samples_per_s == pytest.approx(384 / 199.434, rel=1e-3)
    assert step.step_s is None
    assert log.facts["flags"] == (OF_SAMPLES,)


def test_samples_beside_a_step_are_those_of_the_block_alone() -> None:
    (log,) = read_framework_log(DATA / "llama31-405b-2025-10.log", "mlperf")
    fields = run_fields(log)
    # at its start and at its end each block says 19,200: 20 steps of 960
    assert [(step.step, step.num_steps) for step in log.steps] == [(300, 300), (320, 20), (340, 20)]
    assert fields["step_s"] == pytest.approx((66.749 / 20, 66.476 / 20), rel=1e-6)
    assert (fields["global_batch"], fields["tokens_per_step"], fields["flags"]) == (960, 960 * 8192, None)
    assert (log.outcome, log.num_cut_lines) == ("ok", 0)


def test_samples_that_a_block_names_at_its_end_may_be_those_before_it(tmp_path: Path) -> None:
    # as NVIDIA's until 2025: training_results_v5.1, Cisco/results/hpf_n16/llama31_8b/result_0.txt
    lines = [event("global_batch_size", 1760027700, 64)]
    for first, begin in ((0, 1760027808.725), (12288, 1760027920.0), (24576, 1760028030.0)):
        lines.append(event("block_start", begin, samples_count=first))
        lines.append(event("block_stop", begin + 100.5, samples_count=first))
        lines.append(event("eval_start", begin + 100.5, samples_count=first + 12288))
    path = tmp_path / "result_0.txt"
    path.write_text("".join(lines))
    (log,) = read_framework_log(path, "mlperf")
    assert [(step.step, step.num_steps) for step in log.steps] == [(192, 192), (384, 192), (576, 192)]
    assert run_fields(log)["step_s"] == pytest.approx((100.5 / 192, 100.5 / 192), rel=1e-5)
    assert log.num_cut_lines == 0


def test_the_submitters_rate_is_reported_where_the_blocks_beginning_is_cut() -> None:
    (run,) = read_any(DATA / "llama31-8b-2025-10.log").runs
    assert run.reported_samples_per_s == pytest.approx(30.694928)
    assert (run.outcome, run.note) == ("ok", "MLPerf Training: llama31_8b, MI355X")


def test_steps_are_optimizer_steps_where_the_batch_is_stated(tmp_path: Path) -> None:
    blocks = [(0, 192, 1000.0, 1100.0), (192, 384, 1200.0, 1290.0), (384, 576, 1300.0, 1390.0)]
    lines = [event("global_batch_size", 1000, 8), event("max_sequence_length", 1000, 8192)]
    for first, last, begin, end in blocks:
        lines += [event("block_start", begin, samples_count=first), event("block_stop", end, samples_count=last)]
    path = tmp_path / "result_0.txt"
    path.write_text("".join(lines) + event("run_stop", 1400, status="aborted") + ':::MLLOG {"namespace": "", "ti')
    (log,) = read_framework_log(path, "mlperf")
    fields = run_fields(log)
    assert [step.step for step in log.steps] == [24, 48, 72]
    # the first block holds the first steps
    assert fields["step_s"] == pytest.approx((90 / 24, 90 / 24))
    assert (fields["tokens_per_step"], fields["flags"], log.outcome) == (8 * 8192, None, "killed")


def test_blocks_of_epochs_alone_are_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "result_0.txt"
    path.write_text(event("block_start", 1000, first_epoch_num=1) + event("block_stop", 1100, first_epoch_num=1))
    with pytest.raises(ValueError, match=r"result_0\.txt: holds no whole step line of mlperf \(a block_stop with"):
        read_any(path)
