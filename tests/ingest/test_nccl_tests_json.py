import json
from pathlib import Path
from typing import Any

import pytest

from falloff.ingest.nccl_tests import is_nccl_tests_log, nccl_tests_records, read_nccl_tests


def half(time: float, wrong: float | None = 0.0) -> dict[str, Any]:
    algbw = 8388608 / time / 1e3
    return {"time": time, "alg_bw": round(algbw, 6), "bus_bw": round(algbw * 1.75, 6), "nwrong": wrong}


def written(**changes: Any) -> dict[str, Any]:
    """A file of -J: two processes of four GPUs, of which it lists the first alone."""
    row = {
        "size": 8388608,
        "count": 4194304,
        "type": "bfloat16",
        "redop": "sum",
        "root": "    -1",
        "out_of_place": half(839.0),
        "in_place": half(419.5, None),
        "actual_iterations": 20,
        "experiment_name": "",
    }
    device = {"group": 0, "pid": 7, "device": 0, "device_hex": "0000:0f:00", "device_info": "NVIDIA H100 80GB HBM3"}
    document = {
        "version": 2,
        "start_time": "2026-06-01 12:00:00",
        "args": ["build/all_reduce_perf", "-g", "4", "-J", "out.json"],
        "env": ["HOME=/home/somebody", "TOKEN=secret", "NCCL_ALGO=Ring", "CUDA_VISIBLE_DEVICES=0,1,2,3"],
        "nccl_version": 22902,
        "config": {
            "nthreads": 1,
            "ngpus": 4,
            "warmup_iters": 5,
            "iterations": 20,
            "devices": [
                {**device, "rank": 0, "hostname": "node01"},
                {**device, "rank": 4, "hostname": "node02"},
            ],
        },
        "results": [row],
        "out_of_bounds": {"count": 0, "okay": "true"},
        "average_bus_bandwidth": {"bandwidth": 26.245939, "okay": "unchecked"},
    }
    return {**document, **changes}


def test_the_file_of_j_is_read_with_the_ranks_that_it_does_not_list(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    path.write_text(json.dumps(written()))
    assert is_nccl_tests_log(path.read_text())
    (run,) = read_nccl_tests(path)
    assert (run.collective, run.num_ranks, run.nodes, run.nccl, run.flags) == ("all_reduce", 8, 2, "2.29.2", ())
    first, second = nccl_tests_records(path, {})
    assert (first.in_place, first.num_wrong, second.in_place, second.num_wrong) == (False, 0, True, None)
    assert (first.ranks_per_node, first.dtype, first.warmup_iterations) == (4, "bfloat16", 5)


def test_of_the_environment_only_settings_of_nccl_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    path.write_text(json.dumps(written()))
    (run,) = read_nccl_tests(path)
    assert run.environment == "CUDA_VISIBLE_DEVICES=0,1,2,3 NCCL_ALGO=Ring"


def test_the_times_of_each_iteration_are_those_of_the_record(tmp_path: Path) -> None:
    document = written()
    document["results"][0]["out_of_place_per_iter"] = {
        "skipped_iterations": 1,
        "times_us": [2000.0, 838.0, 840.0],
    }
    path = tmp_path / "out.json"
    path.write_text(json.dumps(document))
    first, second = nccl_tests_records(path, {})
    assert first.times_s == pytest.approx((838e-6, 840e-6))
    assert second.times_s == pytest.approx((419.5e-6,))


def test_a_half_that_is_null_is_no_record(tmp_path: Path) -> None:
    document = written()
    document["results"][0]["out_of_place"] = None
    path = tmp_path / "out.json"
    path.write_text(json.dumps(document))
    (record,) = nccl_tests_records(path, {})
    assert record.in_place is True


def test_a_file_that_is_cut_gives_what_is_whole_before_the_cut(tmp_path: Path) -> None:
    document = written()
    document["results"] *= 2
    text = json.dumps(document)
    path = tmp_path / "all_reduce.json"
    path.write_text(text[: text.rindex('"bus_bw"')])
    (run,) = read_nccl_tests(path)
    assert (len(run.rows), run.num_cut_lines, run.status, run.num_ranks) == (1, 1, "partial", 8)


def test_results_that_were_wrong_make_a_file_invalid(tmp_path: Path) -> None:
    document = written(out_of_bounds={"count": 3, "okay": "false"})
    document["results"][0]["in_place"]["nwrong"] = 3.0
    path = tmp_path / "out.json"
    path.write_text(json.dumps(document))
    (run,) = read_nccl_tests(path)
    assert not run.is_valid
    assert [record.outcome for record in nccl_tests_records(path, {})] == ["ok", "crash"]


def test_an_operation_that_is_no_word_is_none(tmp_path: Path) -> None:
    document = written()
    document["results"][0]["redop"] = ["sum"]
    path = tmp_path / "all_reduce.json"
    path.write_text(json.dumps(document))
    (run,) = read_nccl_tests(path)
    assert [row.redop for row in run.rows] == [None]


@pytest.mark.parametrize(
    "text",
    [
        "{" * 3000,
        "1" * 5000,
        '{"version": 2, "a": ' + "1" * 5000,
        '{"a":' * 3000,
        '{"version": 2, "results": [',
        "[]",
        "{}",
    ],
)
def test_what_is_no_result_is_a_sentence(tmp_path: Path, text: str) -> None:
    path = tmp_path / "out.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"out\.json: "):
        nccl_tests_records(path, {})
