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
_BEFORE_STRING = np.zeros(256, bool)
_BEFORE_STRING[list(b"{[,:")] = True
_AFTER_STRING = np.zeros(256, bool)
_AFTER_STRING[list(b":,}]")] = True
_AFTER_NUMBER = _SPACE | _AFTER_STRING
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


class _Brackets(NamedTuple):
    """The brackets of a block in order, those within strings (step 0) included."""

    places: Places
    step: Any  # 1 opens, -1 closes
    depth: Any  # behind each
    event_of: Any  # how many events have begun


class _Strings(NamedTuple):
    """The strings of a block in order, and how many brackets stand before each."""

    open: Places
    close: Places
    num_brackets: Places
    key: Places  # those that by length and first letter may be one of our keys
    code: Any  # which key that is


@dataclass(frozen=True, eq=False)
class EventIndex:
    """The complete events of a block: event i is data[starts[i]:ends[i]].

    `uncertain` marks events that hold a key twice, or more than one object of their own: only a parser can tell. It
    grows as keys are looked for. `stop` is where the block ends: behind the last complete event, or behind the list's
    bracket if is_closed.
    """

    data: bytes
    letters: Bytes
    starts: Places
    ends: Places
    uncertain: Mask
    stop: int
    is_closed: bool
    slashes: Places
    brackets: _Brackets
    strings: _Strings

    def find(self, key: str, wanted: Mask | None = None) -> Values:
        """Return a key's values in the wanted events, all of them if none are given."""
        strings, depth = self.strings, KEYS[key]
        which = strings.key[strings.code == _CODES[key]]
        before = strings.num_brackets[which] - 1
        events = self.brackets.event_of[before] - 1
        right = self.brackets.depth[before] == depth
        if wanted is not None:
            right &= wanted[np.maximum(events, 0)]
        which, events = which[right], events[right]
        same = np.ones(len(which), bool)
        for offset, letter in enumerate(key.encode()[1:], start=2):
            same &= self.letters[strings.open[which] + offset] == letter
        colon = _skip_space(self.letters, strings.close[which] + 1)
        same &= self.letters[colon] == ord(":")
        which, events, colon = which[same], events[same], colon[same]
        _mark_twice(events, self.uncertain)
        values = self._by_event(which, _skip_space(self.letters, colon + 1), events)
        if len(self.slashes) and key in ("ph", "cat"):  # a word spelt with escapes
            escaped = np.searchsorted(self.slashes, values.begin) < np.searchsorted(self.slashes, values.end)
            self.uncertain[escaped] = True
        return values

    def _by_event(self, which: Places, begin: Places, events: Places) -> Values:
        first, last = np.full(len(self.starts), -1, np.int64), np.full(len(self.starts), -1, np.int64)
        following = np.minimum(which + 1, len(self.strings.open) - 1)
        is_string = self.strings.open[following] == begin
        first[events] = begin + is_string
        last[events] = np.where(is_string, self.strings.close[following], -1)
        return Values(first, last)


def index_events(data: bytes) -> EventIndex:
    """Return the events of a block that begins between two events of a list; Doubtful where it has to be parsed."""
    letters = np.frombuffer(data, np.uint8)
    slashes = np.flatnonzero(letters == _BACKSLASH) if b"\\" in data else np.zeros(0, np.int64)
    quotes = _unescaped_quotes(data, letters, slashes)
    folded = letters & 0xDF  # { and [ become one letter, } and ] another
    places = np.flatnonzero(quotes | (folded == ord("[")) | (folded == ord("]")))
    is_quote = quotes[places]
    brackets = _brackets(letters, places, np.flatnonzero(~is_quote))
    closing = np.flatnonzero(brackets.depth < 0)[:1]
    is_closed = bool(closing.size)
    num_brackets = int(closing[0]) if is_closed else len(brackets.depth)
    depth, step = brackets.depth[:num_brackets], brackets.step[:num_brackets]
    ending = np.flatnonzero((depth == 0) & (step == -1))
    beginning = np.flatnonzero((depth == 1) & (step == 1))[: len(ending)]
    starts, ends = brackets.places[beginning], brackets.places[ending] + 1
    stop = int(brackets.places[num_brackets]) + 1 if is_closed else int(ends[-1]) if len(ends) else 0
    _check_events(letters, data, starts, ends, stop - is_closed)
    last = int(np.searchsorted(places, stop))
    strings = _strings(letters, places[:last], is_quote[:last])
    uncertain = np.zeros(len(starts), bool)
    inner = (depth == 2) & (step == 1) & (letters[brackets.places[:num_brackets]] == ord("{"))
    inner &= brackets.places[:num_brackets] < stop
    _mark_twice(brackets.event_of[:num_brackets][inner] - 1, uncertain)
    return EventIndex(data, letters, starts, ends, uncertain, stop, is_closed, slashes, brackets, strings)


