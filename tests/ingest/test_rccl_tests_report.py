import json
from pathlib import Path

import pytest

from falloff.ingest.nccl_tests import is_nccl_tests_log, nccl_tests_records, read_nccl_tests

# as rccl-tests' Reporter::writeFile prints them: numbers with six decimals, texts and the count of wrong in quotes
HEADER = "numCycle,collective,ranks,rankspernode,gpusperrank,size,type,redop,inplace,time,algbw,busbw,#wrong\n"
LINE = '0,"AllReduce",2,16,8,1,{size},"float","sum",{place},{time:f},{algbw:f},{busbw:f},"{wrong}"\n'


def line(size: int, place: int, time: float, wrong: str = "0") -> str:
    algbw = size / time / 1e3
    return LINE.format(size=size, place=place, time=time, algbw=algbw, busbw=algbw * 30 / 16, wrong=wrong)


def test_a_csv_has_a_value_more_than_its_header_has_names(tmp_path: Path) -> None:
    path = tmp_path / "report.csv"
    path.write_text(HEADER + line(1024, 0, 30.0) + line(1024, 1, 29.0, "N/A") + line(0, 0, 0.05) + line(0, 1, 0.05))
    assert is_nccl_tests_log(path.read_text())
    (run,) = read_nccl_tests(path)
    assert (run.library, run.collective, run.num_ranks, run.nodes) == ("rccl-tests", "all_reduce", 16, 2)
    assert (len(run.rows), run.flags) == (1, ("1 rows of 0 bytes were left out",))
    first, second = nccl_tests_records(path, {})
    assert (first.times_s, first.num_wrong, second.num_wrong) == (pytest.approx((30e-6,)), 0, None)
    assert (second.in_place, second.ranks_per_node) == (True, 8)


def test_its_json_says_the_same(tmp_path: Path) -> None:
    def item(place: int, time: float) -> dict[str, object]:
        algbw = 1024 / time / 1e3
        return {
            "numCycle": 0,
            "name": "AllReduce",
            "nodes": 2,
            "ranks": 16,
            "ranksPerNode": 8,
            "gpusPerRank": 1,
            "size": 1024,
            "type": "float",
            "redop": "sum",
            "inPlace": place,
            "time": time,
            "algBw": round(algbw, 6),
            "busBw": round(algbw * 30 / 16, 6),
            "wrong": "N/A" if place else "0",
        }

    as_json, as_csv = tmp_path / "report.json", tmp_path / "report.csv"
    as_json.write_text(json.dumps([item(0, 30.0), item(1, 29.0)], indent=0))
    as_csv.write_text(HEADER + line(1024, 0, 30.0) + line(1024, 1, 29.0, "N/A"))
    assert read_nccl_tests(as_json) == read_nccl_tests(as_csv)
    assert is_nccl_tests_log(as_json.read_text())


def test_a_line_that_is_cut_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "report.csv"
    path.write_text(HEADER + line(1024, 0, 30.0) + line(1024, 1, 29.0)[:40])
    (run,) = read_nccl_tests(path)
    assert (len(run.rows), run.num_cut_lines) == (1, 1)
