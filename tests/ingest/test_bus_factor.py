import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falloff.ingest.bus_factor import COLLECTIVES, bus_factor, ranks_of_factor

RANKS = st.integers(min_value=2, max_value=4096)


def test_bus_factors_are_those_of_nccl_tests() -> None:
    assert bus_factor("all_reduce", 8) == pytest.approx(1.75)
    for name in ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter", "hypercube"):
        assert bus_factor(name, 8) == pytest.approx(0.875)
    for name in ("broadcast", "reduce", "send_recv"):
        assert bus_factor(name, 8) == 1.0


@given(RANKS)
def test_an_allreduce_moves_what_a_reducescatter_and_an_allgather_move(ranks: int) -> None:
    assert bus_factor("all_reduce", ranks) == pytest.approx(
        bus_factor("reduce_scatter", ranks) + bus_factor("all_gather", ranks)
    )


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_one_rank_has_no_bus_and_so_no_bandwidth_of_zero(collective: str) -> None:
    assert math.isnan(bus_factor(collective, 1))
    assert math.isnan(bus_factor(collective, math.nan))


def test_an_unknown_collective_has_no_factor() -> None:
    assert math.isnan(bus_factor("all_shuffle", 8))


@given(RANKS)
def test_a_factor_tells_the_ranks_where_it_depends_on_them(ranks: int) -> None:
    for name in ("all_reduce", "all_gather"):
        assert round(ranks_of_factor(name, bus_factor(name, ranks))) == ranks
    assert math.isnan(ranks_of_factor("broadcast", 1.0))
    assert math.isinf(ranks_of_factor("all_gather", 1.0))
