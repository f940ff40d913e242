from pathlib import Path

import pytest

from falloff.ingest.nccl_debug import (
    choice_for,
    debug_of,
    intra_node_flags,
    is_nccl_debug_log,
    read_nccl_debug,
    split_debug,
    version_of,
    version_of_code,
)

DATA = Path("tests/data/nccl_tests")


def test_three_forms_of_a_choice_are_read() -> None:
    found = read_nccl_debug(DATA / "choices_broadcast.log")
    assert [
        (c.collective, c.message_bytes, c.algorithm, c.protocol, c.channels, c.estimate_s) for c in found.choices
    ] == [
        ("broadcast", 1024, "ring", "ll", 1, None),
        ("broadcast", 65536, "ring", "simple", 2, None),
        ("broadcast", 1048576, "ring", "simple", 4, None),
        ("broadcast", 67108864, "ring", "simple", 4, None),
        ("all_gather", 37756928, "ring", "simple", None, pytest.approx(2860.208008e-6)),
        (None, 805306368, "ring", "simple", None, pytest.approx(3970.683594e-6)),
    ]


@pytest.mark.parametrize(
    ("words", "algorithm", "protocol"),
    [
        ("Algo 0 proto 0 time 1.0", "tree", "ll"),
        ("Algo 4 proto 1 time 1.0", "nvls", "ll128"),
        ("Algo 5 proto 2 time 1.0", "nvls_tree", "simple"),
        ("Algo 9 proto 2 time 1.0", "9", "simple"),
        ("Algo NVLSTree proto Simple channel{Lo..Hi}={0..15}", "nvls_tree", "simple"),
        ("Algo COLLNET_DIRECT proto LL128 channel{Lo..Hi}={0..15} cgaClusterSize 4", "collnet_direct", "ll128"),
    ],
)
def test_numbers_and_names_are_one(tmp_path: Path, words: str, algorithm: str, protocol: str) -> None:
    path = tmp_path / "debug.log"
    path.write_text(f"[2025-06-01 12:00:00] node01:1:2 [0] NCCL INFO AllReduce: 1024 Bytes -> {words}\n")
    (choice,) = read_nccl_debug(path).choices
    assert (choice.algorithm, choice.protocol) == (algorithm, protocol)


def test_links_are_read_and_those_within_a_node_that_miss_p2p_are_flagged() -> None:
    found = read_nccl_debug(DATA / "links_shm_and_net.log")
    assert [link.transport for link in found.links] == ["SHM", "SHM", "NET", "NET"]
    assert found.settings == {"NCCL_CROSS_NIC": "2"}
    (flag,) = intra_node_flags(found.links, {}, False)
    assert flag.startswith("2 links within a node go via SHM")
    shared = dict.fromkeys(range(8), "node01") | {8: "node02"}
    assert [flag[:36] for flag in intra_node_flags(found.links, shared, False)] == [
        "2 links within a node go via SHM and",
        "1 links within a node go via NET and",
    ]


def test_links_by_p2p_are_what_is_expected(tmp_path: Path) -> None:
    path = tmp_path / "debug.log"
    path.write_text(
        "node01:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC\n"
        "node01:1:2 [0] NCCL INFO comm 0x5639e9f0e8c0 rank 0 nRanks 24 nNodes 3 localRanks 8 localRank 0 MNNVL 0\n"
    )
    found = read_nccl_debug(path)
    assert found.rank_hosts == {0: "node01"}
    assert intra_node_flags(found.links, found.rank_hosts, True) == ()


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("  1024  256  float  sum  -1[0] node01:7:7 [0] NCCL INFO x", "  1024  256  float  sum  -1"),
        ("  1.00  2.00      0node01:7:7 [0] NCCL INFO x", "  1.00  2.00      0"),
        ("node01:7:7 [0] misc/ibvwrap.cc:63 NCCL WARN Failed", ""),
        ("# Avg bus bandwidth    : 1.0", "# Avg bus bandwidth    : 1.0"),
    ],
)
def test_what_nccl_prints_into_a_line_is_split_off(line: str, text: str) -> None:
    assert split_debug(line, {"node01": None})[0] == text


def test_versions_are_read_from_words_and_from_codes() -> None:
    assert version_of("NCCL version 2.26.6+cuda12.4") == "2.26.6"
    assert version_of("RCCL version : 2.27.7-HEAD:96a25b5") == "2.27.7"
    assert version_of("NCCL INFO nothing") is None
    assert [version_of_code(code) for code in (22902, 22304, 2804, 21005)] == ["2.29.2", "2.23.4", "2.8.4", "2.10.5"]


def test_a_file_without_a_line_of_nccl_is_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_text("hello\n")
    assert not is_nccl_debug_log("hello\n")
    assert is_nccl_debug_log((DATA / "links_shm_and_net.log").read_text())
    with pytest.raises(ValueError, match="holds no line of NCCL_DEBUG"):
        read_nccl_debug(path)


NEW = "n:1:1 [0] NCCL INFO {name}: {size} Bytes -> Algo RING proto SIMPLE channel{{Lo..Hi}}={{0..3}}"
OLD = "n:1:1 [0] NCCL INFO {size} Bytes -> Algo 1 proto 2 time 800.0"


@pytest.mark.parametrize(
    ("name", "collective", "part_of_size"),
    [("AllReduce", "all_reduce", 1), ("AllGather", "all_gather", 4), ("ReduceScatter", "reduce_scatter", 4)],
)
def test_the_form_with_channels_says_the_part_of_a_rank(name: str, collective: str, part_of_size: int) -> None:
    """src/enqueue.cc of NCCL 2.24 and on: task->count times the element's size."""
    choices = debug_of([NEW.format(name=name, size=1024)]).choices
    assert choice_for(choices, collective, 1024 * part_of_size, 4) == choices[0]
    assert choice_for(choices, collective, 2048 * part_of_size, 4) is None
    others = {1024, 4096} - {1024 * part_of_size}
    assert all(choice_for(choices, collective, size, 4) is None for size in others)


def test_the_form_with_an_estimate_says_the_whole_size() -> None:
    choices = debug_of([OLD.format(size=1024)]).choices
    assert choice_for(choices, "all_gather", 1024, 4) == choices[0]


def test_without_the_number_of_ranks_a_part_tells_no_size() -> None:
    choices = debug_of([NEW.format(name="AllGather", size=1024)]).choices
    assert choice_for(choices, "all_gather", 1024, None) is None
    assert choice_for(choices, "all_gather", 4096, None) is None
