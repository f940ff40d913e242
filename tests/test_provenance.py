"""Git, versions, import closures, and the identity of a node by a fake driver and a fake sysfs."""

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from falloff import provenance

ROOT = Path(__file__).parents[1]


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    package = tmp_path / "src" / "falloff"
    write(package / "__init__.py", '"""A package."""\n')
    write(package / "units.py", "GIB = 1\n")
    write(package / "unused.py", "X = 1\n")
    write(package / "lazy.py", "Y = 1\n")
    write(package / "spec" / "__init__.py", '"""Spec."""\n')
    write(package / "spec" / "cell.py", "from falloff.units import GIB\n")
    write(package / "spec" / "study.py", "import falloff.spec.cell as cell\ndef f():\n    from falloff import lazy\n")
    write(package / "spec" / "loop_a.py", "import falloff.spec.loop_b\n")
    write(package / "spec" / "loop_b.py", "import falloff.spec.loop_a\n")
    return tmp_path


def test_the_code_of_a_script_is_its_import_closure_and_nothing_else(tree: Path) -> None:
    write(tree / "workflow_scripts" / "go.py", "import json\nfrom falloff.spec.study import read\n")
    assert provenance.code_of("workflow_scripts/go.py", tree) == [
        "src/falloff/__init__.py",
        "src/falloff/lazy.py",
        "src/falloff/spec/__init__.py",
        "src/falloff/spec/cell.py",
        "src/falloff/spec/study.py",
        "src/falloff/units.py",
        "workflow_scripts/go.py",
    ]


def test_the_code_of_a_notebook_is_that_of_its_code_cells(tree: Path) -> None:
    cells = [
        {"cell_type": "markdown", "source": ["from falloff import unused\n"]},
        {"cell_type": "code", "source": ["import pandas\n", "from falloff import units"]},
        {"cell_type": "code", "source": "from falloff.spec import cell"},
    ]
    write(tree / "notebooks" / "a.ipynb", json.dumps({"cells": cells}))
    assert provenance.code_of("notebooks/a.ipynb", tree) == [
        "notebooks/a.ipynb",
        "src/falloff/__init__.py",
        "src/falloff/spec/__init__.py",
        "src/falloff/spec/cell.py",
        "src/falloff/units.py",
    ]


def test_modules_that_import_each_other_end_the_search(tree: Path) -> None:
    write(tree / "go.py", "import falloff.spec.loop_a\n")
    assert {"src/falloff/spec/loop_a.py", "src/falloff/spec/loop_b.py"} < set(provenance.code_of("go.py", tree))


def test_the_code_of_every_script_and_notebook_of_ours_can_be_told() -> None:
    entries = [*ROOT.glob("workflow_scripts/*.py"), *ROOT.glob("notebooks/*.ipynb")]
    assert entries
    for entry in entries:
        name = str(entry.relative_to(ROOT))
        code = provenance.code_of(name, ROOT)
        assert name in code
        assert all((ROOT / path).is_file() for path in code)


def test_a_script_that_draws_nothing_does_not_depend_on_report() -> None:
    code = provenance.code_of("workflow_scripts/measure_run.py", ROOT)
    assert "src/falloff/launch.py" in code
    assert not [path for path in code if path.startswith(("src/falloff/report/", "src/falloff/analysis/"))]


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True)


