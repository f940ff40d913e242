"""The only place with powers of ten and of two: SI inside falloff, these on the way out to people."""

KIB = 1024
MIB = 1024**2
GIB = 1024**3

MILLI = 1e-3
MICRO = 1e-6
NANO = 1e-9

KILO = 1e3
MEGA = 1e6
GIGA = 1e9
TERA = 1e12

SECONDS_PER_MINUTE = 60
SECONDS_PER_HOUR = 3600


def bytes_label(num_bytes: float) -> str:
    """Return bytes for people, in the binary unit that leaves the shortest number: 1048576 -> '1 MiB'."""
    for size, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if num_bytes >= size:
            return f"{num_bytes / size:g} {name}"
    return f"{num_bytes:g} B"
