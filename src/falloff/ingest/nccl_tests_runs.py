"""From what was printed to what it means: the state of a run, its ranks and collective, and what is wrong with it."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from falloff.ingest.nccl_debug import NcclDebug, debug_of, intra_node_flags
from falloff.ingest.nccl_tests_checks import Told, contradicts, tell_collective, tell_ranks, wrong_rows
from falloff.ingest.nccl_tests_log import Choice, Device, NcclTestsLog, Row, Status, distinct
from falloff.ingest.nccl_tests_text import Segment
from falloff.units import GIGA, MIB, MILLI

# The mean of bandwidths printed to 0.01 GB/s each; nccl-tests takes it before it rounds.
_AVERAGE_SLACK = 0.005 * GIGA
_RELATIVE_SLACK = 1e-3
# NCCL's own estimate is meant to rank choices, and is within twice where a cluster is in order; one of 38 times was a
# cluster that was not. Small messages are latency, which it knows least.
MOST_OVER_ESTIMATE = 3.0
_LEAST_ESTIMATED_BYTES = MIB
_NAMED = 6


@dataclass(frozen=True, kw_only=True)
class _Group:
    """The ranks whose rows are printed: of one communicator, each once."""

    devices: tuple[Device, ...]
    num_groups: int
    num_rank0: int
    is_printed_twice: bool
    is_whole: bool


def finished(segment: Segment, name: str, num_ranks: int | None = None) -> NcclTestsLog:
    """Return what a run says once its numbers were compared. name is its file's, the last hint at its collective.

    num_ranks: where somebody states it. ValueError where the run lists another number of ranks.
    """
    group = _group(segment, _process_ranks(segment))
    status, debug = _status(segment, group), debug_of(segment.debug_lines)
    rows = _once(segment.rows) if group.is_printed_twice else tuple(segment.rows)
    collective, name_flag = _collective(segment, rows, name)
    told = _told(segment, group, debug, rows, collective, status, num_ranks)
    if collective is None:
        collective = tell_collective(rows, told.num_ranks)
        told = told if told.num_ranks else _told(segment, group, debug, rows, collective, status, num_ranks)
    kept, row_flag = _without_wrong_rows(rows, collective, told.num_ranks)
    num_cut = segment.num_cut_lines + len(rows) - len(kept)
    flags = (
        *_status_flags(segment, group, status),
        name_flag,
        None if collective else "nothing tells the collective: no start line, command or name of a binary",
        told.remark,
        row_flag,
        _average_flag(segment, rows) if status != "not_multi_node" and not num_cut else None,
        _wrong_flag(segment),
        *intra_node_flags(debug.links, _rank_hosts(group, debug), _is_one_host(group)),
        *_estimate_flags(kept, debug.choices),
    )
    return NcclTestsLog(
        rows=kept,
        status=status,
        library=segment.library,
        library_version=segment.library_version,
        nccl=segment.nccl or debug.nccl,
        collective=collective,
        num_ranks=told.num_ranks,
        devices=group.devices,
        stated_nodes=_stated_nodes(segment, group, debug, told.num_ranks),
        settings=segment.settings,
        average_busbw_bytes_s=segment.averages[0] if len(set(segment.averages)) == 1 else None,
        num_out_of_bounds=sum(segment.out_of_bounds) if segment.out_of_bounds else None,
        num_rank0_lines=group.num_rank0,
        num_footers=len(segment.averages),
        num_cut_lines=num_cut,
        environment=_environment({**segment.exported, **debug.settings}),
        choices=debug.choices,
        links=debug.links,
        flags=tuple(flag for flag in flags if flag),
    )


def _process_ranks(segment: Segment) -> int:
    return segment.settings.process_ranks if segment.settings else 1


def _stated_nodes(segment: Segment, group: _Group, debug: NcclDebug, num_ranks: int | None) -> int | None:
    """Return the nodes where no devices are listed: as a report states them, or by the hosts of NCCL's own lines."""
    if segment.stated_nodes is not None or group.devices or len(debug.rank_hosts) != num_ranks:
        return segment.stated_nodes
    return len(set(debug.rank_hosts.values()))


