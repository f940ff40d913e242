"""The raw log: whole, sealed, and refused in a sentence where it is not."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from falloff import rawlog

STARTED = {"event": "run_started", "time_s": 1.0, "schema": rawlog.SCHEMA}
OUTCOME = {"event": "outcome", "time_s": 2.0, "outcome": "ok"}


def write_log(folder: Path, *lines: object) -> Path:
    path = folder / rawlog.SEALED_NAME
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


def test_events_come_back_in_order_once_the_log_is_sealed(tmp_path: Path) -> None:
    rawlog.append_event(tmp_path, "run_started", schema=rawlog.SCHEMA)
    rawlog.append_event(tmp_path, "step", step=1, loss=None)
    rawlog.append_event(tmp_path, "outcome", outcome="ok")
    assert not rawlog.is_sealed(tmp_path)
    rawlog.seal(tmp_path)
    assert rawlog.is_sealed(tmp_path)
    assert not (tmp_path / rawlog.OPEN_NAME).exists()
    events = rawlog.read_events(tmp_path / rawlog.SEALED_NAME)
    assert [event["event"] for event in events] == ["run_started", "step", "outcome"]
    assert all(event["time_s"] > 1e9 for event in events)


def test_a_sealed_log_that_was_deleted_before_a_job_comes_back(tmp_path: Path) -> None:
    rawlog.append_event(tmp_path, "run_started", schema=rawlog.SCHEMA)
    rawlog.seal(tmp_path)
    (tmp_path / rawlog.SEALED_NAME).unlink()
    assert rawlog.is_sealed(tmp_path)
    assert (tmp_path / rawlog.SEALED_NAME).is_file()


def test_a_number_that_is_not_finite_never_gets_into_a_log(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        rawlog.append_event(tmp_path, "step", loss=math.nan)
    assert not (tmp_path / rawlog.OPEN_NAME).exists()


@pytest.mark.parametrize(("value", "kept"), [(math.nan, None), (math.inf, None), (2.5, 2.5), (0.0, 0.0)])
def test_what_is_not_finite_is_not_stated(value: float, kept: float | None) -> None:
    assert rawlog.finite_or_none(value) == kept


@pytest.mark.parametrize("text", ["", "\n", "  \n\n"])
def test_an_empty_log_is_an_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / rawlog.SEALED_NAME
    path.write_text(text)
    with pytest.raises(ValueError, match=r"events.jsonl: the log is empty"):
        rawlog.read_events(path)


def test_a_log_without_its_outcome_is_cut_short(tmp_path: Path) -> None:
    path = write_log(tmp_path, STARTED, {"event": "step", "time_s": 1.5})
    with pytest.raises(ValueError, match="cut short, the last event is 'step' and not outcome"):
        rawlog.read_events(path)


def test_a_log_cut_within_a_line_says_at_which(tmp_path: Path) -> None:
    path = write_log(tmp_path, STARTED, '{"event": "step", "ti')
    with pytest.raises(ValueError, match="line 2 is not JSON, the log is cut or garbled"):
        rawlog.read_events(path)


@pytest.mark.parametrize("garbage", ["<html>", "[" * 100_000, '"text', "\0\0\0"])
def test_a_garbled_log_is_an_error(tmp_path: Path, garbage: str) -> None:
    path = write_log(tmp_path, STARTED, garbage, OUTCOME)
    with pytest.raises(ValueError, match="line 2 is not JSON, the log is cut or garbled"):
        rawlog.read_events(path)


@pytest.mark.parametrize("line", ["[1, 2]", "7", "null", '"text"'])
def test_a_line_that_is_no_event_is_an_error(tmp_path: Path, line: str) -> None:
    path = write_log(tmp_path, STARTED, line, OUTCOME)
    with pytest.raises(ValueError, match="line 2 is not an event, found"):
        rawlog.read_events(path)


def test_a_log_that_is_no_text_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / rawlog.SEALED_NAME
    path.write_bytes(b"\x80\x81\xff")
    with pytest.raises(ValueError, match=r"events.jsonl: cannot be read"):
        rawlog.read_events(path)


def test_a_log_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"events.jsonl: cannot be read"):
        rawlog.read_events(tmp_path / rawlog.SEALED_NAME)


def test_a_log_that_begins_in_the_middle_is_an_error(tmp_path: Path) -> None:
    path = write_log(tmp_path, {"event": "step"}, OUTCOME)
    with pytest.raises(ValueError, match="line 1 is 'step'; a log begins with run_started"):
        rawlog.read_events(path)


@pytest.mark.parametrize("schema", [0, 2, "1", None])
def test_a_log_of_another_schema_is_an_error(tmp_path: Path, schema: object) -> None:
    path = write_log(tmp_path, {**STARTED, "schema": schema}, OUTCOME)
    with pytest.raises(ValueError, match=r"schema is .*; this falloff reads schema 1"):
        rawlog.read_events(path)


def test_an_outcome_that_is_none_of_ours_is_an_error(tmp_path: Path) -> None:
    path = write_log(tmp_path, STARTED, {**OUTCOME, "outcome": "fine"})
    with pytest.raises(ValueError, match="outcome is 'fine'; allowed: ok, oom, timeout, crash, killed, unstable"):
        rawlog.read_events(path)


def test_an_open_log_leaves_out_the_line_that_a_death_cut(tmp_path: Path) -> None:
    path = tmp_path / rawlog.OPEN_NAME
    path.write_text(json.dumps(STARTED) + "\n" + '{"event": "step", "st')
    assert rawlog.read_open_events(tmp_path) == [STARTED]
    rawlog.end_cut_line(tmp_path)
    rawlog.append_event(tmp_path, "outcome", outcome="killed")
    rawlog.seal(tmp_path)
    assert [e["event"] for e in rawlog.read_events(tmp_path / rawlog.SEALED_NAME)] == ["run_started", "outcome"]


def test_a_cut_first_line_leaves_an_empty_log(tmp_path: Path) -> None:
    (tmp_path / rawlog.OPEN_NAME).write_text('{"event": "run_st')
    rawlog.end_cut_line(tmp_path)
    assert (tmp_path / rawlog.OPEN_NAME).read_bytes() == b""
    assert rawlog.read_open_events(tmp_path) == []


FULL_DISK = """
import resource, sys
from pathlib import Path
from falloff import rawlog
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
for number in range(100):
    rawlog.append_event(Path(sys.argv[1]), "step", step=number, rank_step_s=[0.25] * 10)
