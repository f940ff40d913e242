"""Cases of comparability: what differs between runs, what that forbids, and how far runs of one cell lie apart."""

import csv
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from falloff.analysis import points
from falloff.analysis.comparability import SUPERLINEAR, compare_records
from falloff.analysis.noise import launch_noise, run_spread, too_short
from falloff.analysis.reproduction import reproduction, stated_threshold
from falloff.analysis.scaling_kind import scaling_kind
from falloff.analysis.series_guard import Series, guard_series
from falloff.analysis.steps import mean_of_rates, step_summary, window_rate
from falloff.ingest.external import read_folder
from falloff.ingest.power_nvidia_smi import read_clock_reasons
from falloff.ingest.stragglers import left_out, read_slow_steps
from falloff.records import RunRecord, read_records, write_records
from falloff.spec.hardware import find_hardware, read_all_hardware

from .compare import INPUTS, check

ROOT = Path(__file__).parents[2]
Rows = list[dict[str, Any]]

# what the columns of the inputs are called in records
_NAMES = {
    "gpus": "num_gpus",
    "tokens_per_s_per_gpu": "reported_tokens_per_gpu_s",
    "gpu_variant": "gpu_name",
    "power_limit_w": "power_limit_w",
    "region": "site",
    "global_batch": "global_batch",
    "nodes": "nodes",
    "placement": "placement",
    "algo": "algorithm",
    "busbw_gb_s": "reported_busbw_bytes_s",
    "nccl": "nccl",
    "algbw": "reported_algbw_bytes_s",
}
_TEXTS = {"gpu_variant", "region", "placement", "algo", "nccl"}


def table(case: str) -> Rows:
    return list(csv.DictReader((INPUTS / f"{case}.csv").read_text().splitlines()))


def rows(case: str, **fixed: Any) -> Rows:
    """Return an input's rows under the names of records, beside the columns' own."""
    read = json.loads((INPUTS / f"{case}.json").read_text()) if not (INPUTS / f"{case}.csv").exists() else table(case)
    return [
        {
            "record_id": f"{case}-{number}",
            **fixed,
            **item,
            **{
                name: item[column] if column in _TEXTS else float(item[column])
                for column, name in _NAMES.items()
                if column in item
            },
        }
        for number, item in enumerate(read, start=1)
    ]


def by(rows: Rows, column: str) -> Iterator[Rows]:
    for value in dict.fromkeys(row[column] for row in rows):
        yield [row for row in rows if row[column] == value]


def series_of(case: str) -> list[Series]:
    return [guard_series(group) for group in by(rows(case), "technique")]


def u190() -> dict[str, Any]:
    return {"weak_efficiency": [series.points[-1].efficiency for series in series_of("U190")]}


def u194() -> dict[str, Any]:
    given = json.loads((INPUTS / "U194.json").read_text())
    return {"ratio": run_spread([given["min_tok_s"], given["max_tok_s"]]).ratio}


def u195() -> dict[str, Any]:
    reasons = read_clock_reasons((INPUTS / "U195.txt").read_text())
    assert reasons is not None
    others = {active for name, active in reasons.items() if name != "sw_power_cap"}
    return {"sw_power_cap": reasons["sw_power_cap"], "others": True in others}


def u199() -> dict[str, Any]:
    return {"kind": [scaling_kind(group) for group in by(rows("U199"), "table") for _ in group]}


def u201() -> dict[str, Any]:
    (step,) = read_slow_steps((INPUTS / "U201.txt").read_text())
    return {"group": list(step.groups()[0])}


def u202() -> dict[str, Any]:
    return {"ratio": compare_records(*published_and_reproduced()).ratio}


def u245() -> dict[str, Any]:
    steps = table("U245")
    tokens, step_s = ([float(step[name]) for step in steps] for name in ("tokens", "seconds"))
    return {"tok_s": window_rate(tokens, step_s), "wrong_mean_of_rates": mean_of_rates(tokens, step_s)}


def u254() -> dict[str, Any]:
    comparison = compare_records(*next(by(sweeps("U254"), "algo")))
    (flag,) = comparison.unfair
    return {"ratio_ring": comparison.ratio, "flag": flag}


def u255() -> dict[str, Any]:
    ends = [series.points[-1] for series in series_of("U255")]
    odd = ends[-1]
    flag = next(flag.partition(":")[0] for flag in odd.flags if flag.startswith(SUPERLINEAR))
    (cause,) = odd.causes
    return {"efficiency": [end.ratio for end in ends], "flag": flag, "cause": cause}


GOT: dict[str, Callable[[], Any]] = {
    "U190": u190,
    "U194": u194,
    "U195": u195,
    "U199": u199,
    "U201": u201,
    "U202": u202,
    "U245": u245,
    "U254": u254,
    "U255": u255,
}


