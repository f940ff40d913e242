"""A ratio from one GPU to two: only over the very same GPUs, and with the interval that its launches give."""

import pandas as pd
import pytest

from falloff.analysis.gpu_ends import efficiency_from_one_gpu
from falloff.records import RunRecord, read_records, write_records


@pytest.fixture
def frame(tmp_path):
    def read(*records):
        write_records(tmp_path / "runs.parquet", records, RunRecord)
        return read_records([tmp_path / "runs.parquet"], RunRecord)

    return read


def run(number, rate, uuids, **changes):
    fields = {
        "record_id": f"h200/a/{number}",
        "provenance": "measured",
        "source": "falloff bench",
        "source_ref": f"{number}.jsonl",
        "outcome": "ok",
        "network": "llama2-7b",
        "num_gpus": len(uuids),
        "gpu_uuids": uuids,
        "driver": "580",
        "torch": "2.11",
        "cuda": "13.0",
        "power_limit_w": 700.0,
        "seq": 4096,
        "microbatch": 1,
        "param_dtype": "bfloat16",
        "recompute": "none",
        "tokens_per_step": 4096.0 * len(uuids),
        "window_s": 10.0,
        "window_tokens": 10.0 * rate * len(uuids),
    }
    return RunRecord(**{**fields, **changes})


def twos(*rates, **changes):
    return [run(f"two{i}", rate, ("A", "B"), **changes) for i, rate in enumerate(rates)]


def ones(*rates, **changes):
    return [run(f"one{gpu}{i}", rate, (gpu,), **changes) for i, rate in enumerate(rates) for gpu in ("A", "B")]


def test_the_base_is_the_mean_over_the_same_gpus_and_has_an_interval(frame):
    alone = [
        *ones(100.0, 101.0, 99.0)[::2],
        *(run(f"b{i}", rate, ("B",)) for i, rate in enumerate((110.0, 111.0, 109.0))),
    ]
    found = efficiency_from_one_gpu(frame(*twos(95.0, 96.0, 94.0)), [frame(*alone)])
    assert found.ratio == pytest.approx(95 / 105, rel=1e-3)
    assert found.low < found.ratio < found.high
    assert (found.n, found.reason) == (3, None)
    assert found.kind == "95 % t interval of the log of a ratio, 6 degrees of freedom"


def test_one_launch_an_end_has_a_ratio_and_no_interval(frame):
    found = efficiency_from_one_gpu(frame(*twos(95.0)), [frame(*ones(100.0))])
    assert (found.ratio, found.low, found.n) == (pytest.approx(0.95), None, 1)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"driver": "581"}, "driver differs: 580, 581"),
        ({"driver": None}, "driver is not stated"),
        ({"site": "elsewhere"}, None),
        ({"recompute": "full"}, "recompute differs: full, none"),
        ({"commit": "b"}, None),
    ],
)
def test_ends_that_are_not_known_to_be_alike_make_no_ratio(frame, changes, reason):
    found = efficiency_from_one_gpu(frame(*twos(95.0)), [frame(*ones(100.0, **changes))])
    assert found.reason == reason
    assert (found.ratio is None) == (reason is not None)


def test_two_sites_that_are_both_stated_make_no_ratio(frame):
    found = efficiency_from_one_gpu(frame(*twos(95.0, site="a")), [frame(*ones(100.0, site="b"))])
    assert (found.ratio, found.reason) == (None, "site differs: a, b")


def test_a_gpu_that_did_not_run_alone_makes_no_ratio(frame):
    found = efficiency_from_one_gpu(frame(*twos(95.0)), [frame(run("a", 100.0, ("A",)))])
    assert (found.ratio, found.reason) == (None, "not every GPU of the two ran alone")


def test_another_gpu_of_the_same_kind_is_no_end(frame):
    found = efficiency_from_one_gpu(frame(*twos(95.0)), [frame(run("a", 100.0, ("A",)), run("c", 100.0, ("C",)))])
    assert found.ratio is None


def test_of_several_cells_on_one_gpu_that_of_the_same_microbatch_counts(frame):
    small, large = frame(*ones(100.0)), frame(*ones(120.0, microbatch=4))
    both = frame(*twos(96.0, microbatch=4))
    assert efficiency_from_one_gpu(both, [small, large]).ratio == pytest.approx(0.8)
    split = frame(*twos(96.0, microbatch=2, tokens_per_step=8192.0))
    # as many tokens a step and GPU, as under tp
    assert efficiency_from_one_gpu(split, [large.assign(tokens_per_step=16384.0), small]).ratio == pytest.approx(0.96)
    assert efficiency_from_one_gpu(split, [large.assign(tokens_per_step=16384.0)]).reason == (
        "no run on one GPU of the same batch"
    )


def test_without_a_run_on_one_gpu_the_reason_is_said(frame):
    assert efficiency_from_one_gpu(frame(*twos(95.0)), []).reason == "no run on one GPU"


def test_a_run_without_uuids_makes_no_ratio(frame):
    blank: list[pd.DataFrame] = [frame(*ones(100.0, gpu_uuids=None))]
    assert efficiency_from_one_gpu(frame(*twos(95.0, gpu_uuids=None)), blank).reason == "no UUIDs are stated"


def test_launches_on_two_pairs_of_gpus_are_each_over_their_own(frame):
    elsewhere = [run(f"c{gpu}", 200.0, (gpu,)) for gpu in ("C", "D")]
    both = [*twos(90.0), *(run(f"far{i}", 160.0, ("C", "D")) for i in (1, 2))]
    found = efficiency_from_one_gpu(frame(*both), [frame(*ones(100.0), *elsewhere)])
    assert found.ratio == pytest.approx((0.9 * 0.8 * 0.8) ** (1 / 3))
    assert found.n == 3


def test_a_pair_whose_gpus_did_not_run_alone_is_left_out_of_the_ratio_of_the_rest(frame):
    found = efficiency_from_one_gpu(frame(*twos(90.0), run("far", 10.0, ("C", "D"))), [frame(*ones(100.0))])
    assert (found.ratio, found.n) == (pytest.approx(0.9), 1)


def test_launches_of_two_commits_are_each_over_those_of_their_own(frame):
    old, new = twos(90.0, commit="a"), [run("new", 95.0, ("A", "B"), commit="b")]
    alone = [*ones(100.0, commit="a"), *(run(f"n{gpu}", 95.0, (gpu,), commit="b") for gpu in ("A", "B"))]
    assert efficiency_from_one_gpu(frame(*old, *new), [frame(*alone)]).ratio == pytest.approx(0.9**0.5)
    assert efficiency_from_one_gpu(frame(*new), [frame(*alone)]).ratio == pytest.approx(1.0)
    found = efficiency_from_one_gpu(frame(*new), [frame(*ones(100.0, commit="a"))])
    assert (found.ratio, found.reason, found.label) == (None, "commit differs: a, b", "one-GPU run: other commit")
