"""The side-by-side with TorchTitan: order, pairs, intervals, weights. TorchTitan itself is not needed."""

import itertools
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.torchtitan import legs
from benchmarks.torchtitan.__main__ import main, read_changes
from benchmarks.torchtitan.legs import Place, legs_done, run_legs, summarise
from benchmarks.torchtitan.plan import COMPARED_STEPS, COMPARISONS, Comparison, Leg, leg_order, make_sides
from benchmarks.torchtitan.ratio import block_ratios, compare, loss_difference
from benchmarks.torchtitan.request import Request, read_request
from benchmarks.torchtitan.table import show
from benchmarks.torchtitan.titan_rank import titan_arguments
from benchmarks.torchtitan.watts import Watch, window_means
from benchmarks.torchtitan.weights import drawn_weights, titan_name, titan_weight
from falloff.bench.network import rotate, rotation_table
from falloff.bench.power_source import Meter, PowerSource, Reading
from falloff.spec.cell import cell_to_json
from falloff.spec.network import Network

NETWORK = Network(name="tiny", layers=2, hidden=32, heads=4, kv_heads=2, ffn=96, vocab=64, source="this test")
PAIR = Comparison(name="a pair", ours="ours_none_1", theirs=("titan_none_1",), goal=1.0, same_losses=True)
ALL = ("titan_none_1", "ours_none_1", "titan_selective_2", "ours_selective_2", "ours_best")


def sides_of(*names: str, best: dict[str, Any] | None = None, **every: Any) -> Any:
    return make_sides(names, NETWORK, seq=16, ranks=2, best=best or {}, every=every)


def result(side: str, block: int, rate: float, **changes: Any) -> dict[str, Any]:
    cell = sides_of(side)[side].cell
    steps = cell.warmup_steps + cell.measured_steps
    return {
        "leg": {"block": block, "place": 0, "side": side},
        "cell": cell_to_json(cell),
        "tokens_per_gpu_s": rate,
        "boot_id": "one",
        "gpu": "NVIDIA H200",
        "ranks": [
            {
                "time_s": [0.5 * n for n in range(steps + 1)],
                "gpu_uuid": f"GPU-{rank}",
                "peak_allocated_bytes": 2**30,
                "peak_reserved_bytes": None,
            }
            for rank in range(2)
        ],
        "losses": [5.0 - 0.01 * n for n in range(steps)],
        "power": [{"counter_w": 650.0, "draw_w": 660.0, "sm_clock_mhz": None}],
        **changes,
    }


def test_every_other_block_runs_backwards() -> None:
    order = [leg.side for leg in leg_order(["a", "b"], 4)]
    assert order == ["a", "b", "b", "a", "a", "b", "b", "a"]
    assert [leg.side for leg in leg_order("abc", 2)] == ["a", "b", "c", "c", "b", "a"]


def test_the_order_gives_each_side_the_same_mean_place_so_that_a_steady_drift_cancels() -> None:
    places: dict[str, list[int]] = {}
    for number, leg in enumerate(leg_order(ALL, 4)):
        places.setdefault(leg.side, []).append(number)
    assert len({sum(numbers) for numbers in places.values()}) == 1


def test_folders_of_legs_sort_as_they_run() -> None:
    names = [leg.name for leg in leg_order(ALL, 12)]
    assert names == sorted(names)


def test_both_programs_of_an_equalised_pair_have_one_cell() -> None:
    sides = sides_of(*ALL)
    for comparison in COMPARISONS[:2]:
        assert sides[comparison.ours].cell == sides[comparison.theirs[0]].cell
    assert sides["ours_none_1"].cell.recompute == "none"
    assert sides["ours_selective_2"].cell.microbatch == 2


def test_only_our_best_is_changed_and_its_global_batch_follows() -> None:
    sides = sides_of("ours_best", "ours_none_1", best={"microbatch": 2, "reshard_after_forward": False})
    assert (sides["ours_best"].cell.microbatch, sides["ours_best"].cell.global_batch) == (2, 4)
    assert not sides["ours_best"].cell.reshard_after_forward
    assert sides["ours_none_1"].cell.reshard_after_forward


