import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from falloff.ingest.event_index import Doubtful, equals, index_events, parse_numbers


def test_events_are_bounded_whatever_their_strings_hold() -> None:
    events = [b'{"name": "a{b\\"}, {\\\\", "args": {"x": [1, {"y": "]"}]}}', b"{}", b'{"cat":"kernel"}']
    data = b" " + b" ,\n".join(events) + b'], "traceName": "x"}'
    index = index_events(data)
    assert [data[a:b] for a, b in zip(index.starts, index.ends, strict=True)] == events
    assert index.is_closed
    assert data[index.stop :] == b', "traceName": "x"}'


def test_an_event_that_is_not_whole_waits_for_the_rest() -> None:
    index = index_events(b'{"a": 1}, {"name": "x')
    assert (len(index.starts), index.stop, index.is_closed) == (1, 8, False)


@pytest.mark.parametrize(
    "data",
    [
        b'{"a": 1} {"b": 2}]',
        b"{}, 7, {}]",
        b"[1], {}]",
        b'{"a": 1, b": 2, "c": 3}, {d": 1}]',
        b'{"a" 1}]',
        b'{"a": 1 "b": 2}]',
        b'{"c\\u0061t": "kernel"}]',
        b"{]]",
    ],
)
def test_what_looks_odd_is_left_to_a_parser(data: bytes) -> None:
    with pytest.raises(Doubtful):
        index_events(data)


def test_keys_count_at_their_own_depth_and_as_keys_alone() -> None:
    event = {"x": "ts", "args": {"ts": 1, "stream": 5, "in": {"stream": 6}}, "ts": 7, "stream": 8, "cat": "kernel"}
    index = index_events(json.dumps(event).encode() + b"]")
    times, streams = (parse_numbers(index.letters, index.find(key).begin, 0)[0] for key in ("ts", "stream"))
    assert (times.tolist(), streams.tolist()) == ([7], [5])
    assert equals(index, index.find("cat"), (b"kern", b"kernel")).tolist() == [2]


def test_a_key_given_twice_makes_an_event_uncertain() -> None:
    index = index_events(b'{"ts": 1, "ts": 2}, {"ts": 3}, {"args": {}, "more": {}}]')
    index.find("ts")
    assert index.uncertain.tolist() == [True, False, True]


@given(st.integers(0, 10**19), st.integers(0, 4), st.sampled_from(b",} \n]"))
def test_numbers_are_exact_or_left_to_a_parser(number: int, decimals: int, end: int) -> None:
    digits = str(number).rjust(decimals + 1, "0")
    text = digits if not decimals else f"{digits[:-decimals]}.{digits[-decimals:]}"
    letters = np.frombuffer(text.encode() + bytes([end]), np.uint8)
    value, certain = parse_numbers(letters, np.zeros(1, np.int64), 3)
    if certain[0]:
        assert value[0] == number * 10 ** (3 - decimals)
    else:
        assert decimals > 3 or number * 10 ** (3 - decimals) >= 9 * 10**18


@pytest.mark.parametrize("text", ["-5", "1e3", "NaN", '"5"', "1.2.3", "", ".", "12a", "1" * 30, "1.2345"])
def test_what_is_no_plain_number_is_uncertain(text: str) -> None:
    letters = np.frombuffer(text.encode() + b"}", np.uint8)
    assert not parse_numbers(letters, np.zeros(1, np.int64), 3)[1][0]
