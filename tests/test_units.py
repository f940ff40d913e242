"""Labels for people."""

import pytest

from falloff import units


@pytest.mark.parametrize(
    ("num_bytes", "label"),
    [
        (1, "1 B"),
        (1000, "1000 B"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (1048576, "1 MiB"),
        (64 * 1024**2, "64 MiB"),
        (16 * 1024**3, "16 GiB"),
    ],
)
def test_bytes_are_written_in_the_binary_unit_that_leaves_the_shortest_number(num_bytes: int, label: str) -> None:
    assert units.bytes_label(num_bytes) == label


def test_powers_of_two_and_of_ten_are_not_mixed_up() -> None:
    assert (units.KIB, units.MIB, units.GIB) == (2**10, 2**20, 2**30)
    assert (units.GIGA, units.TERA) == (10**9, 10**12)
