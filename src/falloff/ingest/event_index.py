"""Where the events of a JSON list lie, found by arithmetic on bytes: no event that is not wanted is ever parsed.

A block of the file is indexed at once. Quotes that are not escaped open and close strings in turn; brackets outside
of strings give the depth; so the bounds of each event and the places of its keys are exact whatever the order of
keys, the white space, and the braces and quotes within strings. What is left open is whether the values are JSON:
a reader parses what it takes, and a block that looks odd is read event by event instead (Doubtful).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Places = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_QUOTE, _BACKSLASH = ord('"'), ord("\\")
_STEP = np.zeros(256, np.int8)
_STEP[[ord("{"), ord("[")]] = 1
_STEP[[ord("}"), ord("]")]] = -1
_SPACE = np.zeros(256, bool)
_SPACE[list(b" \t\r\n")] = True
_BEFORE_STRING = _SPACE.copy()
_BEFORE_STRING[list(b"{[,:")] = True
_AFTER_STRING = _SPACE.copy()
_AFTER_STRING[list(b":,}]")] = True
_GAP = re.compile(rb"\s*,\s*")
# a key that spells an ASCII letter as \u0063
_ESCAPED_KEY = re.compile(rb'\\u00[2-7][0-9a-fA-F](?:[^"\\]|\\.)*"\s*:')
_LONGEST_KEY = 15

# our keys by the depth at which they count
KEYS: Mapping[str, int] = {"ph": 1, "cat": 1, "name": 1, "pid": 1, "ts": 1, "dur": 1, "stream": 2, "correlation": 2}
_CODES = {key: code for code, key in enumerate(KEYS, start=1)}
_CODE_OF = np.zeros((_LONGEST_KEY + 1) * 256, np.uint8)
for _key, _code in _CODES.items():
    _CODE_OF[len(_key) * 256 + ord(_key[0])] = _code


class Doubtful(Exception):  # noqa: N818 - it is no error: the block may be good JSON
    """A block in which strings or events do not stand as they should; it has to be read event by event."""


class Values(NamedTuple):
    """One key's values, an item for each event: where they begin, and for strings where they end; -1 for none."""

    begin: Places
    end: Places


@dataclass(frozen=True, eq=False)
class EventIndex:
    """The complete events of a block: event i is data[starts[i]:ends[i]].

    `uncertain` marks events that hold a key twice, or more than one object of their own: only a parser can tell.
    `stop` is where the block ends: behind the last complete event, or behind the list's bracket if is_closed.
    """

    data: bytes
    letters: Bytes
    starts: Places
    ends: Places
    values: Mapping[str, Values]
    uncertain: Mask
    stop: int
    is_closed: bool


def index_events(data: bytes) -> EventIndex:
    """Return the events of a block that begins between two events of a list; Doubtful where it has to be parsed."""
    letters = np.frombuffer(data, np.uint8)
    quotes = _unescaped_quotes(data, letters)
    folded = letters & 0xDF  # { and [ become one letter, } and ] another
    places = np.flatnonzero(quotes | (folded == ord("[")) | (folded == ord("]")))
    marks = letters[places]
    is_quote = marks == _QUOTE
    step = _STEP[marks]
    step[np.cumsum(is_quote, dtype=np.int32) & 1 == 1] = 0  # within a string
    depth = np.cumsum(step, dtype=np.int32)
    closing = np.flatnonzero(depth < 0)[:1]
    is_closed = bool(closing.size)
    last = int(closing[0]) if is_closed else len(places)
    ending = np.flatnonzero((depth[:last] == 0) & (step[:last] == -1))
    opening = (depth[:last] == 1) & (step[:last] == 1)
    beginning = np.flatnonzero(opening)[: len(ending)]
    if is_closed:
        stop = int(places[last]) + 1
    else:
        last = int(ending[-1]) + 1 if len(ending) else 0
        stop = int(places[last - 1]) + 1 if last else 0
    starts, ends = places[beginning], places[ending] + 1
    _check_events(letters, data, starts, ends, stop - is_closed)
    strings = _Strings(letters, places[:last], is_quote[:last], depth[:last], np.cumsum(opening[:last], dtype=np.int32))
    uncertain = np.zeros(len(starts), bool)
    values = _find_values(strings, uncertain)
    _mark_twice(strings.event_of[(depth[:last] == 2) & (step[:last] == 1)] - 1, uncertain)
    return EventIndex(data, letters, starts, ends, values, uncertain, stop, is_closed)


class _Strings:
    """All strings of a block's events, with the event and the depth in which each stands."""

    def __init__(self, letters: Bytes, places: Places, is_quote: Mask, depth: Any, event_of: Any) -> None:
        self.letters = letters
        self.event_of = event_of
        which = np.flatnonzero(is_quote)
        if len(which) % 2:
            raise Doubtful
        self.opening = which[0::2]
        self.open, self.close = places[self.opening], places[which[1::2]]
        self.depth = depth
        before, after = letters[np.maximum(self.open - 1, 0)], letters[np.minimum(self.close + 1, len(letters) - 1)]
        if not (_BEFORE_STRING[before].all() and _AFTER_STRING[after].all()) and self.open.size:
            raise Doubtful

    def keys(self) -> tuple[Places, Any]:
        """Return the strings that may be one of our keys, by length and first letter, and which."""
        length = np.minimum(self.close - self.open - 1, _LONGEST_KEY)
        code = _CODE_OF[(length << 8) | self.letters[self.open + 1]]
        found = np.flatnonzero(code)
        return found, code[found]


