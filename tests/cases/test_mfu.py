"""Cases of model FLOPs utilisation: what falloff gives for each input, against what is right."""

import csv
import json
from collections.abc import Callable
from typing import Any

import pytest

from falloff.analysis.conventions import (
    CONVENTIONS,
    FALLBACK_PEAKS,
    flops_per_token_in,
    hfu,
    implied_gpus,
    model_flops_of,
    rescaled_mfu,
    utilisation,
    why_mfu_is_not_comparable,
)
from falloff.analysis.data_quality import beyond_peak, data_quality, measures_the_call
from falloff.analysis.efficiency import configured_tokens_per_step, mfu, peak_flops
from falloff.analysis.explanation import explain_reported
from falloff.ingest.frameworks import read_framework_log
from falloff.ingest.nanochat import NANOCHAT
from falloff.ingest.training_runs import read_training_log
from falloff.spec.hardware import Hardware, find_hardware, read_all_hardware
from falloff.spec.network import attention_flops, model_flops_per_token, read_network
from falloff.units import GIB, MILLI, TERA

from .compare import EXPECTED, FOLDER, INPUTS, check

CONFIG = FOLDER.parents[1] / "config"
KNOWN = read_all_hardware(CONFIG / "hardware")
LLAMA_8B = read_network("llama3-8b", CONFIG / "models")
# Llama 3.1 405B (arXiv 2407.21783, table 3; 405,853,388,800 parameters) at the sequence of TorchTitan's study
LLAMA_405B = {"params": 405853388800, "embedding_params": 128256 * 16384, "layers": 126, "hidden": 16384, "seq": 8192}
# a log's dtypes by our names
DTYPES = {"bf16": "bfloat16", "fp8": "float8"}


def loaded(case: str) -> Any:
    return json.loads((INPUTS / f"{case}.json").read_text())


def rows(case: str) -> list[dict[str, str]]:
    with (INPUTS / f"{case}.csv").open(newline="") as lines:
        return list(csv.DictReader(lines))


def bfloat16_peak(device_name: str) -> float:
    return find_hardware(device_name, KNOWN).peak_flops["bfloat16"]


def bfloat16_peaks(case: str) -> dict[str, Any]:
    return {"dense_bf16_tflops": [bfloat16_peak(row["device_name"]) / TERA for row in rows(case)]}


def llama_8b(seq: int) -> dict[str, Any]:
    names = ("params", "embedding_params", "layers", "hidden", "vocab")
    return {name: getattr(LLAMA_8B, name) for name in names} | {"seq": seq}


def u001() -> dict[str, Any]:
    case = loaded("U001")
    peak = find_hardware(case["device_name"], KNOWN).peak_flops[DTYPES[case["dtype"]]]
    return {"peak": peak, "mfu": utilisation(case["tokens_per_s_per_gpu"] * case["flops_per_token"], peak)}


def u002() -> dict[str, Any]:
    case = loaded("U002")
    peak = find_hardware(case["device_name"], KNOWN).peak_flops[DTYPES[case["dtype"]]]
    return {"peak": peak, "mfu": utilisation(case["reported_tflops_per_gpu"] * TERA, peak)}


def u010() -> dict[str, Any]:
    case = loaded("U010")
    reported = case["reported_mfu_pct"] / 100
    return {"mfu": rescaled_mfu(reported, case["peak_used"], bfloat16_peak(case["device_name"]))}


def u011() -> dict[str, Any]:
    (log,) = read_training_log(INPUTS / "U011.log", NANOCHAT)
    shares = [step.peak_flops_share for step in log.steps]
    assert shares[0] is not None
    peak = KNOWN["a100-80gb-sxm"].peak_flops["bfloat16"]
    return {
        "peak": peak,
        "rows": len(shares),
        "mfu_first": shares[0],
        "mfu_if_989": rescaled_mfu(shares[0], peak, FALLBACK_PEAKS["nanochat"]),
    }


def u013() -> dict[str, Any]:
    case = loaded("U013")
    row = llama_8b(case["seq_len"])
    with_embedding = flops_per_token_in(row, CONVENTIONS["torchtitan before June 2024"])
    rate = case["tokens_per_s_per_gpu"]
    return {
        "mfu_excl_embedding": utilisation(flops_per_token_in(row, CONVENTIONS["torchtitan"]) * rate, case["peak"]),
        "mfu_incl_embedding": utilisation(with_embedding * rate, case["peak"]),
    }


