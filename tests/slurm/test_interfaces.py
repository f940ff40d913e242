"""Which interface a setting means on a node."""

import socket

import pytest

from falloff.slurm.interfaces import addressed_interfaces, chosen_interface

HERE = ["lo", "docker0", "ens6", "ens6np0"]


@pytest.mark.parametrize(
    ("pattern", "chosen"),
    [
        ("ens", "ens6"),
        ("eth,ens", "ens6"),
        ("=ens6np0", "ens6np0"),
        ("^docker0,lo", "ens6"),
        ("^docker,lo,ens6np", "ens6"),
        ("^=lo,docker0,ens6", "ens6np0"),
    ],
)
def test_a_pattern_means_the_interface_that_nccl_would_take(pattern: str, chosen: str) -> None:
    assert chosen_interface(pattern, HERE) == chosen


@pytest.mark.parametrize("pattern", ["eth0", "=ens", "^lo,docker,ens"])
def test_a_pattern_that_means_none_is_an_error_that_names_those_of_the_node(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"launch_error: no interface .* this node has: lo, docker0, ens6, ens6np0"):
        chosen_interface(pattern, HERE)


def test_the_interfaces_of_this_machine_that_have_an_address_are_some_of_all() -> None:
    found = addressed_interfaces()
    assert "lo" in found
    assert set(found) <= {name for _, name in socket.if_nameindex()}