def test_a_revision_says_whether_tracked_files_were_modified(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    write(tmp_path / "a.txt", "1")
    git(tmp_path, "add", "a.txt")
    git(tmp_path, "commit", "-q", "-m", "one")
    clean = provenance.git_revision(tmp_path)
    assert len(clean["commit"]) == 40
    assert clean["modified"] is False
    write(tmp_path / "new.txt", "untracked")
    assert provenance.git_revision(tmp_path)["modified"] is False
    write(tmp_path / "a.txt", "2")
    assert provenance.git_revision(tmp_path) == {"commit": clean["commit"], "modified": True}


def test_outside_a_checkout_the_revision_is_not_stated(tmp_path: Path) -> None:
    assert provenance.git_revision(tmp_path) == {"commit": None, "modified": None}


def test_a_copy_without_git_may_state_its_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FALLOFF_COMMIT", "0123abc")
    assert provenance.git_revision(tmp_path) == {"commit": "0123abc", "modified": None}


def test_a_source_tree_that_is_not_installed_knows_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = provenance.versions()["falloff"]
    monkeypatch.setattr(provenance, "PACKAGES", ("no-such-package",))
    assert provenance.versions()["falloff"] == installed


def test_a_package_that_is_not_there_has_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "PACKAGES", ("numpy", "no-such-package-anywhere"))
    found = provenance.versions()
    assert found["numpy"]
    assert found["no-such-package-anywhere"] is None
    assert found["python"]


class NotSupportedError(Exception):
    pass


def fake_nvml(**changes: Any) -> Any:
    """Return something that answers as pynvml does on a machine with two GPUs."""

    def not_supported(*_arguments: Any) -> Any:
        raise NotSupportedError

    answers = {
        "NVML_CLOCK_SM": 1,
        "NVML_CLOCK_MEM": 2,
        "nvmlSystemGetDriverVersion": lambda: "580.159.04",
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetName": lambda *_: b"NVIDIA H200",
        "nvmlDeviceGetUUID": lambda handle: f"GPU-{handle}",
        "nvmlDeviceGetMemoryInfo": lambda *_: SimpleNamespace(total=150_754_820_096),
        "nvmlDeviceGetEnforcedPowerLimit": lambda *_: 700_000,
        "nvmlDeviceGetBoardPartNumber": lambda *_: "692-2G520-0282-000",
        "nvmlDeviceGetVbiosVersion": lambda *_: "96.00.A5.00.1A",
        "nvmlDeviceGetMaxClockInfo": lambda _handle, clock: {1: 1980, 2: 3201}[clock],
        "nvmlDeviceGetNvLinkState": lambda _handle, link: 1 if link < 18 else not_supported(),
        "nvmlDeviceGetNvLinkVersion": lambda *_: 6,
        "nvmlSystemGetCudaDriverVersion": lambda: 13_000,
        "nvmlDeviceGetCudaComputeCapability": lambda *_: (9, 0),
        "nvmlDeviceGetPowerManagementDefaultLimit": lambda *_: 700_000,
        "nvmlDeviceGetPowerManagementLimitConstraints": lambda *_: [200_000, 700_000],
        "nvmlDeviceGetPciInfo": lambda handle: SimpleNamespace(busId=f"00000000:{0x1B + handle:02X}:00.0".encode()),
        "nvmlDeviceGetCurrPcieLinkGeneration": lambda *_: 1,
        "nvmlDeviceGetMaxPcieLinkGeneration": lambda *_: 5,
        "nvmlDeviceGetCurrPcieLinkWidth": lambda *_: 16,
        "nvmlDeviceGetMaxPcieLinkWidth": lambda *_: 16,
        "nvmlDeviceGetMigMode": lambda *_: [0, 1],
        "nvmlDeviceGetEccMode": lambda *_: [1, 1],
        "nvmlDeviceGetPersistenceMode": lambda *_: 1,
        **{name: not_supported for name, answer in changes.items() if answer is None},
        **{name: answer for name, answer in changes.items() if answer is not None},
    }
    return SimpleNamespace(**answers)


