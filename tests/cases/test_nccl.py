"""Outputs of nccl-tests, NCCL's own log and DeepSpeed's summary that others misread."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from falloff.analysis.bandwidth import bus_bandwidth_bytes_s
from falloff.analysis.comparability import compare
from falloff.ingest.bus_factor import bus_factor
from falloff.ingest.deepspeed_comms import deepspeed_comms_records, read_deepspeed_comms
from falloff.ingest.nccl_tests import nccl_tests_records, read_nccl_tests
from falloff.ingest.nccl_tests_log import Half, NcclTestsLog, Row
from falloff.records import CollectiveRecord, read_records, write_records
from falloff.units import GIGA, MICRO

from .compare import EXPECTED, INPUTS, check

HEADER = """\
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
"""


def run(case: str) -> NcclTestsLog:
    (log,) = read_nccl_tests(INPUTS / f"{case}.log")
    return log


def half(row: Row, *, in_place: bool = False) -> Half:
    found = row.in_place if in_place else row.out_of_place
    assert found is not None
    return found


def time_us(row: Row) -> float:
    time = half(row).time_s
    assert time is not None
    return time.value / MICRO


def busbw(row: Row) -> float:
    found = half(row).busbw_bytes_s
    assert found is not None
    return found.value / GIGA


def an_error_that_is_a_tolerance() -> dict[str, Any]:
    log = run("U120")
    row = log.rows[0]
    return {
        "rows": len(log.rows),
        "size": row.message_bytes,
        "oop_us": time_us(row),
        "oop_busbw": busbw(row),
        "wrong": half(row).num_wrong,
    }


def rccl_tests() -> dict[str, Any]:
    log = run("U122")
    row = log.rows[0]
    return {
        "rows": len(log.rows),
        "n": log.num_ranks,
        "oop_us": time_us(row),
        "busbw": busbw(row),
        "library": log.library,
    }


def json_by_size() -> dict[str, Any]:
    log = run("U123")
    return {
        "rows": len(log.rows),
        "factor": bus_factor(str(log.collective), log.num_ranks or 0),
        "ip_error": half(log.rows[0], in_place=True).num_wrong,
    }


def wrong_results() -> dict[str, Any]:
    log = run("U124")
    return {
        "rows": len(log.rows),
        "oop_wrong": [half(row).num_wrong for row in log.rows],
        "ip_wrong": [half(row, in_place=True).num_wrong for row in log.rows],
        "valid": log.is_valid,
    }


def time_stamps_before_lines() -> dict[str, Any]:
    log = run("U125")
    row = log.rows[0]
    return {"rows": len(log.rows), "oop_us": time_us(row), "busbw": busbw(row), "n": log.num_ranks}


def ranks_before_lines() -> dict[str, Any]:
    log = run("U126")
    average = log.average_busbw_bytes_s
    assert average is not None
    return {"rows": len(log.rows), "size8_us": time_us(log.rows[0]), "avg": average / GIGA}


def two_programs_without_mpi() -> dict[str, Any]:
    log = run("U128")
    return {"status": log.status, "rank0_lines": log.num_rank0_lines, "footers": log.num_footers}


GOT: dict[str, Callable[[], dict[str, Any]]] = {
    "U120": an_error_that_is_a_tolerance,
    "U122": rccl_tests,
    "U123": json_by_size,
    "U124": wrong_results,
    "U125": time_stamps_before_lines,
    "U126": ranks_before_lines,
    "U128": two_programs_without_mpi,
}


@pytest.mark.parametrize("case", GOT)
def test_a_case_is_read_as_it_should_be(case: str) -> None:
    assert case in EXPECTED
    check(case, GOT[case]())


def test_both_forms_of_json_parse_to_the_same_rows(tmp_path: Path) -> None:
    """U123: the file of -J with the values of the proposed dictionary."""
    (proposed,) = read_nccl_tests(INPUTS / "U123.log")
    text = (INPUTS / "U123.log").read_text()
    by_size = json.loads(text[text.index("{") :])["benchmark"][0]
    results = [
        {
            "size": int(size),
            "count": fields["count"],
            "type": fields["type"],
            "redop": fields["redop"],
            "root": "    -1",
            **{
                name: {
                    "time": fields[f"{prefix}_time"],
                    "alg_bw": fields[f"{prefix}_algbw"],
                    "bus_bw": fields[f"{prefix}_busbw"],
                    "nwrong": None if fields[f"{prefix}_error"] == "N/A" else fields[f"{prefix}_error"],
                }
                for name, prefix in (("out_of_place", "oop"), ("in_place", "ip"))
            },
        }
        for size, fields in by_size.items()
    ]
    path = tmp_path / "alltoall.json"
    path.write_text(json.dumps({"version": 2, "nccl_version": 22606, "results": results}))
    (written,) = read_nccl_tests(path)
    assert written.rows == proposed.rows
    assert (written.nccl, written.collective, written.num_ranks) == ("2.26.6", "all_to_all", 8)


def test_a_wrong_result_is_no_measurement() -> None:
    """U124: of four records the one with 12 wrong elements has an outcome and no time."""
    records = nccl_tests_records(INPUTS / "U124.log", {})
    wrong = [record for record in records if record.outcome != "ok"]
    assert [(record.message_bytes, record.num_wrong, record.times_s) for record in wrong] == [(2048, 12, None)]
    assert all(record.flags for record in records)


def test_programs_without_mpi_are_never_a_job_of_two_nodes() -> None:
    """U128."""
    assert run("U128").nodes == 1
    with pytest.raises(ValueError, match="knew nothing of one another"):
        nccl_tests_records(INPUTS / "U128.log", {})


def test_one_rank_is_no_point_at_zero(tmp_path: Path) -> None:
    """U129: the footer says 0 GB/s, which is no bandwidth of anything."""
    path = tmp_path / "all_reduce.log"
    path.write_text(
        "# nThread 1 nGpus 1 minBytes 4096 maxBytes 4096 step: 2(factor) warmup iters: 5 iters: 20\n"
        "#  Rank  0 Group  0 Pid 1 on node01 device  0 [0x07] NVIDIA H100 80GB HBM3\n"
        f"{HEADER}"
        "        4096          1024     float     sum      -1    10.00    0.41    0.00      0     0.51    8.03    0.00"
        "      0\n# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 0 \n"
    )
    (log,) = read_nccl_tests(path)
    assert (log.num_ranks, log.is_valid) == (1, False)
    records = nccl_tests_records(path, {})
    assert {record.outcome for record in records} == {"crash"}
    assert all("one rank" in str(record.outcome_reason) for record in records)
    frame = frame_of(records, tmp_path)
    assert frame.apply(lambda row: bus_bandwidth_bytes_s(row), axis=1).isna().all()


def frame_of(records: list[CollectiveRecord], folder: Path) -> pd.DataFrame:
    write_records(folder / "records.parquet", records, CollectiveRecord)
    return read_records([folder / "records.parquet"], CollectiveRecord)


def test_versions_of_nccl_and_their_choices_stand_with_each_record_and_are_compared(tmp_path: Path) -> None:
    """U132: between NCCL 2.22 and 2.25 the algorithm changed from tree to ring, and the bandwidth sevenfold."""
    records = []
    for stated in json.loads((INPUTS / "U132.json").read_text()):
        path = tmp_path / f"all_reduce_{stated['nccl']}.log"
        time = 8388608 / (stated["algbw"] * GIGA) / MICRO
        busbw_of_two = f"{stated['algbw']:.2f}"
        path.write_text(
            f"NCCL version {stated['nccl']}.3+cuda12.4\n"
            "#  Rank  0 Group  0 Pid 1 on node01 device  0 [0x07] NVIDIA H100 80GB HBM3\n"
            "#  Rank  1 Group  0 Pid 2 on node02 device  0 [0x07] NVIDIA H100 80GB HBM3\n"
            f"{HEADER}"
            f"node01:1:1 [0] NCCL INFO AllReduce: 8388608 Bytes -> Algo {stated['algo']} proto SIMPLE "
            "channel{Lo..Hi}={0..3}\n"
            + "     8388608       2097152     float     sum      -1"
            + f"  {time:.2f}  {busbw_of_two}  {busbw_of_two}      0" * 2
            + "\n"
        )
        records.append(nccl_tests_records(path, {})[0])
    assert [(r.nccl, r.algorithm, r.protocol, r.channels, r.nodes) for r in records] == [
        ("2.22.3", "tree", "simple", 4, 2),
        ("2.25.3", "ring", "simple", 4, 2),
    ]
    a, b = (row for _, row in frame_of(records, tmp_path).iterrows())
    (nccl,) = [field for field in compare(a, b) if field.field == "nccl"]
    assert nccl.verdict == "differs"


def test_a_row_whose_bandwidths_are_not_of_the_same_calls_is_flagged(tmp_path: Path) -> None:
    """U135: on 8 ranks the bus bandwidth is 7/8 of the algorithm bandwidth."""
    path = tmp_path / "comms.log"
    row = "                    {size: <20}{count: <20}{total: <20.2f}{mean: <20.2f}{algbw: <20.2f}{busbw: <20.2f}\n"
    path.write_text(
        f"{'Comm. Op': <20}{'Message Size': <20}{'Count': <20}{'Total Latency(ms)': <20}{'Avg Latency(ms)': <20}"
        f"{'tput_avg (Gbps)': <20}{'busbw_avg (Gbps)': <20}\nreduce_scatter_tensor\n"
        + row.format(size="4.0 MB", count=40, total=20.0, mean=0.5, algbw=67.11, busbw=58.72)
        + row.format(size="8.0 MB", count=40, total=20.0, mean=0.5, algbw=134.22, busbw=101.5)
        + row.format(size="16.0 MB", count=40, total=20.0, mean=0.5, algbw=268.44, busbw=234.88)
    )
    for ranks in (None, 8):
        found = read_deepspeed_comms(path, ranks)
        assert found.num_ranks == 8
        assert [row.fault is not None for row in found.rows] == [False, True, False]
    assert [bool(record.flags) for record in deepspeed_comms_records(path)] == [False, True, False]


def test_links_within_a_node_that_miss_p2p_are_flagged(tmp_path: Path) -> None:
    """U136: each process sees its own GPU alone, so NCCL falls back to shared memory or to the network."""
    path = tmp_path / "all_reduce.log"
    path.write_text(
        "node01:11:21 [0] NCCL INFO NCCL_CUMEM_ENABLE set by environment to 0.\n"
        "#  Rank  0 Group  0 Pid 11 on node01 device  0 [0x07] NVIDIA H100 80GB HBM3\n"
        "#  Rank  1 Group  0 Pid 12 on node01 device  0 [0x08] NVIDIA H100 80GB HBM3\n"
        "node01:11:21 [0] NCCL INFO Channel 00 : 0[0] -> 1[0] via SHM/direct/direct\n"
        "node01:12:22 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [send] via NET/IB/0/GDRDMA\n"
        f"{HEADER}"
        "     8388608       2097152     float     sum      -1    839.0   10.00   10.00      0    839.0   10.00   10.00"
        "      0\n"
    )
    record = nccl_tests_records(path, {})[0]
    assert [flag.split(" and not P2P")[0] for flag in record.flags or () if "P2P" in flag] == [
        "1 links within a node go via SHM",
        "1 links within a node go via NET",
    ]
    assert record.environment == "NCCL_CUMEM_ENABLE=0"
