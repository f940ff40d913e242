import pytest

from falloff.ingest.power_averaging import averaging_s, averaging_words, is_seen_part_time
from falloff.ingest.power_samples import Averaging


@pytest.mark.parametrize(
    "gpu",
    [
        "NVIDIA A100-SXM4-40GB",
        "A100-PCIE-40GB",
        "NVIDIA A800-SXM4-80GB",
        "NVIDIA A30",
        "NVIDIA A100X",
        "Tesla V100-SXM2-32GB",
        "Tesla T4",
        "Tesla P100-PCIE-16GB",
        "NVIDIA GeForce RTX 2080 Ti",
        "NVIDIA GeForce GTX 1080",
        "Quadro RTX 6000",
        "NVIDIA TITAN V",
    ],
)
def test_ga100_and_older_read_an_instant(gpu: str) -> None:
    assert averaging_s("by generation", gpu) == 0


@pytest.mark.parametrize(
    "gpu",
    [
        "NVIDIA H100 80GB HBM3",
        "NVIDIA H100 PCIe",
        "NVIDIA H200",
        "NVIDIA H800",
        "NVIDIA H20",
        "NVIDIA GH200 480GB",
        "NVIDIA B200",
        "NVIDIA GB200",
        "NVIDIA GB300",
        "NVIDIA L4",
        "NVIDIA L40S",
        "NVIDIA A10",
        "NVIDIA A10G",
        "NVIDIA A40",
        "NVIDIA RTX A6000",
        "NVIDIA A2",
        "NVIDIA A16",
        "NVIDIA GeForce RTX 3080",
        "NVIDIA GeForce RTX 4090",
        "NVIDIA GeForce RTX 5090",
        "NVIDIA RTX 6000 Ada Generation",
        "NVIDIA RTX PRO 6000 Blackwell Server Edition",
        "NVIDIA RTX A5000",
    ],
)
def test_other_gpus_since_ampere_read_a_mean_of_the_last_second(gpu: str) -> None:
    assert averaging_s("by generation", gpu) == 1


@pytest.mark.parametrize(
    ("averaging", "gpu", "seconds"),
    [
        ("instant", None, 0),
        ("average", "NVIDIA A100-SXM4-40GB", 1),
        ("since the reading before", None, 0),
        ("by generation", None, None),
        ("by generation", "Some Accelerator", None),
        ("not stated", "NVIDIA H200", None),
    ],
)
def test_a_reading_that_says_what_it_is_needs_no_generation(
    averaging: Averaging, gpu: str | None, seconds: float | None
) -> None:
    assert averaging_s(averaging, gpu) == seconds


def test_what_is_not_known_is_said() -> None:
    assert "not known" in averaging_words("by generation", None)
    assert averaging_words("by generation", "NVIDIA H200") == "default reading, a 1 s average on this GPU"
    assert is_seen_part_time("NVIDIA H100 80GB HBM3")
    assert not is_seen_part_time("NVIDIA H200")
