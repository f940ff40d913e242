import gzip
import random
from pathlib import Path

import pytest

from falloff.ingest.nccl_tests import is_nccl_tests_log, nccl_tests_records, read_nccl_tests
from falloff.ingest.nccl_tests_log import NcclTestsLog
from falloff.spec.hardware import read_all_hardware

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data" / "nccl_tests"
KNOWN = read_all_hardware(ROOT / "config" / "hardware")

RANKS = "".join(
    f"#  Rank  {rank} Group  0 Pid   {100 + rank} on     node0{rank // 2} device  {rank % 2} [0000:0{rank}:00] "
    "NVIDIA H100 80GB HBM3\n"
    for rank in range(4)
)
START = "# nThread 1 nGpus 1 minBytes 8388608 maxBytes 8388608 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1\n"
HEADER = """\
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
"""
ROW = (
    "     8388608       2097152     float     sum      -1    839.0   10.00   15.00      0    419.5   20.00   29.99"
    "      0\n"
)
FOOTER = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 22.495\n#\n"


def read(path: Path, text: str) -> NcclTestsLog:
    path.write_text(text)
    (run,) = read_nccl_tests(path)
    return run


def test_a_table_before_2_13_has_a_tolerance_and_no_root_of_allgather() -> None:
    (run,) = read_nccl_tests(DATA / "2021_allgather.log")
    assert (run.collective, run.num_ranks, run.nodes, run.status) == ("all_gather", 8, 1, "ok")
    assert run.num_cut_lines == 0
    assert [row.message_bytes for row in run.rows] == [64, 1048576, 268435456, 8589934592]
    records = nccl_tests_records(DATA / "2021_allgather.log", KNOWN)
    assert {record.hardware for record in records} == {"a100-40gb-sxm"}
    assert all(record.num_wrong is None for record in records)
    assert any("rows are missing" in flag for flag in records[0].flags or ())


def test_a_root_is_read_by_its_name_and_never_taken_for_a_time() -> None:
    (run,) = read_nccl_tests(DATA / "2021_reduce.log")
    assert (run.collective, run.num_ranks, run.num_cut_lines) == ("reduce", 8, 0)
    assert {row.root for row in run.rows} == {0}
    (run,) = read_nccl_tests(DATA / "broadcast_without_operation.log")
    row = run.rows[0]
    assert (run.collective, run.num_ranks, run.nodes, run.nccl) == ("broadcast", 2, 2, "2.9.6")
    assert (row.root, row.redop, row.out_of_place and row.out_of_place.num_wrong) == (0, None, None)
    assert run.environment == "NCCL_ALGO=Ring NCCL_DEBUG=WARN NCCL_IB_DISABLE=1 NCCL_PROTO=Simple"


def test_two_programs_one_after_the_other_are_two_runs() -> None:
    runs = read_nccl_tests(DATA / "2025_two_runs.log")
    assert [(run.collective, run.num_ranks, run.nodes, run.status, run.nccl, len(run.rows)) for run in runs] == [
        ("all_to_all", 2, 2, "ok", "2.28.7", 3),
        ("send_recv", 2, 2, "ok", "2.28.7", 3),
    ]
    records = nccl_tests_records(DATA / "2025_two_runs.log", KNOWN)
    assert len({record.record_id for record in records}) == len(records) == 12
    assert {record.dtype for record in records} == {"float64"}
    assert {record.hardware for record in records} == {"h100-sxm"}
    assert {record.ranks_per_node for record in records} == {1}


def test_rccl_tests_prints_rows_of_no_bytes_which_are_no_messages() -> None:
    (run,) = read_nccl_tests(DATA / "rccl_2026_alltoall.log")
    assert (run.library, run.library_version, run.nccl) == ("rccl-tests", "2.17.9-develop:4a65e8d", "2.27.7")
    assert (run.collective, run.num_ranks, run.nodes, len(run.rows)) == ("all_to_all", 16, 2, 3)
    assert "1 rows of 0 bytes were left out" in run.flags
    assert {record.backend for record in nccl_tests_records(DATA / "rccl_2026_alltoall.log", {})} == {"rccl"}


def test_labels_of_srun_are_taken_off_and_the_counts_tell_the_ranks() -> None:
    (run,) = read_nccl_tests(DATA / "srun_label_allgather.log")
    assert (run.collective, run.num_ranks, run.nodes, len(run.rows)) == ("all_gather", 16, None, 3)


def test_one_rank_measures_no_collective() -> None:
    records = nccl_tests_records(DATA / "one_rank.log", KNOWN)
    assert [(record.outcome, record.times_s, record.reported_busbw_bytes_s) for record in records] == [
        ("crash", None, None)
    ] * 2