def test_a_gpu_is_told_by_its_board_and_not_by_its_name_alone(tmp_path: Path) -> None:
    write(tmp_path / "bus/pci/devices/0000:1b:00.0/numa_node", "1\n")
    first, second = provenance.gpu_fingerprints(fake_nvml(), tmp_path)
    assert first == {
        "index": 0,
        "name": "NVIDIA H200",
        "uuid": "GPU-0",
        "board_part_number": "692-2G520-0282-000",
        "vbios": "96.00.A5.00.1A",
        "driver": "580.159.04",
        "cuda_driver": "13.0",
        "compute_capability": "9.0",
        "memory_bytes": 150_754_820_096,
        "power_limit_w": 700.0,
        "power_limit_default_w": 700.0,
        "power_limit_min_w": 200.0,
        "power_limit_max_w": 700.0,
        "max_sm_clock_mhz": 1980,
        "max_memory_clock_mhz": 3201,
        "nvlinks_active": 18,
        "nvlink_version": "4.0",
        "pci_bus_id": "00000000:1B:00.0",
        "numa_node": 1,
        "pcie_generation": 1,
        "pcie_generation_max": 5,
        "pcie_width": 16,
        "pcie_width_max": 16,
        "mig": False,
        "ecc": True,
        "persistence": True,
    }
    assert (second["uuid"], second["pci_bus_id"], second["numa_node"]) == ("GPU-1", "00000000:1C:00.0", None)


def test_what_a_driver_does_not_answer_is_not_stated() -> None:
    silent = fake_nvml(
        nvmlDeviceGetBoardPartNumber=None,
        nvmlDeviceGetEnforcedPowerLimit=None,
        nvmlDeviceGetMemoryInfo=None,
        nvmlDeviceGetNvLinkState=None,
    )
    gpu = provenance.gpu_fingerprints(silent)[0]
    assert [gpu[name] for name in ("board_part_number", "power_limit_w", "memory_bytes", "nvlinks_active")] == [
        None
    ] * 4
    assert gpu["name"] == "NVIDIA H200"


def test_a_driver_that_answers_nothing_leaves_every_field_blank() -> None:
    """None of them 0 or False, which would be an answer."""
    answers = [name for name in vars(fake_nvml()) if name.startswith("nvmlDeviceGet") and name != "nvmlDeviceGetCount"]
    gpu = provenance.gpu_fingerprints(fake_nvml(**dict.fromkeys(answers), nvmlSystemGetCudaDriverVersion=None))[0]
    assert {name for name, value in gpu.items() if value is not None} == {"index", "driver"}


def test_links_of_a_version_that_nvml_had_not_yet_are_told_by_its_number() -> None:
    assert provenance.gpu_fingerprints(fake_nvml(nvmlDeviceGetNvLinkVersion=lambda *_: 42))[0]["nvlink_version"] == (
        "number 42"
    )


def test_without_a_driver_there_are_no_gpus() -> None:
    assert provenance.gpu_fingerprints(None) == []


def test_a_node_states_its_links_from_sysfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "class/net/lo/speed", "10000\n")
    write(tmp_path / "class/net/eth0/speed", "25000\n")
    write(tmp_path / "class/net/wlan0/speed", "-1\n")
    write(tmp_path / "class/net/eth0/device/numa_node", "0\n")
    write(tmp_path / "class/infiniband/mlx5_0/ports/1/rate", "400 Gb/sec (4X NDR)\n")
    write(tmp_path / "class/infiniband/mlx5_0/ports/1/link_layer", "InfiniBand\n")
    write(tmp_path / "class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n")
    write(tmp_path / "class/infiniband/mlx5_0/device/numa_node", "1\n")
    monkeypatch.setenv("FALLOFF_SITE", "somewhere")
    monkeypatch.setenv("NCCL_DEBUG", "WARN")
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    node = provenance.node_fingerprint(fake_nvml(), tmp_path)
    assert node["nics"] == [
        {"name": "eth0", "kind": "net", "rate_mbit_s": 25000, "numa_node": 0},
        {"name": "wlan0", "kind": "net", "rate_mbit_s": None, "numa_node": None},
        {
            "name": "mlx5_0/1",
            "kind": "infiniband",
            "rate": "400 Gb/sec (4X NDR)",
            "link_layer": "InfiniBand",
            "state": "4: ACTIVE",
            "numa_node": 1,
        },
    ]
    assert node["site"] == "somewhere"
    assert node["environment"]["NCCL_DEBUG"] == "WARN"
    assert (node["slurm_job_id"], node["slurm_nodelist"]) == ("17", None)
    assert len(node["gpus"]) == 2
    assert node["cores"] >= 1
    json.dumps(node)
