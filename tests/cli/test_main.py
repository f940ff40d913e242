"""The command line on logs that ship: what it prints, what it refuses, how it ends."""

import gzip
import json
import re
import resource
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from falloff.cli import ingest
from falloff.cli.main import main
from falloff.records import RunRecord, read_records, records_in, write_records

ROOT = Path(__file__).parents[2]
H200 = ROOT / "data" / "external" / "torchtitan-h200x2"
RAW = ROOT / "tests" / "data" / "native" / "laptop" / "llama-5m-dp_shard2-79881de5" / "1"
COMPILED, EAGER = H200 / "compile_bs2.log", H200 / "eager_bs2.log"


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def run_json(capsys: pytest.CaptureFixture[str], *arguments: object) -> Any:
    code, out, _ = run(capsys, *arguments, "--json")
    assert code == 0
    return json.loads(out)


@pytest.fixture(autouse=True)
def _at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def test_a_torchtitan_log_gives_the_values_in_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "ingest", COMPILED)
    assert (code, err) == (0, "")
    tenth = next(line for line in out.splitlines() if line.split()[:1] == ["10"])
    assert tenth.split() == ["10", "4.4363", "98.60", "9,445", "547.0", "55.29", "%", "55.31", "%"]


def test_mfu_is_recomputed_and_its_convention_stands_beside_the_logs_own(capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, "ingest", COMPILED)[1]
    assert "MFU is falloff's: 6 (N - N_embedding) + 12 L h s FLOPs a token, attention over the full square" in out
    assert "its own MFU and TFLOP/s: TorchTitan: 6 (N - N_embedding) + 12 L h s FLOPs a token over 989 TFLOP/s" in out
    assert "left out: 1 (the first step)" in out


def test_json_is_the_record_with_what_is_computed_from_it(capsys: pytest.CaptureFixture[str]) -> None:
    (item,) = run_json(capsys, "ingest", COMPILED)["read"]
    (run_read,) = item["runs"]
    assert item["kind"] == "torchtitan"
    assert run_read["record"]["params"] == 8_030_261_248
    assert run_read["record"]["draw_w"] is None
    assert run_read["computed"]["mfu"] == pytest.approx(0.5536, abs=2e-4)
    step = next(step for step in run_read["steps"] if step["step"] == 10)
    assert step["tokens_per_gpu_s"] == 9445
    assert step["mfu"] == pytest.approx(9445 * 5.791e10 / 989.4e12, rel=1e-3)


def test_a_folder_of_a_source_is_read_whole_with_power_and_trace(capsys: pytest.CaptureFixture[str]) -> None:
    (item,) = run_json(capsys, "ingest", H200)["read"]
    assert len(item["runs"]) == 2
    assert all(600 < entry["record"]["draw_w"] < 700 for entry in item["runs"])
    assert all(len(entry["steps"]) == 5 for entry in item["runs"])
    assert len(item["collectives"]) == 33


@pytest.mark.parametrize("folder", ["data/external/torchtitan-h200x2", "data/external/../external/torchtitan-h200x2/"])
def test_a_folder_named_relative_to_here_gives_the_same_steps(capsys: pytest.CaptureFixture[str], folder: str) -> None:
    code, out, err = run(capsys, "ingest", folder)
    assert (code, err) == (0, "")
    assert out.count("its logged steps") == 2
    (item,) = run_json(capsys, "ingest", folder)["read"]
    assert [len(entry["steps"]) for entry in item["runs"]] == [5, 5]


def test_a_folder_is_walked_and_each_file_left_is_named_with_its_reason(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "run.log").write_bytes(COMPILED.read_bytes())
    (tmp_path / "notes.txt").write_text("no log at all\n")
    (tmp_path / "empty.log").write_text("")
    (tmp_path / "cut.jsonl").write_text('{"event": "run_started", "sch')
    code, out, err = run(capsys, "ingest", tmp_path)
    assert code == 0
    assert "run.log" in out
    reasons = err.splitlines()
    assert len(reasons) == 4
    assert reasons[-1].startswith("falloff reads falloff's events.jsonl")
    assert all(reason.startswith("left out: ") for reason in reasons[:-1])
    for name in ("notes.txt", "empty.log", "cut.jsonl"):
        assert any(name in reason for reason in reasons)


