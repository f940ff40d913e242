from falloff.analysis.generation_pairs import COMPARISONS


def test_both_sides_of_a_comparison_name_their_machine_and_differ_in_it() -> None:
    for one in COMPARISONS:
        assert one.base["gpu"] != one.other["gpu"]


def test_what_both_sides_state_beside_the_machine_is_the_same() -> None:
    for one in COMPARISONS:
        both = one.base.keys() & one.other.keys() - {"gpu"}
        assert {name: one.base[name] for name in both} == {name: one.other[name] for name in both}


def test_sides_that_are_not_paired_say_what_else_differs() -> None:
    assert all(one.differs for one in COMPARISONS)
