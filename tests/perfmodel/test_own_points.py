"""What a user's logs say of a cluster: which rows are points, which are left out, and which logs are refused."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from falloff.perfmodel.own_points import fabric_of, read_own_points
from falloff.records import CollectiveRecord
from falloff.spec.cluster import Cluster, find_cluster

ROOT = Path(__file__).parents[2]
LOGS = ROOT / "tests" / "data" / "nccl_tests"
H200_SWEEPS = sorted((ROOT / "data" / "raw" / "h200").glob("collectives-2-*"))


@pytest.fixture(autouse=True)
def in_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def cluster(name: str, **changes: Any) -> Cluster:
    found = find_cluster(name)
    return dataclasses.replace(found, node=dataclasses.replace(found.node, **changes))


def preflight(tmp_path: Path, *rates: dict[str, Any], device: str = "cuda", gpu: str = "NVIDIA H200") -> Path:
    path = tmp_path / "preflight.json"
    loads = [{"device": 0, "uuid": "GPU-1", "name": gpu}]
    path.write_text(json.dumps({"device": device, "rates": rates, "loads": loads, "failure": None, "faults": []}))
    return path


def rate(measure: str, devices: int, *repeats: float) -> dict[str, Any]:
    return {"measure": measure, "unit": "B/s", "devices": list(range(devices)), "repeats": list(repeats)}


def test_a_log_of_nccl_tests_gives_its_rows_of_kinds_that_a_step_has() -> None:
    found = read_own_points([LOGS / "2021_allgather.log", LOGS / "2021_reduce.log"], find_cluster("a100-40gb-sxm-efa"))
    assert {(point.kind, point.ranks, point.ranks_per_node) for point in found.collectives} == {("all_gather", 8, 8)}
    assert len(found.collectives) == 6
    assert any("of 2021_reduce.log: reduce" in words for words in found.left_out)


def test_two_nodes_of_one_gpu_each_are_a_shape_of_their_own() -> None:
    found = read_own_points([LOGS / "2025_two_runs.log"], find_cluster("h100-sxm-ib400"))
    assert {(point.kind, point.ranks, point.ranks_per_node) for point in found.collectives} == {
        ("all_to_all", 2, 1),
        ("send_recv", 2, 1),
    }
    assert {point.nccl_minor for point in found.collectives} == {28}


def test_small_messages_through_torch_are_the_hosts_time_and_by_graphs_they_are_not() -> None:
    found = read_own_points(H200_SWEEPS, find_cluster("h200-sxm-virtual"))
    least = {}
    for point in found.collectives:
        least[point.source] = min(point.message_bytes, least.get(point.source, point.message_bytes))
    assert sorted(least.values()) == [64 * 1024, 16 * 1024**2]


def test_runs_of_training_in_a_folder_are_counted_and_one_that_is_named_is_refused() -> None:
    machine, run = find_cluster("h200-sxm-virtual"), ROOT / "data" / "raw" / "h200" / "llama2-1b-tp2-1c67242a"
    found = read_own_points([H200_SWEEPS[0], run], machine)
    assert "1 of runs: they time neither collectives nor kernels" in found.left_out
    assert "holds neither collectives nor kernels" in read_or_error([H200_SWEEPS[0], run / "1"], machine)


def test_a_preflight_gives_collectives_of_all_and_of_pairs_products_and_copies(tmp_path: Path) -> None:
    path = preflight(
        tmp_path,
        rate("all_reduce 1 GiB", 4, 300e9),
        rate("pair all_reduce 1 GiB", 2, 320e9, 330e9),
        rate("pair send_recv 64 KiB", 2, 1e9),
        rate("product bfloat16 8192, sustained", 1, 7e14),
        rate("product bfloat16 8192, burst", 1, 8e14),
        rate("memory copy", 1, 4.1e12),
    )
    found = read_own_points([path], find_cluster("h200-sxm-virtual"))
    whole, pair = found.collectives
    assert (whole.ranks, whole.ranks_per_node) == (4, 4)
    assert whole.measured_s == pytest.approx(1024**3 * 1.5 / 300e9)
    assert pair.measured_s == pytest.approx(1024**3 / 325e9)
    assert found.products[0].measured_s == pytest.approx(2 * 8192**3 / 7e14)
    assert found.copies[0].bytes_s == 4.1e12
    assert len(found.left_out) == 2


def test_a_table_of_kernels_gives_its_long_products() -> None:
    found = read_own_points([ROOT / "data" / "raw" / "smoke" / "kernels-1-a094ae04"], find_cluster("h200-sxm-virtual"))
    assert found.products
    assert all(2 * point.m * point.n * point.k >= 1e11 for point in found.products)


@pytest.mark.parametrize(
    ("log", "name", "changes", "words"),
    [
        ("2021_allgather.log", "h100-sxm-ib400", {}, "ran on a100-40gb-sxm, and h100-sxm-ib400 is of h100-sxm"),
        ("2021_allgather.log", "a100-40gb-sxm-efa", {"gpus_per_node": 4}, "has 8 ranks a node, and"),
        ("2025_two_runs.log", "h100-sxm-ib400", {"fabric": "none"}, "has fabric: none; state its fabric"),
        ("2021_reduce.log", "a100-40gb-sxm-efa", {}, "no log has a point to calibrate a100-40gb-sxm-efa by: 8 of"),
        ("one_rank.log", "h100-sxm-ib400", {}, "no log has a point to calibrate"),
        ("srun_label_allgather.log", "h100-sxm-ib400", {}, "over how many nodes"),
        ("choices_broadcast.log", "h100-sxm-ib400", {}, "holds neither collectives nor kernels"),
        ("absent.log", "h100-sxm-ib400", {}, "absent.log"),
    ],
)
def test_a_log_that_is_not_of_the_cluster_or_says_nothing_is_one_sentence(
    log: str, name: str, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=words) as raised:
        read_own_points([LOGS / log], cluster(name, **changes))
    assert "\n" not in str(raised.value)


def test_a_log_of_mixed_fabrics_is_refused(tmp_path: Path) -> None:
    text = (LOGS / "2025_two_runs.log").read_text()
    paths = []
    for name, fabric in (("one.log", "IB"), ("two.log", "Socket")):
        paths.append(tmp_path / name)
        paths[-1].write_text(f"export NCCL_NET={fabric}\nNCCL_NET set by environment to {fabric}\n{text}")
    clash = read_or_error([paths[0], paths[1]], find_cluster("h100-sxm-ib400"))
    assert "fabrics are never pooled" in clash


def test_a_fabric_that_is_not_the_clusters_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "readoff"
    path.mkdir()
    for file in (ROOT / "data" / "external" / "nccl-allreduce-readoff").iterdir():
        (path / file.name).write_bytes(file.read_bytes())
    assert "ran over infiniband, and the fabric of h100-sxm-efa is efa" in read_or_error(
        [path], find_cluster("h100-sxm-efa")
    )
    assert read_own_points([path], find_cluster("h100-sxm-ib400")).collectives


def read_or_error(paths: list[Path], of: Cluster) -> str:
    with pytest.raises(ValueError) as raised:
        read_own_points(paths, of)
    return str(raised.value)


def test_a_preflight_of_cpu_processes_or_of_another_gpu_is_refused(tmp_path: Path) -> None:
    path = preflight(tmp_path, rate("memory copy", 1, 1e10), device="cpu")
    assert "preflight of CPU processes" in read_or_error([path], find_cluster("h200-sxm-virtual"))
    path = preflight(tmp_path, rate("memory copy", 1, 1e12), gpu="NVIDIA A100-SXM4-80GB")
    assert "ran on a100-80gb-sxm" in read_or_error([path], find_cluster("h200-sxm-virtual"))
    path.write_text('{"device": "cuda", "rates": [')
    assert "no whole output" in read_or_error([path], find_cluster("h200-sxm-virtual"))


@pytest.mark.parametrize(
    ("interconnect", "environment", "fabric"),
    [
        ("p5.48xlarge, EFA 3200 Gb/s per node", None, "efa"),
        ("InfiniBand between DGX nodes", None, "infiniband"),
        (None, "NCCL_IB_DISABLE=1 NCCL_NET=Socket", "ethernet"),
        (None, "NCCL_IB_DISABLE=1", "ethernet"),
        (None, "NCCL_NET=AWS Libfabric NCCL_DEBUG=INFO", "efa"),
        ("NVLink/NVSwitch in node", "NCCL_DEBUG=INFO", None),
    ],
)
def test_a_fabric_is_told_by_its_sources_words_and_settings(
    interconnect: str | None, environment: str | None, fabric: str | None
) -> None:
    record = CollectiveRecord(
        record_id="r", provenance="imported", source="s", source_ref="s", outcome="ok", collective="all_reduce",
        message_bytes=8, num_ranks=16, interconnect=interconnect, environment=environment,
    )  # fmt: skip
    assert fabric_of(record) == fabric