def test_it_ends_with_1_when_nothing_could_be_read(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no log at all\n")
    code, _, err = run(capsys, "ingest", tmp_path)
    assert code == 1
    assert "notes.txt" in err
    assert run(capsys, "ingest", tmp_path, "--json")[0] == 1


def test_an_empty_folder_gives_nothing_and_says_so(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, _, err = run(capsys, "ingest", tmp_path)
    assert code == 1
    assert f"left out: {tmp_path}: no file is in it" in err


def test_it_ends_with_1_when_one_of_the_paths_gave_nothing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no log at all\n")
    (tmp_path / "empty").mkdir()
    for lost in (tmp_path / "notes.txt", tmp_path / "empty"):
        code, out, err = run(capsys, "ingest", COMPILED, lost)
        assert code == 1
        assert "compile_bs2.log" in out
        assert f"left out: {lost}: " in err


def test_a_folder_that_may_not_be_looked_into_is_left_out(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "closed").mkdir()
    (tmp_path / "run.log").write_bytes(COMPILED.read_bytes())
    is_file = Path.is_file

    def refuse(path: Path) -> bool:
        if path.parent.name == "closed":
            raise PermissionError(13, "Permission denied", str(path))
        return is_file(path)

    monkeypatch.setattr(Path, "is_file", refuse)
    code, out, err = run(capsys, "ingest", tmp_path)
    assert code == 0
    assert "run.log" in out
    assert err == f"left out: {tmp_path}/closed: cannot be read (Permission denied)\n"
    code, _, err = run(capsys, "compare", tmp_path / "closed", COMPILED)
    assert code == 1
    assert err == f"error: {tmp_path}/closed/source.yaml: Permission denied\n"


def test_a_compressed_log_is_read_as_it_is(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_bytes(gzip.compress(COMPILED.read_bytes()))
    code, out, _ = run(capsys, "ingest", path)
    assert code == 0
    assert "9,445" in out


def test_a_raw_log_copied_elsewhere_is_read_with_a_remark(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    shutil.copy(RAW / "events.jsonl", tmp_path / "copied.log")
    code, out, err = run(capsys, "ingest", tmp_path / "copied.log")
    assert (code, err) == (0, "")
    assert "read from elsewhere: it is the log of laptop/llama-5m-dp_shard2-79881de5/1" in out


def test_two_runs_on_other_cpus_with_other_settings_are_not_called_equal(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    text = (RAW / "events.jsonl").read_text()
    for old, new in (
        ('"cpu": "Intel(R) Xeon(R) Processor"', '"cpu": "Another CPU 9000"'),
        ('"cores": 32', '"cores": 64'),
        ('"git": {"commit": null, "modified": null}', '"git": {"commit": "ffff", "modified": true}'),
        ('"NCCL_NVLS_ENABLE": "0"', '"NCCL_ALGO": "Tree"'),
        ('"threads_per_process": 1', '"threads_per_process": 8'),
        ('"seed": 20240', '"seed": 1'),
    ):
        assert old in text
        text = text.replace(old, new)
    (tmp_path / "events.jsonl").write_text(text)
    found = run_json(capsys, "compare", RAW, tmp_path)
    # the revision is not stated by the log that ships
    assert found["unfair"] == ["threads_per_process", "environment", "cpu", "cores"]
    assert "seed" in {field["field"] for field in found["fields"] if field["verdict"] == "differs"}


def test_one_node_is_no_other_node_for_running_more_ranks(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = (RAW / "events.jsonl").read_text()
    one = text.replace('"dp_shard": 2', '"dp_shard": 1').replace('"world_size": 2', '"world_size": 1')
    one = re.sub(r'"rank_step_s": \[([\d.]+), [\d.]+\]', r'"rank_step_s": [\1]', one)
    (tmp_path / "events.jsonl").write_text(one)
    assert run_json(capsys, "compare", tmp_path, RAW, "--axis", "num_gpus")["unfair"] == []


def test_a_record_file_of_another_schema_is_told_by_its_own_kind(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "old.runs.parquet"
    pq.write_table(pa.table({"record_id": ["a"], "step_s": [[1.0]]}), path)
    code, _, err = run(capsys, "compare", path, path)
    assert (code, err) == (1, f"error: {path}: its columns are not those of RunRecord; ingest it again\n")


def test_a_path_that_is_not_there_is_a_users_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "ingest", "no/such/log")
    assert (code, out) == (1, "")
    assert err == "error: no/such/log: there is no such file or folder\n"


def test_a_published_table_is_printed_in_part_and_given_whole_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    folder = ROOT / "data" / "external" / "nccl-allreduce-readoff"
    out = run(capsys, "ingest", folder)[1]
    whole = run_json(capsys, "ingest", folder)["read"][0]["collectives"]
    assert f"and {len(whole) - ingest.MOST_LINES} more; --json has all {len(whole)}" in out


def test_compare_names_what_differs_what_agrees_and_what_is_not_stated(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "compare", COMPILED, EAGER)
    assert code == 0
    assert "unfair  compile  True  False  compiled and eager steps launch other kernels" in out
    assert "B / A in tokens/s per GPU: 0.9539" in out
    assert "Not comparable in silence: compile differs;" in out
    assert "not stated by one or both" in out


def test_a_log_is_compared_with_what_the_source_beside_it_states(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    named = run_json(capsys, "compare", COMPILED, EAGER)
    by_id = [f"{H200}#torchtitan-h200x2/{log.stem}" for log in (COMPILED, EAGER)]
    assert named == run_json(capsys, "compare", *by_id)
    alone = [shutil.copy(log, tmp_path) for log in (COMPILED, EAGER)]
    (tmp_path / "source.yaml").write_text("title: half edited\n")
    without = run_json(capsys, "compare", *alone)
    verdicts = [{field["field"]: field["verdict"] for field in found["fields"]} for found in (named, without)]
    assert [found["torch"] for found in verdicts] == ["agrees", "not stated"]


def test_ingest_of_a_log_says_that_the_source_beside_it_states_more(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert f"source.yaml beside it states more: falloff ingest {H200}" in run(capsys, "ingest", COMPILED)[1]
    assert "states more" not in run(capsys, "ingest", shutil.copy(COMPILED, tmp_path))[1]


def test_the_source_that_the_readme_writes_out_can_be_ingested(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    block = re.search(r"^    title:.*(?:\n(?:    .*)?)*", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert block is not None
    (tmp_path / "source.yaml").write_text(textwrap.dedent(block[0]))
    shutil.copy(COMPILED, tmp_path / "train.log")
    ((entry,),) = (item["runs"] for item in run_json(capsys, "ingest", tmp_path)["read"])
    assert entry["record"]["source"] == "My two H200"
    assert entry["computed"]["mfu"] == pytest.approx(0.5536, abs=2e-3)


def test_a_cells_folder_is_answered_with_the_runs_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "compare", RAW.parent, RAW)
    assert (code, err) == (1, f"error: {RAW.parent}: holds no log of its own; name one of those in it: {RAW}\n")


def test_the_runs_of_a_study_are_one_table_and_stale_ones_are_marked(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    cells = tmp_path / "laptop"
    shutil.copytree(RAW.parent, cells / RAW.parent.name)
    old = cells / "llama-5m-dp_shard2-00000000" / "1"
    old.mkdir(parents=True)
    text = (RAW / "events.jsonl").read_text()
    (old / "events.jsonl").write_text(text.replace(RAW.parent.name, old.parent.name))
    out = run(capsys, "ingest", cells)[1]
    assert out.splitlines()[0] == f"{cells} (native)"
    assert out.count("tokens/s per GPU") == 1
    rows = {line.split()[0]: line for line in out.splitlines() if line.startswith("  laptop/")}
    assert [("stale" in rows[f"laptop/{name.parent.name}/1"]) for name in (RAW, old)] == [False, True]
    assert f"stale: the study laptop no longer asks for it (laptop/{old.parent.name}/1)" in out
    (stale,) = [item["stale"] for item in run_json(capsys, "ingest", old.parent)["read"]]
    assert stale == {f"laptop/{old.parent.name}/1": "the study laptop no longer asks for it"}


def test_an_axis_that_is_asked_for_is_no_unfairness(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_json(capsys, "compare", COMPILED, EAGER)["unfair"] == ["compile"]
    assert run_json(capsys, "compare", COMPILED, EAGER, "--axis", "compile")["unfair"] == []


def test_an_unknown_axis_names_those_that_are_allowed(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "compare", COMPILED, EAGER, "--axis", "gpus")
    assert code == 1
    assert "--axis gpus: no field of a training run; allowed: " in err
    assert "num_gpus" in err


def test_record_files_are_compared_as_logs_are(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    common: dict[str, Any] = {"provenance": "measured", "source": "s", "source_ref": "r", "outcome": "ok"}
    records = [
        RunRecord(record_id=name, num_gpus=num_gpus, reported_tokens_per_gpu_s=rate, **common)
        for name, num_gpus, rate in (("eight", 8, 100.0), ("many", 128, 110.0))
    ]
    path = tmp_path / "both.runs.parquet"
    write_records(path, records, RunRecord)
    assert records_in(path, RunRecord) == records
    assert len(read_records([path], RunRecord)) == 2
    found = run_json(capsys, "compare", f"{path}#eight", f"{path}#many", "--axis", "num_gpus")
    assert found["ratio"] == pytest.approx(1.1)
    assert found["flags"] == [
        "superlinear: efficiency 110.0% is above 102%: more per GPU on more GPUs, cause unknown: nothing that both "
        "state differs"
    ]
    series = run_json(capsys, "compare", path)
    assert (series["base"], [point["ratio"] for point in series["points"]]) == ("eight", pytest.approx([1.0, 1.1]))
    code, _, err = run(capsys, "compare", path, path)
    assert code == 1
    assert f"{path}: holds 2 records; name one as {path}#RECORD_ID: eight, many" in err
    code, _, err = run(capsys, "compare", f"{path}#seven", f"{path}#many")
    assert code == 1
    assert "holds no record 'seven'; it has: eight, many" in err


def test_a_reproduction_is_held_against_a_threshold_stated_beforehand(capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, "compare", COMPILED, EAGER)[1]
    assert (
        "Reproduced: B is -4.6% from A, within the 8.0% stated beforehand (as far as readings of one published" in out
    )
    out = run(capsys, "compare", COMPILED, EAGER, "--within", "2%")[1]
    assert "Not reproduced: B is -4.6% from A, outside the 2.0% stated beforehand (as asked for)." in out
    code, _, err = run(capsys, "compare", COMPILED, EAGER, "--within", "5")
    assert (code, err) == (
        1,
        "error: a threshold is a fraction above 0 and below 1 (0.05 is 5 %), found 5\n",
    )


def test_several_records_are_compared_as_a_series(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    common: dict[str, Any] = {"provenance": "measured", "source": "s", "source_ref": "r", "outcome": "ok"}
    records = [
        RunRecord(record_id=f"on-{gpus}", num_gpus=gpus, reported_tokens_per_gpu_s=rate, site=site, **common)
        for gpus, rate, site in ((8, 100.0, "r1"), (32, 99.0, "r1"), (128, 104.0, "r2"))
    ]
    path = tmp_path / "runs.parquet"
    write_records(path, records, RunRecord)
    out = run(capsys, "compare", *(f"{path}#{record.record_id}" for record in records))[1]
    row = next(line for line in out.splitlines() if line.startswith("on-128"))
    assert "104 %  -  " in " ".join(row.split()).replace(" - ", "  -  ")
    assert "drawn apart, no efficiency; region (site): r1 → r2" in row
    assert "likely: region" in row
    assert "1 of 3 points differ from the base on-8 beside num_gpus: on-128 in site; 1 of them drawn apart" in out
    code, _, err = run(capsys, "compare", path, "--axis", "site")
    assert (code, err) == (1, "error: the series is along site, which must be a number, and on-8 states 'r1'\n")
    both = run_json(capsys, "compare", path, "--axis", "num_gpus", "--axis", "site")
    assert [point["apart"] for point in both["points"]] == [False, False, False]


def test_a_run_is_not_compared_with_a_collective(capsys: pytest.CaptureFixture[str]) -> None:
    sweep = f"{H200 / 'collectives_gemm.txt'}#collectives_gemm.txt/all_reduce/1024"
    code, _, err = run(capsys, "compare", COMPILED, sweep)
    assert code == 1
    assert "only like is compared with like" in err


def test_a_file_that_is_no_record_file_is_a_users_mistake(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_text("no parquet")
    code, _, err = run(capsys, "compare", tmp_path / "a.parquet", COMPILED)
    assert code == 1
    assert err.startswith("error: ")
    assert "not a readable Parquet file" in err


def test_doctor_says_what_is_here_and_ends_well(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "doctor")
    assert (code, err) == (0, "")
    for words in ("make figures", "Python", "torch build", "DejaVu Sans", "GPUs", "power", "Slurm"):
        assert words in out
    assert "Nothing that `make figures` needs is missing." in out


def test_doctor_ends_with_1_where_something_is_missing_for_figures(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("falloff.doctor.NEEDED_FOR_FIGURES", ("numpy", "no-such-package-anywhere"))
    code, out, err = run(capsys, "doctor")
    assert code == 1
    assert "MISSING no-such-package-anywhere" in out
    assert err == "error: `make figures` cannot run here, missing: no-such-package-anywhere\n"
    assert run(capsys, "doctor", "--json")[0] == 1


@pytest.mark.parametrize("arguments", [[], ["nope"], ["ingest"], ["compare"], ["doctor", "--nope"]])
def test_wrong_usage_ends_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "usage: falloff" in capsys.readouterr().err


def test_help_has_examples_and_version_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    for option, words in (("--help", "falloff compare"), ("--version", "falloff 0.")):
        with pytest.raises(SystemExit) as ended:
            main([option])
        assert ended.value.code == 0
        assert words in capsys.readouterr().out


def falloff(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "import sys; from falloff.cli.main import main; sys.exit(main())"]
    return subprocess.run([*command, *map(str, arguments)], capture_output=True, text=True, check=False)


def test_help_answers_at_once() -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert falloff("--help").returncode == 0
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    # seconds of the processor and not of the clock: other work on the machine is not its fault
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.5


def test_importing_it_loads_nothing_heavy() -> None:
    code = (
        "import sys, falloff.cli.main, falloff.cli.doctor\n"
        "print(sorted({'torch', 'pandas', 'numpy', 'matplotlib', 'pyarrow'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_pipe_that_closes_early_is_no_error() -> None:
    command = f"'{sys.executable}' -c 'import sys; from falloff.cli.main import main; sys.exit(main())' ingest '{H200}'"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", f"{command} | head -n 1"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.stderr == ""
    assert done.returncode == 0


def test_it_works_away_from_the_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = falloff("ingest", COMPILED)
    assert done.returncode == 0
    assert "h200-sxm" in done.stdout
