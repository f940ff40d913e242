"""The reader against a plain JSON parser: whatever the form of the file, the same events to the nanosecond."""

import gzip
import json
import random
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from falloff.ingest import event_index, trace_file
from falloff.ingest.kernel_names import KINDS, NAMING
from falloff.ingest.trace import Trace, TraceError, rank_in_name, read_trace

Event = dict[str, Any]
Row = tuple[str, int, int, int]

FOLDER_SHARED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)


def kernel(name: str, ts: float, dur: float, pid: int = 0, cat: str = "kernel") -> Event:
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": 7, "ts": ts, "dur": dur, "args": {"stream": 7}}


def write(path: Path, events: list[Event]) -> Path:
    path.write_text(json.dumps({"schemaVersion": 1, "displayTimeUnit": "ms", "traceEvents": events, "traceName": "x"}))
    return path


def rows_of(trace: Trace) -> list[Row]:
    columns = (trace.start_ns.tolist(), trace.end_ns.tolist(), trace.correlation.tolist())
    return list(zip([trace.names[i] for i in trace.name_id], *columns, strict=True))


def rows_by_parser(text: str) -> list[Row]:
    """Give what a parser of the whole text finds."""
    document = json.loads(text, parse_float=Decimal, strict=False)
    events = document["traceEvents"] if isinstance(document, dict) else document
    base = document.get("baseTimeNanoseconds", 0) if isinstance(document, dict) else 0
    return [
        (event["name"], base + round(event["ts"] * 1000), base + round(event["ts"] * 1000) + round(event["dur"] * 1000),
         event["args"].get("correlation", -1))
        for event in events
        if event.get("cat") in ("kernel", "gpu_memcpy") and event.get("ph") == "X"
    ]  # fmt: skip


# what could lead a reader astray that looks for text: braces, quotes, backslashes, whole events within strings
pieces = [*'ab{}[],:"\\ \n\x01é', '"cat": "kernel"', "\\u0063", "},{"]
words = st.lists(st.sampled_from(pieces), max_size=6).map("".join)
nested = st.recursive(
    st.none() | st.integers(0, 99) | words,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["cat", "ts", "stream", "x"]), inner, max_size=3)
    ),
    max_leaves=6,
)
times = st.one_of(
    st.integers(0, 10**15), st.integers(0, 10**18).map(lambda ns: f"{ns // 1000}.{ns % 1000:03d}"), st.just("12.5")
)


@st.composite
def events(draw: st.DrawFn) -> Event:
    fields = {
        "ph": draw(st.sampled_from(["X", "X", "X", "i"])),
        "cat": draw(st.sampled_from(["kernel", "kernel", "gpu_memcpy", "cpu_op", "kernels"])),
        "name": draw(words),
        "pid": 0,
        "ts": draw(times),
        "dur": draw(times.map(lambda time: time if isinstance(time, str) else time % 10**6)),
        "args": {"correlation": draw(st.integers(0, 10**9)), **draw(st.dictionaries(words, nested, max_size=2))},
    }
    fields["dur"] = f"{float(fields['dur']) % 1e6:.3f}" if isinstance(fields["dur"], str) else fields["dur"]
    more = draw(st.dictionaries(st.sampled_from(["id", "bp", "tid", "cut"]), nested, max_size=2))
    return dict(draw(st.permutations(list({**fields, **more}.items()))))


def dumped(document: Any, draw: Any) -> str:
    """Give JSON text in some layout, decimals without quotes."""
    style: dict[str, Any] = draw.draw(
        st.sampled_from(
            [{}, {"indent": 2}, {"indent": 1, "separators": (" ,\t", "\r\n: ")}, {"separators": (",", ":")}]
        )
    )
    text = json.dumps(document, ensure_ascii=draw.draw(st.booleans()), **style)
    for key in ("ts", "dur"):  # the decimals are text until here, so that no double rounds them
        text = trace_decimals(text, key)
    return text


def trace_decimals(text: str, key: str) -> str:
    return re.sub(rf'(?<!\\)("{key}"\s*:\s*)"(\d+\.\d+)"', r"\1\2", text)


@FOLDER_SHARED
@given(st.lists(events(), max_size=8), st.data())
def test_the_same_events_are_found_as_by_a_parser(tmp_path: Path, drawn: list[Event], data: Any) -> None:
    bare = bool(drawn) and data.draw(st.booleans())
    header = {"a": [{"traceEvents": [1]}], 'say "traceEvents": [{': 1, "baseTimeNanoseconds": 17 * 10**17}
    text = dumped(drawn if bare else {**header, "traceEvents": drawn, "traceName": "x"}, data)
    path = tmp_path / "trace.json"
    path.write_text(text, encoding="utf-8")
    trace = read_trace(path)
    assert rows_of(trace) == rows_by_parser(text)
    assert (trace.status, trace.num_events, trace.num_rejected) == ("ok", len(drawn), 0)


