import random
from pathlib import Path

import numpy as np
import pytest

from falloff.perfmodel.cell_shapes import params_of
from falloff.perfmodel.cells import Cell, read_cells
from falloff.perfmodel.express import express, jobs_of

TABLE = Path("data/external/published-training/training_cells.csv")
LLAMA_8B = {
    "cell_id": "one",
    "gpu": "H100-80GB-SXM",
    "gpus": "128",
    "gpus_per_node": "8",
    "model": "Llama-3.1-8B",
    "params_b": "8.03",
    "layers": "32",
    "hidden": "4096",
    "heads": "32",
    "kv_heads": "8",
    "ffn": "14336",
    "vocab": "128256",
    "seq": "8192",
    "micro_batch": "2",
    "global_batch": "256",
    "tp": "1",
    "pp": "1",
    "dp": "128",
    "zero_stage_or_fsdp": "fsdp",
    "precision": "bf16",
    "framework": "torchtitan",
}


def job_of(**columns):
    found = express(Cell({**LLAMA_8B, **columns}))
    assert found.job is not None, found.note
    return found.job


def test_a_row_becomes_the_step_that_it_states():
    job = job_of()
    assert (job.gpus, job.dp_shard, job.microbatch, job.num_microbatches) == (128, 128, 2, 1)
    assert job.sharding == "zero3"
    assert job.shape.mlp_matrices == 3
    assert not job.shape.tied
    assert params_of(job.shape) == pytest.approx(8.03e9, rel=0.01)


@pytest.mark.parametrize(
    ("columns", "note"),
    [
        ({"gpus": ""}, "gpus are not stated"),
        ({"gpus": "0"}, "gpus must be above zero"),
        ({"layers": "deep"}, "layers must be a number"),
        ({"hidden": ""}, "hidden size are not stated"),
        ({"seq": "-1"}, "seq must be above zero"),
        ({"gpu": ""}, "the GPU is not stated"),
        ({"gpu": "TPU-v5p"}, "unknown"),
        ({"dp": "100"}, "dp x tp x pp x cp is 100"),
        ({"tp": "3", "dp": ""}, "does not divide the 128 GPUs"),
        ({"precision": "int3"}, "precision is 'int3'"),
        ({"precision": "nvfp4"}, "no peak of float4"),
        ({"arch": "encoder"}, "not modelled"),
        ({"global_batch": "4"}, "leaves ranks of dp 128 without any"),
        ({"micro_batch": "16"}, "more than the 2 sequences"),
        ({"pp": "64", "dp": "2"}, "stages without layers"),
        ({"recompute": "sometimes"}, "recompute is 'sometimes'"),
        ({"zero_stage_or_fsdp": "zero7"}, "zero_stage_or_fsdp is 'zero7'"),
        ({"micro_batch": "1e300"}, ""),
        ({"hidden": "inf"}, "hidden must be above zero and finite"),
        ({"year": "long ago"}, "year must be a number"),
    ],
)
def test_a_row_that_is_no_step_says_why_in_one_sentence(columns, note):
    found = express(Cell({**LLAMA_8B, **columns}))
    assert found.job is None
    assert note in found.note
    assert "\n" not in found.note


def test_no_row_raises_however_strange():
    strange = ["", " ", "0", "-1", "1e999", "nan", "x", "1.5", "999999999999999", "None", "8;8", "\x00", "٣", "1,000"]
    draw = random.Random(0)
    for _ in range(400):
        changed = dict(LLAMA_8B)
        for name in draw.sample([*LLAMA_8B, "cp", "ep", "vpp", "task", "arch", "compile", "year"], 3):
            changed[name] = draw.choice(strange)
        found = express(Cell(changed))
        assert (found.job is None) == bool(found.note)


def test_what_is_blank_follows_from_the_rest():
    assert job_of(dp="").dp_shard == 128
    assert job_of(global_batch="", global_batch_tokens=str(256 * 8192)).num_microbatches == 1
    assert job_of(kv_heads="").shape.kv_heads == 32
    assert job_of(micro_batch="", global_batch="1024").microbatch == 1


def test_a_blank_is_filled_by_the_programs_habits():
    torchtitan, megatron = (
        job_of(zero_stage_or_fsdp=""),
        job_of(framework="Megatron-LM", zero_stage_or_fsdp="", year="2024"),
    )
    assert torchtitan.sharding == "zero3"
    assert megatron.sharding == "zero1"
    old = job_of(framework="Megatron-LM", zero_stage_or_fsdp="", year="2021", recompute="")
    assert (old.sharding, old.recompute, old.flash_attention) == ("none", "full", False)


def test_what_a_row_leaves_open_is_known_of_its_step():
    stated, blank = job_of(recompute="full"), job_of(recompute="", micro_batch="", tp="", pp="")
    assert (stated.recompute_stated, stated.microbatch_stated, stated.layout_stated) == (True, True, True)
    assert (blank.recompute_stated, blank.microbatch_stated, blank.layout_stated) == (False, False, False)
    assert job_of(framework="nanotron", zero_stage_or_fsdp="zero1", recompute="").recompute_stated


def test_float16_gradients_of_megatron_are_kept_in_16_bits():
    half, brain = (
        job_of(framework="Megatron-LM", zero_stage_or_fsdp="", year="2024", precision=name) for name in ("fp16", "bf16")
    )
    assert (half.gradient_bytes, brain.gradient_bytes) == (2, 4)


