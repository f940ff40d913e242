"""Clusters: every shipped file can be predicted on, and every mistake in one is a sentence."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from falloff.spec.cluster import Cluster, find_cluster, read_cluster
from falloff.spec.hardware import read_all_hardware

ROOT = Path(__file__).parents[2]
CLUSTERS, HARDWARE = ROOT / "config" / "clusters", ROOT / "config" / "hardware"
SHIPPED = sorted(path.stem for path in CLUSTERS.glob("*.yaml"))


def found(name: str) -> Cluster:
    return find_cluster(name, CLUSTERS, HARDWARE)


def write_cluster(folder: Path, **changes: Any) -> Path:
    values = {
        "name": "mine",
        "hardware": "h100-sxm",
        "gpus_per_node": 8,
        "nvlink_bandwidth": 450e9,
        "nvlink_latency_s": 0.6e-6,
        "fabric": "infiniband",
        "nics_per_node": 8,
        "nic_bandwidth": 50e9,
        "nic_latency_s": 2.7e-6,
        "sources": ["a data sheet"],
        **changes,
    }
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump({name: value for name, value in values.items() if value is not None}))
    return path


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_cluster_has_all_numbers_of_a_prediction(name: str) -> None:
    cluster = found(name)
    numbers = cluster.numbers()
    assert all(value for key, value in numbers.items() if key not in ("nvls", "fabric"))
    assert cluster.half_peak > 1e14
    assert cluster.node.sources


@pytest.mark.parametrize("name", [path.stem for path in HARDWARE.glob("*.yaml")])
def test_every_gpu_states_its_memory_bandwidth_and_units(name: str) -> None:
    gpu = read_all_hardware(HARDWARE)[name]
    assert gpu.memory_bandwidth is not None
    assert 0.5e12 < gpu.memory_bandwidth < 10e12
    assert gpu.sms is not None
    assert 70 < gpu.sms < 320


@pytest.mark.parametrize("name", SHIPPED)
def test_a_guess_says_what_was_guessed_and_how_far_off_it_may_be(name: str) -> None:
    node = found(name).node
    assert bool(node.assumption) == (node.band > 1)


def test_a_cluster_is_found_by_an_alias_too() -> None:
    assert found("p5").name == "h100-sxm-efa"
    assert found("GB200").nvlink_domain == 72


def test_nics_are_shared_by_the_gpus_of_their_node() -> None:
    numbers = found("h100-sxm-ib400").numbers()
    assert numbers["nic_bandwidth"] == 50e9
    assert numbers["node_bandwidth"] == 400e9
    assert found("p4de").numbers()["nic_bandwidth"] == 6.25e9  # four NICs for eight GPUs


def test_what_nvlink_joins_counts_as_a_node() -> None:
    numbers = found("gb200-nvl72-ib400").numbers()
    assert numbers["gpus_per_node"] == 72
    assert numbers["node_bandwidth"] == 72 * 50e9


def test_chips_of_one_die_share_a_generation() -> None:
    names = {"h100-sxm-ib400", "h200-sxm-ib400", "h800-sxm-ib200", "h100-96gb-500w-roce400"}
    assert {found(name).generation for name in names} == {"h100"}
    assert found("a800-80gb-sxm-ib200").generation == "a100"


def test_a_precision_that_the_gpu_has_not_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"a100-80gb-sxm has no peak of float8; it has bfloat16"):
        found("a100-80gb-sxm-ib200").peak_of("float8")
    assert found("v100-32gb-sxm2-ib100").half_peak == 125e12


def test_an_unknown_cluster_names_the_known_and_how_to_add_one() -> None:
    with pytest.raises(ValueError, match=r"cluster 'h100' is unknown; known: .*h100-sxm-ib400.* give its path"):
        found("h100")


def test_a_users_own_file_is_read_by_its_path(tmp_path: Path) -> None:
    path = write_cluster(tmp_path, name="anything", oversubscription=2, pod_gpus=256)
    cluster = find_cluster(str(path), CLUSTERS, HARDWARE)
    assert cluster.numbers()["oversubscription"] == 2
    assert cluster.numbers()["pod_gpus"] == 256


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"nic_bandwidth": 400.0}, r"nic_bandwidth is 400; the unit is bytes a second .* 400 Gb/s is 50.0e\+9"),
        ({"nvlink_bandwidth": 450.0}, r"nvlink_bandwidth is 450; the unit is bytes a second"),
        ({"nic_latency_s": 2.7}, r"nic_latency_s is 2.7; the unit is seconds, so 3 us is 3.0e-6"),
        ({"nic_latency_s": 0.0}, r"nic_latency_s must be above zero"),
        ({"oversubscription": 0.5}, r"oversubscription must be 1 or more, found 0.5"),
        ({"fabric": "myrinet"}, r"fabric is 'myrinet'; allowed: none, infiniband"),
        ({"hardware": "h100"}, r"mine.yaml: hardware 'h100' of cluster 'mine' is unknown; known: "),
        ({"gpus_per_node": 0}, r"gpus_per_node must be above zero"),
        ({"nvlink_domain": 12}, r"nvlink_domain 12 is not a multiple of 8 GPUs a node"),
        ({"band": 1.5}, r"band belongs to an assumption, which must be stated"),
        ({"sources": []}, r"sources must name where the numbers are from"),
        ({"nic_bandwith": 5e10}, r"unknown key 'nic_bandwith' \(did you mean 'nic_bandwidth'\?\)"),
        ({"fabric": None}, r"mine.yaml: fabric must be stated"),
        (
            {"calibration": {"fabric_efficiency": {"value": 0.9, "low": 0.5, "high": 0.8, "points": 4}}},
            r"calibration.fabric_efficiency: value 0.9 is not within its interval, 0.5 to 0.8",
        ),
        ({"calibration": {"fabric_efficiency": {"value": 0.9}}}, r"low, high, points must be stated"),
    ],
)
def test_a_mistake_in_a_cluster_file_is_one_sentence(tmp_path: Path, changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        read_cluster(write_cluster(tmp_path, **changes), HARDWARE)


def test_a_gpu_without_a_memory_bandwidth_cannot_be_predicted_on(tmp_path: Path) -> None:
    hardware = tmp_path / "hardware"
    hardware.mkdir()
    text = (HARDWARE / "h100-sxm.yaml").read_text(encoding="utf-8").splitlines()
    kept = [line for line in text if not line.startswith("memory_bandwidth")]
    (hardware / "h100-sxm.yaml").write_text("\n".join(kept), encoding="utf-8")
    with pytest.raises(ValueError, match=r"hardware 'h100-sxm' has no memory_bandwidth, without which no time"):
        read_cluster(write_cluster(tmp_path), hardware)


def test_a_cluster_under_another_name_than_its_file_is_an_error(tmp_path: Path) -> None:
    write_cluster(tmp_path, name="yours")
    with pytest.raises(ValueError, match=r"mine.yaml: name is 'yours', the file says 'mine'"):
        find_cluster("mine", tmp_path, HARDWARE)