def test_a_side_or_an_option_that_is_not_known_is_one_sentence() -> None:
    with pytest.raises(ValueError, match="no side is called 'theirs'; allowed: titan_none_1"):
        sides_of("theirs")
    with pytest.raises(ValueError, match="unknown key 'microbach'"):
        sides_of("ours_best", best={"microbach": 2})
    with pytest.raises(ValueError, match="'microbatch' is no change"):
        read_changes(["microbatch"])


def test_a_changed_option_is_read_as_yaml_writes_it() -> None:
    assert read_changes(["microbatch=2", "compile=false", "loss_chunk_tokens=null", "recompute=full"]) == {
        "microbatch": 2,
        "compile": False,
        "loss_chunk_tokens": None,
        "recompute": "full",
    }


def test_a_folder_without_torchtitan_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--torchtitan", str(tmp_path), "--folder", str(tmp_path)]) == 2
    assert "is no source tree" in capsys.readouterr().err


def test_a_ratio_is_taken_within_a_block() -> None:
    rates = {0: (100.0, 110.0), 1: (200.0, 202.0), 2: (50.0, 52.5)}
    results = [
        result(side, block, rate)
        for block, pair in rates.items()
        for side, rate in zip(("titan_none_1", "ours_none_1"), pair, strict=True)
    ]
    assert block_ratios("ours_none_1", "titan_none_1", results) == pytest.approx({0: 1.10, 1: 1.01, 2: 1.05})
    found = compare(PAIR, results)
    assert found is not None
    logs = [math.log(ratio) for ratio in (1.10, 1.01, 1.05)]
    mean = sum(logs) / 3
    # Student's 97.5 % quantile of two degrees of freedom is 4.3027
    half = 4.302653 * math.sqrt(sum((log - mean) ** 2 for log in logs) / 2 / 3)
    assert found.interval.center == pytest.approx(math.exp(mean))
    assert (found.interval.low, found.interval.high) == pytest.approx((math.exp(mean - half), math.exp(mean + half)))


def test_a_block_that_another_machine_or_another_start_completed_is_no_pair() -> None:
    whole = [result("titan_none_1", 0, 100.0), result("ours_none_1", 0, 104.0)]
    for changes in (
        {"boot_id": "two"},
        {"ranks": [{**rank, "gpu_uuid": "GPU-9"} for rank in whole[0]["ranks"]]},
    ):
        broken = [result("titan_none_1", 1, 100.0), result("ours_none_1", 1, 150.0, **changes)]
        assert block_ratios("ours_none_1", "titan_none_1", [*whole, *broken]) == pytest.approx({0: 1.04})
    assert compare(PAIR, [result("ours_none_1", 0, 104.0)]) is None


def test_best_against_best_takes_the_faster_of_theirs() -> None:
    rates = {"titan_none_1": 100.0, "titan_selective_2": 98.0, "ours_best": 110.0}
    found = compare(COMPARISONS[2], [result(side, 0, rate) for side, rate in rates.items()])
    assert found is not None
    assert found.theirs == "titan_none_1"
    assert found.interval.center == pytest.approx(1.10)
    assert (found.interval.low, found.loss_difference) == (None, None)


def test_losses_are_compared_at_their_worst_step_of_the_first_twenty() -> None:
    curve = [4.0] * (COMPARED_STEPS + 5)
    ours = list(curve)
    ours[3], ours[COMPARED_STEPS + 1] = 4.02, 9.0
    results = [result("titan_none_1", 0, 1.0, losses=curve), result("ours_none_1", 0, 1.0, losses=ours)]
    assert loss_difference("ours_none_1", "titan_none_1", results) == pytest.approx(0.005)
    results[1]["losses"] = [math.nan, *ours[1:]]
    assert loss_difference("ours_none_1", "titan_none_1", results) is None


def test_the_table_says_whether_the_goal_is_met_and_losses_agree() -> None:
    results = [
        result(side, block, rate + block)
        for block in range(3)
        for side, rate in (("titan_none_1", 100.0), ("ours_none_1", 99.0))
    ]
    text = "\n".join(show(results))
    assert "at least 1.00: NO" in text
    assert "differ by 0.000% at most (within 1%: yes)" in text
    assert text.endswith("our cell differs from theirs in: nothing")
    assert "| 0.5000 | 8 + 18 | 1.0 / not known | 650 / 660 | not known |" in text


