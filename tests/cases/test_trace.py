"""Cases of kind trace: what falloff makes of others' traces, against the value each should have."""

import csv
import gzip
import json
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from falloff.ingest.exposure import Exposure, exposure_fields, measure_exposure
from falloff.ingest.kernel_names import classify
from falloff.ingest.nccl_profiler import read_nccl_profile
from falloff.ingest.ranks import measure_ranks, read_ranks
from falloff.ingest.trace import Trace, TraceError, read_trace

from .compare import INPUTS, check

# what the cases call falloff's classes
CLASSES = {"copy": "memory", "sync": "memory", "communication": "communication", "compute": "compute"}
US, MS = 1_000, 1_000_000


FOLDER = tempfile.TemporaryDirectory()


def written(name: str, document: Any) -> Path:
    path = Path(FOLDER.name) / f"{name}.json"
    path.write_text(json.dumps(document))
    return path


def read(case: str) -> Trace:
    return read_trace(INPUTS / f"{case}.json")


def exposure(case: str) -> Exposure:
    return measure_exposure(read(case))


def microseconds(measured: Exposure) -> dict[str, Any]:
    return {
        "compute": measured.compute_ns / US,
        "comm": measured.comm_ns / US,
        "exposed": measured.exposed_comm_ns / US,
        "copy": measured.copy_ns / US,
        "idle": measured.idle_ns / US,
        "window": measured.span_ns / US,
        "kernels": measured.num_kernels,
        "events_without_bytes": measured.num_calls_without_bytes,
    }


def classes() -> dict[str, Any]:
    with (INPUTS / "U092.csv").open() as file:
        names = [row["name"] for row in csv.DictReader(file)]
    return {"class": [CLASSES[classify(name).kind] for name in names]}


def most_that_is_claimed() -> dict[str, Any]:
    """Give two streams the two claims, one within the other: no sum of them may come out."""
    stated = json.loads((INPUTS / "U096.json").read_text())
    kernel = {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "pid": 0, "ts": 0}
    path = written("U096", [{**kernel, "tid": tid, "dur": ms * US} for tid, ms in enumerate(stated["claims_ms"])])
    return {"max_allowed_ms": measure_exposure(read_trace(path)).comm_ns / MS}


def both_forms() -> dict[str, Any]:
    forms = json.loads((INPUTS / "U098.json").read_text())
    return {name: microseconds(measure_exposure(read_trace(written("U098", form)))) for name, form in forms.items()}


def gap() -> dict[str, Any]:
    trace = read("U099")
    return {"gap_ns": int(trace.start_ns[1] - trace.end_ns[0])}


def rejected() -> dict[str, Any]:
    return {**microseconds(exposure("U100")), "rejected": read("U100").num_rejected}


def waiting() -> dict[str, Any]:
    ranks = json.loads((INPUTS / "U111.json").read_text())
    report = measure_ranks(read_ranks([written(f"U111{name}", trace) for name, trace in ranks.items()]).traces)
    return {
        "transfer_ms": report.transfer_ns[0] / MS,
        "wait_ms": {str(rank): ns / MS for rank, ns in report.wait_ns.items()},
    }


def cut() -> dict[str, Any]:
    trace = read("U113")
    return {"status": trace.status, "complete_events": trace.num_events}


GOT: dict[str, Callable[[], Any]] = {
    "U090": lambda: microseconds(exposure("U090")),
    "U091": lambda: microseconds(exposure("U091")),
    "U092": classes,
    "U096": most_that_is_claimed,
    "U097": lambda: microseconds(exposure("U097")),
    "U098": both_forms,
    "U099": gap,
    "U100": rejected,
    "U106": lambda: microseconds(exposure("U106")),
    "U107": lambda: microseconds(exposure("U107")),
    "U111": waiting,
    "U113": cut,
}


@pytest.mark.parametrize("case", sorted(GOT))
def test_a_trace_case_gives_the_right_value(case: str) -> None:
    check(case, GOT[case]())


