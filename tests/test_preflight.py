"""Which GPUs and pairs stand out: by made-up rates, and once by two processes on the CPU."""

import itertools
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falloff import preflight
from falloff.preflight import Load, Preflight, Rate, failure_words, find_faults, find_outliers, run_preflight

NUM_GPUS = 8


def rates_of(typical: Sequence[float], noise: float = 0.0, measure: str = "product") -> list[Rate]:
    """Return one rate a GPU, three repeats each that lie `noise` of it apart."""
    return [
        Rate(measure=measure, unit="FLOP/s", devices=(n,), repeats=(v * (1 - noise / 2), v, v * (1 + noise / 2)))
        for n, v in enumerate(typical)
    ]


def pairs_of(slow: set[tuple[int, int]], num_gpus: int = NUM_GPUS, factor: float = 0.5) -> list[Rate]:
    return [
        Rate(measure="pair", unit="B/s", devices=pair, repeats=(3e11 * (factor if pair in slow else 1.0),) * 3)
        for pair in itertools.combinations(range(num_gpus), 2)
    ]


rate = st.floats(1e9, 1e15)
chance = st.integers(0, 2**32)


@given(base=rate, seed=chance)
def test_gpus_that_differ_by_chance_alone_do_not_stand_out(base: float, seed: int) -> None:
    draw = random.Random(seed)
    assert find_outliers(rates_of([base * draw.uniform(0.98, 1.02) for _ in range(NUM_GPUS)])) == []


@given(base=rate, seed=chance, slow=st.integers(0, NUM_GPUS - 1), factor=st.floats(0.2, 0.92))
def test_one_slow_gpu_of_eight_is_found_and_no_other(base: float, seed: int, slow: int, factor: float) -> None:
    draw = random.Random(seed)
    typical = [base * draw.uniform(0.99, 1.01) for _ in range(NUM_GPUS)]
    typical[slow] *= factor
    (sentence,) = find_outliers(rates_of(typical, noise=0.01))
    assert sentence.startswith(f"GPU {slow} is ")
    assert sentence.endswith("% slower than the median at product")


@given(base=rate, fast=st.integers(0, NUM_GPUS - 1))
def test_a_fast_gpu_is_no_fault(base: float, fast: int) -> None:
    assert find_outliers(rates_of([base * (1.5 if n == fast else 1.0) for n in range(NUM_GPUS)])) == []


def test_a_gpu_whose_own_repeats_lie_as_far_apart_is_not_called_slow() -> None:
    typical = [100.0] * 7 + [90.0]
    assert find_outliers(rates_of(typical, noise=0.15)) == []
    assert find_outliers(rates_of(typical, noise=0.05))


@given(base=rate, factor=st.floats(0.2, 0.94))
def test_of_two_gpus_that_differ_both_are_named(base: float, factor: float) -> None:
    (sentence,) = find_outliers(rates_of([base, base * factor]))
    assert sentence.startswith("GPUs 1 and 0 differ by ")
    assert "nobody can tell" in sentence


def test_two_gpus_that_agree_and_one_alone_are_no_fault() -> None:
    assert find_outliers(rates_of([100.0, 96.0])) == []
    assert find_outliers(rates_of([100.0])) == []


def test_of_three_gpus_the_slow_one_is_told() -> None:
    (sentence,) = find_outliers(rates_of([100.0, 80.0, 101.0]))
    assert sentence == "GPU 1 is 20.0% slower than the median at product"


@given(pair=st.sampled_from(list(itertools.combinations(range(NUM_GPUS), 2))), factor=st.floats(0.1, 0.85))
def test_one_slow_pair_is_found_and_no_other(pair: tuple[int, int], factor: float) -> None:
    (sentence,) = find_outliers(pairs_of({pair}, factor=factor))
    assert sentence.startswith(f"GPUs {pair[0]} and {pair[1]} are ")


@given(gpu=st.integers(0, NUM_GPUS - 1))
def test_a_gpu_all_of_whose_pairs_are_slow_is_named_once(gpu: int) -> None:
    slow = {pair for pair in itertools.combinations(range(NUM_GPUS), 2) if gpu in pair}
    assert find_outliers(pairs_of(slow)) == [
        f"all pairs of GPU {gpu} are slower than the median pair at pair, by up to 50.0%"
    ]