@pytest.mark.parametrize(
    ("framework", "precision", "reduced"),
    [
        ("Megatron-LM", "bf16", 4),
        ("Megatron-LM", "fp8", 4),
        ("NeMo (DGX Cloud recipe)", "bf16", 4),
        ("NeMo (DGX Cloud recipe)", "fp8", 2),
        ("Megatron-Bridge/Megatron-Core", "bf16", 2),
        ("NVIDIA NeMo Framework Release 25.09", "fp8", 2),
    ],
)
def test_a_megatrons_recipe_says_in_how_many_bits_gradients_are_reduced(framework, precision, reduced):
    job = job_of(framework=framework, precision=precision, year="2025", zero_stage_or_fsdp="")
    assert job.reduce_bytes == job.gradient_bytes == reduced


def test_weights_are_gathered_in_8_bits_where_a_row_is_of_fp8_and_its_program_can():
    columns = {"gpu": "B200-SXM", "framework": "Megatron-Bridge/Megatron-Core", "year": "2026"}
    found = {name: job_of(precision=name, **columns).float8_gather for name in ("bf16", "fp8", "mxfp8", "nvfp4")}
    assert found == {"bf16": False, "fp8": True, "mxfp8": False, "nvfp4": False}
    assert not job_of(precision="fp8").float8_gather


def test_megatron_bridges_ddp_shards_its_optimizer():
    columns = {"zero_stage_or_fsdp": "ddp", "year": "2025"}
    assert job_of(framework="Megatron-Bridge/Megatron-Core", **columns).sharding == "zero1"
    assert job_of(framework="Megatron-LM", **columns).sharding == "none"


def test_no_row_before_2022_has_fused_attention_unless_it_says_so():
    columns = {"framework": "something new", "attention": ""}
    assert job_of(year="2022", **columns).flash_attention
    assert not job_of(year="2021", **columns).flash_attention
    assert job_of(year="2021", framework="something new", attention="flash").flash_attention


def test_heads_that_a_table_leaves_out_are_those_of_its_sources_scripts():
    columns = {"heads": "", "kv_heads": "", "hidden": "1536", "model": "GPT-498M", "params_b": ""}
    assert job_of(source="oneflow-dlperf", **columns).shape.heads == 16
    assert job_of(source="another", **columns).shape.heads == 24
    assert job_of(source="oneflow-dlperf", **(columns | {"heads": "12"})).shape.heads == 12


def test_megatron_bridges_recipes_keep_gradients_in_16_bits():
    bridge, plain = (job_of(framework=name) for name in ("Megatron-Bridge/Megatron-Core", "Megatron-LM"))
    assert (bridge.gradient_bytes, bridge.reduce_bytes) == (2.0, 2.0)
    assert (plain.gradient_bytes, plain.reduce_bytes) == (4.0, 4.0)


def test_megatron_core_makes_its_loss_in_place_since_2025():
    assert [job_of(year=year).loss_in_place for year in ("2024", "2025", "")] == [False, True, True]


def test_a_row_that_states_a_field_is_taken_at_its_word():
    assert job_of(recompute="none").recompute == "none"
    assert job_of(attention="unfused (Megatron fused softmax)").flash_attention is False
    assert job_of(compile="1").compiled is True


def test_the_number_of_parameters_tells_a_gated_feed_forward_from_a_plain_one():
    gpt = {
        "model": "net",
        "layers": "96",
        "hidden": "12288",
        "heads": "96",
        "kv_heads": "96",
        "ffn": "49152",
        "vocab": "51200",
    }
    assert job_of(**gpt, params_b="175").shape.mlp_matrices == 2
    assert job_of(**gpt, params_b="233").shape.mlp_matrices == 3


def test_experts_follow_from_total_and_active_parameters():
    mixtral = {"arch": "moe", "model": "Mixtral-8x7B", "params_b": "46.7", "active_params_b": "12.9", "vocab": "32000"}
    shape = job_of(**mixtral).shape
    assert (shape.experts, shape.active_experts) == (8, 2)


def test_frozen_weights_halve_the_backward_pass_and_have_next_to_no_states():
    job = job_of(task="lora")
    assert job.task_factor == 0.5
    assert job.state_bytes < 1


def test_a_cluster_is_named_by_gpu_and_interconnect():
    assert job_of(interconnect="NVLink in node, EFA (AWS p5) between nodes").cluster.name == "h100-sxm-efa"
    blank = express(Cell(LLAMA_8B))
    assert blank.job.cluster.name == "h100-sxm-unknown"
    assert any("interconnect is taken" in assumed for assumed in blank.assumed)
    one_node = express(Cell({**LLAMA_8B, "gpus": "8", "dp": "8", "global_batch": "16"}))
    assert not any("interconnect" in assumed for assumed in one_node.assumed)


def test_every_published_row_is_a_step_or_says_why_not():
    rows = read_cells(TABLE)
    expressed, jobs, places = jobs_of(rows)
    assert len(expressed) == len(rows)
    assert len(jobs) == len(places) == sum(one.job is not None for one in expressed)
    assert all(one.note for one in expressed if one.job is None)
    assert len(places) > 0.9 * len(rows)
    gpus = np.array([rows[place].number("gpus") for place in places])
    assert (jobs.gpus == gpus).all()