def test_mfu_is_over_the_peak_of_the_gpu_and_not_known_without_one() -> None:
    cell = sides_of("ours_none_1")["ours_none_1"].cell
    # 6 (N - N_embedding) + 12 L h s FLOPs a token; an H200's dense bfloat16 peak is 989.4e12
    token_flops = 6 * (NETWORK.params - NETWORK.embedding_params) + 12 * 2 * 32 * cell.seq
    half = 0.5 * 989.4e12 / token_flops
    known, unknown = result("ours_none_1", 0, half), result("ours_none_1", 0, half, gpu="NVIDIA of no name")
    assert show([known])[2].split(" | ")[4] == "50.00"
    assert show([unknown])[2].split(" | ")[4] == "not known"


def test_what_our_best_changes_is_named() -> None:
    best = sides_of("ours_best", best={"microbatch": 2, "compile": False})["ours_best"].cell
    results = [result("titan_none_1", 0, 100.0), result("ours_best", 0, 108.0, cell=cell_to_json(best))]
    assert show(results)[-1] == "  our cell differs from theirs in: global_batch 4, microbatch 2, compile False"


def test_a_rate_counts_the_steps_after_the_warm_up_from_the_first_rank_to_the_last() -> None:
    cell = sides_of("ours_none_1", warmup_steps=1, measured_steps=2)["ours_none_1"].cell
    measured = {"ranks": [{"time_s": [0.0, 9.0, 10.0, 11.0]}, {"time_s": [0.0, 9.5, 10.0, 13.0]}]}
    found = summarise(measured, cell, Watch(on_gpus=False))
    assert found["window_s"] == 4.0
    assert found["tokens_per_gpu_s"] == 2 * cell.tokens_per_step / 2 / 4.0


def test_power_is_of_the_window_alone_and_of_each_meter() -> None:
    readings = [
        Reading(time_s=t, device=device, draw_w=100.0 * t, energy_j=10.0 * t * t, sm_clock_mhz=1000 + int(t))
        for t, device in itertools.product((0.0, 1.0, 2.0, 3.0, 4.0), (0, 1))
    ]
    meters = tuple(Meter(index=n, uuid=f"GPU-{n}", name=None) for n in (0, 1))
    source = PowerSource(
        source="nvml", scope="gpu", draw="instant", meters=meters, counter=True, read=lambda: list(readings)
    )
    first, second = window_means(readings, source, 0.5, 3.5)
    assert (first["uuid"], second["uuid"]) == ("GPU-0", "GPU-1")
    assert (first["samples"], first["counter_w"], first["draw_w"], first["sm_clock_mhz"]) == (3, 40.0, 200.0, 1002.0)
    assert window_means(readings, None, 0.5, 3.5) == []


def test_legs_with_a_result_are_left_out_and_none_begins_that_would_end_too_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, ran = [0.0], []

    def fake(leg: Leg, *_others: Any) -> str | None:
        now[0] += 40.0
        ran.append(leg.name)
        if leg.side == "b" and len(ran) == 2:
            return "status 1, it broke"
        (tmp_path / leg.name).mkdir()
        (tmp_path / leg.name / legs.RESULT_NAME).write_text(json.dumps({"boot_id": legs.boot_id()}))
        return None

    monkeypatch.setattr(legs, "run_leg", fake)
    place = Place(folder=tmp_path, titan_path=tmp_path, device="cpu", leg_limit_s=60.0)
    order, sides, said = leg_order("ab", 3), dict.fromkeys("ab"), []

    def go_on() -> list[str]:
        left = run_legs(order, sides, place, ends_s=now[0] + 130.0, say=said.append, clock_s=lambda: now[0])  # type: ignore[arg-type]
        return [leg.name for leg in left]

    names = [leg.name for leg in order]
    assert go_on() == [names[1], *names[3:]]
    assert said[1] == f"{names[1]}: status 1, it broke in 40 s"
    assert go_on() == names[5:]
    assert go_on() == []
    assert ran == [names[0], names[1], names[2], names[1], names[3], names[4], names[5]]


