"""The grid of the what-if panel: packed without loss at four digits, the same as predicting each step by itself."""

import base64
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from falloff.analysis.what_if import (
    CLUSTERS,
    DECADES,
    DOES_NOT_FIT,
    FITS,
    GPUS,
    LAYOUTS,
    LOCAL_BATCHES,
    NETWORKS,
    NO_JOB,
    PARTS,
    RECOMPUTES,
    SEQ,
    Grid,
    columns_of,
    decode,
    encode,
    layout_option,
    what_if,
)
from falloff.perfmodel.breakdown import PART_WORDS
from falloff.perfmodel.jobs import stack
from falloff.perfmodel.prediction import predict, shipped_fit
from falloff.perfmodel.requests import Request, job_of_request, parse_layout, shape_by_name
from falloff.spec.cluster import find_cluster

FEW = Grid(
    networks=("llama2-7b",),
    clusters=("h100-sxm-ib400", "v100-32gb-sxm2-ib100"),
    gpus=(8, 64),
    layouts=("FSDP", "HSDP, shards of 8", "TP 4 × PP 4"),
    local_batches=(1, 4),
)


@pytest.fixture(scope="module")
def few() -> dict[str, Any]:
    return what_if(shipped_fit(), FEW)


def unpacked(grid: dict[str, Any]) -> tuple[npt.NDArray[np.uint8], dict[str, npt.NDArray[np.float64]]]:
    """Return states of all cells and columns of the jobs, as the page's script reads them."""
    data = np.frombuffer(zlib.decompress(base64.b64decode(grid["packed"])), dtype=np.uint8)
    states, rest = data[: grid["num_cells"]], data[grid["num_cells"] :].reshape(-1, grid["num_jobs"])
    assert len(rest) == 2 * len(grid["columns"])
    return states, {
        column["name"]: decode(256 * rest[2 * place].astype(np.uint16) + rest[2 * place + 1], column["lowest"])
        for place, column in enumerate(grid["columns"])
    }


def four_digits(value: float) -> float:
    return float(f"{value:.3e}")


def test_every_job_is_what_predicting_it_by_itself_gives(few: dict[str, Any]) -> None:
    states, columns = unpacked(few)
    place = 0
    for (network, cluster, gpus, layout, batch, recompute), state in zip(FEW.cells(), states, strict=True):
        gpu = find_cluster(cluster).gpu
        request = Request(
            shape=shape_by_name(network),
            cluster=find_cluster(cluster),
            layout={},
            seq=SEQ,
            local_batch=batch,
            recompute=recompute,
            precision="bfloat16" if "bfloat16" in gpu.peak_flops else "float16",
        )
        try:
            degrees = parse_layout(layout_option(layout, gpus), gpus)
            job = job_of_request(Request(**{**vars(request), "layout": degrees}))
        except ValueError:
            assert state >= NO_JOB
            continue
        made = predict(stack([job]), shipped_fit())
        assert state == (FITS if made.memory.fits[0] else DOES_NOT_FIT)
        for name, values in columns_of(made).items():
            assert columns[name][place] == pytest.approx(four_digits(float(values[0])), rel=2e-4, abs=1e-6), name
        place += 1
    assert place == few["num_jobs"]


def test_what_is_no_job_says_why(few: dict[str, Any]) -> None:
    states, _ = unpacked(few)
    reasons = [few["reasons"][state - NO_JOB] for state in states if state >= NO_JOB]
    assert "TP 4 × PP 4 takes 16 GPUs, there are 8" in reasons
    assert "1 microbatches are too few for pp 4 stages" in reasons


def test_the_parts_are_all_of_the_step(few: dict[str, Any]) -> None:
    assert sorted(name for names in PARTS.values() for name in names) == sorted(PART_WORDS)
    _, columns = unpacked(few)
    step_s = sum(columns[f"part_{place}_s"] for place in range(len(PARTS)))
    job_tokens = {(gpus, batch): batch * SEQ for gpus in FEW.gpus for batch in FEW.local_batches}
    assert np.all(step_s * columns["tokens_per_gpu_s"] <= max(job_tokens.values()) * 1.001)


def test_an_interval_holds_its_prediction(few: dict[str, Any]) -> None:
    _, columns = unpacked(few)
    assert np.all(columns["low_tokens_per_gpu_s"] < columns["tokens_per_gpu_s"])
    assert np.all(columns["tokens_per_gpu_s"] < columns["high_tokens_per_gpu_s"])


def test_the_grid_of_the_page_spans_what_the_study_asks() -> None:
    assert {8, 128, 256, 2048} <= set(GPUS)
    assert all(name in NETWORKS for name in ("llama2-7b", "llama2-70b", "llama3-405b"))
    assert {find_cluster(name).generation for name in CLUSTERS} == {"v100", "a100", "h100", "b200"}
    cells = len(NETWORKS) * len(CLUSTERS) * len(GPUS) * len(LAYOUTS) * len(LOCAL_BATCHES) * len(RECOMPUTES)
    assert cells == len(list(Grid().cells()))


@given(st.lists(st.one_of(st.just(0.0), st.floats(1e-3, 9.9e3)), min_size=1, max_size=20))
def test_four_digits_survive_packing(values: list[float]) -> None:
    codes, lowest = encode(np.array(values))
    assert decode(codes, lowest) == pytest.approx([four_digits(value) for value in values], rel=1.1e-3, abs=0)
    assert np.abs(decode(codes, lowest) - values).max() <= 5.1e-4 * max(values)


@pytest.mark.parametrize("value", [9999.6, 0.99996, 1000.0, 1e-12, 123.4, 0.0])
def test_numbers_at_the_edge_of_a_power_of_ten_are_packed_whole(value: float) -> None:
    codes, lowest = encode(np.array([value]))
    assert decode(codes, lowest)[0] == pytest.approx(value, rel=5.1e-4)


def test_what_is_too_small_beside_the_largest_is_zero() -> None:
    codes, lowest = encode(np.array([1.0, 10.0 ** -(DECADES - 1), 10.0 ** -(DECADES + 1)]))
    assert list(codes > 0) == [True, True, False]
    assert decode(codes, lowest)[1] == pytest.approx(10.0 ** -(DECADES - 1))