@FOLDER_SHARED
@given(st.lists(events(), min_size=1, max_size=5), st.data())
def test_a_cut_at_any_byte_gives_the_complete_events_or_a_sentence(
    tmp_path: Path, drawn: list[Event], data: Any
) -> None:
    text = dumped({"traceEvents": drawn, "traceName": "x"}, data)
    raw = text.encode("utf-8")
    path = tmp_path / "trace.json"
    path.write_bytes(raw[: data.draw(st.integers(0, len(raw) - 1))])
    if b'"traceEvents"' not in path.read_bytes():
        with pytest.raises(TraceError, match="holds no traceEvents"):
            read_trace(path)
        return
    trace = read_trace(path)
    assert trace.status == "trace_truncated"
    whole = rows_by_parser(text)
    assert rows_of(trace) == whole[: len(trace.start_ns)]
    assert trace.num_events <= len(drawn)


def test_the_size_of_the_blocks_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = json.dumps([kernel(f'gemm {{lambda}} "{i}" \\', i, 1) for i in range(50)])
    path = tmp_path / "t.json"
    path.write_text(text)
    for size in (1, 17, 331, 4096):
        monkeypatch.setattr(trace_file, "CHUNK_BYTES", size)
        assert rows_of(read_trace(path)) == rows_by_parser(text)


def test_the_three_forms_of_time_agree(tmp_path: Path) -> None:
    times_ns = [(1_699_236_267_071_058_123, 1_754), (1_699_236_267_071_060_000, 2_000)]
    base = 1_699_236_267_000_000_000
    forms = {
        "decimal": [f'"ts": {t // 1000}.{t % 1000:03d}, "dur": {d // 1000}.{d % 1000:03d}' for t, d in times_ns],
        "relative": [f'"ts": {(t - base) / 1000!r}, "dur": {d / 1000!r}' for t, d in times_ns],
        "exponent": [f'"ts": {t - base}e-3, "dur": "{d / 1000}"' for t, d in times_ns],
    }
    for name, spans in forms.items():
        stated = "" if name == "decimal" else f'"baseTimeNanoseconds": {base}, '
        listed = ", ".join(f'{{"ph": "X", "cat": "kernel", "name": "a", "pid": 0, {span}}}' for span in spans)
        path = tmp_path / f"{name}.json"
        path.write_text(f'{{{stated}"displayTimeUnit": "ms", "traceEvents": [{listed}]}}')
        trace = read_trace(path)
        found = list(zip(trace.start_ns.tolist(), (trace.end_ns - trace.start_ns).tolist(), strict=True))
        assert found == times_ns, name


def test_a_base_that_stands_behind_the_events_counts_too(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"traceEvents": [kernel("a", 1, 1)], "baseTimeNanoseconds": 5_000}))
    assert read_trace(path).start_ns.tolist() == [6_000]


def test_host_operators_annotations_and_synchronisation_are_left_out(tmp_path: Path) -> None:
    found = [
        kernel("gemm", 0, 1),
        kernel("nccl:all_reduce", 0, 1, cat="user_annotation"),
        kernel("nccl:all_reduce", 0, 1, cat="gpu_user_annotation"),
        kernel("c10d::allreduce_", 0, 1, cat="cpu_op"),
        kernel("Stream Sync", 0, 1, cat="cuda_sync"),
        kernel("Command Buffer Full", 0, 1, cat="overhead"),
        {"ph": "f", "cat": "ac2g", "name": "ac2g", "ts": 3},
    ]
    trace = read_trace(write(tmp_path / "t.json", found))
    assert [KINDS[kind] for kind in trace.kind] == ["compute"]


def test_traces_of_older_and_other_profilers_are_read(tmp_path: Path) -> None:
    rows = [
        kernel("gemm", 0, 1, cat="Kernel"),
        kernel("Memcpy HtoD", 2, 1, cat="Memcpy"),
        kernel("CopyHostToDevice", 4, 1, cat="gpu_memcpy"),
        kernel("__amd_rocclr_fillBufferAligned", 6, 1),
    ]
    trace = read_trace(write(tmp_path / "t.json", rows))
    assert [KINDS[kind] for kind in trace.kind] == ["compute", "copy", "copy", "copy"]