def test_invalid_json_names_the_file_and_the_place_and_leaves_the_other_ranks() -> None:  # U102
    good = written("rank1", [KERNEL])
    ranks = read_ranks([INPUTS / "U102.json", good])
    assert [trace.rank for trace in ranks.traces] == [1]
    ((path, status, reason),) = ranks.left
    assert (Path(path).name, status) == ("U102.json", "trace_invalid")
    assert "U102.json: is not valid JSON at byte 154" in reason


KERNEL = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 10, "dur": 5, "args": {"stream": 7}}


def test_control_characters_in_names_are_tolerated(tmp_path: Path) -> None:  # U103
    path = tmp_path / "trace.json"
    path.write_text(json.dumps([KERNEL, {**KERNEL, "name": "bell"}]).replace("bell", "be\x01ll"))
    assert read_trace(path).names == ("gemm", "be\x01ll")


def test_without_distributed_info_the_rank_is_the_name_s_and_the_file_is_read() -> None:  # U104
    assert read("U104").rank is None
    assert microseconds(exposure("U104"))["compute"] == 250
    named = Path(FOLDER.name) / "run1_rank3.json"
    named.write_bytes((INPUTS / "U104.json").read_bytes())
    assert read_trace(named).rank == 3


def test_no_communication_kernel_is_a_status_and_neither_zero_nor_nan() -> None:  # U091
    host = {"ph": "X", "cat": "cpu_op", "name": "nccl:all_reduce", "pid": 1, "tid": 1, "ts": 100, "dur": 30}
    path = written("U091host", [host, KERNEL])
    assert measure_exposure(read_trace(path)).status == "no communication kernels"
    assert exposure_fields(path, "trace", 8).get("trace_exposed_comm_s") is None


def test_a_call_without_metadata_has_no_bytes() -> None:  # U106
    calls = exposure("U106").calls
    assert (calls["SendRecv"].message_bytes, calls["AllGather"].message_bytes) == (None, 8388608 * 2)


def test_a_cut_trace_packed_or_not_is_read_to_the_cut() -> None:  # U113
    packed = Path(FOLDER.name) / "U113.json.gz"
    packed.write_bytes(gzip.compress((INPUTS / "U113.json").read_bytes()))
    assert (read_trace(packed).status, read_trace(packed).num_events) == ("trace_truncated", 2)


def test_a_step_whose_kernels_were_dropped_is_flagged_and_excluded() -> None:  # U114
    measured = exposure("U114")
    assert [(step.num_kernels, step.is_kept) for step in measured.steps] == [(3, False), *[(10, True)] * 4]
    assert measured.num_steps == 4
    assert "ProfilerStep#0 left out" in measured.window


def test_incomplete_events_of_nccls_profiler_are_dropped_and_counted() -> None:  # U115
    profile = read_nccl_profile(INPUTS / "U115.json")
    assert [(event.name, event.end_ns - event.start_ns) for event in profile.events] == [("KernelCh", 2_878)]
    assert profile.num_incomplete == 4
    with pytest.raises(TraceError, match="NCCL's profiler plugin"):
        read("U115")


def test_compression_is_told_by_content_and_a_cut_file_says_so() -> None:  # U262
    rows = [{**KERNEL, "ts": random.Random(i).randrange(10**9)} for i in range(2000)]
    plain = written("plain", rows).read_bytes()
    files = {"x.json": gzip.compress(plain), "x.json.gz": plain, "cut.json.gz": gzip.compress(plain)[:-5000]}
    for name, content in files.items():
        (Path(FOLDER.name) / name).write_bytes(content)
    read_back = {name: read_trace(Path(FOLDER.name) / name) for name in files}
    assert [trace.status for trace in read_back.values()] == ["ok", "ok", "trace_truncated"]
    assert 0 < read_back["cut.json.gz"].num_events < 2000
