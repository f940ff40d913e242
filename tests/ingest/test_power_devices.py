import math
from pathlib import Path

import numpy as np
import pytest

from falloff.ingest.power_devices import by_index, by_uuid, devices_of_run, each_once, energy_once, idle_w, with_name
from falloff.ingest.power_samples import Meter, PowerLog, Samples, Scope, samples_of


def gpu(uuid: str | None, index: str, num: int = 10, scope: Scope = "gpu") -> Samples:
    meter = Meter(device=index, uuid=uuid, index=index, scope=scope)
    return samples_of(range(num), draw_w=np.full(num, 100.0), meter=meter)


NODE = {
    "GPU-aaaa": gpu("GPU-aaaa", "0"),
    "GPU-bbbb": gpu("GPU-bbbb", "1"),
    "1 module": gpu("GPU-bbbb", "1", 10, "module"),
}


def test_a_gpu_is_found_by_its_uuid_as_nvml_or_torch_spell_it() -> None:
    assert by_uuid(NODE, "GPU-bbbb") == by_uuid(NODE, "bbbb") == by_uuid(NODE, "gpu-BBBB") == "GPU-bbbb"
    assert by_uuid(NODE, "GPU-bbbb", "module") == "1 module"
    assert by_index(NODE, "1") == "GPU-bbbb"


@pytest.mark.parametrize(
    ("uuid", "words"), [("GPU-cccc", "no power samples of GPU GPU-cccc"), ("MIG-1", "an instance of MIG")]
)
def test_a_gpu_that_is_not_there_is_a_sentence(uuid: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        by_uuid(NODE, uuid)


def test_neither_uuids_nor_indices_is_an_error() -> None:
    with pytest.raises(ValueError, match="neither UUIDs nor indices"):
        devices_of_run(NODE)


def test_samplers_of_several_ranks_count_each_gpu_once() -> None:
    ranks = [
        PowerLog(
            path=Path("a"), format="nvidia-smi", devices={"GPU-a": gpu("GPU-a", "0", n), "GPU-b": gpu("GPU-b", "1")}
        )
        for n in (5, 10, 7)
    ]
    once = each_once(ranks)
    assert {key: len(samples.time_s) for key, samples in once.items()} == {"GPU-a": 10, "GPU-b": 10}


def test_reports_of_several_processes_count_each_gpu_once() -> None:
    assert energy_once([{"GPU-0": 1000.0, "GPU-1": 1100.0}] * 8) == ({"GPU-0": 1000.0, "GPU-1": 1100.0}, None)
    once, odd = energy_once([{"GPU-0": 1000.0}, {"GPU-0": 0.0}, {"GPU-0": 2000.0}])
    assert math.isnan(once["GPU-0"])
    assert odd == "reports of GPU-0 disagree"


def test_idle_is_only_what_no_process_computed_in() -> None:
    draws, processes = [70.0, 20.0, 22.0, 90.0], [1.0, 0.0, 0.0, 2.0]
    assert idle_w(samples_of(range(4), draw_w=draws, processes=processes)) == 21
    assert idle_w(samples_of(range(4), draw_w=draws, processes=[1.0] * 4)) is None
    assert idle_w(samples_of(range(4), draw_w=draws)) is None


def test_the_files_own_name_of_a_gpu_is_kept() -> None:
    named = with_name(gpu("GPU-a", "0"), "NVIDIA A100-SXM4-80GB")
    assert named.name == "NVIDIA A100-SXM4-80GB"
    assert with_name(named, "NVIDIA H100").name == "NVIDIA A100-SXM4-80GB"


def test_an_index_that_two_hosts_have_is_refused() -> None:
    devices = {f"node{n}/0": samples_of([0.0], [300.0], meter=Meter(device=f"node{n}/0", index="0")) for n in (0, 1)}
    with pytest.raises(ValueError, match="device 0 is in the file 2 times"):
        by_index(devices, "0")