def _find_values(strings: _Strings, uncertain: Mask) -> dict[str, Values]:
    found, codes = strings.keys()
    values = {}
    for key, depth in KEYS.items():
        which = found[codes == _CODES[key]]
        for offset, letter in enumerate(key.encode()[1:], start=2):
            which = which[strings.letters[strings.open[which] + offset] == letter]
        which = which[strings.depth[strings.opening[which]] == depth]
        which, begin = _behind_colon(strings, which)
        events = strings.event_of[strings.opening[which]] - 1
        values[key] = _by_event(strings, which, begin, events, len(uncertain))
        _mark_twice(events, uncertain)
    return values


def _behind_colon(strings: _Strings, which: Places) -> tuple[Places, Places]:
    """Return the strings that are keys, and where their values begin."""
    colon = _skip_space(strings.letters, strings.close[which] + 1)
    is_key = strings.letters[colon] == ord(":")
    return which[is_key], _skip_space(strings.letters, colon[is_key] + 1)


def _skip_space(letters: Bytes, at: Places) -> Places:
    at = np.minimum(at, len(letters) - 1)
    while (blank := _SPACE[letters[at]]).any() and not (at[blank] == len(letters) - 1).any():
        at = at + blank
    return at


def _by_event(strings: _Strings, which: Places, begin: Places, events: Places, num_events: int) -> Values:
    first, last = np.full(num_events, -1, np.int64), np.full(num_events, -1, np.int64)
    following = np.minimum(which + 1, len(strings.open) - 1)
    is_string = strings.open[following] == begin
    first[events] = np.where(is_string, begin + 1, begin)
    last[events] = np.where(is_string, strings.close[following], -1)
    return Values(first, last)


def _mark_twice(events: Places, uncertain: Mask) -> None:
    uncertain[events[1:][events[1:] == events[:-1]]] = True


def _unescaped_quotes(data: bytes, letters: Bytes) -> Mask:
    quotes = letters == _QUOTE
    if b"\\" not in data:
        return quotes
    if b"\\u00" in data and _ESCAPED_KEY.search(data):
        raise Doubtful
    slashes = np.flatnonzero(letters == _BACKSLASH)
    # of a run of backslashes every second one is itself escaped
    begins = np.concatenate(([True], np.diff(slashes) != 1))
    first = np.maximum.accumulate(np.where(begins, np.arange(len(slashes)), 0))
    escaping = slashes[(np.arange(len(slashes)) - first) % 2 == 0]
    quotes[np.minimum(escaping + 1, len(letters) - 1)] = False
    return quotes


def _check_events(letters: Bytes, data: bytes, starts: Places, ends: Places, stop: int) -> None:
    """Raise Doubtful unless all are objects with one comma between each two."""
    if not len(starts):
        if data[:stop].strip(b" \t\r\n,"):
            raise Doubtful
        return
    if (letters[starts] != ord("{")).any() or (letters[ends - 1] != ord("}")).any():
        raise Doubtful
    if data[: starts[0]].strip(b" \t\r\n,") or data[ends[-1] : stop].strip(b" \t\r\n,"):
        raise Doubtful
    width = starts[1:] - ends[:-1]
    usual = int(width[0]) if len(width) else 1
    pattern = data[ends[0] : ends[0] + usual]
    alike = width == usual
    for offset, letter in enumerate(pattern[:64]):
        alike &= letters[np.minimum(ends[:-1] + offset, len(letters) - 1)] == letter
    odd = np.flatnonzero(~alike).tolist()
    if len(width) and not _GAP.fullmatch(pattern):
        raise Doubtful
    if not all(_GAP.fullmatch(data, int(ends[i]), int(starts[i + 1])) for i in odd):
        raise Doubtful


def equals(index: EventIndex, key: str, words: Sequence[bytes]) -> Any:
    """Return for each event which of the words the string of a key is, by its place from 1; 0 for none of them."""
    begin, end = index.values[key]
    which = np.zeros(len(begin), np.uint8)
    length = end - begin
    for code, word in enumerate(words, start=1):
        same = np.flatnonzero((length == len(word)) & (end >= 0))
        for offset, letter in enumerate(word):
            same = same[index.letters[begin[same] + offset] == letter]
        which[same] = code
    return which


_DIGITS_WIDE = 24
_MOST_DIGITS = 18


def parse_numbers(letters: Bytes, begin: Places, decimals: int) -> tuple[Places, Mask]:
    """Return numbers times ten to the `decimals`, and which of them are certain.

    Certain are those without sign and exponent, with no more decimals than that, that fit 18 digits.
    """
    columns = begin[:, None] + np.arange(_DIGITS_WIDE)
    text = letters[np.minimum(np.maximum(columns, 0), len(letters) - 1)]
    digits = text - ord("0")
    is_digit, is_point = digits < 10, text == ord(".")
    stops = ~(is_digit | is_point)
    length = stops.argmax(axis=1)
    inside = np.arange(_DIGITS_WIDE) < length[:, None]
    is_point &= inside
    points = is_point.sum(axis=1)
    fraction = np.where(points > 0, length - 1 - is_point.argmax(axis=1), 0)
    value = np.zeros(len(begin), np.int64)
    for column in range(int(length.max(initial=0))):
        value = np.where(inside[:, column] & is_digit[:, column], value * 10 + digits[:, column], value)
    shift = decimals - fraction
    ends_well = _AFTER_STRING[text[np.arange(len(begin)), length]]
    certain = (begin >= 0) & stops.any(axis=1) & ends_well & (points <= 1) & (shift >= 0)
    certain &= (length - points > 0) & (length - points + np.maximum(shift, 0) <= _MOST_DIGITS + 1)
    # nineteen digits fit while the first is below nine
    certain &= (length - points + np.maximum(shift, 0) <= _MOST_DIGITS) | (text[:, 0] < ord("9"))
    return np.where(certain, value * 10 ** np.clip(shift, 0, 18), 0), certain