def _group(segment: Segment, process_ranks: int) -> _Group:
    once = tuple(dict.fromkeys(segment.devices))
    with_pid = all(device.pid is not None for device in segment.devices)
    times = set(Counter(segment.devices).values())
    copies = next(iter(times)) if len(times) == 1 else 1
    printed_twice = with_pid and copies > 1 and len(segment.averages) in (0, copies) and len(set(segment.averages)) < 2
    devices = once if with_pid else tuple(segment.devices)
    groups = distinct(str(device.group) for device in devices)
    of_first = tuple(device for device in devices if str(device.group) == groups[0]) if groups else ()
    ranks = {device.rank for device in of_first}
    is_whole = len(ranks) >= process_ranks and (len(groups) > 1 or ranks == set(range(len(ranks)))) and bool(ranks)
    return _Group(
        devices=of_first,
        num_groups=len(groups),
        num_rank0=sum(device.rank == 0 for device in devices),
        is_printed_twice=printed_twice,
        is_whole=is_whole,
    )


def _status(segment: Segment, group: _Group) -> Status:
    programs = max(group.num_rank0, segment.num_tables, len(segment.averages))
    if programs > 1 and not group.is_printed_twice:
        return "not_multi_node"
    return "ok" if segment.averages or not segment.has_end else "partial"


def _once(rows: Sequence[Row]) -> tuple[Row, ...]:
    return tuple(dict.fromkeys(rows))


def _collective(segment: Segment, rows: Sequence[Row], name: str) -> tuple[str | None, str | None]:
    """Return the collective by the strongest hint that the rows do not contradict, and a flag where they do."""
    if segment.starting:
        speaks_against = contradicts(segment.starting, rows, None)
        flag = f"says that it tests {segment.starting}, and its rows are not of it" if speaks_against else None
        return segment.starting, flag
    for hint in (segment.command, _of_file_name(name)):
        if hint and not contradicts(hint, rows, None):
            return hint, None
    return tell_collective(rows, None), None


# as people name files; the longer first: reduce_scatter is no reduce
_FILE_NAMES = {
    "reducescatter": "reduce_scatter",
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "alltoallv": "all_to_all_v",
    "alltoall": "all_to_all",
    "all2all": "all_to_all",
    "broadcast": "broadcast",
    "sendrecv": "send_recv",
    "hypercube": "hypercube",
}


def _of_file_name(name: str) -> str | None:
    plain = name.casefold().replace("_", "").replace("-", "").replace(" ", "")
    return next((collective for part, collective in _FILE_NAMES.items() if part in plain), None)


def _told(
    segment: Segment,
    group: _Group,
    debug: NcclDebug,
    rows: Sequence[Row],
    collective: str | None,
    status: Status,
    num_ranks: int | None,
) -> Told:
    """Return the number of ranks: the one stated, else as the run lists or states it, else as its numbers tell it."""
    listed, process_ranks = len({device.rank for device in group.devices}), _process_ranks(segment)
    if num_ranks is not None:
        if group.is_whole and status != "not_multi_node" and listed != num_ranks:
            raise ValueError(f"num_ranks is stated as {num_ranks}; the log lists {listed} ranks")
        return Told(num_ranks=num_ranks)
    if status == "not_multi_node":
        return Told(num_ranks=process_ranks if segment.settings else listed or None)
    if segment.stated_ranks is not None:
        return tell_ranks(collective, rows, [segment.stated_ranks], True)
    if not listed and debug.num_ranks is not None:
        return tell_ranks(collective, rows, [debug.num_ranks], True)
    stated = [listed] if listed >= process_ranks else []
    stated += [process_ranks] if segment.settings and process_ranks not in stated else []
    return tell_ranks(collective, rows, stated, group.is_whole)


