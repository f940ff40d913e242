"""Events that a trace gives as begin and end (ph B and E) instead of whole, as some converters do."""

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from falloff.ingest.event_times import nanoseconds

Event = dict[str, Any]


class Pairs:
    """Joins the begins and ends of each row: an end closes the last begin of its process and thread that is open."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], list[Event]] = {}
        self.has_begun = False

    def num_open(self, categories: Iterable[str]) -> int:
        """Return how many begins of these categories have no end."""
        return sum(str(event.get("cat")) in set(categories) for events in self._open.values() for event in events)

    def whole(self, events: Iterable[tuple[int, Event]]) -> list[tuple[int, Event]]:
        """Return the events that end among these, as complete ones (ph X) at the place of their ends."""
        found = []
        for place, event in events:
            row = self._open.setdefault((repr(event.get("pid")), repr(event.get("tid"))), [])
            if event.get("ph") == "B":
                row.append(event)
            elif event.get("ph") == "E" and row:
                found.append((place, _joined(row.pop(), event)))
        return found


def _joined(begin: Event, end: Mapping[str, Any]) -> Event:
    start, stop = nanoseconds(begin.get("ts")), nanoseconds(end.get("ts"))
    length = None if start is None or stop is None else str(Decimal(stop - start) / 1000)
    args = {**_arguments(begin), **_arguments(end)}
    return {**begin, "ph": "X", "dur": length, "args": args}


def _arguments(event: Mapping[str, Any]) -> Mapping[str, Any]:
    args = event.get("args")
    return args if isinstance(args, dict) else {}