def u014() -> dict[str, Any]:
    per_token = model_flops_per_token(**LLAMA_405B)
    return {
        "mfu_recomputed": [
            utilisation(per_token * float(row["tokens_per_s_per_gpu"]), float(row["peak_flops"]))
            for row in rows("U014")
        ]
    }


def u015() -> dict[str, Any]:
    (log,) = read_framework_log(INPUTS / "U015.log", "torchtitan")
    (step,) = log.steps
    tflops = None if step.flops_per_gpu_s is None else step.flops_per_gpu_s / TERA
    return {"rows": len(log.steps), "tps": step.tokens_per_gpu_s, "tflops": tflops, "mfu": step.peak_flops_share}


def u017() -> dict[str, Any]:
    case = loaded("U017")
    flops = attention_flops(
        batch=case["B"],
        query_heads=case["Hq"],
        queries=case["M"],
        keys=case["N"],
        head_size=case["D"],
        causal=case["causal"],
    )
    return {"forward_flops": flops}


def u019() -> dict[str, Any]:
    row = llama_8b(seq=8192)
    full, causal = (flops_per_token_in(row, CONVENTIONS[f"megatron-core {when} 0.12"]) for when in ("before", "from"))
    older, newer = (log.steps[0] for log in read_framework_log(INPUTS / "U019.log", "megatron-lm"))
    assert all((older.flops_per_gpu_s, newer.flops_per_gpu_s, older.step_s, older.global_batch))
    tokens_per_s = older.global_batch * row["seq"] / older.step_s
    gpus = implied_gpus(flops_per_token=full, tokens_per_s=tokens_per_s, flops_per_gpu_s=older.flops_per_gpu_s)
    return {
        "flops_per_token_full": full,
        "flops_per_token_causal": causal,
        "printed_ratio": newer.flops_per_gpu_s / older.flops_per_gpu_s,
        "n_gpus": round(gpus),
    }


def u020_row() -> dict[str, Any]:
    case = loaded("U020")
    return {
        "params": case["n_params"],
        "embedding_params": 0,  # MPT's embedding is its LM head
        "layers": case["layers"],
        "hidden": case["d_model"],
        "seq": case["seq_len"],
        "num_gpus": case["gpus"],
        "hardware": "h100-sxm",
        "param_dtype": "bfloat16",
        "recompute": "full" if case["act_ckpt"] else "none",
        "reported_tokens_per_gpu_s": case["tokens_per_s_total"] / case["gpus"],
    }


def u020() -> dict[str, Any]:
    row, peak = u020_row(), loaded("U020")["peak"]
    model, hardware = (flops_per_token_in(row, CONVENTIONS[name]) for name in ("llm-foundry", "llm-foundry HFU"))
    rate = row["reported_tokens_per_gpu_s"]
    return {"mfu": utilisation(model * rate, peak), "hfu": utilisation(hardware * rate, peak)}


def u034_row() -> dict[str, Any]:
    case = loaded("U034")
    config = {"microbatch": case["device_batch"], "seq": case["seq"], "replicas": case["world"]}
    printed = configured_tokens_per_step(**config) / case["dt_s"]
    return {
        "microbatch": case["device_batch"],
        "global_batch": case["device_batch"] * case["world"] * case["grad_accum"],
        "seq": case["seq"],
        "dp": case["world"],
        "num_gpus": case["world"],
        "tokens_per_step": configured_tokens_per_step(**config, accumulation=case["grad_accum"]),
        "reported_step_s": case["dt_s"],
        "reported_tokens_per_gpu_s": printed / case["world"],
    }


def u034() -> dict[str, Any]:
    row = u034_row()
    return {
        "printed_tok_s": row["reported_tokens_per_gpu_s"] * row["num_gpus"],
        "true_tok_s": row["tokens_per_step"] / row["reported_step_s"],
    }


def u047() -> dict[str, Any]:
    times = [(row["op"], float(row["ms_without_sync"]), float(row["ms_with_sync"])) for row in rows("U047")]
    valid = (op for op, without, with_sync in times if not measures_the_call(without, with_sync))
    return {
        "first_valid_op": next(valid, "none: without-sync times rejected"),
        "ms": [with_sync for *_, with_sync in times],
    }


def u241() -> dict[str, Any]:
    case = loaded("U241")
    peaks = find_hardware(case["device_name"], KNOWN).peak_flops
    return {
        "fp8_dense": peaks["float8"] / TERA,
        "ratio": peaks["float8"] / peaks["bfloat16"],
        "entry_valid": is_valid_entry({DTYPES[dtype]: tflops * TERA for dtype, tflops in case["entry"].items()}),
    }


