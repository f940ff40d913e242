"""Which of our own sweeps of collectives a figure draws: of each collective on each machine one form, all its sizes."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

from falloff.analysis.efficiency import Row, number

# What is one series: the same collective among as many ranks that lie alike, launched alike.
_SERIES = ("hardware", "gpu_name", "num_ranks", "nodes", "num_groups", "group_across", "collective", "launch")
_FORM = ("study", "cell_id", "in_place")
BY_GRAPH = "graph"


def with_role(records: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the records with `role`: main, beside, or None for what is not drawn.

    main are the records of others, and of our own sweeps on GPUs one form of each collective: that with the most
    sizes, of those in bfloat16, of those out of place. beside is one as CUDA graphs where there is one call by call.
    """
    roles = {index: "main" for index, row in enumerate(records) if row["provenance"] != "measured"}
    for series in _grouped(records, _own_indices(records), _SERIES).values():
        form = max(_grouped(records, series, _FORM).items(), key=lambda item: _preference(records, item[1]))[1]
        roles |= dict.fromkeys(form, "beside" if _has_calls(records, records[series[0]]) else "main")
    return [{**row, "role": roles.get(index)} for index, row in enumerate(records)]


def _own_indices(records: Sequence[Row]) -> Iterator[int]:
    for index, row in enumerate(records):
        if row["provenance"] == "measured" and row["device"] == "cuda":
            yield index


def _grouped(records: Sequence[Row], indices: Any, by: Sequence[str]) -> Mapping[Hashable, list[int]]:
    groups: dict[Hashable, list[int]] = {}
    for index in indices:
        # a field that is not stated is NaN, which equals nothing, itself included
        key = tuple(str(records[index].get(name)) for name in by)
        groups.setdefault(key, []).append(index)
    return groups


def _preference(records: Sequence[Row], form: Sequence[int]) -> tuple[int, bool, bool, str]:
    rows = [records[index] for index in form]
    sizes = {number(row, "message_bytes") for row in rows}
    return len(sizes), rows[0]["dtype"] == "bfloat16", not rows[0]["in_place"], str(rows[0]["cell_id"])


def _has_calls(records: Sequence[Row], row: Row) -> bool:
    """Return whether what was launched as graphs was launched call by call as well."""
    if row.get("launch") != BY_GRAPH:
        return False
    but_launch = [name for name in _SERIES if name != "launch"]
    alike = _grouped(records, _own_indices(records), but_launch)
    same = alike[tuple(str(row.get(name)) for name in but_launch)]
    return any(records[index].get("launch") != BY_GRAPH for index in same)