@pytest.mark.parametrize("case", GOT)
def test_a_case_gives_what_it_should(case: str) -> None:
    check(case, GOT[case]())


def published_and_reproduced() -> Rows:
    given = json.loads((INPUTS / "U202.json").read_text())
    shared = {"global_batch": given["global_batch"], "gpu_name": "A100-40GB"}
    return [
        {"record_id": "published", **shared, "site": "cloud 1", "reported_samples_per_s": given["published_seq_s"]},
        {"record_id": "measured", **shared, "site": "cloud 2", "reported_step_s": given["measured_s_per_batch"]},
    ]


def sweeps(case: str) -> Rows:
    return rows(case, collective="all_reduce", message_bytes=None, num_ranks=None)


def test_nccl_versions_that_are_compared_are_a_confound_and_so_is_what_they_chose() -> None:
    """U132: a two-node all-reduce at 50 GB/s with NCCL 2.22 and at 7 with 2.25, ring instead of tree."""
    comparison = compare_records(*sweeps("U132"))
    assert comparison.unfair == ("algorithm", "nccl")
    assert comparison.ratio == pytest.approx(7 / 50)
    assert "Not comparable in silence: algorithm, nccl differ" in comparison.sentence


def test_another_h100_variant_is_warned_of_and_has_no_efficiency() -> None:
    """U190: the published numbers are of an H100 with 96 GB HBM2e and a limit of 500 W."""
    base = rows("U190")[0]
    other = {**base, "record_id": "mine", "gpu_name": "NVIDIA H100 80GB HBM3", "power_limit_w": 700.0, "num_gpus": 64.0}
    point = guard_series([base, other]).points[-1]
    assert (point.unfair, point.efficiency) == (("gpu_name", "power_limit_w"), None)
    assert "GPU variant (gpu_name): H100 96GB HBM2e → NVIDIA H100 80GB HBM3" in point.flags
    assert all(not end.apart for series in series_of("U190") for end in series.points)


def test_the_published_table_itself_gives_the_efficiencies_and_its_gpu_variant() -> None:
    """U190 and U255 from the shipped tables: the later report, and what it does not state."""
    runs, _ = read_folder(ROOT / "data" / "external" / "torchtitan-tables", ROOT / "config" / "hardware")
    report = [vars(run) for run in runs if run.source == "TorchTitan report 2024-12" and run.num_gpus in (8, 128)]
    plain = [run for run in report if run["microbatch"] == 2 and run["network"] == "Llama 3.1 8B"]
    kinds = {(run["compile"], run["param_dtype"]) for run in plain}
    found = [
        guard_series([run for run in plain if (run["compile"], run["param_dtype"]) == kind]).points[-1]
        for kind in sorted(kinds, key=str)
    ]
    assert sorted(round(point.efficiency or 0, 3) for point in found) == [0.973, 0.977, 0.982]
    assert {run["hardware"] for run in plain} == {"h100-96gb-500w"}
    mine = {
        **plain[0],
        "record_id": "mine",
        "hardware": "h100-sxm",
        "gpu_name": "NVIDIA H100 80GB HBM3",
        "num_gpus": 64,
    }
    assert guard_series([plain[0], mine]).points[-1].apart


def test_single_readings_claim_no_difference_below_what_runs_differ_by() -> None:
    """U193: two readings at one step each, 1.7 % apart."""
    point = guard_series(rows("U193")).points[-1]
    assert point.ratio == pytest.approx(10753 / 10938)
    assert point.within_spread
    assert any(flag.endswith("no difference is claimed") for flag in point.flags)


def test_a_point_of_one_reading_has_no_interval(tmp_path: Path) -> None:
    """U193: n is 1 and stands in the row, so that a figure can draw it hollow."""
    record = RunRecord(
        record_id="a",
        provenance="published",
        source="s",
        source_ref="r",
        outcome="ok",
        reported_tokens_per_gpu_s=10938.0,
    )
    write_records(tmp_path / "a.parquet", [record], RunRecord)
    frame = read_records([tmp_path / "a.parquet"], RunRecord)
    row = points.point(frame, lambda row: float(row["reported_tokens_per_gpu_s"]), panel="p", series="s", x=32.0)
    assert (row["n"], row["y"], row["y_low"], row["interval"]) == (1, 10938.0, None, None)


def test_additive_noise_flags_steps_of_a_fifth_of_a_second_and_not_those_of_five() -> None:
    """U194: 0.17 to 0.28 s more a step, whatever the step, in thirteen launches of each."""
    low, high = json.loads((INPUTS / "U194.json").read_text())["additive_noise_s"]
    added = [low + (high - low) * part / 12 for part in range(13)]
    cells = {step_s: [step_s + more for more in added] for step_s in (0.2, 5.0)}
    noise = launch_noise(list(cells.values()))
    assert noise is not None
    assert noise.kind == "additive"
    flag = too_short(0.2, noise)
    assert flag is not None
    assert flag.startswith("steps too short: noise is additive")
    assert too_short(5.0, noise) is None
    spread = run_spread(cells[0.2])
    assert (spread.n, spread.median) == (13, pytest.approx(0.425))


