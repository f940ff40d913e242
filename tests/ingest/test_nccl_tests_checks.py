from hypothesis import example, given
from hypothesis import strategies as st

from falloff.ingest.bus_factor import COLLECTIVES, bus_factor
from falloff.ingest.nccl_tests_checks import contradicts, ranks_of_counts, tell_collective, tell_ranks, wrong_rows
from falloff.ingest.nccl_tests_log import Half, Row
from falloff.ingest.nccl_tests_table import columns_of, fields_of, row_of
from falloff.units import GIGA

COLUMNS = columns_of("size count type redop root time algbw busbw #wrong time algbw busbw #wrong", None)
OF_A_RANK = ("all_gather", "all_to_all", "reduce_scatter", "gather", "scatter", "hypercube")
WITH_ROOT = ("broadcast", "reduce", "gather", "scatter")
WITH_OPERATION = ("all_reduce", "reduce_scatter", "reduce", "send_recv")
TOLD = ("all_reduce", "all_gather", "all_to_all", "reduce_scatter", "broadcast", "reduce", "hypercube")

names = st.sampled_from([name for name in COLLECTIVES if name != "all_to_all_v"])
ranks = st.integers(min_value=2, max_value=128)
times_us = st.floats(min_value=300.0, max_value=90_000.0)


def float_text(value: float, width: int) -> str:
    """Print a number as nccl-tests does: with as many decimals, two at most, as fit."""
    return next((text for decimals in (2, 1, 0) if len(text := f"{value:.{decimals}f}") <= width), f"{value:.1e}")


def printed_row(collective: str, num_ranks: int, time_us: float, share_bytes: int = 1 << 20) -> Row:
    """Return the row that nccl-tests prints for a collective of so many bytes a rank, read back."""
    size = share_bytes * num_ranks
    count = (share_bytes if collective in OF_A_RANK else size) // 4
    busbw = size / time_us / 1e3 * bus_factor(collective, num_ranks)
    algbw = busbw if collective == "hypercube" else size / time_us / 1e3
    wrong = "N/A" if collective in ("all_to_all", "send_recv") else "0"
    half = f"{float_text(time_us, 7)} {float_text(algbw, 6)} {float_text(busbw, 6)}"
    words = f"{size} {count} float {'sum' if collective in WITH_OPERATION else 'none'} "
    words += f"{0 if collective in WITH_ROOT else -1} {half} 0 {half} {wrong}"
    assert COLUMNS is not None
    row = row_of(fields_of(words, COLUMNS), COLUMNS)
    assert row is not None
    return row


@given(names, ranks, times_us)
@example("hypercube", 2, 23302.0)  # 0.04 GB/s, too few digits to tell its scale
def test_what_nccl_tests_prints_never_contradicts_itself(collective: str, num_ranks: int, time_us: float) -> None:
    row = printed_row(collective, num_ranks, time_us)
    assert list(wrong_rows([row], collective, num_ranks)) == []
    assert not contradicts(collective, [row], num_ranks)
    assert ranks_of_counts([row]) == (num_ranks if collective in OF_A_RANK else 1)


@given(names, ranks, times_us)
def test_ranks_that_are_listed_are_believed_where_the_bandwidths_agree(
    collective: str, num_ranks: int, time_us: float
) -> None:
    told = tell_ranks(collective, [printed_row(collective, num_ranks, time_us)], [num_ranks, 1], True)
    assert (told.num_ranks, told.remark) == (num_ranks, None)


@given(st.sampled_from(TOLD), st.integers(min_value=3, max_value=64), st.floats(min_value=300.0, max_value=9_000.0))
def test_a_collective_is_told_by_its_rows_or_not_at_all(collective: str, num_ranks: int, time_us: float) -> None:
    assert tell_collective([printed_row(collective, num_ranks, time_us)], num_ranks) in (collective, None)


def test_rows_tell_their_collective() -> None:
    assert [tell_collective([printed_row(name, 8, 1234.5)], 8) for name in TOLD] == list(TOLD)
    # the two differ in nothing that is printed
    assert tell_collective([printed_row("gather", 8, 1234.5)], 8) is None


@given(st.sampled_from(["all_reduce", "all_gather"]), st.integers(min_value=2, max_value=12), times_us)
def test_ranks_that_nobody_lists_are_told_by_the_bandwidths_or_by_none(
    collective: str, num_ranks: int, time_us: float
) -> None:
    told = tell_ranks(collective, [printed_row(collective, num_ranks, time_us)], [], False)
    assert told.num_ranks in (num_ranks, None) or "whole nodes of 8" in str(told.remark)


@given(ranks, times_us, st.floats(min_value=1.05, max_value=20.0))
def test_a_bandwidth_that_is_not_of_its_time_is_found(num_ranks: int, time_us: float, off: float) -> None:
    row = printed_row("all_reduce", num_ranks, time_us)
    half = row.out_of_place
    assert half is not None
    assert half.busbw_bytes_s is not None
    if half.busbw_bytes_s.value < GIGA:
        return  # too few digits to tell five percent
    wrong = half.busbw_bytes_s._replace(value=half.busbw_bytes_s.value * off)
    garbled = Row(
        message_bytes=row.message_bytes,
        count=row.count,
        dtype=row.dtype,
        redop=row.redop,
        root=row.root,
        out_of_place=Half(time_s=half.time_s, algbw_bytes_s=half.algbw_bytes_s, busbw_bytes_s=wrong),
        in_place=row.in_place,
    )
    assert list(wrong_rows([row, garbled], "all_reduce", num_ranks)) == [garbled]
