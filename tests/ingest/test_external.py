import shutil
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest

from falloff.ingest.external import read_folder
from falloff.records import CollectiveRecord, RunRecord, read_records

FOLDER = Path("data/external/torchtitan-h200x2")


@pytest.fixture(scope="module")
def runs() -> dict[str, RunRecord]:
    return {run.record_id: run for run in read_folder(FOLDER)[0]}


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(FOLDER, tmp_path / "torchtitan-h200x2"))


def restate(folder: Path, old: str, new: str) -> None:
    path = folder / "source.yaml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def mean_draw_w(begin: str, end: str) -> float:
    """The plain mean of the samples between two times of day, read apart from the package."""
    draws = []
    for line in (FOLDER / "power.csv").read_text().splitlines():
        stamp, _, draw = [part.strip() for part in line.split(",")[:3]]
        if begin <= stamp.split(" ")[1] <= end:
            draws.append(float(draw))
    return sum(draws) / len(draws)


def test_both_shipped_runs_are_records(runs: dict[str, RunRecord]) -> None:
    assert list(runs) == ["torchtitan-h200x2/compile_bs2", "torchtitan-h200x2/eager_bs2"]
    run = runs["torchtitan-h200x2/compile_bs2"]
    assert (run.provenance, run.outcome, run.hardware) == ("imported", "ok", "h200-sxm")
    assert (run.framework, run.framework_version) == ("torchtitan", "v0.2.2")
    assert (run.param_dtype, run.driver, run.power_limit_w) == ("bfloat16", "580.159.04", 700)
    assert run.source_ref == "data/external/torchtitan-h200x2/compile_bs2.log"


@pytest.mark.parametrize(
    ("name", "begin", "end"),
    [("compile_bs2", "02:37:52.898", "02:38:10.208"), ("eager_bs2", "02:38:56.512", "02:39:14.660")],
)
def test_power_is_joined_over_the_measured_steps(runs: dict[str, RunRecord], name: str, begin: str, end: str) -> None:
    run = runs[f"torchtitan-h200x2/{name}"]
    assert run.draw_w is not None
    assert run.energy_j is not None
    assert run.draw_w == pytest.approx(mean_draw_w(begin, end), rel=0.005)
    assert 600 < run.draw_w < 700
    seconds = datetime.fromisoformat(f"2026-11-30T{end}") - datetime.fromisoformat(f"2026-11-30T{begin}")
    assert run.energy_j == pytest.approx(2 * run.draw_w * seconds.total_seconds())
    assert run.power_source == "nvidia-smi power.draw.instant, integral of power readings, clock offset 0 s"
    assert run.energy_integral_j == run.energy_j
    assert (run.energy_counter_j, run.power_scope, run.power_cap_share, run.thermal_share) == (None, "gpu", 1, 0)
    assert run.sm_clock_mhz == pytest.approx(1540, abs=10)
    assert run.note == "clocks held down: software power cap in 100% of the power samples"


def test_only_the_traced_run_has_exposure(runs: dict[str, RunRecord]) -> None:
    compiled, eager = runs.values()
    parts = ("trace_compute_s", "trace_exposed_comm_s", "trace_exposed_copy_s", "trace_idle_s")
    assert sum(getattr(compiled, part) for part in parts) == pytest.approx(compiled.trace_span_s, abs=1e-12)
    assert compiled.trace_note is not None
    assert "ProfilerStep#19" in compiled.trace_note
    assert eager.trace_exposed_comm_s is None
    assert eager.trace_note == "no trace"


def test_the_shipped_sweep_is_records_of_two_ranks() -> None:
    collectives = read_folder(FOLDER)[1]
    assert len(collectives) == 33
    last = next(c for c in collectives if (c.collective, c.message_bytes) == ("all_reduce", 2**30))
    assert last.times_s == pytest.approx((3237.4e-6,))
    assert last.reported_busbw_bytes_s == pytest.approx(331.7e9)
    assert (last.num_ranks, last.nodes, last.hardware) == (2, 1, "h200-sxm")
    assert next(c for c in collectives if c.message_bytes == 1024).reported_busbw_bytes_s is None


def test_the_clock_of_the_log_must_be_stated_for_power(copy: Path) -> None:
    restate(copy, "    timezone: UTC\n    trace:", "    trace:")
    compiled = read_folder(copy)[0][0]
    assert compiled.draw_w is None
    assert compiled.power_source == "the time zone of the log's time stamps is not stated"


def test_a_clock_that_is_hours_off_finds_no_power(copy: Path) -> None:
    restate(copy, "timezone: UTC\n      reading", "timezone: Asia/Tokyo\n      reading")
    compiled = read_folder(copy)[0][0]
    assert compiled.draw_w is None
    assert compiled.power_source is not None
    assert "do not cover" in compiled.power_source


