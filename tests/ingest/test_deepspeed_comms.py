from pathlib import Path

import pytest

from falloff.ingest.deepspeed_comms import deepspeed_comms_records, is_deepspeed_comms, read_deepspeed_comms

DATA = Path("tests/data/deepspeed_comms")
HEADER = (
    "Comm. Op            Message Size        Count               Total Latency(ms)   Avg Latency(ms)     "
    "tput_avg (Gbps)     busbw_avg (Gbps)\n"
)


def test_a_summary_tells_its_ranks_by_its_bandwidths() -> None:
    found = read_deepspeed_comms(DATA / "summary_zero3.log")
    assert (found.num_ranks, found.num_cut_lines, len(found.rows)) == (16, 0, 12)
    assert not [row.fault for row in found.rows if row.fault]


def test_units_are_bits_and_powers_of_two_and_the_size_of_allgather_is_nccl_tests() -> None:
    records = deepspeed_comms_records(DATA / "summary_zero3.log")
    assert len(records) == 9  # barriers move no bytes
    gathered = next(record for record in records if record.collective == "all_gather")
    assert (gathered.message_bytes, gathered.num_ranks) == (256 * 16, 16)
    assert gathered.reported_busbw_bytes_s == pytest.approx(0.63e9 / 8)
    slow = next(record for record in records if record.message_bytes == round(98.25 * 2**20))
    assert slow.times_s == pytest.approx((8.31712,))
    assert slow.reported_algbw_bytes_s is None  # counts its bytes twice
    assert len({record.record_id for record in records}) == len(records)


def test_later_versions_give_broadcast_a_factor_of_one() -> None:
    found = read_deepspeed_comms(DATA / "summary_one_factor.log")
    assert found.num_ranks is None
    assert not [row.fault for row in found.rows if row.fault]


def test_the_bandwidth_of_a_single_call_is_its_size_over_its_latency(tmp_path: Path) -> None:
    path = tmp_path / "comms.log"
    row = f"{'': <20}{'4.0 MB': <20}{1: <20}{{0: <20}}{{0: <20}}{67.11: <20}{58.72: <20}\n"
    path.write_text(HEADER + "reduce_scatter_tensor\n" + row.format("0.50") + row.format("5.00"))
    assert [row.fault for row in read_deepspeed_comms(path).rows] == [
        None,
        "its bandwidth is not that of its size and latency",
    ]


def test_columns_are_found_by_name_and_the_table_of_stragglers_is_none(tmp_path: Path) -> None:
    path = tmp_path / "comms.log"
    path.write_text(
        "Comm. Op            Message Size        Count               Total Latency(ms)   Total straggler(ms) "
        "Avg Latency(ms)     tput_avg (Gbps)     busbw_avg (Gbps)\n"
        "all_reduce | [Caller Func: _model_parallel_all_reduce]\n"
        "                    4.0 MB              20                  10.00               1.00                0.50     "
        "           134.22              117.44\n"
        "Comm. Op            Message Size        Count               Total comm lat(ms)  Total straggler(ms) "
        "Avg comm lat(ms)    Avg straggler(ms)\n"
        "all_reduce\n"
        "                    4.0 MB              20                  10.00               1.00                0.50     "
        "           0.05\n"
    )
    (row,) = read_deepspeed_comms(path).rows
    assert (row.operation, row.caller, row.count) == ("all_reduce", "_model_parallel_all_reduce", 20)
    assert row.latency_s is not None
    assert row.latency_s.value == pytest.approx(0.5e-3)


def test_a_row_that_is_cut_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "comms.log"
    whole = (DATA / "summary_zero3.log").read_text()
    path.write_text(whole[: whole.index("1376.31")])
    assert read_deepspeed_comms(path).num_cut_lines == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("hello\n", "holds no row"),
        (HEADER.replace("Gbps", "furlongs") + "all_reduce\n   1.0 KB   1   1.0   1.0   1.0   1.0\n", "allowed are"),
    ],
)
def test_a_file_that_says_nothing_is_a_sentence(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "comms.log"
    path.write_text(text)
    with pytest.raises(ValueError, match=words):
        deepspeed_comms_records(path)


def test_the_format_is_told_by_its_header() -> None:
    assert is_deepspeed_comms((DATA / "summary_zero3.log").read_text())
    assert not is_deepspeed_comms("Comm. Op\n")