def test_a_row_that_nccl_broke_is_joined(tmp_path: Path) -> None:
    broken = (
        "[0]      8388608       2097152     float     sum      -1[0] node00:7:7 [0] NCCL INFO 8388608 Bytes -> "
        "Algo 1 proto 2 time 800.0\n[0] node01:8:8 [0] NCCL INFO 8388608 Bytes -> Algo 1 proto 2 time 800.0\n"
        "[0]     839.0   10.00   15.00      0node00:7:7 [0] NCCL INFO 8388608 Bytes -> Algo 1 proto 2 time 800.0\n"
        "[0]     419.5   20.00   29.99      0\n"
    )
    run = read(tmp_path / "all_reduce.log", START + RANKS + HEADER + broken + FOOTER)
    assert (len(run.rows), run.num_cut_lines, run.flags) == (1, 0, ())
    record = nccl_tests_records(tmp_path / "all_reduce.log", KNOWN)[0]
    assert (record.algorithm, record.protocol, record.channels) == ("ring", "simple", None)


def test_the_rest_of_a_row_whose_beginning_is_lost_is_counted() -> None:
    with pytest.raises(ValueError, match="none of its rows"):
        nccl_tests_records(DATA / "rows_split_by_nccl.log", {})
    (run,) = read_nccl_tests(DATA / "rows_split_by_nccl.log")
    assert (len(run.rows), run.num_cut_lines) == (0, 2)
    assert {choice.message_bytes for choice in run.choices} == {256, 512}


def test_a_row_whose_numbers_contradict_one_another_is_counted_and_left_out(tmp_path: Path) -> None:
    garbled = ROW.replace("15.00", "51.00").replace("8388608", "4194304").replace("2097152", "1048576")
    run = read(tmp_path / "all_reduce.log", START + RANKS + HEADER + ROW * 2 + garbled + FOOTER)
    assert (len(run.rows), run.num_cut_lines) == (2, 1)
    assert any("contradict" in flag and "4194304" in flag for flag in run.flags)


def test_a_row_that_is_cut_is_counted_and_not_guessed(tmp_path: Path) -> None:
    run = read(tmp_path / "all_reduce.log", START + RANKS + HEADER + ROW + ROW[:80])
    assert (len(run.rows), run.num_cut_lines, run.status) == (1, 1, "partial")


def test_rows_without_their_header_are_counted_and_not_guessed(tmp_path: Path) -> None:
    run = read(tmp_path / "all_reduce.log", START + RANKS + ROW + HEADER + ROW + FOOTER)
    assert (len(run.rows), run.num_cut_lines) == (1, 1)


def test_columns_of_each_iteration_move_positions_and_are_no_times(tmp_path: Path) -> None:
    names = "time   algbw   busbw  #wrong    i_min    i_max    i_p99    i_cv%"
    units = "(us)  (GB/s)  (GB/s)             (us)     (us)     (us)      (%)"
    run = read(
        tmp_path / "all_reduce.log",
        START
        + RANKS
        + "#              out-of-place (+ per-iteration)      in-place (+ per-iteration)\n"
        + f"#       size         count      type   redop    root     {names}     {names}\n"
        + f"#        (B)    (elements)                               {units}     {units}\n"
        + "     8388608       2097152     float     sum      -1    839.0   10.00   15.00       0   800.0   900.0   "
        + "899.0    3.10    419.5   20.00   29.99     N/A   400.0   440.0   439.0    2.90\n"
        + FOOTER,
    )
    first, second = nccl_tests_records(tmp_path / "all_reduce.log", KNOWN)
    assert (first.times_s, second.times_s) == (pytest.approx((839.0e-6,)), pytest.approx((419.5e-6,)))
    assert (first.num_wrong, second.num_wrong) == (0, None)
    assert dict(run.rows[0].halves[0][1].statistics)["i_cv%"] == 3.1


def test_time_stamps_at_the_ends_of_rows_are_no_columns(tmp_path: Path) -> None:
    header = HEADER.replace("busbw #wrong\n", "busbw #wrong           timestamp\n")
    run = read(tmp_path / "all_reduce.log", START + RANKS + header + ROW.rstrip() + "  2026-06-01 12:00:00\n" + FOOTER)
    assert (len(run.rows), run.num_cut_lines, run.flags) == (1, 0, ())


def test_the_time_of_the_cpu_is_no_time_of_the_collective(tmp_path: Path) -> None:
    row = ROW.replace("839.0", " 12.0").replace("419.5", " 11.0")
    read(tmp_path / "all_reduce.log", START + RANKS + HEADER.replace("   time", "cputime") + row + FOOTER)
    record = nccl_tests_records(tmp_path / "all_reduce.log", KNOWN)[0]
    assert record.times_s is None
    assert record.reported_busbw_bytes_s == pytest.approx(15.0e9)
    assert any("CPU" in flag for flag in record.flags or ())


