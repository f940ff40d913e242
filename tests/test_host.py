"""What a node is beside its GPUs, by a fake sysfs, a fake root and made-up variables."""

from pathlib import Path

import pytest

from falloff.host import container, numa_node, processor, settings, slurm_job


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_sockets_and_numa_nodes_are_counted_once_each(tmp_path: Path) -> None:
    for cpu, package in enumerate((0, 0, 1, 1)):
        write(tmp_path / f"devices/system/cpu/cpu{cpu}/topology/physical_package_id", f"{package}\n")
    for node in range(4):
        write(tmp_path / f"devices/system/node/node{node}/cpulist", "0\n")
    found = processor(tmp_path)
    assert (found["cpu_sockets"], found["numa_nodes"]) == (2, 4)
    assert found["cores"] >= 1


def test_a_system_that_states_no_sockets_has_none_and_not_zero(tmp_path: Path) -> None:
    assert (processor(tmp_path)["cpu_sockets"], processor(tmp_path)["numa_nodes"]) == (None, None)


def test_a_device_of_a_machine_with_one_numa_node_states_none(tmp_path: Path) -> None:
    write(tmp_path / "numa_node", "-1\n")
    assert numa_node(tmp_path) is None


@pytest.mark.parametrize(
    ("variables", "files", "name"),
    [
        ({}, {}, None),
        ({}, {"proc/1/cgroup": "0::/init.scope\n"}, None),
        ({"APPTAINER_CONTAINER": "/images/pytorch.sif"}, {}, "apptainer"),
        ({"SINGULARITY_NAME": "pytorch.sif"}, {}, "singularity"),
        ({"ENROOT_ROOTFS": "/a/b"}, {}, "enroot"),
        ({"SLURM_SPANK__SLURM_SPANK_OPTION_pyxis_environment": "a", "ENROOT_ROOTFS": "/a"}, {}, "pyxis"),
        ({"PYXIS_CONTAINER_IMAGE": "a"}, {}, "pyxis"),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, {".dockerenv": ""}, "kubernetes"),
        ({}, {".dockerenv": ""}, "docker"),
        ({}, {"run/.containerenv": ""}, "podman"),
        ({}, {"proc/1/cgroup": "12:devices:/kubepods/besteffort/pod1\n"}, "kubernetes"),
        ({}, {"proc/1/cgroup": "1:name=systemd:/docker/0123\n"}, "docker"),
    ],
)
def test_a_container_is_told_by_its_variables_files_and_control_group(
    tmp_path: Path, variables: dict[str, str], files: dict[str, str], name: str | None
) -> None:
    for path, text in files.items():
        write(tmp_path / path, text)
    assert container(variables, tmp_path) == name


def test_a_slurm_job_names_nodes_and_no_people() -> None:
    variables = {
        "SLURM_JOB_ID": "17",
        "SLURM_JOB_NODELIST": "n[1-2]",
        "SLURM_JOB_NUM_NODES": "2",
        "SLURM_JOB_USER": "somebody",
        "SLURM_JOB_ACCOUNT": "somebodys-group",
        "SLURM_JOB_PARTITION": "somebodys-group-gpus",
    }
    assert slurm_job(variables) == {"slurm_job_id": "17", "slurm_nodelist": "n[1-2]", "slurm_num_nodes": "2"}


def test_settings_are_those_of_nccl_torch_and_cuda() -> None:
    kept = {
        "NCCL_IB_HCA": "mlx5_0:1,mlx5_1:1",
        "TORCH_NCCL_AVOID_RECORD_STREAMS": "1",
        "TORCHINDUCTOR_COORDINATE_DESCENT_TUNING": "1",
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True,max_split_size_mb:512",
        "CUDA_VISIBLE_DEVICES": "0,1",
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    }
    assert settings({**kept, "HOME": "x", "LD_LIBRARY_PATH": "x", "MY_NCCL_X": "1"}) == kept


@pytest.mark.parametrize("name", ["TORCH_HUB_TOKEN", "NCCL_SECRET", "CUDA_API_KEY", "TORCH_PASSWORD", "NCCL_AUTH"])
def test_a_variable_that_may_hold_a_secret_is_not_even_named(name: str) -> None:
    assert settings({name: "x"}) == {}


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ("/home/somebody/topo.xml", "topo.xml"),
        ("/home/some body/topo.xml", "topo.xml"),
        ("/home/somebody/a/:/home/somebody/b", "a:b"),
        ("~somebody/nccl.%h.log", "nccl.%h.log"),
        ("C:\\Users\\somebody\\cache", "C:cache"),
        ("a=/home/somebody/x,b=2", "a=x,b=2"),
        ("https://somebody:word@host/x", "(an address)"),
        ("somebody@host:/x", "(an address)"),
        ("", ""),
    ],
)
def test_of_a_path_the_last_part_is_kept_and_of_an_address_nothing(value: str, kept: str) -> None:
    assert settings({"NCCL_TOPO_FILE": value}) == {"NCCL_TOPO_FILE": kept}
