"""What torch.profiler says of a collective in its kernel's arguments: group, ranks, elements and type."""

import json
import re
from typing import Any, NamedTuple

from falloff.ingest.kernel_names import collective_of
from falloff.ingest.trace_file import load

# bytes of an element, as c10d's ParamCommsUtils spells the types
_TYPE_BYTES = {
    "byte": 1,
    "char": 1,
    "bool": 1,
    "short": 2,
    "int": 4,
    "long": 8,
    "half": 2,
    "bfloat16": 2,
    "float": 4,
    "double": 8,
    "complexfloat": 8,
    "complexdouble": 16,
}
_EIGHT_BIT_FLOAT = re.compile(r"^float8")
_LISTED_RANKS = re.compile(r"\[\s*\d{1,9}(?:\s*,\s*\d{1,9})*\s*\]")
NOT_STATED = "not stated"


class CommDetail(NamedTuple):
    """One call of a collective as its kernel's arguments state it; None for what they do not."""

    collective: str | None = None
    group: str | None = None
    description: str | None = None
    ranks: tuple[int, ...] | None = None
    group_size: int | None = None
    dtype: str | None = None
    in_elements: int | None = None
    out_elements: int | None = None
    peer: tuple[int, int] | None = None  # source and destination of a point-to-point call

    @property
    def group_name(self) -> str:
        """The process group by its description, with its name where that is no number of torch's."""
        if self.description and self.group and self.description != "undefined":
            return f"{self.description} ({self.group})" if not self.group.isdigit() else self.description
        return self.group or NOT_STATED

    def message_bytes(self, collective: str | None) -> int | None:
        """Return the message as nccl-tests counts it: the output of AllGather, the input of the rest; None unknown."""
        elements = self.out_elements if collective == "AllGather" else self.in_elements
        size = _type_bytes(self.dtype)
        return elements * size if elements and size else None


NO_DETAIL = CommDetail()


def _type_bytes(dtype: str | None) -> int | None:
    if dtype is None:
        return None
    return 1 if _EIGHT_BIT_FLOAT.match(dtype.lower()) else _TYPE_BYTES.get(dtype.lower())


def detail_of(args: Any) -> CommDetail:
    """Return what a communication kernel's arguments say."""
    if not isinstance(args, dict):
        return NO_DETAIL
    called = args.get("Collective name")
    return CommDetail(
        collective=collective_of(called) if isinstance(called, str) else None,
        group=_text(args.get("Process Group Name")),
        description=_text(args.get("Process Group Description")),
        ranks=_ranks(args.get("Process Group Ranks")),
        group_size=_count(args.get("Group size")),
        dtype=_text(args.get("dtype")),
        in_elements=_count(args.get("In msg nelems")),
        out_elements=_count(args.get("Out msg nelems")),
        peer=_peer(args),
    )


def _text(value: Any) -> str | None:
    return str(value) if isinstance(value, str | int) and value != "" else None


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _ranks(value: Any) -> tuple[int, ...] | None:
    """Return the ranks of a group; None where they are left out or, in large groups, cut with dots."""
    if isinstance(value, str) and _LISTED_RANKS.fullmatch(value):
        value = [int(rank) for rank in value.strip("[]").split(",")]
    return tuple(value) if isinstance(value, list) and value and all(type(rank) is int for rank in value) else None


def _peer(args: dict[str, Any]) -> tuple[int, int] | None:
    source, destination = args.get("Src Rank"), args.get("Dst Rank")
    return (source, destination) if type(source) is int and type(destination) is int else None


# where in an event these arguments begin; what stands before differs from call to call
_FIRST_ARGUMENT = re.compile(
    rb'(?<!\\)"(?:Collective name|Process Group |Group size|In msg nelems|Out msg nelems|dtype|Src Rank|Dst Rank)'
)
_MOST_TEXTS = 10_000  # kept, where something that differs from call to call stands behind them


class Details:
    """The distinct details of a trace, each kept once."""

    def __init__(self) -> None:
        self.known: dict[CommDetail, int] = {}
        self._by_text: dict[bytes, int] = {}

    def add(self, detail: CommDetail) -> int:
        """Return the number of a detail, -1 for one that says nothing."""
        return -1 if detail == NO_DETAIL else self.known.setdefault(detail, len(self.known))

    def add_text(self, event: bytes) -> int:
        """Return the number of the detail that an event's text holds."""
        found = _FIRST_ARGUMENT.search(event)
        if found is None:
            return -1
        text = event[found.start() :]
        if len(self._by_text) > _MOST_TEXTS:
            self._by_text.clear()
        if text not in self._by_text:
            self._by_text[text] = self.add(detail_of(_arguments(event, text)))
        return self._by_text[text]


def _arguments(event: bytes, tail: bytes) -> Any:
    """Return an event's arguments, or those in its tail, which calls of one kind have in common."""
    try:
        return load(b'{"args": {' + tail)["args"]
    except (json.JSONDecodeError, RecursionError, KeyError):
        return load(event).get("args")