@pytest.mark.parametrize(
    "dur", ["-5", "NaN", "Infinity", "1e30", '"soon"', "null", "18446744073709551611", "true", "9" * 5000]
)
def test_a_duration_that_is_none_is_rejected_and_counted(tmp_path: Path, dur: str) -> None:
    path = write(tmp_path / "t.json", [kernel("gemm", 0, 100), kernel("gemm", 200, 0.125)])
    path.write_text(path.read_text().replace("0.125", dur))
    trace = read_trace(path)
    assert (len(trace.start_ns), trace.num_rejected) == (1, 1)


def test_an_event_without_a_time_is_rejected_and_counted(tmp_path: Path) -> None:
    rows = [kernel("gemm", 0, 100), {"ph": "X", "cat": "kernel", "name": "x", "ts": 1}]
    assert read_trace(write(tmp_path / "t.json", rows)).num_rejected == 1


def test_of_a_key_given_twice_the_last_counts_as_json_has_it(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text('[{"cat": "cpu_op", "ph": "X", "name": "a", "ts": 1, "dur": 1, "cat": "kernel", "ts": 7}]')
    assert read_trace(path).start_ns.tolist() == [7_000]


def test_a_key_spelt_with_escapes_is_the_same_key(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text('[{"c\\u0061t": "kern\\u0065l", "ph": "\\u0058", "name": "\\u0061<b>", "ts": 1, "dur": 1}]')
    assert read_trace(path).names == ("a<b>",)


def test_a_category_spelt_with_escapes_is_the_same_category(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text('[{"cat": "kern\\u0065l", "ph": "\\u0058", "name": "\\u003ca\\u003e", "ts": 1, "dur": 1}]')
    assert read_trace(path).names == ("<a>",)


def test_objects_within_an_event_s_arguments_are_no_events(tmp_path: Path) -> None:
    inner = kernel("inner", 0, 1)
    rows = [{**kernel("gemm", 5, 1), "args": {"stream": 1, "more": [inner, inner]}}, {"ph": "i", "args": [inner]}]
    trace = read_trace(write(tmp_path / "t.json", rows))
    assert (trace.num_events, trace.names) == (2, ("gemm",))


def test_a_step_is_read_from_the_device_side_over_all_streams_and_from_the_host(tmp_path: Path) -> None:
    rows = [
        kernel("gemm", 0, 100),
        kernel("ProfilerStep#3", 5, 20, cat="gpu_user_annotation"),
        kernel("ProfilerStep#3", 10, 40, cat="gpu_user_annotation"),
        kernel("ProfilerStep#3", 0, 1000, cat="user_annotation"),
    ]
    trace = read_trace(write(tmp_path / "t.json", rows))
    assert trace.steps == ((3, 5_000, 50_000),)
    assert trace.host_steps == ((3, 0, 1_000_000),)


def test_kernels_of_two_devices_are_an_error_unless_one_is_asked_for(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json", [kernel("gemm", 0, 1, pid=0), kernel("gemm", 9, 1, pid=1)])
    with pytest.raises(TraceError, match="2 devices"):
        read_trace(path)
    assert read_trace(path, device=1).start_ns.tolist() == [9_000]
    with pytest.raises(TraceError, match="nothing of device 5"):
        read_trace(path, device=5)


def test_names_of_one_s_own_count_as_communication(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json", [kernel("ring_exchange_v2", 0, 1)])
    assert KINDS[read_trace(path).kind[0]] == "compute"
    assert KINDS[read_trace(path, naming=NAMING.with_names("ring_exchange")).kind[0]] == "communication"


@pytest.mark.parametrize("packed", [False, True])
def test_a_cut_trace_says_so_and_counts_what_was_whole(tmp_path: Path, packed: bool) -> None:
    path = write(tmp_path / "t.json", [kernel("gemm", i, 1) for i in range(3)])
    content = path.read_bytes()
    cut = content[: content.index(b'"ts": 2')]
    path.write_bytes(gzip.compress(cut)[:-4] if packed else cut)
    trace = read_trace(path)
    assert (trace.status, trace.num_events, len(trace.start_ns)) == ("trace_truncated", 2, 2)


@pytest.mark.parametrize(
    "text", ['{"schemaVersion": 1, "devicePro', '{"distributedInfo": {"rank": 3', '{"traceEvents": ']
)
def test_a_trace_that_is_cut_before_its_events_is_a_cut_trace(tmp_path: Path, text: str) -> None:
    path = tmp_path / "t.json"
    path.write_text(text)
    assert (read_trace(path).status, read_trace(path).num_events) == ("trace_truncated", 0)


def test_a_document_whose_last_brackets_are_missing_is_cut(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json", [kernel("gemm", 0, 1)])
    whole = path.read_text()
    path.write_text(whole[:-1])
    assert read_trace(path).status == "trace_truncated"


@pytest.mark.parametrize(
    "content",
    [
        "",
        " ",
        "nothing",
        '{"a": 1}',
        '{"traceEvents": {}}',
        "\x1f\x8bgarbage",
        "[1, 2]",
        '[{"a": 1}]',
        "3",
        '{"nodes": [',
    ],
)
def test_what_is_no_trace_is_a_sentence(tmp_path: Path, content: str) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(TraceError, match=r"t\.json: (holds no traceEvents|is a list of other things)"):
        read_trace(path)


@pytest.mark.parametrize("content", ['[{"ph": "X"}, {"a" 1}]', '[{"ph": "X"}; {}]', '[{"ph": "X"}, {"a": 1]]', "{]}"])
def test_invalid_json_names_the_byte(tmp_path: Path, content: str) -> None:
    path = tmp_path / "t.json"
    path.write_text(content)
    with pytest.raises(TraceError, match="not valid JSON at byte"):
        read_trace(path)


def test_a_missing_trace_and_a_folder_are_sentences(tmp_path: Path) -> None:
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(TraceError, match="cannot be read") as caught:
            read_trace(path)
        assert caught.value.status == "unreadable"


def test_deep_nesting_is_a_sentence_or_is_passed_over(tmp_path: Path) -> None:
    deep = "[" * 200_000
    path = tmp_path / "t.json"
    for text in (deep, '{"a": ' + deep, '[{"ph": "X", "cat": "kernel", "args": ' + deep):
        path.write_text(text)
        with pytest.raises(TraceError):
            read_trace(path)
    closed = '[{"ph": "i", "args": ' + deep + "]" * 200_000 + "}, " + json.dumps(kernel("gemm", 0, 1)) + "]"
    path.write_text(closed)
    assert read_trace(path).num_events == 2


def test_a_file_made_to_exhaust_memory_is_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(gzip.compress(b'[{"ph": "X", "name": "' + b"a" * (90 << 20), 6))
    with pytest.raises(TraceError, match=r"unpacks to more|does not end"):
        read_trace(path)


def test_ranks_are_told_by_names() -> None:
    names = {"rank3_trace.json": 3, "trace_rank-12.json.gz": 12, "worker0.json": 0, "x.rank_007.json": 7}
    assert {name: rank_in_name(name) for name in names} == names
    assert [rank_in_name(name) for name in ("crank3.json", "trace.json", "rankings.json")] == [None] * 3


def test_the_file_s_own_rank_wins_over_its_name(tmp_path: Path) -> None:
    path = tmp_path / "rank5.json"
    info = {"rank": 2, "world_size": 8}
    path.write_text(json.dumps({"distributedInfo": info, "traceEvents": [kernel("gemm", 0, 1)]}))
    assert (read_trace(path).rank, read_trace(path).world_size) == (2, 8)
    assert read_trace(path, rank=4).rank == 2


def test_a_rank_that_is_stated_for_a_file_wins_over_its_name(tmp_path: Path) -> None:
    path = write(tmp_path / "rank5.json", [kernel("gemm", 0, 1)])
    assert (read_trace(path, rank=4).rank, read_trace(path).rank) == (4, 5)


def test_what_the_quick_way_finds_is_what_parsing_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sample = Path("data/external/torchtitan-h200x2/compile_bs2.rank0.trace.json.gz")
    quick = read_trace(sample)

    def doubt(data: bytes) -> Any:
        raise event_index.Doubtful

    monkeypatch.setattr(trace_file, "index_events", doubt)
    parsed = read_trace(sample)
    assert parsed.names == quick.names
    assert parsed.num_events == quick.num_events == 43_318
    for column in ("start_ns", "end_ns", "name_id", "stream", "correlation", "detail_id"):
        assert np.array_equal(getattr(parsed, column), getattr(quick, column)), column
    assert parsed.details == quick.details
    assert all(np.array_equal(a, b) for a, b in zip(parsed.launches, quick.launches, strict=True))


def test_damage_within_a_packed_file_is_a_cut(tmp_path: Path) -> None:
    rows = [kernel(f"gemm {i}", random.Random(i).randrange(10**9), 1) for i in range(3000)]
    packed = bytearray(gzip.compress(json.dumps(rows).encode()))
    packed[len(packed) // 2] ^= 255
    path = tmp_path / "t.json"
    path.write_bytes(bytes(packed))
    trace = read_trace(path)
    assert trace.status == "trace_truncated"
    assert trace.num_events < 3000