def is_valid_entry(peaks: dict[str, float]) -> bool:
    try:
        Hardware(name="x", aliases=(), peak_flops=peaks, memory_bytes=48 * GIB, power_limit_w=350.0, sources=("x",))
    except ValueError:
        return False
    return True


def u242_rows() -> list[dict[str, Any]]:
    case = loaded("U242")
    hardware = find_hardware(case["device_name"], KNOWN).name
    reported = zip(case["tflops_per_gpu"], case["reported_mfu_pct"], strict=True)
    return [
        {
            "hardware": hardware,
            "param_dtype": "bfloat16",
            "framework": "olmo-core",
            "reported_tflops_per_gpu": tflops,
            "reported_mfu": share / 100,
        }
        for tflops, share in reported
    ]


def u242() -> dict[str, Any]:
    return {
        "mfu": [utilisation(row["reported_tflops_per_gpu"] * TERA, peak_flops(row, KNOWN)) for row in u242_rows()],
        "flag": any("above 100 %" in flag for row in u242_rows() for flag in data_quality(row, KNOWN)),
    }


GOT: dict[str, Callable[[], Any]] = {
    "U001": u001,
    "U002": u002,
    "U006": lambda: {"true_peak": bfloat16_peak(loaded("U006")["device_name"])},
    "U007": lambda: bfloat16_peaks("U007"),
    "U008": lambda: {"dense_bf16_tflops": bfloat16_peak(loaded("U008")["device_name"]) / TERA},
    "U010": u010,
    "U011": u011,
    "U013": u013,
    "U014": u014,
    "U015": u015,
    "U017": u017,
    "U019": u019,
    "U020": u020,
    "U021": lambda: {
        "model_tflops": model_flops_of(
            loaded("U021")["printed_tflops"], recompute_counted=loaded("U021")["recompute_granularity"] == "full"
        )
    },
    "U026": lambda: bfloat16_peaks("U026"),
    "U034": u034,
    "U047": u047,
    "U241": u241,
    "U242": u242,
}


@pytest.mark.parametrize("case", sorted(GOT))
def test_a_case_of_mfu_gives_its_right_value(case: str) -> None:
    check(case, GOT[case]())


def test_every_case_of_mfu_with_a_value_is_here() -> None:
    with (FOLDER / "cases.csv").open(newline="") as lines:
        kinds = {row["id"]: row["kind"] for row in csv.DictReader(lines)}
    assert {case for case in EXPECTED if kinds[case] == "mfu"} <= GOT.keys()


def test_an_mfu_of_152_percent_is_flagged_and_is_20_5_over_the_right_peak() -> None:
    case = loaded("U006")
    row = {
        "hardware": find_hardware(case["device_name"], KNOWN).name,
        "param_dtype": "bfloat16",
        "reported_mfu": case["reported_mfu_pct"] / 100,
        "reported_peak_flops": case["peak_used"],
    }
    above, over = data_quality(row, KNOWN)
    assert above.startswith("its own MFU of 152.0 % is above 100 %")
    assert over.endswith("not over 2300, where it is 20.6 %")


def test_a_device_that_is_not_known_has_no_mfu_and_an_error_that_says_how_to_add_it() -> None:
    assert str(mfu({**u020_row(), "hardware": "mi999x"}, KNOWN)) == "nan"
    with pytest.raises(
        ValueError, match=r"hardware 'AMD Instinct MI999X' is unknown; .* Add a file to config/hardware"
    ):
        find_hardware("AMD Instinct MI999X", KNOWN)


@pytest.mark.parametrize("name", ["NVIDIA L40S", "NVIDIA GH200 480GB", "NVIDIA GH200 120GB"])
def test_torchtitans_mfu_on_a_device_that_it_does_not_know_is_recomputed(name: str) -> None:
    peak = bfloat16_peak(name)
    row = {**llama_8b(8192), "hardware": find_hardware(name, KNOWN).name, "param_dtype": "bfloat16"}
    row |= {"framework": "torchtitan", "reported_tokens_per_gpu_s": 2000.0}
    row |= {"reported_mfu": round(mfu(row, KNOWN) * peak / FALLBACK_PEAKS["torchtitan"], 4)}
    found = explain_reported(row, KNOWN)
    assert found is not None
    assert found.ratio == pytest.approx(peak / 312e12, rel=1e-3)
    assert "the fallback of torchtitan" in found.sentence


