"""Traces, power samples and NCCL's own words as aligned text."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from falloff.ingest.recognise import read_any, read_rank_traces
from falloff.report import device_text

ROOT = Path(__file__).parents[2]
H200 = Path("data/external/torchtitan-h200x2")
CASES = Path("tests/cases/inputs")


@pytest.fixture(autouse=True)
def _at_the_root(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(ROOT)
    return iter(())


def text_of(path: Path) -> str:
    return "\n".join(device_text.lines(read_any(path)))


def column(text: str, name: str, place: int) -> float:
    line = next(line for line in text.splitlines() if line.strip().startswith(f"{name} "))
    return float(re.findall(r"[\d,]+\.\d+|\d+", line.replace("%", ""))[place].replace(",", ""))


def test_the_parts_of_a_traced_step_that_are_printed_add_up_to_its_span() -> None:
    text = text_of(H200 / "compile_bs2.rank0.trace.json.gz")
    parts = ["compute", "exposed AllGather", "exposed AllReduce", "exposed ReduceScatter", "exposed copies", "idle"]
    assert sum(column(text, name, 0) for name in parts) == pytest.approx(column(text, "span", 0), abs=0.004)
    assert "ProfilerStep#" in text


def test_power_samples_show_both_ways_to_energy_of_each_device() -> None:
    text = text_of(H200 / "power.csv")
    assert "J by counter" in text
    assert "J by integral" in text
    assert len([line for line in text.splitlines() if line.strip().startswith(("0 ", "1 "))]) == 2


def test_calls_without_a_size_are_counted(tmp_path: Path) -> None:
    kernel = {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "pid": 0, "tid": 7}
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": [{**kernel, "ts": 1.0, "dur": 2.0, "args": {"stream": 7}}]}))
    assert "whose size, and so whose bandwidth, is not known: 1" in text_of(path)


def test_a_cut_trace_says_so() -> None:
    assert "status: trace_truncated" in text_of(CASES / "U113.json")


def test_two_ranks_are_compared_as_transfer_and_waiting(tmp_path: Path) -> None:
    both = json.loads((CASES / "U111.json").read_text())
    for name, trace in both.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(trace))
    reading = read_rank_traces(sorted(tmp_path.iterdir()))
    assert reading is not None
    text = "\n".join(device_text.lines(reading))
    assert "900.000" in text
    assert device_text.as_json(reading)["ranks"]["wait_ns"] == {"0": 900_000_000, "1": 0}


def test_traces_of_one_rank_twice_are_not_taken_for_a_job(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.json").write_text((CASES / "U097.json").read_text())
    assert read_rank_traces(sorted(tmp_path.iterdir())) is None


def test_what_nccl_says_of_its_choices_is_a_table(tmp_path: Path) -> None:
    path = tmp_path / "nccl.log"
    path.write_text(
        "node01:100:100 [0] NCCL INFO NCCL version 2.26.2+cuda12.4\n"
        "node01:100:100 [0] NCCL INFO AllReduce: 8388608 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..23}\n"
    )
    text = text_of(path)
    assert "NCCL 2.26.2" in text
    assert re.search(r"all_reduce +8 MiB +ring +simple +24", text)


def test_the_profiler_plugin_of_nccl_counts_what_is_incomplete() -> None:
    assert "left out:" in text_of(CASES / "U115.json")


def test_ranks_that_waited_for_data_are_named_and_their_step_is_left_out() -> None:
    text = text_of(CASES / "U201.txt")
    assert "step 173 is to be left out of a steady state, bound by data: ranks 144-147 waited up to 332.5" in text
    assert [line.split()[0] for line in text.splitlines() if line.endswith("waited")] == ["144", "145", "147", "146"]
    assert device_text.as_json(read_any(CASES / "U201.txt"))["slow_steps"][0]["groups"] == [[144, 145, 146, 147]]


def test_a_healthy_step_is_not_left_out(tmp_path: Path) -> None:
    path = tmp_path / "analysis.txt"
    path.write_text("[step 3] step_time=10s dt_max=0.1s\nrank data_time step_time\n 1 0.1 9.9\n")
    assert "no step was bound by data" in text_of(path)


def test_active_clock_reasons_are_printed_and_idle_is_no_throttling(tmp_path: Path) -> None:
    assert text_of(CASES / "U195.txt") == "  a GPU that is not named: what holds its clocks down is sw_power_cap"
    path = tmp_path / "smi.txt"
    path.write_text(
        "GPU 00000000:1B:00.0\n    Clocks Event Reasons\n        Idle : Active\n        HW Slowdown : N/A\n"
    )
    assert "idle (no throttling)" in text_of(path)
    assert "not said of hw_slowdown" in text_of(path)
    json_form = device_text.as_json(read_any(path))["clock_reasons"]
    assert [(block["active"], block["slowing"]) for block in json_form] == [(["idle"], [])]


def test_a_rank_without_kernels_does_not_keep_the_others_from_being_compared(tmp_path: Path) -> None:
    reading = read_rank_traces(ranks_of(tmp_path, {0: [(0, 100)], 1: [], 2: [(50, 50)]}))
    assert reading is not None
    assert reading.ranks is not None
    assert sorted(reading.ranks.exposures) == [0, 2]
    assert [(Path(path).name, status) for path, status, _ in reading.left] == [("rank1.json", "no kernels")]


def test_transfer_of_ranks_whose_calls_do_not_match_is_unknown_and_not_zero(tmp_path: Path) -> None:
    reading = read_rank_traces(ranks_of(tmp_path, {0: [(0, 100), (200, 100)], 1: [(0, 100)]}))
    assert reading is not None
    assert device_text.as_json(reading)["ranks"]["transfer_ns"] == {"0": None, "1": None}
    text = "\n".join(device_text.lines(reading))
    assert "0 calls matched" in text
    dashes = [line.split()[-3:] for line in text.splitlines() if line.split()[:1] in (["0"], ["1"])]
    assert dashes[:2] == [["-", "-", "-"]] * 2


def test_why_skew_is_not_known_is_said(tmp_path: Path) -> None:
    reading = read_rank_traces(ranks_of(tmp_path, {0: [(0, 100)], 1: [(0, 100)]}, "ncclDevKernel_SendRecv"))
    assert reading is not None
    assert "no call that all its ranks leave together was matched" in "\n".join(device_text.lines(reading))


def ranks_of(
    folder: Path, calls: dict[int, list[tuple[int, int]]], name: str = "ncclDevKernel_AllReduce"
) -> list[Path]:
    paths = []
    for rank, spans in calls.items():
        events = [
            {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": start, "dur": length}
            for start, length in spans
        ]
        paths.append(folder / f"rank{rank}.json")
        paths[-1].write_text(json.dumps({"distributedInfo": {"rank": rank, "world_size": 3}, "traceEvents": events}))
    return paths


def test_links_within_a_node_that_miss_p2p_are_flagged_in_nccl_s_own_log(tmp_path: Path) -> None:
    path = tmp_path / "nccl.log"
    ranks = "".join(
        f"n1:{9 + r}:20 [{r}] NCCL INFO comm 0x5 rank {r} nranks 2 cudaDev {r} - Init COMPLETE\n" for r in (0, 1)
    )
    links = ("0[0] -> 1[1] via SHM/direct/direct", "1[1] -> 0[0] [send] via NET/IB/0")
    path.write_text(ranks + "".join(f"n1:9:20 [0] NCCL INFO Channel 00/0 : {link}\n" for link in links))
    text = text_of(path)
    assert "1 links within a node go via SHM and not P2P" in text
    assert "1 links within a node go via NET and not P2P" in text
    assert len(device_text.as_json(read_any(path))["nccl_debug"]["flags"]) == 2


def test_links_to_a_rank_of_an_unknown_host_are_not_flagged(tmp_path: Path) -> None:
    path = tmp_path / "nccl.log"
    path.write_text(
        "n1:9:20 [0] NCCL INFO comm 0x5 rank 0 nranks 2 cudaDev 0 - Init COMPLETE\n"
        "n1:9:20 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0\n"
    )
    assert "not P2P" not in text_of(path)
