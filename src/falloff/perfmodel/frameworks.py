"""What each program does where a source does not say: dtypes, sharding, recomputation, attention, overlap.

A table of training cells says little of the program that ran it. These defaults are the programs' own, at the time of
the published cells; docs/perfmodel.md lists them. A row that states a field is taken at its word.
"""

import dataclasses
import math
from dataclasses import dataclass

from falloff.perfmodel.jobs import Recompute, Sharding


@dataclass(frozen=True, kw_only=True)
class Habits:
    """One program's defaults. Bytes are those of one parameter; `source` says where they are from.

    state_bytes counts the master weight and both of Adam's moments; gradient_bytes is what is kept of a gradient
    between microbatches, beside the parameter of param_bytes that is multiplied.
    """

    name: str
    source: str
    sharding: Sharding = "none"
    sequence_parallel: bool = False
    recompute: Recompute = "none"
    recompute_is_fixed: bool = False  # whether a blank means that default, and not that a source does not say
    flash_attention: bool = True
    compiled: bool = False
    param_bytes: float = 2.0
    reduce_bytes: float = 4.0
    state_bytes: float = 12.0
    gradient_bytes: float = 4.0
    float16_gradient_bytes: float = 4.0  # the same where a row is of float16
    low_precision_halves: bool = False  # whether gradients are kept and reduced in 16 bits where a row is of 8 or 4
    float8_gather: bool = False  # whether layers' weights are gathered in 8 bits where a row is of fp8 (not mxfp8)
    bucket_params: float = 0.0  # as in Job
    bucket_params_per_rank: float = 0.0
    overlaps: bool = True
    reshards_after_forward: bool = True
    reduces_every_microbatch: bool = True  # as in Job
    replays_graphs: bool = False
    stages_within: bool = False  # as in Job
    accumulates_in_product: bool = False
    interleaves: bool = False  # one layer a virtual stage, where a source with a pipeline leaves vpp blank
    microbatch_tokens: int = 8192  # a rank's tokens of a microbatch, where a source leaves the microbatch blank

    def splits_sequence(self, tp: int) -> bool:
        """Return whether activations between tensor-parallel regions are sharded over tp ranks."""
        return self.sequence_parallel and tp > 1

    def reshards(self, pp: int) -> bool:
        """Return whether parameters are let go of after the forward pass over pp stages.

        TorchTitan keeps them in a pipeline, whose microbatches would gather them anew (its
        fsdp_reshard_after_forward "default").
        """
        return self.reshards_after_forward and not (self.name == "torchtitan" and pp > 1)


