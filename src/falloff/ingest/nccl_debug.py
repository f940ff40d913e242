"""What NCCL prints of itself under NCCL_DEBUG: its version, what it chose for each call, what carries each link.

Three forms of the choice, which only rank 0 prints (NCCL_DEBUG_SUBSYS=TUNING): numbers with NCCL's own estimate of
the time, without and with the collective's name, and names with the range of channels.
"""

import itertools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from falloff.ingest.logtext import read_lines
from falloff.ingest.nccl_tests_log import Choice, Link
from falloff.units import MICRO

# nccl.h and src/include/nccl_common.h of NCCL 2.19 to 2.23, in the order of their numbers
_ALGORITHMS = ("tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat")
_PROTOCOLS = ("ll", "ll128", "simple")
_SPELLINGS = {"collnetdirect": "collnet_direct", "collnetchain": "collnet_chain", "nvlstree": "nvls_tree"}
_COLLECTIVES = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "alltoall": "all_to_all",
    "gather": "gather",
    "scatter": "scatter",
    "sendrecv": "send_recv",
}

_LINE = re.compile(
    r"(?:\[\d{4}-\d\d-\d\d[^\]]*\] )?(?:\[\d+\] ?)?(?:(?P<host>[A-Za-z0-9][\w.\-]{0,254}):\d+:\d+ )?(?:\[-?\d+\] )?"
    r"(?:[\w/.\-]{1,200}:\d+ )?(?:NCCL|RCCL) (?:INFO|WARN|TRACE|VERSION|ERROR)\b(?P<text>.*)"
)
_LEVEL = re.compile(r"NCCL (?:INFO|WARN|TRACE|VERSION|ERROR)\b")
# host, process and place in the source are shorter; without a bound a long line without them takes its length squared
_MOST_BEFORE_LEVEL = 512
_CHOICE = re.compile(
    r"(?:(?P<collective>[A-Za-z]{1,40})(?: \[[^\]]{0,40}\])?: +)?(?P<bytes>\d{1,18}) Bytes -> Algo (?P<algorithm>\w+) "
    r"proto (?P<protocol>\w+)(?: time (?P<time>\d{1,18}(?:\.\d+)?(?:e[-+]?\d{1,2})?))?"
    r"(?: channel\{Lo\.\.Hi\}=\{(?P<low>\d{1,9})\.\.(?P<high>\d{1,9})\})?"
)
_LINK = re.compile(
    r"(?:Channel|Ring) \d+(?:/\d+)? : (?P<sender>\d{1,9})(?:\[\w+\])? -> (?P<receiver>\d{1,9})(?:\[\w+\])?"
    r"(?: \[(?:send|receive)\])? via (?P<transport>P2P|SHM|NET|direct shared memory)"
)
_RANK = re.compile(r"\bcomm 0x\w+ rank (\d{1,9}) n[rR]anks (\d{1,9})")
_SETTING = re.compile(r"\b((?:NCCL|RCCL)_\w+) set by environment to (\S+?)\.?\s*$")
_VERSION = re.compile(r"\b(?:NCCL|RCCL) version\s{0,9}:?\s{0,9}(\d+\.\d+(?:\.\d+)?)")


@dataclass(frozen=True, kw_only=True)
class NcclDebug:
    """What the lines of one file say. settings are those that NCCL says it took from the environment.

    num_ranks are those of its communicators, None where these differ: a program may make several.
    """

    nccl: str | None
    choices: tuple[Choice, ...]
    links: tuple[Link, ...]
    settings: Mapping[str, str]
    rank_hosts: Mapping[int, str]
    num_ranks: int | None

    @property
    def flags(self) -> tuple[str, ...]:
        """What is odd about its links; that all ranks are on one host is known where the host of each is."""
        is_whole = self.num_ranks is not None and len(self.rank_hosts) == self.num_ranks
        return intra_node_flags(self.links, self.rank_hosts, is_whole and len(set(self.rank_hosts.values())) == 1)


def is_nccl_debug_log(text: str) -> bool:
    """Return whether the text has a line of NCCL's own log."""
    return any(_match(line) for line in text.splitlines())


def read_nccl_debug(path: Path) -> NcclDebug:
    """Return what NCCL says in a file; ValueError, one sentence, for one that cannot be read or has no such line."""
    said = (line.text for line in read_lines(path) if _match(line.text) or version_of(line.text))
    first = next(said, None)
    if first is None:
        raise ValueError(f"{path}: holds no line of NCCL_DEBUG")
    return debug_of(itertools.chain((first,), said))


def split_debug(text: str, hosts: Collection[str] = ()) -> tuple[str, str]:
    """Return a line without what NCCL printed into it, and that part, empty where there is none.

    hosts are names that are known: what stands before one may be the last digit of a row.
    """
    match = _match(text)
    if match is None:
        return text, ""
    found = match["host"] or ""
    # "0" and "node01" stand there as "0node01", where a row was broken before its line end
    glued = next((at for at in range(1, len(found)) if found[at:] in hosts), 0) if found not in hosts else 0
    begins = match.start("host") + glued if glued else match.start()
    return text[:begins], text[begins:]


def _match(text: str) -> re.Match[str] | None:
    level = _LEVEL.search(text)
    return _LINE.search(text, max(level.start() - _MOST_BEFORE_LEVEL, 0)) if level else None


