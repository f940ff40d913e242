import json

from falloff.ingest.comm_details import NO_DETAIL, CommDetail, Details, detail_of

STATED = {
    "Collective name": "_allgather_base",
    "In msg nelems": 1048576,
    "Out msg nelems": 8388608,
    "Group size": 8,
    "dtype": "BFloat16",
    "Process Group Name": "17",
    "Process Group Description": "mesh_dp",
    "Process Group Ranks": "[0, 1, 2, 3]",
}


def test_the_arguments_are_read_by_name() -> None:
    detail = detail_of(STATED)
    assert (detail.collective, detail.group_name, detail.ranks, detail.group_size) == (
        "AllGather", "mesh_dp", (0, 1, 2, 3), 8,
    )  # fmt: skip


def test_message_bytes_are_the_output_of_a_gather_and_the_input_of_the_rest() -> None:
    detail = detail_of(STATED)
    assert detail.message_bytes("AllGather") == 8388608 * 2
    assert detail.message_bytes("ReduceScatter") == 1048576 * 2


def test_what_is_not_stated_is_none_and_no_size_is_zero() -> None:
    assert detail_of(None) == detail_of({}) == NO_DETAIL
    assert detail_of({"dtype": "BFloat16", "In msg nelems": 0}).message_bytes("AllReduce") is None
    assert detail_of({"dtype": "Quaternion", "In msg nelems": 5}).message_bytes("AllReduce") is None
    assert detail_of({"Process Group Ranks": "[0, 1, ..., 511]"}).ranks is None
    assert detail_of({"Process Group Ranks": "[0, , 2]"}).ranks is None
    assert detail_of({"Process Group Ranks": "[0 1]"}).ranks is None
    assert NO_DETAIL.group_name == "not stated"


def test_eight_bit_floats_are_a_byte() -> None:
    assert detail_of({"dtype": "Float8_e4m3fn", "Out msg nelems": 7}).message_bytes("AllGather") == 7


def test_a_point_to_point_call_names_its_pair() -> None:
    assert detail_of({"Src Rank": 1, "Dst Rank": 3}).peer == (1, 3)
    assert detail_of({"Src Rank": 1}).peer is None


def test_details_are_kept_once_whatever_stands_before_them() -> None:
    details = Details()
    for order in (STATED, dict(reversed(STATED.items()))):
        for correlation in (1, 2):
            event = {"ph": "X", "args": {"correlation": correlation, **order}}
            assert details.add_text(json.dumps(event).encode()) == 0
    assert details.add_text(b'{"ph": "X", "args": {"stream": 7}}') == -1
    assert list(details.known) == [detail_of(STATED)]


def test_arguments_that_words_in_a_name_resemble_are_not_taken() -> None:
    event = {"ph": "X", "name": 'say "dtype": "Float", "x', "args": {"stream": 7, "Group size": 4}}
    details = Details()
    details.add_text(json.dumps(event).encode())
    assert list(details.known) == [CommDetail(group_size=4)]


def test_arguments_split_by_others_are_all_read() -> None:
    event = {"args": {"Group size": 4, "more": {"dtype": "Int"}, "dtype": "Float"}, "ts": 5}
    details = Details()
    details.add_text(json.dumps(event).encode())
    assert list(details.known) == [CommDetail(group_size=4, dtype="Float")]
