from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from falloff.spec.site import Container, Site, read_site

SHIPPED = Path(__file__).parents[2] / "profiles" / "slurm" / "site.yaml"

Write = Callable[..., Path]


@pytest.fixture
def site_file(tmp_path: Path) -> Write:
    """Return what writes the shipped file with some of its values changed."""

    def write(**changes: Any) -> Path:
        path = tmp_path / "site.yaml"
        path.write_text(yaml.safe_dump({**yaml.safe_load(SHIPPED.read_text()), **changes}))
        return path

    return write


def test_the_shipped_site_states_every_field_and_asks_for_what_every_slurm_has() -> None:
    site = read_site(SHIPPED)
    assert set(yaml.safe_load(SHIPPED.read_text())) == set(Site.__dataclass_fields__)
    assert (site.partition, site.account, site.container, site.extra) == (None, None, None, ())
    assert site.gpu_resource == "gpu"


def test_each_value_of_the_shipped_site_stands_on_a_line_of_its_own() -> None:
    lines = [line for line in SHIPPED.read_text().splitlines() if line and not line.startswith("#")]
    assert [line.partition(":")[0] for line in lines] == list(yaml.safe_load(SHIPPED.read_text()))


def test_a_whole_site_is_read(site_file: Write) -> None:
    site = read_site(
        site_file(
            partition="gpu",
            gpu_type="h200",
            setup=["module load cuda/12.8"],
            container={"image": "/images/torch.sif", "runtime": "apptainer", "mounts": ["/scratch:/data:ro"]},
            environment={"NCCL_IB_TIMEOUT": 22, "NCCL_IB_HCA": "mlx5_0"},
            scratch="$SLURM_TMPDIR",
            extra=["--nice=100", "--switches=1@10:00", "--gres-flags=enforce-binding", "--mem-bind=local"],
        )
    )
    assert site.container == Container(image="/images/torch.sif", runtime="apptainer", mounts=("/scratch:/data:ro",))
    assert site.environment == {"NCCL_IB_TIMEOUT": "22", "NCCL_IB_HCA": "mlx5_0"}
    assert site.setup == ("module load cuda/12.8",)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"partitoin": "gpu"}, "unknown key 'partitoin' .did you mean 'partition'"),
        ({"label": None}, "label: str is needed, found None"),
        ({"partition": "gpu long"}, "partition must be one word, found 'gpu long'; null where it is not asked for"),
        ({"account": ""}, "account must be one word, found ''"),
        ({"account": "a; rm -rf x"}, "account must be one word"),
        ({"gpus_per_node": 0}, "gpus_per_node must be above zero"),
        ({"startup_s": 0}, "startup_s must be above zero"),
        ({"retries": -1}, "retries must be 0 or more, found -1"),
        ({"max_time_s": 200}, "max_time_s is 200, which leaves nothing after startup_s 300"),
        ({"gpu_type": "nvidia-h200"}, "gpu_type must be letters, digits and _, .*found 'nvidia-h200'"),
        ({"gpu_type": "h200", "gpu_resource": None}, "gpu_type is 'h200' where gpu_resource is null"),
        ({"scratch": "traces"}, "scratch must be a whole path on the nodes, found 'traces'"),
        ({"container": {"image": "x", "runtime": "docker"}}, "runtime is 'docker'; allowed: apptainer, pyxis"),
        ({"container": {"image": "", "runtime": "pyxis"}}, "image must name an image"),
        ({"container": {"image": "x", "runtime": "pyxis", "mounts": ["data:/data"]}}, "mounts: .*found 'data:/data'"),
        (
            {"environment": {"NCCL_P2P_DISABLE": True}},
            "NCCL_P2P_DISABLE must stand in quotes, since YAML reads it as True",
        ),
        ({"environment": {"A-B": "1"}}, "environment: 'A-B' is no name of a variable"),
        ({"environment": {"SLURM_NTASKS": 1}}, "environment: SLURM_NTASKS is set by each launch"),
        ({"environment": {"CUDA_VISIBLE_DEVICES": "0"}}, "CUDA_VISIBLE_DEVICES is set by each launch"),
        (
            {"environment": {"NCCL_SOCKET_IFNAME": "ib0"}, "network_interface": "ib1"},
            "NCCL_SOCKET_IFNAME is set from network_interface; state one of the two",
        ),
        ({"environment": ["A"]}, "environment: a mapping is needed"),
    ],
)
def test_a_mistake_in_a_site_is_a_sentence_that_names_the_file(
    site_file: Write, changed: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=rf"site.yaml: .*{words}"):
        read_site(site_file(**changed))


@pytest.mark.parametrize(
    ("option", "reason"),
    [
        ("--partition=gpu", "state partition"),
        ("--part=gpu", "state partition"),
        ("-p gpu", "state partition"),
        ("-A me", "state account"),
        ("--mem=0", "state memory_per_node_mb"),
        ("--gpus-per-node=8", "state gpu_resource, gpu_type and gpus_per_node"),
        ("--exclusive", "state exclusive"),
        ("-N2", "falloff takes it from the cell"),
        ("--ntasks-per-node=8", "falloff takes it from the cell"),
        ("--time=10", "falloff takes it from startup_s and the limits of the study"),
        ("--nice=1 --time=10", "falloff takes it from startup_s"),
        ("--requeue", "profiles/slurm/config.yaml states it"),
        ("--output=x", "Snakemake sets it to find its jobs"),
    ],
)
def test_an_option_that_something_else_sets_is_refused_with_the_reason(
    site_file: Write, option: str, reason: str
) -> None:
    with pytest.raises(ValueError, match=f"extra: .* is refused: {reason}"):
        read_site(site_file(extra=[option]))


def test_an_extra_that_is_no_option_is_refused(site_file: Write) -> None:
    with pytest.raises(ValueError, match="extra: an option of sbatch is needed, such as --nice=100, found 'nice=100'"):
        read_site(site_file(extra=["nice=100"]))


def test_a_site_that_is_no_mapping_is_refused(tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text("- a\n")
    with pytest.raises(ValueError, match="a mapping is needed"):
        read_site(tmp_path / "site.yaml")