def _without_wrong_rows(
    rows: Sequence[Row], collective: str | None, num_ranks: int | None
) -> tuple[tuple[Row, ...], str | None]:
    """Return the rows whose numbers agree, and a flag; where most do not, something else is wrong and all stay."""
    wrong = list(wrong_rows(rows, collective, num_ranks))
    if not wrong:
        return tuple(rows), None
    sizes = ", ".join(str(row.message_bytes) for row in wrong[:_NAMED]) + (" and more" if len(wrong) > _NAMED else "")
    if 2 * len(wrong) > len(rows):
        return tuple(rows), (
            f"time, size and bandwidths contradict one another in {len(wrong)} of {len(rows)} rows ({sizes} bytes)"
        )
    kept = set(map(id, rows)) - set(map(id, wrong))
    return (
        tuple(row for row in rows if id(row) in kept),
        f"rows whose time, size and bandwidths contradict one another were left out: {sizes} bytes",
    )


def _status_flags(segment: Segment, group: _Group, status: Status) -> Iterator[str]:
    if status == "not_multi_node":
        programs = max(group.num_rank0, segment.num_tables, len(segment.averages))
        yield (
            f"{programs} programs ran side by side and knew nothing of one another (Rank 0 is listed "
            f"{group.num_rank0} times, {len(segment.averages)} ends were printed): built without MPI, each is a test "
            "of one node"
        )
    elif status == "partial":
        yield "its end is missing: no average bus bandwidth was printed"
    if group.is_printed_twice:
        yield "its lines were printed more than once; each counts once"
    if group.num_groups > 1 and status != "not_multi_node":
        yield f"{group.num_groups} groups of ranks ran at once; the rows are of one of {len(group.devices)} ranks"
    if segment.num_unheard and status != "not_multi_node":
        yield f"{segment.num_unheard} starts before it were followed by no result"
    if segment.num_empty_rows:
        yield f"{segment.num_empty_rows} rows of 0 bytes were left out"


def _average_flag(segment: Segment, rows: Sequence[Row]) -> str | None:
    """Return a flag where the average that it prints is not that of its rows: some are missing."""
    halves = [half.busbw_bytes_s for row in rows for _, half in row.halves if half.busbw_bytes_s is not None]
    if not segment.averages or not halves:
        return None
    num_halves = len(halves) + 2 * segment.num_empty_rows
    found, printed = sum(busbw.value for busbw in halves) / num_halves, segment.averages[0]
    if abs(found - printed) <= _AVERAGE_SLACK + _RELATIVE_SLACK * printed + max(b.rounding for b in halves):
        return None
    return (
        f"its average bus bandwidth is {printed / GIGA:.6g} GB/s, that of its rows {found / GIGA:.6g}: rows are missing"
    )


def _wrong_flag(segment: Segment) -> str | None:
    count = sum(segment.out_of_bounds)
    return f"{count} values came out of bounds: results were wrong" if count else None


def _rank_hosts(group: _Group, debug: NcclDebug) -> dict[int, str]:
    return {device.rank: device.host for device in group.devices} | dict(debug.rank_hosts)


def _is_one_host(group: _Group) -> bool:
    return group.is_whole and len({device.host for device in group.devices}) == 1


def _estimate_flags(rows: Sequence[Row], choices: Sequence[Choice]) -> Iterator[str]:
    """Yield a flag where a row took much longer than NCCL's own model says: a fault of the configuration."""
    worst: tuple[float, Row, float, float] | None = None
    for row in rows:
        estimates = [c.estimate_s for c in choices if c.message_bytes == row.message_bytes and c.estimate_s]
        times = [half.time_s.value for _, half in row.halves if half.time_s and not half.is_cpu_time]
        if row.message_bytes >= _LEAST_ESTIMATED_BYTES and estimates and times:
            ratio = min(times) / max(estimates)
            if ratio > (worst[0] if worst else MOST_OVER_ESTIMATE):
                worst = ratio, row, min(times), max(estimates)
    if worst:
        ratio, row, time, estimate = worst
        yield (
            f"NCCL's own model expects {estimate / MILLI:.4g} ms for {row.message_bytes} bytes, {time / MILLI:.4g} ms "
            f"were measured, {ratio:.3g} times as long: a fault of the configuration, not a time to fit a model to"
        )


def _environment(settings: Mapping[str, str]) -> str | None:
    return " ".join(f"{name}={value}" for name, value in sorted(settings.items())) or None
