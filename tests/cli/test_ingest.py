"""falloff ingest on a folder of everything, and on files that break its readers."""

import gzip
import json
import shutil
from pathlib import Path

import pytest

from falloff.cli import files, ingest
from falloff.cli.main import main

ROOT = Path(__file__).parents[2]
DATA, CASES = ROOT / "tests" / "data", ROOT / "tests" / "cases" / "inputs"
H200 = ROOT / "data" / "external" / "torchtitan-h200x2"
# the file, what it is called in the folder (names are labels), and the kind that its content tells
MIXED = (
    (H200 / "compile_bs2.log", "a.txt", "torchtitan"),
    (DATA / "megatron_lm" / "bloom-176b.log", "b.csv", "megatron-lm"),
    (DATA / "nanotron" / "v0.4-tiny.log", "c.log", "nanotron"),
    (DATA / "deepspeed" / "0.12-chat.log", "d.out", "deepspeed"),
    (DATA / "composer" / "0.21-epoch.log", "e.err", "composer"),
    (DATA / "nccl_tests" / "2025_two_runs.log", "f.json", "nccl-tests"),
    (CASES / "U123.log", "g.log", "nccl-tests"),
    (H200 / "compile_bs2.rank0.trace.json.gz", "h.log", "trace"),
    (DATA / "nvidia_smi" / "units.csv", "i.log", "power"),
    (DATA / "nvidia_smi" / "dmon.txt", "j", "power"),
    (DATA / "power" / "zeus_power.csv", "k.txt", "power"),
    (H200 / "collectives_gemm.txt", "l.gz", "torch-collectives"),
    (CASES / "U115.json", "m.json", "nccl-profile"),
    (DATA / "nccl_tests" / "choices_broadcast.log", "n.log", "nccl-debug"),
)
LEFT = {"empty.log": "is empty", "notes.md": "is of no kind", "picture.png": "is of no kind"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for path, name, _ in MIXED:
        shutil.copy(path, tmp_path / name)
    (tmp_path / "empty.log").write_text("")
    (tmp_path / "notes.md").write_text("# What I did\n\nstep: by step, I trained a model.\n")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 20)
    return tmp_path


def test_a_folder_of_fourteen_files_is_read_by_content_and_what_is_left_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    assert main(["ingest", str(folder), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {Path(item["path"]).name: item["kind"] for item in found["read"]} == {n: kind for _, n, kind in MIXED}
    assert {Path(item["path"]).name for item in found["left_out"]} == set(LEFT)
    for item in found["left_out"]:
        assert LEFT[Path(item["path"]).name] in item["reason"]


def test_the_same_folder_is_printed_for_people(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    assert main(["ingest", str(folder)]) == 0
    out, err = capsys.readouterr()
    assert all(f"{folder / name} ({kind})" in out for _, name, kind in MIXED)
    assert len(err.splitlines()) == len(LEFT) + 1
    assert "nan" not in out.replace("nanotron", "").replace("nanochat", "")


def test_a_packed_file_is_read_as_if_it_was_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    for path, name, kind in MIXED:
        if not path.name.endswith(".gz"):
            (tmp_path / name).write_bytes(gzip.compress(path.read_bytes()))
            assert main(["ingest", str(tmp_path / name), "--json"]) == 0
            assert json.loads(capsys.readouterr().out)["read"][0]["kind"] == kind


def test_the_framework_can_be_named_where_the_content_does_not_tell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    path = shutil.copy(H200 / "eager_bs2.log", tmp_path / "x.log")
    assert main(["ingest", "--framework", "torchtitan", str(path)]) == 0
    assert "9,018" in capsys.readouterr().out
    assert main(["ingest", "--framework", "torch-titan", str(path)]) == 1
    assert "framework is 'torch-titan'; allowed: auto, torchtitan" in capsys.readouterr().err


def test_a_reader_that_breaks_leaves_its_file_out_and_not_the_rest(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)

    def break_on_b(path: Path, *arguments: object) -> object:
        if path.name == "b.csv":
            raise KeyError("a fault of the reader")
        return files.read_any(path, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(ingest, "read_any", break_on_b)
    assert main(["ingest", str(folder), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["read"]) == len(MIXED) - 1
    assert any("a fault of falloff to report" in item["reason"] for item in found["left_out"])
