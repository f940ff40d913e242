"""Feeds one reader mutated files, in a process of its own with 1 GB of memory and 5 s of processor time a file.

python tests/ingest/fuzz_worker.py KIND NUMBER FOLDER SAMPLE... ends with 0 where each file ended in a reading or in
one sentence; else it says which seed did not, and how.
"""

import faulthandler
import gzip
import random
import resource
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from falloff.ingest.recognise import read_any

LONGEST_S = 5  # of processor time, which other processes do not stretch
LONGEST_WAIT_S = 60
MOST_BYTES = 1 << 30
MOST_SAMPLE_BYTES = 24_000
NUMBERS = (
    b"0",
    b"-1",
    b"1e999",
    b"9" * 400,
    b"nan",
    b"N/A",
    b"1e-320",
    b"18446744073709551616",
    b"-9223372036854775809",
)

Mutation = Callable[[random.Random, bytes], bytes]


def cut(rng: random.Random, data: bytes) -> bytes:
    first, last = sorted((rng.randrange(len(data) + 1), rng.randrange(len(data) + 1)))
    return data[first:] if rng.random() < 0.3 else data[:last]


def flip_bytes(rng: random.Random, data: bytes) -> bytes:
    flipped = bytearray(data)
    for _ in range(rng.randint(1, 30)):
        if flipped:
            flipped[rng.randrange(len(flipped))] = rng.randrange(256)
    return bytes(flipped)


def shuffle_lines(rng: random.Random, data: bytes) -> bytes:
    lines = data.splitlines(keepends=True)
    rng.shuffle(lines)
    return b"".join(lines)


def drop_and_repeat_lines(rng: random.Random, data: bytes) -> bytes:
    lines = data.splitlines(keepends=True)
    return b"".join(line * rng.choice((0, 1, 1, 1, 2)) for line in lines)


def replace_numbers(rng: random.Random, data: bytes) -> bytes:
    fields = data.split(b" ") if rng.random() < 0.5 else data.split(b":")
    separator = b" " if data.count(b" ") >= data.count(b":") else b":"
    for position, field in enumerate(fields):
        if any(48 <= byte <= 57 for byte in field) and rng.random() < 0.1:
            fields[position] = rng.choice(NUMBERS)
    return separator.join(fields)


def replace_digits(rng: random.Random, data: bytes) -> bytes:
    places = [place for place, byte in enumerate(data) if 48 <= byte <= 57]
    if not places:
        return data
    place = rng.choice(places)
    return data[:place] + rng.choice(NUMBERS) + data[place + 1 :]


def insert_deep_json(rng: random.Random, data: bytes) -> bytes:
    place, depth = rng.randrange(len(data) + 1), rng.choice((50, 2_000, 200_000))
    opening = rng.choice((b"[", b'{"a":', b"{", b"("))
    return data[:place] + opening * depth + data[place:]


def insert_escapes(rng: random.Random, data: bytes) -> bytes:
    place = rng.randrange(len(data) + 1)
    piece = rng.choice((b"\x1b[38;2;1;2;3m", b"\x1b]8;;", b"\r", b"\x00", b"\xff\xfe", b"\n\n", b"\x1b[", b'"', b"\\"))
    return data[:place] + piece * rng.choice((1, 1, 3, 5_000)) + data[place:]


def one_long_line(rng: random.Random, data: bytes) -> bytes:
    return data.replace(b"\n", rng.choice((b"", b" ", b"\r"))) * rng.choice((1, 20))


def compress(rng: random.Random, data: bytes) -> bytes:
    packed = gzip.compress(data, compresslevel=1)
    return packed[: rng.randrange(len(packed) + 1)] if rng.random() < 0.5 else packed


def bomb(rng: random.Random, data: bytes) -> bytes:
    filling = rng.choice((b" ", b"0", b"[", b"a", b"\n"))
    return gzip.compress(data + filling * rng.choice((1 << 20, 1 << 24)) + data, compresslevel=6) * rng.choice((1, 8))


MUTATIONS: tuple[Mutation, ...] = (
    cut,
    flip_bytes,
    shuffle_lines,
    drop_and_repeat_lines,
    replace_numbers,
    replace_digits,
    insert_deep_json,
    insert_escapes,
    one_long_line,
    compress,
)


def mutate(seed: int, samples: Sequence[bytes]) -> bytes:
    rng = random.Random(seed)
    data = rng.choice(samples)
    if len(samples) > 1 and rng.random() < 0.1:
        data += rng.choice(samples)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        data = rng.choice(MUTATIONS)(rng, data)
    # a bomb takes up to a second, so it comes less often
    return bomb(rng, data) if seed % 200 == 199 else data


def problem_with(path: Path, framework: str) -> str | None:
    """Return what is wrong with how a file ended: anything but a reading and one sentence."""
    try:
        read_any(path, framework=framework)
    except ValueError as error:
        text = str(error)
        return None if text and "\n" not in text and len(text) < 2_000 else f"not one sentence: {text[:500]!r}"
    except BaseException:
        return traceback.format_exc()
    return None


def main() -> int:
    framework, number, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    samples = [Path(name).read_bytes()[:MOST_SAMPLE_BYTES] for name in sys.argv[4:]]
    read_any(Path(sys.argv[4]), framework=framework)  # everything is imported before memory is limited
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MOST_BYTES, resource.RLIM_INFINITY))
    # after 5 s of processor time the traceback is printed, even from within C, and the process ends
    faulthandler.register(signal.SIGPROF, chain=True)
    path = folder / "fuzzed"
    for seed in range(number):
        path.write_bytes(mutate(seed, samples))
        signal.setitimer(signal.ITIMER_PROF, LONGEST_S)
        faulthandler.dump_traceback_later(LONGEST_WAIT_S, exit=True)
        problem = problem_with(path, framework)
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_PROF, 0)
        if problem:
            print(f"seed {seed}: {problem}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
