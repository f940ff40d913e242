"""Which of a node's network interfaces a setting such as NCCL_SOCKET_IFNAME means."""

import fcntl
import socket
import struct
from collections.abc import Sequence
from pathlib import Path

_SIOCGIFADDR = 0x8915  # linux/sockios.h: the IPv4 address of an interface


def chosen_interface(pattern: str, interfaces: Sequence[str]) -> str:
    """Return the first interface that a pattern means, as NCCL reads it: beginnings, =names, ^beginnings or ^=names.

    ValueError where there is none: NCCL says "no socket interface found" then, on the job's first collective.
    """
    excludes, rest = pattern.startswith("^"), pattern.removeprefix("^")
    exact, names = rest.startswith("="), [name for name in rest.removeprefix("=").split(",") if name]
    for interface in interfaces:
        named = interface in names if exact else any(map(interface.startswith, names))
        if named != excludes:
            return interface
    raise ValueError(f"launch_error: no interface is meant by {pattern!r}; this node has: {', '.join(interfaces)}")


def addressed_interfaces() -> list[str]:
    """Return the interfaces of this machine that have an address (Linux); one without it reaches nobody."""
    names = [name for _, name in socket.if_nameindex()]
    ipv6 = _names_with_ipv6()
    return [name for name in names if name in ipv6 or _has_ipv4(name)]


def _has_ipv4(name: str) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            fcntl.ioctl(asking, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
        except OSError:
            return False
    return True


def _names_with_ipv6() -> set[str]:
    try:
        lines = Path("/proc/net/if_inet6").read_text(encoding="ascii").splitlines()
    except OSError:
        return set()
    return {line.split()[-1] for line in lines if line.split()}