def _brackets(letters: Bytes, places: Places, which: Places) -> _Brackets:
    step = _STEP[letters[places[which]]]
    # before the n-th bracket, the m-th mark of all, stand m - n quotes: an odd number opens a string around it
    step[(which - np.arange(len(which))) & 1 == 1] = 0
    depth = np.cumsum(step, dtype=np.int32)
    return _Brackets(places[which], step, depth, np.cumsum((depth == 1) & (step == 1), dtype=np.int32))


def _strings(letters: Bytes, places: Places, is_quote: Mask) -> _Strings:
    which = np.flatnonzero(is_quote)
    if len(which) % 2:
        raise Doubtful
    opening = which[0::2]
    begin, end = places[opening], places[which[1::2]]
    if not (_begin_well(letters, begin) and _end_well(letters, end)):
        raise Doubtful
    length = np.minimum(end - begin - 1, _LONGEST_KEY)
    code = _CODE_OF[(length << 8) | letters[begin + 1]] if len(begin) else np.zeros(0, np.uint8)
    key = np.flatnonzero(code)
    return _Strings(begin, end, opening - 2 * np.arange(len(opening)), key, code[key])


def _begin_well(letters: Bytes, begin: Places) -> bool:
    """Return whether before each string stands a bracket, a comma or a colon, or nothing of this block."""
    before = letters[begin - 1]
    well = _BEFORE_STRING[before] | (_SPACE[before] & _BEFORE_STRING[letters[begin - 2]])
    at = begin[~well] - 1  # few: where lines are indented, or all is odd
    while at.size:
        before = letters[at]
        blank = _SPACE[before]
        if not (_BEFORE_STRING[before] | blank).all():
            return False
        at = at[blank] - 1
        at = at[at >= 0]
    return True


def _end_well(letters: Bytes, end: Places) -> bool:
    """Return whether behind each string stands a bracket, a comma or a colon."""
    odd = end[~_AFTER_STRING[letters[end + 1]]]  # few: where lines are indented, or all is odd
    return bool(_AFTER_STRING[letters[_skip_space(letters, odd + 1)]].all())


def _skip_space(letters: Bytes, at: Places) -> Places:
    """Return the places of the next letters that are no white space."""
    last = len(letters) - 1
    at = np.minimum(at, last)
    blank = np.flatnonzero(_SPACE[letters[at]])
    while len(blank):
        at[blank] = np.minimum(at[blank] + 1, last)
        blank = blank[_SPACE[letters[at[blank]]] & (at[blank] < last)]
    return at


def _mark_twice(events: Places, uncertain: Mask) -> None:
    uncertain[events[1:][events[1:] == events[:-1]]] = True


def _unescaped_quotes(data: bytes, letters: Bytes, slashes: Places) -> Mask:
    quotes: Mask = letters == _QUOTE
    if not len(slashes):
        return quotes
    if b"\\u00" in data and _ESCAPED_KEY.search(data):
        raise Doubtful
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


def equals(index: EventIndex, values: Values, words: Sequence[bytes]) -> Any:
    """Return for each event which of the words a key's string is, by its place from 1; 0 for none of them."""
    which = np.zeros(len(values.begin), np.uint8)
    length = np.where(values.end >= 0, values.end - values.begin, -1)
    for code, word in enumerate(words, start=1):
        same = np.flatnonzero(length == len(word))
        for offset, letter in enumerate(word):
            same = same[index.letters[values.begin[same] + offset] == letter]
        which[same] = code
    return which


_LONGEST_NUMBER = 24
_MOST_DIGITS = 18


def parse_numbers(letters: Bytes, begin: Places, decimals: int) -> tuple[Places, Mask]:
    """Return numbers times ten to the `decimals`, and which of them are certain.

    Certain are those without sign and exponent, with no more decimals than that, that fit 18 digits; or 19, of which
    the first is below nine.
    """
    value, digits, fraction = (np.zeros(len(begin), np.int64) for _ in range(3))
    goes_on, has_point = begin >= 0, np.zeros(len(begin), bool)
    certain, last = goes_on.copy(), len(letters) - 1
    for offset in range(_LONGEST_NUMBER):
        letter = letters[np.clip(begin + offset, 0, last)]
        digit = letter - ord("0")
        is_digit = (digit < 10) & goes_on
        is_point = (letter == ord(".")) & goes_on
        certain &= ~(is_point & has_point) & (is_digit | is_point | ~goes_on | _AFTER_NUMBER[letter])
        has_point |= is_point
        value = np.where(is_digit, value * 10 + digit, value)
        digits += is_digit
        fraction += is_digit & has_point
        goes_on = is_digit | is_point
        if not goes_on.any():
            break
    shift = decimals - fraction
    width = digits + np.maximum(shift, 0)
    certain &= ~goes_on & (digits > 0) & (shift >= 0)
    certain &= (width <= _MOST_DIGITS) | (width == _MOST_DIGITS + 1) & (letters[np.maximum(begin, 0)] < ord("9"))
    return np.where(certain, value * 10 ** np.clip(shift, 0, _MOST_DIGITS), 0), certain