def test_a_broken_trace_does_not_void_the_run(copy: Path) -> None:
    trace = copy / "compile_bs2.rank0.trace.json.gz"
    trace.write_bytes(trace.read_bytes()[:100_000])
    compiled = read_folder(copy)[0][0]
    assert compiled.step_s is not None
    assert compiled.trace_span_s is None
    assert compiled.trace_note is not None
    assert "complete events" in compiled.trace_note


def test_a_dtype_that_nobody_states_is_torchtitans_default_and_said(copy: Path) -> None:
    restate(copy, "      param_dtype: bfloat16\n", "")
    compiled = read_folder(copy)[0][0]
    assert compiled.param_dtype == "bfloat16"
    assert compiled.note is not None
    assert "TorchTitan's default" in compiled.note


def test_a_float8_run_has_no_mfu_over_any_one_peak(copy: Path) -> None:
    log = copy / "compile_bs2.log"
    text = log.read_text()
    start = text.index("[titan]")
    log.write_text(text[:start] + "[titan] 2026-11-30 02:37:00,000 - root - INFO - Float8 training active\n" + text)
    with pytest.raises(ValueError, match="param_dtype is 'bfloat16'; the log says 'float8 in linear layers'"):
        read_folder(copy)
    restate(copy, "      param_dtype: bfloat16\n", "")
    compiled = read_folder(copy)[0][0]
    assert compiled.param_dtype == "float8 in linear layers"
    assert compiled.flags == ("Float8 in linear layers alone: no one peak belongs to it",)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("licence:", "license:", "unknown key 'license'"),
        ("log: eager_bs2.log", "log: eager.log", "names the file 'eager.log'"),
        ("name: eager_bs2", "name: compile_bs2", "stated twice"),
        (
            "hardware: h200-sxm\n      nodes: 1\n      gpus",
            "hardware: h2000\n      nodes: 1\n      gpus",
            "'h2000' is unknown",
        ),
        (
            "backend: nccl\n      param",
            "num_gpus: 4\n      backend: nccl\n      param",
            "num_gpus is 4; the log says 2",
        ),
        ("gpus: [0, 1]", "gpus: [0]", "names 1 GPUs; the run has 2"),
        ("first: 16, last: 20", "first: 20, last: 16", "must be steps in order"),
        ("first: 16, last: 20", "first: 60, last: 70", "left_out_steps 60-70"),
        ("reading: instant", "reading: median", "allowed: instant, average"),
        ("power_limit_w: 700", "power_limit_w: -700", "must be above zero"),
        ("num_ranks: 2", "num_ranks: 4", "its time on 4 ranks gives"),
        ("format: torch-collectives", "format: nccl", "allowed: torch-collectives"),
        ("retrieved:", "retrieved_on:", "unknown key 'retrieved_on'"),
    ],
)
def test_what_is_wrong_in_a_source_is_one_sentence(copy: Path, old: str, new: str, words: str) -> None:
    restate(copy, old, new)
    with pytest.raises(ValueError) as error:
        read_folder(copy)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def run_script(folder: Path, out: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "workflow_scripts/ingest_external.py", "--folder", str(folder)]
    outputs = ["--runs", str(out / "x.runs.parquet"), "--collectives", str(out / "x.collectives.parquet")]
    return subprocess.run([*command, *outputs], capture_output=True, text=True, check=False)


def test_the_script_writes_both_record_files(tmp_path: Path) -> None:
    done = run_script(FOLDER, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(read_records([tmp_path / "x.runs.parquet"], RunRecord)) == 2
    assert len(read_records([tmp_path / "x.collectives.parquet"], CollectiveRecord)) == 33


def test_the_script_says_what_is_wrong(tmp_path: Path) -> None:
    done = run_script(tmp_path, tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert "source.yaml: cannot be read" in done.stderr


def test_a_folder_names_an_output_of_nccl_tests_and_states_what_it_leaves_out(tmp_path: Path) -> None:
    source = Path("tests/data/nccl_tests/rccl_2026_alltoall.log")
    (tmp_path / "alltoall.log").write_text(source.read_text())
    head = "title: x\naddress: none\nversion: rccl-tests 2.17.9\nlicence: CC-BY-4.0\nretrieved: '2026-12'\n"
    item = "collectives:\n  - file: alltoall.log\n    format: nccl-tests\n"
    (tmp_path / "source.yaml").write_text(f"{head}{item}    stated: {{hardware: mi355x, interconnect: RoCE}}\n")
    _, records = read_folder(tmp_path)
    first = records[0]
    assert (first.collective, first.num_ranks, first.nodes, first.hardware) == ("all_to_all", 16, 2, "mi355x")
    assert (first.source, first.interconnect, first.backend) == ("x", "RoCE", "rccl")
    assert not [flag for flag in first.flags or () if "unknown" in flag]
    (tmp_path / "source.yaml").write_text(f"{head}{item}    stated: {{nodes: 4}}\n")
    with pytest.raises(ValueError, match="nodes is 4; the log says 2"):
        read_folder(tmp_path)