def test_rccl_tests_prints_its_choice_in_the_last_columns(tmp_path: Path) -> None:
    header = HEADER.replace("busbw #wrong\n", "busbw #wrong  algo      proto      nchannels\n")
    read(
        tmp_path / "all_reduce.log", START + RANKS + header + ROW.rstrip() + "    RING    SIMPLE          56\n" + FOOTER
    )
    record = nccl_tests_records(tmp_path / "all_reduce.log", KNOWN)[0]
    assert (record.algorithm, record.protocol, record.channels) == ("ring", "simple", 56)


def test_an_operation_that_is_blank_moves_no_column(tmp_path: Path) -> None:
    row = (
        "     8388608        524288     float              -1    839.0   10.00    7.50       0    419.5   20.00   15.00"
        "       0\n"
    )
    run = read(tmp_path / "x.log", START + RANKS + HEADER + row)
    assert (run.rows[0].redop, run.rows[0].root, run.num_ranks, run.collective) == (None, -1, 4, "all_gather")


def test_colours_gzip_and_line_ends_of_windows_change_nothing(tmp_path: Path) -> None:
    text = START + RANKS + HEADER + ROW + FOOTER
    plain = read(tmp_path / "all_reduce.log", text)
    coloured = "".join(f"\x1b[32m{line}\x1b[0m\r\n" for line in text.splitlines())
    (tmp_path / "b" / "all_reduce.log").parent.mkdir()
    (tmp_path / "b" / "all_reduce.log").write_bytes(gzip.compress(coloured.encode()))
    assert read_nccl_tests(tmp_path / "b" / "all_reduce.log") == [plain]
    assert is_nccl_tests_log(coloured)


