"""falloff measure, with ranks that are tiny scripts."""

import json
import sys
import tarfile
from pathlib import Path

import pytest

from falloff import launch, ownership, rawlog
from falloff.cli import measure as command
from falloff.cli.main import main
from falloff.cli.measure import tokens_per_gpu_s
from falloff.launch import Run

ROOT = Path(__file__).parents[2]
STUDY = """\
question: Does a batch work?
measure_on: []
limits: {timeout_s: 30}
collectives:
  - {repeats: 2, num_processes: 2, collectives: [all_reduce], message_bytes: [1024]}
  - {num_processes: 2, collectives: [all_gather], message_bytes: [1024]}
kernels:
  - {num_processes: 1, networks: [llama-5m]}
"""

# A worker that does what falloff.bench.worker does, with no torch.
RANKS = """
import os, sys, time
from pathlib import Path
from falloff import rawlog
for folder in map(Path, sys.argv[1:]):
    while not (folder / rawlog.OPEN_NAME).is_file() or not rawlog.read_open_events(folder): time.sleep(0.01)
    with (folder / rawlog.OUTPUT_NAME).open("a") as output: output.write(str(os.environ.get("CUDA_VISIBLE_DEVICES")))
    for step in (1, 2):
        rawlog.append_event(folder, "step", step=step, phase="measured", tokens=100, rank_step_s=[0.5, 0.4])
    rawlog.append_event(folder, "completed", ranks_leave=False)
"""


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a study, in which no other measurement is waited for and no torch is started."""
    (tmp_path / "config" / "studies").mkdir(parents=True)
    (tmp_path / "config" / "studies" / "tiny.yaml").write_text(STUDY)
    (tmp_path / "config" / "models").symlink_to(ROOT / "config" / "models")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ownership, "LOCK_FOLDERS", (tmp_path,))
    monkeypatch.setattr(launch, "rank_command", ranks)
    return tmp_path


def ranks(runs: list[Run]) -> list[str]:
    return [sys.executable, "-c", RANKS, *(str(run.run_dir) for run in runs)]


def first_events(checkout: Path) -> dict[str, dict]:
    logs = {path.parent: rawlog.read_events(path) for path in checkout.glob("data/raw/tiny/*/*/events.jsonl")}
    return {f"{folder.parent.name.split('-')[0]} {folder.name}": events[0] for folder, events in logs.items()}


def test_a_study_is_measured_and_gone_on_with_until_nothing_is_left(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["measure", "tiny", "--device", "cpu", "--only", "all_reduce", "all_gather", "--pack", "o.tar.gz"]) == 0
    said = capsys.readouterr().out
    assert said.count("  ok  100 tokens/s/GPU  in ") == 3
    assert "3 measured, 0 left\no.part1.tar.gz\n" in said
    with tarfile.open("o.part1.tar.gz") as archive:
        assert len([name for name in archive.getnames() if name.endswith("/events.jsonl")]) == 3
    assert main(["measure", "tiny", "--device", "cpu", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(run["cell_id"].split("-")[0], run["outcome"]) for run in found["runs"]] == [("kernels", "ok")]
    assert found["left"] == found["parts"] == []
    assert main(["measure", "tiny", "--device", "cpu"]) == 0
    assert capsys.readouterr().out == "0 measured, 0 left\n"


def test_what_no_time_is_left_for_is_named_and_not_begun(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["measure", "tiny", "--device", "cpu", "--until-s", "0"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("0 measured, 4 left (the same command goes on)\n")
    assert said.count("\n  left  ") == 4
    assert not (checkout / "data").exists()


def test_every_gpu_measures_one_process_cells_as_repeats_of_its_own(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "num_attached_gpus", lambda _device: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert main(["measure", "tiny", "--each-gpu", "--only", "kernels"]) == 0
    said = capsys.readouterr().out
    assert "2 measured, 0 left" in said
    started = first_events(checkout)
    assert {run: event["gpu"] for run, event in started.items()} == {"kernels 1": 0, "kernels 2": 1}
    outputs = {path.parent.name: path.read_text() for path in checkout.glob("data/raw/tiny/*/*/output.txt")}
    assert outputs == {"1": "0", "2": "1"}


def test_a_study_begun_on_gpus_goes_on_on_processes_only_where_that_is_asked_for(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "num_attached_gpus", lambda _device: 2)
    assert main(["measure", "tiny", "--only", "all_gather"]) == 0
    monkeypatch.setattr(command, "num_attached_gpus", lambda _device: 0)
    assert main(["measure", "tiny", "--only", "all_reduce"]) == 1
    assert "data/raw/tiny holds runs on GPUs, and there is none" in capsys.readouterr().err
    assert main(["measure", "tiny", "--device", "cpu", "--only", "all_reduce"]) == 0


@pytest.mark.parametrize("repeat", ["0", "-1", "first"])
def test_a_repeat_is_counted_from_one(checkout: Path, capsys: pytest.CaptureFixture[str], repeat: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["measure", "tiny", "--device", "cpu", "--repeat", repeat])
    assert ended.value.code == 2
    assert "argument --repeat" in capsys.readouterr().err


def test_a_text_that_no_cell_has_is_an_error(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["measure", "tiny", "--device", "cpu", "--only", "all_reduce", "all-gather"]) == 1
    assert "study tiny: no cell has 'all-gather'" in capsys.readouterr().err
    assert not (checkout / "data").exists()


def test_each_gpu_without_gpus_is_an_error(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["measure", "tiny", "--device", "cpu", "--each-gpu"]) == 1
    assert "--each-gpu needs GPUs" in capsys.readouterr().err


def test_a_study_that_is_not_there_is_an_error_that_names_its_file(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["measure", "tinny", "--device", "cpu"]) == 1
    assert "config/studies/tinny.yaml" in capsys.readouterr().err


def test_a_rate_is_that_of_the_slowest_rank_a_process() -> None:
    steps = [
        {"event": "step", "phase": "warmup", "tokens": 100, "rank_step_s": [9.0, 9.0]},
        {"event": "step", "phase": "measured", "tokens": 100, "rank_step_s": [1.0, 2.0]},
        {"event": "step", "phase": "measured", "tokens": 100, "rank_step_s": [1.5, 1.5]},
    ]
    assert tokens_per_gpu_s(steps) == pytest.approx(200 / 3.5 / 2)
    assert tokens_per_gpu_s(steps[:1]) is None