def test_the_only_pair_has_nothing_to_be_held_against() -> None:
    assert find_outliers(pairs_of({(0, 1)}, num_gpus=2)) == []


def test_each_measure_is_judged_by_itself() -> None:
    sentences = find_outliers([*rates_of([1e15] * 8), *rates_of([4e12] * 7 + [3e12], measure="memory copy")])
    assert sentences == ["GPU 7 is 25.0% slower than the median at memory copy"]


def found(**stated: Any) -> Preflight:
    return Preflight(**{"device": "cuda", "rates": (), "loads": (), **stated})


def test_heat_is_a_fault_and_the_power_limit_is_none() -> None:
    loads = (
        Load(device=0, reason_shares={"sw_power_cap": 1.0, "hw_thermal_slowdown": 0.0}),
        Load(device=1, reason_shares={"sw_power_cap": 1.0, "hw_thermal_slowdown": 0.4}),
    )
    assert find_faults(found(loads=loads)) == [
        "GPU 1 was held down by hw_thermal_slowdown in 40% of its samples under load"
    ]


def test_a_gpu_with_a_lower_clock_under_load_stands_out() -> None:
    loads = tuple(Load(device=n, sm_clock_mhz=1500.0 if n != 2 else 1200.0) for n in range(4))
    assert find_faults(found(loads=loads)) == ["GPU 2 is 20.0% slower than the median at SM clock under load"]


def test_what_failed_is_the_first_fault_and_what_was_measured_before_is_judged() -> None:
    faults = find_faults(found(rates=tuple(rates_of([1.0, 1.0, 0.5])), failure="ValueError: wrong sums"))
    assert faults[0] == "not everything could be measured: ValueError: wrong sums"
    assert faults[1].startswith("GPU 2 is 50.0% slower")


@pytest.mark.parametrize(
    ("errors", "words"),
    [
        ("", None),
        ("Killed\n", "Killed"),
        ("Traceback\n  a\nValueError: wrong\n\n/usr/lib/x.py: UserWarning: leaked\n", "ValueError: wrong"),
        ("torch.OutOfMemoryError: CUDA out of memory\n", "torch.OutOfMemoryError: CUDA out of memory"),
    ],
)
def test_a_failure_is_told_by_the_error_and_not_by_what_is_printed_after_it(errors: str, words: str | None) -> None:
    assert failure_words(errors) == words


def test_without_a_gpu_there_is_nothing_to_try_unless_the_cpu_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "num_attached_gpus", lambda _: 0)
    with pytest.raises(ValueError, match=r"^no NVIDIA GPU that ranks may use is here[^\n]+--device cpu$"):
        run_preflight("auto")


def test_processes_try_everything_on_the_cpu_each_all_and_every_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "CPU_PROCESSES", 3)
    result = run_preflight("cpu")
    assert result.failure is None
    measures = {(rate.measure, rate.devices) for rate in result.rates}
    own = ("product float32 128, burst", "product float32 128, sustained", "memory copy", "memory triad")
    together = {(f"all_reduce {size}", (0, 1, 2)) for size in ("1 MiB", "64 KiB")}
    of_pairs = {
        (f"pair {call} {size}", pair)
        for call in ("all_reduce", "send_recv")
        for size in ("1 MiB", "64 KiB")
        for pair in itertools.combinations(range(3), 2)
    }
    assert measures == {(m, (n,)) for m in own for n in range(3)} | together | of_pairs
    assert all(value > 0 for one in result.rates for value in one.repeats)
    assert [load.sm_clock_mhz for load in result.loads] == [None] * 3


def test_a_measuring_process_that_fails_is_a_failure_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # so that it fails on a machine with GPUs too
    failure = preflight._start(tmp_path / "found.json", "cuda", 1)
    assert failure
    assert "Error" in failure
    assert preflight.read_preflight(tmp_path / "found.json", "cuda", failure).rates == ()
    assert "\n" not in failure
