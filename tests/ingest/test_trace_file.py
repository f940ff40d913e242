import gzip
import json
from pathlib import Path

import pytest

from falloff.ingest.event_index import EventIndex
from falloff.ingest.trace_file import DECODER, TraceError, TraceFile, is_cut


def walk(path: Path, content: bytes) -> tuple[TraceFile, int]:
    """Give a file's document after all of its blocks, and how many events they hold."""
    path.write_bytes(content)
    with path.open("rb") as file:
        document = TraceFile(file, path)
        count = sum(
            len(block.starts) if isinstance(block, EventIndex) else len(block.events) for block in document.blocks()
        )
    return document, count


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "t.json"


def test_what_stands_around_the_events_is_the_header(path: Path) -> None:
    text = '\ufeff {"a": {"traceEvents": [0]}, "traceEvents": [{}, {"x": 1}], "b": [1.25, "é"], "c": NaN}'
    document, count = walk(path, text.encode())
    assert document.header == {"a": {"traceEvents": [0]}, "b": ["1.25", "é"], "c": "NaN"}
    assert (count, document.num_events, document.is_cut) == (2, 2, False)


def test_packed_files_that_are_joined_are_one(path: Path) -> None:
    document, count = walk(path, gzip.compress(b'{"traceEvents": [{"a": 1}, ') + gzip.compress(b'{"b": 1}]}'))
    assert (count, document.is_cut) == (2, False)


def test_a_packed_file_whose_checksum_is_cut_is_whole_if_its_document_is(path: Path) -> None:
    document, _ = walk(path, gzip.compress(b'{"traceEvents": [{}]}')[:-3])
    assert not document.is_cut


def test_rubbish_behind_the_events_is_a_cut_and_loses_none(path: Path) -> None:
    document, count = walk(path, b'{"traceEvents": [{}, {}], "x": }')
    assert (count, document.is_cut) == (2, True)


def test_an_event_that_never_ends_is_a_sentence(path: Path) -> None:
    with pytest.raises(TraceError, match="does not end") as caught:
        walk(path, b'[{}, {"name": ["' + b"a" * (40 << 20))
    assert caught.value.status == "trace_invalid"


@pytest.mark.parametrize("value", ['{"a": [1, true, null, "x\\u00e9\\"y", -1.5e3, NaN]}', '{"é": false}'])
def test_json_that_is_cut_anywhere_is_told_from_json_that_is_wrong(value: str) -> None:
    for end in range(1, len(value)):
        with pytest.raises(json.JSONDecodeError) as caught:
            DECODER.raw_decode(value[:end])
        assert is_cut(caught.value), value[:end]


@pytest.mark.parametrize("value", ['{"a" 1}', "{a: 1}", '{"a": tru}', '{"a": "\\x"      }', "[1 2]", "}"])
def test_json_that_is_wrong_is_not_taken_for_cut(value: str) -> None:
    with pytest.raises(json.JSONDecodeError) as caught:
        DECODER.raw_decode(value)
    assert not is_cut(caught.value)