def says_something(line: str) -> bool:
    """Return whether debug_of reads anything out of a line."""
    return any(pattern.search(line) for pattern in (_CHOICE, _LINK, _RANK, _SETTING, _VERSION))


def debug_of(lines: Iterable[str]) -> NcclDebug:
    """Return what lines of NCCL's log say; others among them say nothing."""
    nccl: str | None = None
    choices: list[Choice] = []
    links: list[Link] = []
    settings: dict[str, str] = {}
    rank_hosts: dict[int, str] = {}
    sizes: set[int] = set()
    for line in lines:
        nccl = nccl or version_of(line)
        match = _match(line)
        if match is None:
            continue
        host, text = match["host"], match["text"]
        choices += _choices(text)
        links += _links(text, host)
        settings |= dict(_SETTING.findall(text))
        rank = _RANK.search(text)
        if rank:
            sizes.add(int(rank[2]))
            if host:
                rank_hosts[int(rank[1])] = host
    return NcclDebug(
        nccl=nccl,
        choices=tuple(choices),
        links=tuple(links),
        settings=settings,
        rank_hosts=rank_hosts,
        num_ranks=sizes.pop() or None if len(sizes) == 1 else None,
    )


def choice_for(
    choices: Iterable[Choice], collective: str | None, message_bytes: int, num_ranks: int | None
) -> Choice | None:
    """Return what NCCL chose for a collective of nccl-tests' size, None where it says nothing or different things.

    A choice that names no collective holds for any. What it estimates may vary from call to call; then it is None.
    """
    found = [
        choice
        for choice in choices
        if choice.collective in (None, collective) and _message_bytes(choice, num_ranks) == message_bytes
    ]
    return found[0] if len({(choice.algorithm, choice.protocol, choice.channels) for choice in found}) == 1 else None


def _message_bytes(choice: Choice, num_ranks: int | None) -> int | None:
    """Return nccl-tests' size of what a line says, None where the number of ranks is needed and not known.

    The form with channels (src/enqueue.cc from NCCL 2.24 on) has count times element, and the count of AllGather and
    ReduceScatter is one rank's part; the forms before it have the larger of what a rank sends and receives.
    """
    if choice.channels is None or choice.collective not in ("all_gather", "reduce_scatter"):
        return choice.message_bytes
    return choice.message_bytes * num_ranks if num_ranks else None


def version_of(text: str) -> str | None:
    """Return the version of NCCL or RCCL that a line names, without that of CUDA."""
    match = _VERSION.search(text)
    return match[1] if match else None


def version_of_code(code: int) -> str:
    """Return the version that NCCL_VERSION_CODE stands for: 22902 -> 2.29.2, and 2804 -> 2.8.4 before 2.9."""
    major, minor = (10000, 100) if code >= 10000 else (1000, 100)
    return f"{code // major}.{code % major // minor}.{code % minor}"


def intra_node_flags(links: Sequence[Link], rank_hosts: Mapping[int, str], is_one_host: bool) -> tuple[str, ...]:
    """Return a flag for each transport other than P2P that carries links within a host, and how many.

    Each means that the GPUs do not reach one another, as where a task sees its own GPU alone; rank_hosts tells which
    ranks share a host, and is_one_host that all do.
    """
    within = [link for link in links if link.transport != "P2P" and _is_within(link, rank_hosts, is_one_host)]
    counts = {name: sum(link.transport == name for link in within) for name in ("SHM", "NET")}
    return tuple(
        f"{count} links within a node go via {name} and not P2P: the GPUs do not reach one another (each process may "
        "see its own GPU alone, or P2P is switched off)"
        for name, count in counts.items()
        if count
    )


def _is_within(link: Link, rank_hosts: Mapping[int, str], is_one_host: bool) -> bool:
    if link.transport == "SHM" or is_one_host:
        return True
    sender, receiver = rank_hosts.get(link.sender), rank_hosts.get(link.receiver)
    return sender is not None and sender == receiver


def _choices(text: str) -> list[Choice]:
    match = _CHOICE.search(text)
    if match is None or int(match["bytes"]) < 1:
        return []
    low, high, time = match["low"], match["high"], match["time"]
    return [
        Choice(
            collective=_COLLECTIVES.get((match["collective"] or "").lower()),
            message_bytes=int(match["bytes"]),
            algorithm=_named(match["algorithm"], _ALGORITHMS),
            protocol=_named(match["protocol"], _PROTOCOLS),
            channels=int(high) - int(low) + 1 if low is not None and int(high) >= int(low) else None,
            estimate_s=float(time) * MICRO if time else None,
        )
    ]


def _named(word: str, names: Sequence[str]) -> str:
    """Return the name of a number, or the name as it stands, in lower case; a number that has none stays."""
    if word.isdigit():
        return names[int(word)] if int(word) < len(names) else word
    return _SPELLINGS.get(word.lower(), word.lower())


def _links(text: str, host: str | None) -> list[Link]:
    match = _LINK.search(text)
    if match is None:
        return []
    transport = "SHM" if match["transport"] == "direct shared memory" else match["transport"]
    return [Link(host, int(match["sender"]), int(match["receiver"]), transport)]