"""


def test_a_full_disk_is_a_sentence_and_leaves_whole_lines(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", FULL_DISK, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.stderr.strip().endswith(f"ValueError: {tmp_path / rawlog.OPEN_NAME}: not written, no space left")
    written = (tmp_path / rawlog.OPEN_NAME).read_text()
    assert written.endswith("\n")
    assert [event["step"] for event in rawlog.read_open_events(tmp_path)] == list(range(written.count("\n")))
    assert 0 < written.count("\n") < 100


def append_as(
    monkeypatch: pytest.MonkeyPatch, folder: Path, node: int, event: str, time_s: float, **fields: object
) -> None:
    monkeypatch.setenv(rawlog.NODE_VARIABLE, str(node))
    monkeypatch.setattr(rawlog.time, "time", lambda: time_s)
    rawlog.append_event(folder, event, **fields)


@pytest.fixture
def of_three_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a run over three nodes, whose clocks are some seconds apart."""
    rawlog.make_open_logs(tmp_path, 3)
    append_as(monkeypatch, tmp_path, 0, "run_started", 10.0, schema=rawlog.SCHEMA)
    append_as(monkeypatch, tmp_path, 1, "node", 8.0, fingerprint={"host": "b"})
    append_as(monkeypatch, tmp_path, 2, "node", 12.0, fingerprint={"host": "c"})
    append_as(monkeypatch, tmp_path, 0, "node", 12.0, fingerprint={"host": "a"})
    append_as(monkeypatch, tmp_path, 1, "power", 14.0)
    append_as(monkeypatch, tmp_path, 0, "completed", 13.0)
    append_as(monkeypatch, tmp_path, 2, "power", 99.0)
    return tmp_path


