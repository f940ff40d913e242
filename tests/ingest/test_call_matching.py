from falloff.ingest.call_matching import Group, MatchedCall, RankCall, group_of, match_calls
from falloff.ingest.comm_details import CommDetail

ALL = Group("default_pg", "0", (0, 1), 2)


def call(start: int, end: int, collective: str = "AllReduce", group: Group = ALL, step: int | None = None) -> RankCall:
    return RankCall(group, collective, step, (None, None), start, end)


def test_the_shortest_stay_is_the_transfer() -> None:
    matched = MatchedCall("g", "AllReduce", (0, 1), (0, 90), (100, 101))
    assert (matched.residency_ns, matched.transfer_ns) == ((100, 11), 11)


def test_the_n_th_call_of_a_group_is_the_n_th_on_the_others() -> None:
    other = Group("mesh_tp", "5", (0, 1), 2)
    by_rank = {
        0: [call(0, 9), call(10, 19, group=other), call(20, 29)],
        1: [call(5, 9), call(25, 29), call(15, 19, group=other)],
    }
    matched, reasons = match_calls(by_rank)
    assert [(m.group, m.start_ns) for m in matched] == [
        ("default_pg", (0, 5)), ("default_pg", (20, 25)), ("mesh_tp", (10, 15)),
    ]  # fmt: skip
    assert reasons == []


def test_other_collectives_in_the_same_place_are_not_matched() -> None:
    matched, reasons = match_calls({0: [call(0, 9)], 1: [call(0, 9, "AllGather")]})
    assert matched == []
    assert "the ranks' calls differ" in reasons[0]


def test_a_group_that_more_ranks_call_than_it_has_is_not_matched() -> None:
    pair = Group("mesh_tp", "tp", None, 2)
    matched, reasons = match_calls({rank: [call(0, 9, group=pair)] for rank in range(4)})
    assert matched == []
    assert "4 ranks have calls of a group that states 2" in reasons[0]


def test_a_rank_of_the_group_without_calls_is_named() -> None:
    matched, reasons = match_calls({0: [call(0, 9)], 1: []})
    assert matched == []
    assert "rank 1 has no calls of it" in reasons[0]


def test_a_point_to_point_call_is_its_pair_s() -> None:
    detail = CommDetail(group="9", description="mesh_pp", ranks=(0, 1, 2), group_size=3, peer=(2, 1))
    assert group_of(detail) == Group("mesh_pp", "9", (1, 2), 2)
    assert group_of(detail._replace(peer=(1, 1))).members == (0, 1, 2)
