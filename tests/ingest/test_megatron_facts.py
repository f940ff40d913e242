from pathlib import Path
from typing import Any

import pytest

from falloff.ingest.frameworks import read_framework_log
from falloff.ingest.megatron_facts import read_facts

DATA = Path(__file__).parents[1] / "data" / "megatron_lm"
QWEN = (DATA / "core-0.8-qwen2.log").read_text().splitlines()

# GPT-3 13B as Megatron-LM's papers have it: arXiv 2104.04473, table 1 rounds it to 12.9 or 13 billion
GPT = {
    "add_bias_linear": "True",
    "ffn_hidden_size": "20480",
    "group_query_attention": "False",
    "hidden_size": "5120",
    "max_position_embeddings": "2048",
    "normalization": "LayerNorm",
    "num_attention_heads": "40",
    "num_layers": "40",
    "num_query_groups": "1",
    "padded_vocab_size": "51200",
    "position_embedding_type": "learned_absolute",
    "swiglu": "False",
    "untie_embeddings_and_output_weights": "False",
}


def facts_of(arguments: dict[str, str], *lines: str) -> dict[str, Any]:
    return read_facts([f"  {name} {'.' * (48 - len(name))} {value}" for name, value in arguments.items()] + list(lines))


def test_the_arguments_of_a_real_log_state_shape_mesh_batch_and_techniques() -> None:
    expected = {
        "num_gpus": 2,
        "dp": 2,
        "tp": 1,
        "pp": 1,
        "cp": 1,
        "ep": 1,
        "layers": 24,
        "hidden": 896,
        "heads": 14,
        "kv_heads": 2,
        "ffn": 4864,
        "seq": 128,
        "microbatch": 1,
        "global_batch": 8,
        "seed": 1234,
        "sharding": "zero1",
        "sequence_parallel": False,
        "recompute": "selective",
        "param_dtype": "bfloat16",
        "reduce_dtype": "float32",
        "arch": "dense",
        "params": 630167424.0,
    }
    facts = read_facts(QWEN)
    assert {name: facts.get(name) for name in expected} == expected
    # switched off, not chosen, and not printed: none of these is known
    assert not facts.keys() & {"vpp", "attention", "vocab", "embedding_params", "gpu_name", "note"}


def test_the_count_of_a_real_log_comes_out_by_the_shape_where_the_vocabulary_is_known() -> None:
    # 151643 tokens and 293 more; 2 x 151936 x 896 of the 630,167,424 are embedding and LM head
    text = "> padded vocab (size: 151643) with 293 dummy tokens (new size: 151936)"
    facts = read_facts([*QWEN[:60], text])
    assert facts["vocab"] == 151936
    assert facts["params"] == 630167424
    assert facts["embedding_params"] == 151936 * 896


def test_a_gpt_with_biases_learned_positions_and_one_matrix_for_both_ends_is_counted() -> None:
    facts = facts_of(GPT)
    hidden, ffn = 5120, 20480
    layer = 4 * hidden**2 + 4 * hidden + 2 * hidden * ffn + ffn + hidden + 4 * hidden
    assert facts["params"] == 40 * layer + 51200 * hidden + 2048 * hidden + 2 * hidden
    assert facts["params"] == pytest.approx(12.9e9, rel=0.01)
    # the positions alone are looked up; the tokens' matrix multiplies as LM head
    assert facts["embedding_params"] == 2048 * hidden
    assert facts["kv_heads"] == 40


@pytest.mark.parametrize(("tp", "pp"), [(1, 1), (8, 1), (2, 4), (8, 8)])
def test_what_the_first_rank_holds_agrees_with_the_whole(tp: int, pp: int) -> None:
    sizes = {"tensor_model_parallel_size": str(tp), "pipeline_model_parallel_size": str(pp)}
    hidden, ffn = 5120, 20480
    split = 4 * hidden**2 + 3 * hidden + 2 * hidden * ffn + ffn
    held = 40 // pp * (split // tp + 6 * hidden) + 51200 * hidden // tp + 2048 * hidden + (2 * hidden if pp == 1 else 0)
    rank = f" > number of parameters on (tensor, pipeline) model parallel rank (0, 0): {held}"
    assert facts_of(GPT | sizes, rank)["params"] == facts_of(GPT)["params"]
    other = rank.replace(str(held), str(held + 1))
    # one parameter more makes it another network: its whole is known where this rank holds all of it
    assert facts_of(GPT | sizes, other).get("params") == (held + 1 if tp == pp == 1 else None)