_MEGATRON = Habits(
    name="megatron",
    source="Megatron-LM and Megatron Core: distributed optimizer, sequence parallelism with TP, fp32 main gradients "
    "(megatron/core/distributed; accumulate_allreduce_grads_in_fp32), overlap_grad_reduce in every published recipe",
    sharding="zero1",
    sequence_parallel=True,
    accumulates_in_product=True,
    float16_gradient_bytes=2.0,  # arguments.py turns accumulate_allreduce_grads_in_fp32 on for bf16 alone
    # buckets close at the larger of 40,000,000 and 1,000,000 x ranks, so that latency does not rule collectives of many
    # ranks (megatron/core/distributed/distributed_data_parallel_config.py, bucket_size)
    bucket_params=40e6,
    bucket_params_per_rank=1e6,
)
_NEMO = dataclasses.replace(
    _MEGATRON,
    source="NeMo 2's performance scripts: gradients reduced in fp32 for bf16 (bf16_mixed), in bf16 for fp8, whose "
    "weights are gathered in fp8 but for mxfp8 (NVIDIA/NeMo, scripts/performance/helpers.py, set_precision_configs; "
    "nemo/collections/llm/recipes/precision/mixed_precision.py); buckets of 128 Mi (megatron_comm_overlap.py)",
    low_precision_halves=True,
    float8_gather=True,
    bucket_params=128 * 1024**2,
    bucket_params_per_rank=0.0,
)
# mxfp8 sends bf16 through the buffer of gradients (reuse_grad_buf_for_mxfp8_param_ag; Megatron Core,
# megatron/core/distributed/param_and_grad_buffer.py); Bridge's fp4_param_gather came on 2026-04-21 (ecbd4ead5)
_BRIDGE = dataclasses.replace(
    _NEMO,
    source="Megatron-Bridge's performance recipes: grad_reduce_in_fp32 off for every precision (perf_recipes/"
    "_common.py, _benchmark_common; scripts/performance before), weights gathered in fp8 but for mxfp8 and nvfp4 "
    "(training/mixed_precision.py), buckets of 128 Mi (training/comm_overlap.py)",
    reduce_bytes=2.0,
    gradient_bytes=2.0,
)
# The submissions' logs do not say vpp. NeMo's recipe of the same network, GPT-3 175B in 8 stages, has 12 for its 96
# layers (NVIDIA/dgxc-benchmarking, GPT-3 175B), and no submission would run 8 microbatches through 8 plain stages.
_MLPERF = dataclasses.replace(
    _MEGATRON,
    source="MLPerf submissions of NVIDIA's stack, with CUDA graphs: Megatron Core under NeMo, distributed optimizer, "
    "gradients reduced in bf16 (mlcommons/training_results_v3.0, v4.0, NVIDIA/benchmarks/gpt3, grad_sync_dtype; v5.0, "
    "v5.1, llama31_405b, llama31_8b, pretrain.py, grad_reduce_in_fp32=False), overlap_grad_reduce and "
    "overlap_param_gather, weights gathered in fp8 (v4.0 on, config_common.sh, FP8_PARAMS; not for fp4)",
    interleaves=True,
    replays_graphs=True,
    reduce_bytes=2.0,
    gradient_bytes=2.0,
    float8_gather=True,
    bucket_params=768e6,  # v5.1, llama31_8b, BUCKET_SIZE; the other networks' pipelines reduce whole chunks
    bucket_params_per_rank=0.0,
)
# v5.1's config_common.sh: TP_PP_DP_MAPPING, so that a model of 64 GPUs lies in one NVLink domain (SEGMENT=16 trays)
_MLPERF_51 = dataclasses.replace(_MLPERF, stages_within=True)
# v3.0 and v3.1 (2023): conf/megatron_gpt_config.yaml and conf/custom.yaml have no fp8_params yet
_MLPERF_2023 = dataclasses.replace(_MLPERF, float8_gather=False)
# Before 2022-05 (Korthikanti et al., arXiv 2205.05198) Megatron had neither sequence parallelism, nor selective
# recomputation, nor a distributed optimizer; its gradients were reduced after the backward pass in one piece
# (allreduce_gradients of megatron/training.py, v2.x), with fp32 buffers only for bf16 (fp16 reduces in fp16).
_MEGATRON_V2 = dataclasses.replace(
    _MEGATRON,
    name="megatron-v2",
    source="Megatron-LM v2 (2021 to 2022): plain data parallelism, fused softmax, gradients reduced in one piece after "
    "the last backward pass (arXiv 2104.04473; megatron/model/distributed.py)",
    sharding="none",
    sequence_parallel=False,
    recompute="full",
    flash_attention=False,
    overlaps=False,
    reduce_bytes=2.0,
    accumulates_in_product=False,
    bucket_params=math.inf,  # all gradients of a type in one buffer (allreduce_gradients, v2.5)
    bucket_params_per_rank=0.0,
)
# --gradient-accumulation-fusion came early in 2022 (megatron/fused_kernels, fused_weight_gradient_dense)
_MEGATRON_2022 = dataclasses.replace(_MEGATRON_V2, accumulates_in_product=True)
# conf/training/gpt3/5b.yaml of its tables' days (2b8b56d3, 261d93af, b20f85d4, 3579cdb3; 82b98b24 had 4 of 24 layers)
_NEMO_2022 = dataclasses.replace(
    _MEGATRON_2022,
    source="NeMo Megatron 2022: Megatron-LM's ways, but activations are kept: activations_checkpoint_num_layers 0 of "
    "method block for 5B, 1 of 6 or selective for 175B (NVIDIA/NeMo-Framework-Launcher, conf/training/gpt3)",
    recompute="none",
)
# MEMORY_OPT_ALLREDUCE_SIZE of deepspeed/runtime/engine.py since 2020-02; reduce_bucket_size and allgather_bucket_size
# of ZeRO-1 and 2 (deepspeed/runtime/zero/config.py)
_DEEPSPEED_BUCKET = 5e8
_MEGATRON_DEEPSPEED = Habits(
    name="megatron-deepspeed",
    source="Megatron-DeepSpeed: ZeRO-1 with the pipeline engine, gradients reduced after the last microbatch "
    "(deepspeed/runtime/pipe/engine.py, _exec_reduce_grads), fused softmax without flash attention, 16-bit reduction",
    flash_attention=False,
    overlaps=False,
    reduce_bytes=2.0,
    float16_gradient_bytes=2.0,
    bucket_params=_DEEPSPEED_BUCKET,
)
_DEEPSPEED = Habits(
    name="deepspeed",
    source="DeepSpeed ZeRO-3 defaults: overlap_comm, 16-bit communication, 16-bit gradients and fp32 states "
    "(deepspeed.ai/docs/config-json)",
    sharding="zero3",
    reduce_bytes=2.0,
    gradient_bytes=2.0,
    float16_gradient_bytes=2.0,
    bucket_params=_DEEPSPEED_BUCKET,
)
# v0.3.15: before each gather of a parameter the host waits for the device (torch.cuda.synchronize in _allgather_param,
# partition_parameters.py), so that next to nothing runs beside compute; traffic.py has what its lists of parts cost.
_DEEPSPEED_V03 = dataclasses.replace(
    _DEEPSPEED,
    name="deepspeed-v0.3",
    source="DeepSpeed 0.3 (2021) under Megatron-LM: parameters gathered one by one after a synchronisation, gathered "
    "again for recomputation and for backward (deepspeed/runtime/zero/partition_parameters.py and stage3.py, v0.3.15)",
    recompute="full",
    flash_attention=False,
    overlaps=False,
)
_TORCHTITAN = Habits(
    name="torchtitan",
    source="torchtitan: FSDP2 with mp_policy param bf16, reduce fp32, fp32 master weights and gradients; TP comes with "
    "sequence parallelism; reshard_after_forward off under PP (torchtitan/parallelisms/parallelize_llama.py, 2024-12)",
    sharding="zero3",
    sequence_parallel=True,
    recompute="selective",
    compiled=False,
)
_COMPOSER = Habits(
    name="composer",
    source="Composer and llm-foundry: FSDP with mixed_precision DEFAULT, that is parameters gathered in bf16 and "
    "gradients reduced in fp32 (composer/trainer/mosaic_fsdp_utils.py); low_precision_layernorm; not compiled",
    sharding="zero3",
)
_NANOTRON = Habits(
    name="nanotron",
    source="nanotron: fp32 gradient accumulation and reduction, ZeRO-1 optional, TP in reduce-scatter mode with "
    "sequence parallelism, no recomputation (scripts/scaling_benchmarks.py of nanotron)",
    sharding="none",
    sequence_parallel=True,
    recompute_is_fixed=True,
)
_MAXTEXT = Habits(
    name="maxtext",
    source="MaxText: FSDP by XLA, compiled, remat policy full unless named (MaxText/configs/base.yml); 16-bit "
    "collectives of weights, fp32 gradients",
    sharding="zero3",
    recompute="full",
    compiled=True,
)
_META = Habits(
    name="meta",
    source="Llama 3 (arXiv 2407.21783, section 3.3): FSDP that does not reshard after forward, fp32 gradient "
    "accumulation and reduce-scatter, TP 8 with sequence parallelism, interleaved 1F1B, no recomputation",
    sharding="zero3",
    sequence_parallel=True,
    compiled=True,
    reshards_after_forward=False,
    interleaves=True,
)
_PADDLE = Habits(
    name="paddle",
    source="PaddleNLP llama scripts: sharding stage 1 or 2, flash attention, fp16 O2 with fp32 master weights; without "
    "sequence parallelism (paddle 2.5.1; FlagPerf, training/benchmarks/llama1_7B/paddle/run_pretraining.py)",
    sharding="zero1",
    reduce_bytes=2.0,
    gradient_bytes=2.0,
    float16_gradient_bytes=2.0,
)
_OTHER = Habits(name="other", source="no program is stated: FSDP in bf16 with fp32 states", sharding="zero3")
_COLOSSAL = dataclasses.replace(
    _OTHER,
    source="Colossal-AI's benchmarks of Llama: gradient checkpointing and flash attention (-g -x of its "
    "examples/language/llama/scripts/benchmark_{7B,70B}/gemini.sh); its published TFLOP/s count 8 and not 6 times the "
    "parameters",
    recompute="full",
)
_ONEFLOW = Habits(
    name="oneflow",
    source="OneFlow-Benchmark's GPT: a static graph, checkpoints, fused kernels after Megatron's, no flash attention "
    "(LanguageModeling/GPT/oneflow_gpt/model.py, examples/args_pretrain_gpt.sh)",
    recompute="full",
    flash_attention=False,
)
_TORCHTUNE = Habits(
    name="torchtune",
    source="torchtune full_finetune_single_device: bf16 weights, gradients and states",
    state_bytes=4.0,
    gradient_bytes=2.0,
    reduce_bytes=2.0,
)