def test_a_first_leg_that_compiles_does_not_hold_back_those_that_need_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, durations = [0.0], iter([100.0, 100.0, 50.0, 50.0, 50.0, 50.0])

    def fake(*_request: Any) -> None:
        now[0] += next(durations)

    monkeypatch.setattr(legs, "run_leg", fake)
    place = Place(folder=tmp_path, titan_path=tmp_path, device="cpu", leg_limit_s=200.0)
    sides: Any = dict.fromkeys("ab")
    left = run_legs(leg_order("ab", 3), sides, place, ends_s=360.0, say=str, clock_s=lambda: now[0])
    assert [leg.name for leg in left] == ["block02.1.b"]


def test_what_another_machine_left_of_a_block_is_measured_anew(tmp_path: Path) -> None:
    order = leg_order("ab", 3)
    starts = {0: ("other", "other"), 1: ("other", None), 2: (legs.boot_id(), None)}
    for leg in order:
        start = starts[leg.block][leg.place]
        if start is not None:
            (tmp_path / leg.name).mkdir()
            (tmp_path / leg.name / legs.RESULT_NAME).write_text(json.dumps({"boot_id": start}))
    assert legs_done(order, tmp_path) == {order[0], order[1], order[4]}


def test_a_request_comes_to_the_ranks_as_it_was_made(tmp_path: Path) -> None:
    side = sides_of("ours_best", best={"loss_chunk_tokens": 8})["ours_best"]
    request = Request(system=side.system, cell=side.cell, device="cuda", titan_path="/a/path")
    request.write(tmp_path)
    assert read_request(tmp_path) == request


def test_torchtitan_is_asked_for_what_the_cell_states() -> None:
    cell = sides_of("titan_selective_2", reshard_after_forward=False)["titan_selective_2"].cell
    asked = titan_arguments(cell, "/src", "/out")
    for wanted in (
        "--training.local_batch_size=2",
        "--training.global_batch_size=4",
        "--training.steps=21",
        "--training.max_norm=1.0",
        "--optimizer.lr=3e-05",
        "--lr_scheduler.warmup_steps=0",
        "--lr_scheduler.decay_ratio=0.0",
        "--activation_checkpoint.mode=selective",
        "--parallelism.fsdp_reshard_after_forward=never",
        "--compile.enable",
    ):
        assert wanted in asked
    with pytest.raises(ValueError, match="always clips"):
        titan_arguments(sides_of("titan_none_1", grad_clip=None)["titan_none_1"].cell, "/src", "/out")


def test_scores_do_not_move_when_rows_are_set_for_pairs_that_stand_side_by_side() -> None:
    torch.manual_seed(1)
    seq, size = 16, NETWORK.head_size
    wq, x = torch.randn(NETWORK.hidden, NETWORK.hidden), torch.randn(1, seq, NETWORK.hidden)
    table = rotation_table(seq, size, NETWORK.rope_theta, torch.device("cpu"))

    def scores(weight: torch.Tensor, turn: Any) -> torch.Tensor:
        q = turn((x @ weight.T).view(1, seq, NETWORK.heads, size).transpose(1, 2))
        return q @ q.transpose(-1, -2)

    def turn_neighbours(q: torch.Tensor) -> torch.Tensor:
        turned = torch.view_as_complex(q.unflatten(-1, (-1, 2)).contiguous()) * torch.complex(table[0], table[1])
        return torch.view_as_real(turned).flatten(-2)

    ours = scores(wq, lambda q: rotate(q, table))
    moved = titan_weight("layers.0.attention.wq.weight", wq, NETWORK)
    torch.testing.assert_close(scores(moved, turn_neighbours), ours, rtol=1e-4, atol=1e-3)
    assert not torch.allclose(scores(wq, turn_neighbours), ours, rtol=1e-2, atol=1e-1)
    assert titan_weight("layers.0.attention.wv.weight", wq, NETWORK) is wq


def test_every_weight_is_drawn_once_and_has_a_name_of_torchtitans() -> None:
    cell = sides_of("titan_none_1")["titan_none_1"].cell
    drawn = {titan_name(name): weight for name, weight in drawn_weights(cell, torch.device("cpu"))}
    assert sum(weight.numel() for weight in drawn.values()) == NETWORK.params
    assert {"tok_embeddings.weight", "norm.weight", "output.weight"} <= drawn.keys()
    assert drawn["layers.1.feed_forward.w2.weight"].shape == (NETWORK.hidden, NETWORK.ffn)
    # four of attention, three of the feed-forward and two norms
    assert len([name for name in drawn if name.startswith("layers.0.")]) == 9
