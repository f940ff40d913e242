import pytest

from falloff.ingest.composer_settle import settle, tokens_are
from falloff.ingest.training_log import LoggedStep

CLOCKS = {"seconds": 1.0, "minutes": 60.0, "hours": 3600.0, "days": 86400.0}


def step(number: int, **fields: object) -> LoggedStep:
    more = {name.replace("__", "/"): str(value) for name, value in fields.items() if "__" in name}
    return LoggedStep(step=number, more=more, **{n: v for n, v in fields.items() if "__" not in n})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        *(("0.16.0", "all, padding included"), ("0.17.1", "all, padding included")),
        *(("0.17.2", "all but padding"), ("0.21.3", "all but padding"), ("1.0", "all but padding")),
    ],
)
def test_the_version_tells_what_a_token_is(version: str, expected: str) -> None:
    steps = [step(1, tokens_per_s=2048.0, samples_per_s=1.0)]
    assert tokens_are({"framework_version": version}, steps) == expected


def test_without_a_version_names_and_numbers_tell() -> None:
    even, odd = [step(1, tokens_per_s=4096.0, samples_per_s=2.0)], [step(1, tokens_per_s=3000.7, samples_per_s=2.0)]
    assert tokens_are({}, even) == "all, padding included"
    assert tokens_are({}, odd) == "all but padding"
    assert tokens_are({}, [step(1, tokens_per_s=3000.7, samples_per_s=2.0, wall_clock__train=1)]) == (
        "all, padding included"
    )
    assert tokens_are({}, [step(1, samples_per_s=2.0)]) is None


@pytest.mark.parametrize("unit", CLOCKS)
def test_the_unit_of_its_clock_follows_from_its_own_rate(unit: str) -> None:
    steps = [
        step(number, time__train=f"{number * 36.0 / CLOCKS[unit]:.6f}", throughput__batches_per_sec=1 / 36.0)
        for number in (10, 20)
    ]
    _, timed = settle({}, steps, ())
    assert [line.elapsed_s for line in timed] == pytest.approx([360.0, 720.0], rel=1e-3)


def test_without_a_rate_wall_clocks_are_in_seconds_and_times_in_hours() -> None:
    _, older = settle({}, [step(1, wall_clock__train=20.0)], ())
    _, newer = settle({}, [step(1, time__train=0.5)], ())
    assert (older[0].elapsed_s, newer[0].elapsed_s) == (20.0, 1800.0)


def test_what_the_log_states_is_not_replaced() -> None:
    facts, _ = settle({"num_gpus": 4}, [step(1, tokens_per_s=100.0, tokens_per_gpu_s=10.0, samples_per_s=1.0)], ())
    assert facts["num_gpus"] == 4


def test_the_samples_of_a_batch_follow_from_an_even_counter() -> None:
    even, _ = settle({}, [step(n, samples_seen=1024.0 * n) for n in (10, 20, 30)], ())
    odd, _ = settle({}, [step(n, samples_seen=float(n * n)) for n in (10, 20, 30)], ())
    assert (even["global_batch"], odd.get("global_batch")) == (1024, None)


@pytest.mark.parametrize(("of_all", "of_one"), [(1e308, 1e-300), (1.0, 10.0)])
def test_a_ratio_that_no_cluster_has_gives_no_gpus(of_all: float, of_one: float) -> None:
    facts, _ = settle({}, [step(1, tokens_per_s=of_all, tokens_per_gpu_s=of_one)], ())
    assert facts.get("num_gpus") is None