# in this order: the first word that a framework's name holds decides
_BY_WORD: tuple[tuple[str, Habits], ...] = (
    ("megatron-deepspeed", _MEGATRON_DEEPSPEED),
    ("deepspeed zero-3 (old branch)", _DEEPSPEED_V03),
    ("metaseq", dataclasses.replace(_OTHER, name="other", source="metaseq: FSDP with Megatron TP, full recomputation")),
    ("deepspeed", _DEEPSPEED),
    ("colossal", _COLOSSAL),
    ("oneflow", _ONEFLOW),
    ("torchtitan", _TORCHTITAN),
    ("composer", _COMPOSER),
    ("llm-foundry", _COMPOSER),
    ("nanotron", _NANOTRON),
    ("maxtext", _MAXTEXT),
    ("meta internal", _META),
    ("paddle", _PADDLE),
    ("torchtune", _TORCHTUNE),
    ("lit-gpt", _OTHER),
    ("25.09", _MLPERF_51),  # the containers of MLPerf v5.1
    ("nvidia", _MLPERF),  # MLPerf names the container alone: 'PyTorch NVIDIA Release 25.09' runs NeMo
    ("megatron-bridge", _BRIDGE),
    ("nemo", _NEMO),
    ("megatron", _MEGATRON),
    ("flagscale", _MEGATRON),
    ("ngc", _MLPERF),
    ("dgl", _MLPERF),
)
# by our own names, which need not hold the word that tables use; of several under one name the first, or as listed
BY_NAME = {habits.name: habits for _, habits in reversed(_BY_WORD)} | {
    habits.name: habits for habits in (_OTHER, _MEGATRON, _MEGATRON_V2, _DEEPSPEED_V03)
}
NAMES = tuple(sorted(BY_NAME))
# torchtitan turned the compilation of its loss off on 2024-12-18 (e8977b00) and built compiled losses again from
# 2025-04-02 on (bbb1b616), when torch was at 2.8's nightlies
_EAGER_LOSS_UNTIL = 2024
_EAGER_LOSS_TORCH = "torch 2.7"
# Megatron Core subtracts the greatest logit in place since 2024-06-13 (9634c0e4a3), so that no second copy in float32
# is made; its releases of that year, 0.6 to 0.8, still made one
_COPIES_LOGITS_UNTIL = 2024
# what a program was before a year, the earliest first
_ERAS: dict[str, tuple[tuple[int, Habits], ...]] = {
    _MLPERF.source: ((2024, _MLPERF_2023),),
    _MEGATRON.source: ((2022, _MEGATRON_V2), (2023, _MEGATRON_2022)),
    _NEMO.source: ((2023, _NEMO_2022),),
    _DEEPSPEED.source: ((2022, _DEEPSPEED_V03),),
}


def habits_of(framework: str, year: int | None = None) -> Habits:
    """Return the defaults of the program that a table names; a name that none of ours holds gets those of 'other'.

    year tells Megatron-LM before Megatron Core apart, and DeepSpeed before it prefetched; their defaults differ.
    """
    name = framework.casefold()
    for word, habits in _BY_WORD:
        if word in name:
            eras = _ERAS.get(habits.source, ()) if year is not None else ()
            return next((older for first, older in eras if (year or 0) < first), habits)
    return _OTHER


def compiles_loss(habits: Habits, version: str, year: int | None) -> bool:
    """Return whether a program that compiles its layers compiles its loss as well."""
    old = (year is not None and year <= _EAGER_LOSS_UNTIL) or _EAGER_LOSS_TORCH in version.casefold()
    return not (habits is _TORCHTITAN and old)


def subtracts_in_place(year: int | None) -> bool:
    """Return whether a Megatron Core of that year, today's where there is none, makes its loss of one float32 copy."""
    return year is None or year > _COPIES_LOGITS_UNTIL
