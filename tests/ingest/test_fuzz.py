"""Whatever a file holds, reading it ends in a reading or in one sentence: no traceback, 5 s and 1 GB at most."""

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from falloff.ingest.frameworks import FRAMEWORKS

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data"
CASES = ROOT / "tests" / "cases" / "inputs"
H200 = ROOT / "data" / "external" / "torchtitan-h200x2"
NUM_INPUTS = 2_000


def samples_of(*folders: Path) -> list[Path]:
    found = [path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()]
    return [path for path in found if path.name != "SOURCE.md"]


def cases(*names: str) -> list[Path]:
    return [path for name in names for path in sorted(CASES.glob(f"{name}.*"))]


FRAMEWORK_SAMPLES = {
    "torchtitan": [H200 / "compile_bs2.log", *cases("U030", "U041", "U044", "U141", "U144", "U155")],
    "megatron-lm": cases("U019", "U045", "U046", "U072", "U146", "U157"),
    "nanotron": cases("U147", "U148"),
    "deepspeed": cases("U150", "U151"),
    "composer": cases("U153"),
    "nanochat": cases("U011"),
    "fms-fsdp": cases("U156"),
    "llamafactory": cases("U038"),
}
SAMPLES = {
    **{f"framework {name}": paths for name, paths in FRAMEWORK_SAMPLES.items()},
    "nccl-tests": [*samples_of(DATA / "nccl_tests"), *cases("U12?")],
    "deepspeed-comms": samples_of(DATA / "deepspeed_comms"),
    "power": [*samples_of(DATA / "nvidia_smi", DATA / "power"), H200 / "power.csv", *cases("U061", "U247", "U249")],
    "trace": [H200 / "compile_bs2.rank0.trace.json.gz", *cases("U09[0179]", "U1??"), *samples_of(DATA / "traces")],
    "torch-collectives": [H200 / "collectives_gemm.txt"],
    "native": sorted((DATA / "native").rglob("events.jsonl"))[:3],
}


def data_of(framework: str) -> list[Path]:
    return samples_of(DATA / framework.replace("-", "_"))


Outcomes = dict[str, Future[str]]
NAMES = sorted({*SAMPLES, *(f"framework {name}" for name in FRAMEWORKS)})


def outcome_of(name: str, folder: Path) -> str:
    """Return what the worker says of one reader, empty where all is well."""
    framework = name.removeprefix("framework ") if name.startswith("framework ") else "auto"
    paths = SAMPLES.get(name, []) + (data_of(framework) if framework != "auto" else [])
    assert paths, f"no sample of {name}"
    folder.mkdir()
    command = [sys.executable, str(ROOT / "tests" / "ingest" / "fuzz_worker.py"), framework, str(NUM_INPUTS), folder]
    done = subprocess.run([*command, *paths], cwd=ROOT, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else f"{done.stdout[-3000:]}{done.stderr[-3000:]}" or f"ended {done.returncode}"


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outcomes]:
    """One worker for each reader that is asked for, as many at a time as there are cores."""
    folder = tmp_path_factory.mktemp("fuzzed")
    asked = [item.callspec.params["name"] for item in request.session.items if item.path == Path(__file__)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        yield {name: pool.submit(outcome_of, name, folder / name.replace(" ", "-")) for name in asked}


@pytest.mark.parametrize("name", NAMES)
def test_mutated_files_end_in_a_reading_or_in_one_sentence(outcomes: Outcomes, name: str) -> None:
    assert outcomes[name].result() == ""
