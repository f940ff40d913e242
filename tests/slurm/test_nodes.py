import pytest

from falloff.slurm.nodes import read_gres, read_nodes, satisfies, seconds_of


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("gpu:8", {("gpu", ""): 8}),
        ("gpu:h200:8(S:0-1)", {("gpu", "h200"): 8}),
        ("gpu:a100:4(IDX:0-3),gpu:h200:4,shard:16", {("gpu", "a100"): 4, ("gpu", "h200"): 4, ("shard", ""): 16}),
        ("(null)", {}),
        ("", {}),
    ],
)
def test_generic_resources_are_counted_by_name_and_type(text: str, counts: dict[tuple[str, str], int]) -> None:
    assert read_gres(text) == counts


@pytest.mark.parametrize(
    ("limit", "limit_s"),
    [("UNLIMITED", None), ("60", 3600), ("1:30", 90), ("2:00:00", 7200), ("1-0", 86_400), ("1-12:30", 131_400)],
)
def test_times_are_read_as_slurm_writes_them(limit: str, limit_s: int | None) -> None:
    assert seconds_of(limit) == limit_s


@pytest.mark.parametrize(
    ("constraint", "holds"),
    [("ib", True), ("ib&hopper", True), ("ib&ampere", False), ("ampere|hopper", True), ("[rack1*2&ib]", False)],
)
def test_a_constraint_is_met_by_names_joined(constraint: str, holds: bool) -> None:
    assert satisfies(constraint, frozenset({"ib", "hopper"})) is holds


def test_a_node_that_is_down_or_drained_takes_no_jobs() -> None:
    states = ["idle", "mixed", "allocated", "idle~", "down*", "drained", "draining", "idle*", "maint"]
    nodes = read_nodes("".join(f"n|p|1|1|(null)|(null)|{state}\n" for state in states))
    assert [node.takes_jobs for node in nodes] == [True] * 4 + [False] * 5


def test_a_line_of_sinfo_is_a_node_of_its_partition() -> None:
    batch, other = read_nodes(
        "gpu01|batch*|96+|1031000+|gpu:h200:8(S:0-1)|ib,hopper|MIXED\ngpu01|all|96|1|(null)|(null)|idle"
    )
    assert (batch.partition, batch.is_default, batch.cpus, batch.memory_mb) == ("batch", True, 96, 1031000)
    assert (dict(batch.gpus), batch.features, batch.state) == ({("gpu", "h200"): 8}, {"ib", "hopper"}, "mixed")
    assert (other.partition, other.is_default, other.features) == ("all", False, frozenset())
