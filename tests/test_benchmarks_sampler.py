"""The benchmark of the sampler's cost: its statistics, and a smoke on the CPU with a fake driver."""

import math
import random
import sys
from pathlib import Path

import pytest

from benchmarks.sampler import Pair, Request, effect_of, main, measure, report

# A sampler whose GPUs are a fake driver's, so that it samples where there is none.
FAKE = """\
import sys
from falloff.bench import power
from tests.bench.fake_nvml import FakeNvml
power.BURST_S = 0.05
power.find_source = lambda *_, **__: (power.nvml_source(FakeNvml(8)), None)
sys.exit(power.main(sys.argv[1:]))
"""


def pairs_of(ratios: list[float]) -> list[Pair]:
    return [Pair(on_s=2.0 * ratio, off_s=2.0, samples_on=20, samples_off=0) for ratio in ratios]


def test_an_effect_is_found_whatever_drifts_within_a_pair() -> None:
    drift = [math.exp(0.01 * sign + 0.002) for sign in (1, -1) * 5]
    effect = effect_of(pairs_of(drift))
    assert effect.mean == pytest.approx(0.002)
    assert effect.upper > effect.mean


def test_the_bound_is_students_one_sided_one() -> None:
    ratios = [1.001, 1.002, 0.999, 1.0, 1.003, 0.998]
    logs = [math.log(ratio) for ratio in ratios]
    mean = sum(logs) / 6
    sd = math.sqrt(sum((log - mean) ** 2 for log in logs) / 5)
    # t of 5 degrees of freedom at 95 %, from tables
    assert effect_of(pairs_of(ratios)).upper == pytest.approx(mean + 2.015 * sd / math.sqrt(6), rel=1e-3)


def test_the_bound_covers_the_true_effect_nineteen_times_of_twenty() -> None:
    draw = random.Random(1)
    trials = [effect_of(pairs_of([math.exp(draw.gauss(0.001, 0.002)) for _ in range(10)])).upper for _ in range(2000)]
    assert sum(upper > 0.001 for upper in trials) / 2000 == pytest.approx(0.95, abs=0.015)


def test_one_pair_has_no_effect() -> None:
    with pytest.raises(ValueError, match="needs two pairs or more, found 1"):
        effect_of(pairs_of([1.0]))


def test_the_sampler_samples_while_it_runs_and_not_while_it_is_stopped(tmp_path: Path) -> None:
    request = Request(
        device="cpu",
        num_ranks=1,
        pairs=2,
        window_s=0.4,
        work="launches",
        run_dir=tmp_path,
        sampler=(sys.executable, "-c", FAKE),
    )
    found = measure(request)
    assert all(pair["samples_on"] >= 1 and pair["samples_off"] == 0 for pair in found["pairs"])
    assert found["sampler_cpu_s"] is not None
    words = report(found, request)
    assert "8 meters, counter new every unknown s, sampled every 0.1 s" in words
    assert "effect on a step: " in words


def test_too_few_pairs_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--pairs", "5"])
    assert "--pairs 5: allowed are 6 and more" in capsys.readouterr().err