MERGED = [
    ("run_started", None), ("node", 1), ("node", None), ("node", 2), ("completed", None), ("power", 1), ("power", 2),
]  # fmt: skip


def names_and_nodes(events: list[dict[str, object]]) -> list[tuple[object, object]]:
    return [(event["event"], event.get("node")) for event in events]


def test_each_node_appends_to_a_file_of_its_own(of_three_nodes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = ["events.node1.open.jsonl", "events.node2.open.jsonl", "events.open.jsonl"]
    assert sorted(path.name for path in of_three_nodes.iterdir()) == files
    monkeypatch.setenv(rawlog.NODE_VARIABLE, "1")
    assert names_and_nodes(rawlog.read_own_events(of_three_nodes)) == [("node", 1), ("power", 1)]
    assert rawlog.power_name(1) == "power.node1.csv"


def test_the_log_of_many_nodes_is_one_by_time_whatever_their_clocks_say_of_its_ends(
    of_three_nodes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert names_and_nodes(rawlog.read_open_events(of_three_nodes)) == MERGED
    append_as(monkeypatch, of_three_nodes, 0, "outcome", 15.0, outcome="ok")
    rawlog.seal(of_three_nodes)
    sealed = rawlog.read_events(of_three_nodes / rawlog.SEALED_NAME)
    assert names_and_nodes(sealed) == [*MERGED, ("outcome", None)]
    assert sorted(path.name for path in of_three_nodes.iterdir()) == [rawlog.KEPT_NAME, rawlog.SEALED_NAME]


def test_a_clock_that_is_set_back_does_not_turn_a_nodes_own_events_around(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append_as(monkeypatch, tmp_path, 0, "run_started", 10.0)
    for number, time_s in enumerate((20.0, 5.0, 21.0)):
        append_as(monkeypatch, tmp_path, 1, "step", time_s, step=number)
    assert [event["step"] for event in rawlog.read_open_events(tmp_path)[1:]] == [0, 1, 2]


def test_a_launcher_that_died_while_it_sealed_has_not_doubled_anything(
    of_three_nodes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = {path: path.read_bytes() for path in of_three_nodes.glob(rawlog.NODE_NAMES)}
    append_as(monkeypatch, of_three_nodes, 0, "outcome", 15.0, outcome="ok")
    rawlog._merge_nodes(of_three_nodes)
    for path, content in left.items():
        path.write_bytes(content)
    assert names_and_nodes(rawlog.read_open_events(of_three_nodes)) == [*MERGED, ("outcome", None)]


def test_a_line_that_a_death_cut_is_taken_off_each_nodes_file(of_three_nodes: Path) -> None:
    for path in rawlog.open_logs(of_three_nodes):
        with path.open("ab") as file:
            file.write(b'{"event": "st')
    rawlog.end_cut_line(of_three_nodes)
    assert names_and_nodes(rawlog.read_open_events(of_three_nodes)) == MERGED
    assert all(path.read_bytes().endswith(b"}\n") for path in rawlog.open_logs(of_three_nodes))


def test_what_a_death_left_garbled_is_sealed_all_the_same(of_three_nodes: Path) -> None:
    garbled = of_three_nodes / "events.node2.open.jsonl"
    garbled.write_text("garbled\n")
    rawlog.seal(of_three_nodes)
    assert rawlog.is_sealed(of_three_nodes)
    assert garbled.read_text() == "garbled\n"
