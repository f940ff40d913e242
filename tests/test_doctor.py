"""What is here, asked of a fake driver, a fake sysfs and a fake checkout."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from falloff import doctor
from falloff.doctor import Finding, blockers, examine, pins, torch_build

ROOT = Path(__file__).parents[1]


def fake_nvml(name: str = "NVIDIA H200") -> Any:
    return SimpleNamespace(
        NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION=83,
        NVML_FI_DEV_POWER_AVERAGE=185,
        NVML_FI_DEV_POWER_INSTANT=186,
        NVML_SUCCESS=0,
        NVML_CLOCK_SM=1,
        NVML_CLOCK_MEM=2,
        nvmlSystemGetDriverVersion=lambda: "580.159.04",
        nvmlDeviceGetCount=lambda: 1,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetName=lambda _: name,
        nvmlDeviceGetUUID=lambda handle: f"GPU-{handle}",
        nvmlDeviceGetMemoryInfo=lambda _: SimpleNamespace(total=141 * 1024**3),
        nvmlDeviceGetEnforcedPowerLimit=lambda _: 700_000,
        nvmlDeviceGetBoardPartNumber=lambda _: "692-2G520-0282-000",
        nvmlDeviceGetTotalEnergyConsumption=lambda _: 1_000,
    )


def by_name(findings: list[Finding]) -> dict[str, Finding]:
    return {finding.name: finding for finding in findings}


@pytest.fixture(autouse=True)
def _no_second_process(monkeypatch: pytest.MonkeyPatch) -> None:
    font = Finding(part="make figures", name="font", found="DejaVu Sans", state="ok")
    monkeypatch.setattr(doctor, "_font", lambda: font)


def test_a_gpu_is_named_with_its_identity(tmp_path: Path) -> None:
    found = by_name(examine(ROOT, tmp_path, fake_nvml()))
    assert found["GPU 0"].state == "ok"
    assert found["GPU 0"].found == (
        "NVIDIA H200, GPU-0, board 692-2G520-0282-000, driver 580.159.04, limit 700 W, 141 GiB"
    )
    assert found["power"].found == "NVML of 1 gpu(s), with an energy counter"


def test_a_folder_that_is_no_checkout_lacks_what_make_figures_needs(tmp_path: Path) -> None:
    missing = by_name(blockers(examine(tmp_path, tmp_path, fake_nvml())))
    assert missing["checkout"].found == f"{tmp_path.name} holds no Snakefile and no config and no workflow_scripts"
    assert "--root" in str(missing["checkout"].advice)
    assert by_name(examine(ROOT, tmp_path, fake_nvml()))["checkout"].state == "ok"


def test_an_unknown_gpu_has_no_mfu_and_the_advice_says_why(tmp_path: Path) -> None:
    found = by_name(examine(ROOT, tmp_path, fake_nvml("NVIDIA H200 NVL 2")))
    assert found["GPU 0"].state == "missing"
    assert "no MFU: hardware 'NVIDIA H200 NVL 2' is unknown; known: " in str(found["GPU 0"].advice)


def test_gpus_beside_a_torch_for_cpus_are_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "torch_build", lambda _: None)
    found = by_name(examine(ROOT, tmp_path, fake_nvml()))
    assert (found["torch build"].part, found["torch build"].state) == ("GPUs", "missing")


def test_links_are_read_from_sysfs(tmp_path: Path) -> None:
    port = tmp_path / "class/infiniband/mlx5_0/ports/1"
    port.mkdir(parents=True)
    (port / "rate").write_text("400 Gb/sec (4X NDR)\n")
    found = by_name(examine(ROOT, tmp_path, fake_nvml()))
    assert found["network mlx5_0/1"].found == "infiniband, 400 Gb/sec (4X NDR)"


def test_slurm_is_told_by_its_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}" if name in ("sbatch", "srun", "git") else None)
    found = by_name(examine(ROOT, tmp_path, fake_nvml()))["Slurm"]
    assert (found.found, found.state, found.advice) == ("sbatch, srun", "missing", "not found: squeue, sacct, scancel")
    monkeypatch.setattr("shutil.which", lambda _: None)
    found = by_name(examine(ROOT, tmp_path, fake_nvml()))["Slurm"]
    assert (found.found, found.state) == ("no Slurm commands", "absent")


def test_a_version_other_than_the_pinned_one_differs(tmp_path: Path) -> None:
    (tmp_path / "constraints.txt").write_text("numpy==0.1 ; python_full_version < '3.12'\nnumpy==0.2\n")
    found = by_name(examine(tmp_path, tmp_path, fake_nvml()))["numpy"]
    assert found.state == "differs"
    assert "constraints.txt has 0.1 or 0.2" in str(found.advice)


def test_a_package_that_is_not_there_blocks_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "NEEDED_FOR_FIGURES", ("no-such-package-anywhere",))
    assert [f.name for f in blockers(examine(ROOT, tmp_path, fake_nvml()))] == ["no-such-package-anywhere"]


def test_a_missing_cluster_blocks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    assert blockers(examine(ROOT, tmp_path, fake_nvml())) == []


def test_pins_are_those_of_every_marker(tmp_path: Path) -> None:
    path = tmp_path / "constraints.txt"
    path.write_text("numpy==2.4.6 ; python_full_version < '3.12'\nnumpy==2.5.5 ; x\ntypes_PyYAML==6.0\n")
    assert pins(path) == {"numpy": {"2.4.6", "2.5.5"}, "types-pyyaml": {"6.0"}}
    assert pins(tmp_path / "absent.txt") == {}


@pytest.mark.parametrize(
    ("text", "build"),
    [
        ("__version__ = '2.13.0+cu130'\ncuda: Optional[str] = '13.0'\nhip: Optional[str] = None\n", "13.0"),
        ("__version__ = '2.13.0+cpu'\ncuda: Optional[str] = None\n", None),
        ("cuda = '12.8'\n", "12.8"),
    ],
)
def test_torchs_build_is_read_and_not_imported(tmp_path: Path, text: str, build: str | None) -> None:
    (tmp_path / "version.py").write_text(text)
    assert torch_build(tmp_path / "version.py") == build
    assert torch_build(tmp_path / "absent.py") is None
