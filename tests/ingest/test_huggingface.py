from pathlib import Path

import pytest

from falloff.ingest.frameworks import framework_of, read_framework_log
from falloff.ingest.recognise import read_any
from falloff.ingest.steady import run_fields

HEADER = """***** Running training *****
  Instantaneous batch size per device = 4
  Total train batch size (w. parallel, distributed & accumulation) = 128
  Gradient Accumulation steps = 8
Map: 100%|##########| 52002/52002 [00:05<00:00, 9876.5 examples/s]
"""
EVALUATION = "{'eval_loss': 1.1, 'eval_runtime': 6.1, 'eval_samples_per_second': 3.3, 'epoch': 0.1}\n"
LAST = "{'train_runtime': 1575.5, 'train_samples_per_second': 1.333, 'train_steps_per_second': 0.168, 'epoch': 3.0}\n"


def bar(step: int, seconds: int) -> str:
    return f"  {step // 12}%|#         | {step}/1218 [{seconds // 60:02d}:{seconds % 60:02d}<2:24:06,  1.20s/it]"


def losses(loss: str = "2.5") -> str:
    return f"{{'loss': {loss}, 'grad_norm': 1.5, 'learning_rate': 5.2e-06, 'epoch': 0.02}}\n"


def test_a_step_and_its_seconds_are_those_of_the_bar_before_it(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    before = "".join(f"{bar(10 * i, 12 * i)}\r          \r{losses()}" for i in range(1, 6))
    # since version 5 values are printed as text
    after = "".join(f"{bar(10 * i, 12 * i + 30)}{losses(repr('2.1'))}" for i in range(6, 9))
    path.write_text(HEADER + before + EVALUATION + after + LAST)
    assert framework_of(path.read_text()) == "transformers"
    (log,) = read_framework_log(path, "transformers")
    fields = run_fields(log)
    assert fields["step_s"] == pytest.approx((1.2,) * 6)
    assert "51-60 (an evaluation ran)" in fields["window"]
    assert (fields["num_gpus"], fields["global_batch"], fields["microbatch"]) == (4, 128, 4)
    assert (log.outcome, fields["task"]) == ("ok", None)
    assert "train_samples_per_second 1.333" in fields["note"]


def test_the_last_dictionary_alone_is_a_run_without_a_rate(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text(losses() + LAST)
    (run,) = read_any(path).runs
    assert (run.outcome, run.step_s, run.reported_samples_per_s, run.num_cut_lines) == ("ok", None, None, 0)
    assert run.note is not None
    assert "train_runtime 1575.5" in run.note


def test_a_loss_that_is_no_number_is_told(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text(bar(10, 12) + "\n" + losses() + bar(20, 24) + "\n" + losses("nan"))
    (log,) = read_framework_log(path, "transformers")
    assert (log.outcome, log.outcome_reason) == ("unstable", "the loss of step 20 is nan")


def test_losses_without_a_bar_tell_no_step(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text(losses() * 3)
    with pytest.raises(
        ValueError, match=r"no whole step line of transformers \(its dictionaries name no step: the prog"
    ):
        read_any(path)