def test_a_version_without_experts_has_the_parameters_that_its_only_rank_prints() -> None:
    sizes = {"tensor_model_parallel_size": "1", "pipeline_model_parallel_size": "1", "num_attention_heads": "16"}
    rank = " > number of parameters on (tensor, pipeline) model parallel rank (0, 0): 354871296"
    assert facts_of(sizes, rank)["params"] == 354871296
    assert "params" not in facts_of(sizes | {"tensor_model_parallel_size": "2"}, rank)


@pytest.mark.parametrize(
    "change",
    [
        {"num_experts": "8"},
        {"multi_latent_attention": "True"},
        {"qk_layernorm": "True"},
        {"mtp_num_layers": "1"},
        {"normalization": "LayerNorm1P"},
        {"position_embedding_type": "relative"},
        {"padded_vocab_size": "None"},
    ],
)
def test_a_network_that_is_not_counted_has_no_parameters(change: dict[str, str]) -> None:
    assert facts_of(GPT | change).get("params") is None


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"zero_stage": "3", "deepspeed": "True"}, {"sharding": "zero3"}),
        ({"zero_stage": "0.0", "deepspeed": "True"}, {"sharding": "ddp"}),
        ({"use_torch_fsdp2": "True", "use_distributed_optimizer": "False"}, {"sharding": "fsdp"}),
        (
            {"use_custom_fsdp": "True", "data_parallel_sharding_strategy": "optim_grads_params"},
            {"sharding": "zero3"},
        ),
        ({"use_distributed_optimizer": "False"}, {"sharding": "ddp"}),
        ({"recompute_granularity": "None"}, {"recompute": "none"}),
        ({"recompute_granularity": "full"}, {"recompute": "full"}),
        ({"checkpoint_activations": "True"}, {"recompute": "full"}),
        ({"activations_checkpoint_method": "None"}, {"recompute": "none"}),
        ({"attention_backend": "AttnBackend.fused"}, {"attention": "fused"}),
        ({"use_flash_attn": "True"}, {"attention": "flash"}),
        ({"params_dtype": "torch.float16"}, {"param_dtype": "float16"}),
        ({"bf16": "True", "fp16": "False"}, {"param_dtype": "bfloat16"}),
        ({"fp8": "hybrid", "bf16": "True"}, {"param_dtype": "float8 in linear layers"}),
        ({"virtual_pipeline_model_parallel_size": "4"}, {"vpp": 4}),
        ({"num_experts": "8", "num_attention_heads": "8"}, {"arch": "moe"}),
        ({"overlap_grad_reduce": "True", "tp_comm_overlap": "True"}, {"note": "overlap_grad_reduce, tp_comm_overlap"}),
        ({"num_attention_heads": "32"}, {"kv_heads": 32}),
        ({"num_attention_heads": "32", "num_key_value_heads": "8"}, {"kv_heads": 8}),
        ({"num_attention_heads": "32", "group_query_attention": "False", "num_query_groups": "1"}, {"kv_heads": 32}),
        ({"seq_length": "0"}, {"seq": None}),
        ({"hidden_size": "1024........updated"}, {"hidden": 1024}),
    ],
)
def test_an_argument_is_told_in_our_words(arguments: dict[str, str], expected: dict[str, Any]) -> None:
    facts = facts_of(arguments)
    assert {name: facts.get(name) for name in expected} == expected


@pytest.mark.parametrize(
    "text",
    [
        "using world size: 64, data-parallel-size: 4, tensor-model-parallel size: 8, pipeline-model-parallel size: 2 ",
        "using world size: 64, data-parallel size: 4, context-parallel size: 1, hierarchical context-parallel sizes: "
        "Nonetensor-model-parallel size: 8, pipeline-model-parallel size: 2",
        "using world size: 64, data-parallel size: 4, context-parallel size: 1, tensor-model-parallel size: 8, "
        "encoder-tensor-model-parallel size: 0, pipeline-model-parallel size: 2, "
        "encoder-pipeline-model-parallel size: 0",
    ],
)
def test_the_line_of_processes_gives_the_mesh_over_versions(text: str) -> None:
    facts = read_facts([text])
    assert {name: facts[name] for name in ("num_gpus", "dp", "tp", "pp")} == {"num_gpus": 64, "dp": 4, "tp": 8, "pp": 2}


def test_arguments_of_one_rank_are_read_where_launchers_label_the_lines(tmp_path: Path) -> None:
    path = tmp_path / "srun.log"
    labelled = [f"{rank}: {text}" for text in QWEN for rank in ((0,) if text.startswith("  ") else (1,))]
    path.write_text("\n".join(labelled) + "\n")
    (log,) = read_framework_log(path, "megatron-lm")
    assert log.facts["layers"] == 24
    assert len(log.steps) == 6