def test_programs_side_by_side_are_each_of_one_node(tmp_path: Path) -> None:
    text = "".join(
        a + b
        for a, b in zip(
            (START.replace("nGpus 1", "nGpus 2") + RANKS[: len(RANKS) // 2] + HEADER).splitlines(keepends=True),
            (
                START.replace("nGpus 1", "nGpus 2") + RANKS[: len(RANKS) // 2].replace("node00", "node09") + HEADER
            ).splitlines(keepends=True),
            strict=True,
        )
    )
    row = ROW.replace("15.00", "10.00").replace("29.99", "20.00")
    run = read(tmp_path / "all_reduce.log", text + row * 2 + FOOTER * 2)
    assert (run.status, run.nodes, run.num_ranks, run.num_rank0_lines, run.num_footers) == (
        "not_multi_node",
        1,
        2,
        2,
        2,
    )
    records = nccl_tests_records(tmp_path / "all_reduce.log", KNOWN)
    assert {(record.nodes, record.num_ranks) for record in records} == {(1, 2)}
    assert all(any("MPI" in flag for flag in record.flags or ()) for record in records)


def test_a_run_that_failed_before_its_first_row_is_none_of_the_next_one(tmp_path: Path) -> None:
    text = START + RANKS + "node00: Test NCCL failure common.cu:1 'unhandled system error'\n"
    run = read(tmp_path / "all_reduce.log", text + START + RANKS + HEADER + ROW + FOOTER)
    assert (run.status, run.num_ranks, run.nodes) == ("ok", 4, 2)
    assert "1 starts before it were followed by no result" in run.flags


def test_lines_that_were_printed_twice_count_once(tmp_path: Path) -> None:
    text = "".join(line * 2 for line in (START + RANKS + HEADER + ROW + FOOTER).splitlines(keepends=True))
    run = read(tmp_path / "all_reduce.log", text)
    assert (run.status, len(run.rows), run.num_ranks) == ("ok", 1, 4)


def test_groups_that_ran_at_once_are_told(tmp_path: Path) -> None:
    ranks = "".join(
        line.replace("Group  0", f"Group  {at % 2}") for at, line in enumerate(RANKS.splitlines(keepends=True))
    )
    row = ROW.replace("15.00", "10.00").replace("29.99", "20.00")
    run = read(tmp_path / "all_reduce.log", START + ranks + HEADER + row + FOOTER)
    assert (run.num_ranks, run.nodes) == (2, 2)
    assert any("2 groups of ranks ran at once" in flag for flag in run.flags)


def test_results_that_are_wrong_are_no_measurement(tmp_path: Path) -> None:
    footer = FOOTER.replace("0 OK", "12 FAILED")
    read(tmp_path / "all_reduce.log", START + RANKS + HEADER.replace("#wrong", " error") + ROW + footer)
    records = nccl_tests_records(tmp_path / "all_reduce.log", KNOWN)
    assert {record.outcome for record in records} == {"crash"}
    assert all(record.times_s is None for record in records)


def test_a_stated_number_of_ranks_that_the_log_contradicts_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "all_reduce.log"
    path.write_text(START + RANKS + HEADER + ROW + FOOTER)
    with pytest.raises(ValueError, match="num_ranks is stated as 8; the log lists 4 ranks"):
        nccl_tests_records(path, KNOWN, num_ranks=8)
    path.write_text(
        HEADER + "           8             2     float     sum      -1    12.90    0.00    0.00      0\n" * 0 + ROW
    )
    assert {record.num_ranks for record in nccl_tests_records(path, KNOWN, num_ranks=4)} == {4}


def test_what_nccl_expected_and_what_took_much_longer_is_a_fault_of_the_configuration(tmp_path: Path) -> None:
    debug = "node00:7:7 [0] NCCL INFO 8388608 Bytes -> Algo 1 proto 2 time 11.0\n"
    run = read(tmp_path / "all_reduce.log", START + RANKS + HEADER + debug + ROW + FOOTER)
    assert any("38.1 times as long: a fault of the configuration" in flag for flag in run.flags)


def test_choices_that_differ_from_call_to_call_are_null(tmp_path: Path) -> None:
    debug = "".join(
        f"node00:7:7 [0] NCCL INFO AllReduce: 8388608 Bytes -> Algo {algo} proto LL channel{{Lo..Hi}}={{0..7}}\n"
        for algo in ("TREE", "RING")
    )
    read(tmp_path / "all_reduce.log", START + RANKS + HEADER + debug + ROW + FOOTER)
    assert nccl_tests_records(tmp_path / "all_reduce.log", KNOWN)[0].algorithm is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("hello\n", "holds no output of nccl-tests"),
        (START + RANKS, "none of its rows"),
        (HEADER.replace("(us)", "(fortnights)") + ROW, "time is in 'fortnights'; allowed are"),
    ],
)
def test_a_file_that_says_nothing_is_a_sentence(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "x.log"
    path.write_text(text)
    with pytest.raises(ValueError, match=words) as caught:
        nccl_tests_records(path, {})
    assert "\n" not in str(caught.value)


def test_a_garbled_log_gives_records_or_one_sentence(tmp_path: Path) -> None:
    source = random.Random(7)
    whole = [path.read_bytes() for path in sorted(DATA.glob("*.log"))]
    path = tmp_path / "all_reduce.log"
    for _ in range(150):
        text = bytearray(source.choice(whole))
        for _ in range(source.randint(1, 5)):
            at = source.randrange(len(text))
            match source.randint(0, 3):
                case 0:
                    text[at] = source.randrange(256)
                case 1:
                    del text[at : at + source.randint(1, 90)]
                case 2:
                    text[at:at] = source.choice((b"9" * 5000, b"1e999", b"-1", b"nan", b"\0", b"{" * 900))
                case 3:
                    text[at:at] = text[at : at + 300]
            if not text:
                break
        path.write_bytes(bytes(text))
        try:
            nccl_tests_records(path, KNOWN)
        except ValueError as error:
            assert str(path) in str(error)  # noqa: PT017
            assert "\n" not in str(error)  # noqa: PT017


def test_ranks_that_only_nccl_lists_are_believed_where_the_bandwidths_agree(tmp_path: Path) -> None:
    debug = "".join(
        f"node0{rank // 2}:{rank}:9 [0] NCCL INFO comm 0x5634cae893b0 rank {rank} nranks 4 cudaDev 0 - Init COMPLETE\n"
        for rank in range(4)
    )
    run = read(tmp_path / "all_reduce.log", debug + HEADER + ROW + FOOTER)
    assert (run.num_ranks, run.nodes, run.flags) == (4, 2, ())


def test_a_rank_before_each_piece_of_a_row_is_taken_off() -> None:
    (run,) = read_nccl_tests(DATA / "rank_before_each_piece.log")
    assert (run.collective, run.num_ranks, run.num_cut_lines) == ("all_reduce", 24, 0)
    row = run.rows[0]
    assert (row.message_bytes, row.root) == (1048576, -1)
    assert [half.time_s and half.time_s.value for _, half in row.halves] == pytest.approx([1626.5e-6, 2302.3e-6])


def test_allgather_until_june_2020_printed_its_bus_bandwidth_twice_and_does_not_contradict_itself() -> None:
    (run,) = read_nccl_tests(DATA / "2020_allgather_out_of_bounds.log")
    assert (run.collective, run.num_ranks) == ("all_gather", 8)
    assert run.flags == ("2 values came out of bounds: results were wrong",)
    assert not run.is_valid