def test_two_software_stacks_are_named_with_their_versions() -> None:
    """U196: a recipe installed nightly torch and the newest torchtitan at each run."""
    a = {"record_id": "a", "torch": "2.10.0.dev20260301+cu130", "commit": "1111111", "nccl": "2.28.9"}
    b = {"record_id": "b", "torch": "2.10.0.dev20260308+cu130", "commit": "2222222", "nccl": "2.29.2"}
    comparison = compare_records(a, b)
    assert comparison.unfair == ("commit", "torch", "nccl")
    assert "torch: 2.10.0.dev20260301+cu130 → 2.10.0.dev20260308+cu130" in comparison.marks
    assert sum("is a development build" in flag for flag in comparison.flags) == 2


@pytest.mark.parametrize("name", ["H100", "A100", "nvidia h100", "H200"])
def test_a_gpu_without_its_variant_is_refused(name: str) -> None:
    """U197: figures of an H100 SXM were taken for those of an H100 PCIe."""
    known = read_all_hardware(ROOT / "config" / "hardware")
    with pytest.raises(ValueError, match="leaves open which of"):
        find_hardware(name, known)


def test_sxm_and_pcie_are_two_gpus() -> None:
    """U197, once both are known."""
    comparison = compare_records({"hardware": "h100-sxm"}, {"hardware": "h100-pcie"})
    assert (comparison.unfair, comparison.apart) == (("hardware",), True)


def test_a_step_that_waits_for_data_is_excluded_and_reported() -> None:
    """U201: one node of many waits 332 s in a step of 381."""
    (step,) = read_slow_steps((INPUTS / "U201.txt").read_text())
    assert step.data_bound
    (excluded,) = left_out([step])
    assert (excluded.first, excluded.reason) == (173, "bound by data: ranks 144-147 waited up to 332.5 of 381.1 s")


def test_a_reproduction_at_0_82_is_reported_with_both_numbers_and_what_differs() -> None:
    """U202: 39 sequences/s in print, 32 measured on another cloud with the same GPU by name."""
    found = reproduction(compare_records(*published_and_reproduced()), stated_threshold(None))
    assert found is not None
    assert (found.quantity, found.a, found.b, found.reproduced) == ("samples/s", 39, 32.0, False)
    assert found.differs == ("site: cloud 1 → cloud 2",)
    assert found.threshold.source.startswith("as far as readings of one published cell have moved")


def test_a_window_of_more_steps_than_there_are_is_an_error_and_no_other_window() -> None:
    """U245: a harness fell back to another window in silence."""
    with pytest.raises(ValueError, match="a window of 3 steps is asked for, found 2"):
        window_rate([4096.0, 4096.0], [0.1, 1.0], 3)


def test_all_four_cells_of_two_placements_are_labelled_by_it() -> None:
    """U254: tree loses a quarter where ring loses more than half."""
    found = [compare_records(*pair) for pair in by(sweeps("U254"), "algo")]
    assert [comparison.unfair for comparison in found] == [("placement",)] * 2
    assert found[1].ratio == pytest.approx(18.55 / 24.58)


def test_a_superlinear_row_of_another_region_is_apart_and_one_of_the_same_has_an_unknown_cause() -> None:
    """U255: region r2 against r1, and the same numbers all in r1."""
    plain, odd = (series.points[-1] for series in series_of("U255"))
    assert (plain.efficiency, odd.efficiency, odd.apart) == (pytest.approx(0.97), None, True)
    same = [{**row, "site": "r1"} for row in rows("U255")[2:]]
    point = guard_series(same).points[-1]
    assert (point.efficiency, point.causes) == (pytest.approx(1.0216, abs=1e-4), ())
    assert any(flag.endswith("cause unknown: nothing that both state differs") for flag in point.flags)


def test_the_steps_of_a_run_are_kept_and_their_median_is_recomputed(tmp_path: Path) -> None:
    """U219: a benchmark shipped medians alone, so that neither its warm-up nor its spread could be checked."""
    step_s = (1.2, 1.0, 1.1, 5.0)
    record = RunRecord(record_id="a", provenance="measured", source="s", source_ref="r", outcome="ok", step_s=step_s)
    write_records(tmp_path / "a.parquet", [record], RunRecord)
    (row,) = points.rows_of(read_records([tmp_path / "a.parquet"], RunRecord))
    found = step_summary(row)
    assert found is not None
    assert tuple(row["step_s"]) == step_s
    assert (found.n, found.median_s) == (4, pytest.approx(1.15))
