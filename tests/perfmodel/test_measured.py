import numpy as np
import pytest

from falloff.perfmodel.cells import Cell
from falloff.perfmodel.counting import counted_flops_per_token
from falloff.perfmodel.express import jobs_of
from falloff.perfmodel.measured import measured, outcome_of

GPT = {
    "source": "megatron-sc21",
    "gpu": "A100-80GB-SXM",
    "gpus": "8",
    "model": "GPT",
    "layers": "24",
    "hidden": "2304",
    "heads": "24",
    "ffn": "9216",
    "vocab": "51200",
    "seq": "2048",
    "micro_batch": "4",
    "global_batch": "32",
    "recompute": "full",
    "framework": "Megatron-LM",
    "year": "2021",
}


def rate_of(**columns):
    cells = [Cell({**GPT, **columns})]
    _, jobs, _ = jobs_of(cells)
    return measured(cells, jobs).tokens_per_gpu_s[0], jobs


def test_a_stated_rate_comes_before_a_step_and_a_step_before_flops():
    every = {"tokens_per_s_per_gpu": "1000", "step_time_s": "4", "tflops_per_gpu_published": "100"}
    assert rate_of(**every)[0] == 1000
    assert rate_of(**{**every, "tokens_per_s_per_gpu": ""})[0] == 32 * 2048 / 8 / 4


def test_flops_become_a_rate_by_what_they_count():
    rate, jobs = rate_of(tflops_per_gpu_published="137")
    assert rate * counted_flops_per_token(jobs, "equation 3")[0] == pytest.approx(137e12)


def test_flops_of_a_source_whose_count_is_unknown_are_no_rate():
    assert np.isnan(rate_of(source="somewhere", tflops_per_gpu_published="137")[0])


def test_a_run_that_took_steps_and_then_ran_out_of_memory_is_out_of_memory():
    assert outcome_of(Cell({"oom": "1", "tokens_per_s_per_gpu": "5"})) == "oom"
    assert outcome_of(Cell({"oom": "crash_or_oom"})) == "crash_or_oom"
    assert outcome_of(Cell({})) == "ok"


def test_what_nanotron_prints_after_it_set_the_peak_of_tensors_back_is_what_is_reserved():
    cells = [Cell({**GPT, "source": source}) for source in ("ultrascale-playbook", "simumax-b200", "flagperf")]
    _, jobs, _ = jobs_of(cells)
    assert list(measured(cells, jobs).memory_kind) == ["reserved", "allocated", "device"]


def test_memory_is_bytes_whatever_a_source_calls_a_gigabyte():
    cells = [
        Cell({**GPT, "source": source, "mem_gb_per_gpu": "10"}) for source in ("torchtitan", "ultrascale-playbook")
    ]
    _, jobs, _ = jobs_of(cells)
    assert list(measured(cells, jobs).memory_bytes) == [10e9, 10 * 2**30]