def test_the_line_that_lspci_prints_is_no_name_of_a_device() -> None:
    with pytest.raises(ValueError, match="is unknown"):
        find_hardware(loaded("U008")["lspci"], KNOWN)


def test_an_h100_nvl_has_a_peak_of_its_own() -> None:
    assert bfloat16_peak("NVIDIA H100 NVL") == 835.5e12


def test_attention_over_the_full_square_and_over_half_of_it_are_told_apart() -> None:
    # a small network at 16k whose time goes to attention: full, 189 x 2 / 312 of the peak
    row = {"params": 2 * 10**9, "embedding_params": 0, "layers": 300, "hidden": 4096, "seq": 16384}
    row |= {"hardware": "a100-80gb-sxm", "param_dtype": "bfloat16", "recompute": "none"}
    full = flops_per_token_in(row, CONVENTIONS["falloff"])
    row |= {"reported_tokens_per_gpu_s": 1.21 * 312e12 / full}
    halved = flops_per_token_in(row, CONVENTIONS["megatron-core from 0.12"])
    row |= {"reported_tflops_per_gpu": round(halved * row["reported_tokens_per_gpu_s"] / TERA, 1)}
    found = data_quality(row, KNOWN)
    assert any(flag.startswith("our MFU of 121.0 % is above 100 %") for flag in found)
    assert found[-1].endswith("attention is halved for causality")


def test_mfu_in_bfloat16_and_in_float8_are_not_ranked() -> None:
    dtypes = {"bf16": "bfloat16", "float8": "float8", "float8+asynctp": "float8"}
    first, _, faster, *_ = [{"param_dtype": dtypes[row["precision"]]} for row in rows("U014")]
    assert "compare tokens/s" in str(why_mfu_is_not_comparable(first, faster))


def test_mfu_and_hfu_of_one_run_are_named_apart() -> None:
    row = {**u020_row(), "reported_hfu": 0.2992}
    assert (round(mfu(row, KNOWN), 3), round(hfu(row, KNOWN), 3)) == (0.299, 0.399)
    found = explain_reported(row, KNOWN)
    assert found is not None
    assert found.sentence == ("its own HFU of 29.9 % is 0.750 times ours of 39.9 %: recomputation is not counted")


def test_two_logs_of_one_speed_have_one_model_rate_with_and_without_recomputation() -> None:
    assert model_flops_of(160.0, recompute_counted=True) == pytest.approx(
        model_flops_of(120.0, recompute_counted=False)
    )


def test_two_lines_of_one_time_and_batch_have_one_rate_whatever_they_print() -> None:
    older, newer = (log.steps[0] for log in read_framework_log(INPUTS / "U019.log", "megatron-lm"))
    assert older.flops_per_gpu_s != newer.flops_per_gpu_s
    assert (older.step_s, older.global_batch) == (newer.step_s, newer.global_batch)
    row = {**llama_8b(8192), "hardware": "h100-sxm", "param_dtype": "bfloat16", "num_gpus": 64}
    row |= {"tokens_per_step": 128 * 8192, "reported_step_s": older.step_s}
    found = explain_reported({**row, "reported_tflops_per_gpu": 168.7}, KNOWN)
    assert found is not None
    assert found.sentence.endswith("times ours of 189.8: attention is halved for causality")


def test_a_device_of_an_mi250x_is_half_its_board() -> None:
    assert bfloat16_peak("AMD Instinct MI250X") == 191.5e12


def test_a_rate_without_its_accumulated_micro_batches_is_flagged() -> None:
    (flag,) = data_quality(u034_row(), KNOWN)
    assert flag.endswith("a factor of gradient accumulation")


def test_a_time_without_synchronisation_is_refused_where_the_peak_cannot_do_the_work() -> None:
    times = {row["op"]: row for row in rows("U047")}["MatMul"]
    work = 0.9 * 312e12 * float(times["ms_with_sync"]) * MILLI  # what an A100 can do in the time with it
    assert beyond_peak(work, float(times["ms_with_sync"]) * MILLI, 312e12) is None
    assert "the time is not that of the work" in str(beyond_peak(work, float(times["ms_without_sync"]) * MILLI, 312e12))


def test_h100_alone_is_refused() -> None:
    with pytest.raises(ValueError, match="'H100' leaves open which of h100-96gb-500w, h100-nvl, h100-pcie, h100-sxm"):
        find_hardware("H100", KNOWN)
