"""What each program does where a source does not say: dtypes, sharding, recomputation, attention, overlap.

A table of training cells says little of the program that ran it. These defaults are the programs' own, at the time of
the published cells; docs/perfmodel.md lists them. A row that states a field is taken at its word.
"""

import dataclasses
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
    overlaps: bool = True
    reshards_after_forward: bool = True
    replays_graphs: bool = False
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
)
# The submissions' logs do not say vpp. NeMo's recipe of the same network, GPT-3 175B in 8 stages, has 12 for its 96
# layers (NVIDIA/dgxc-benchmarking, GPT-3 175B), and no submission would run 8 microbatches through 8 plain stages.
_MLPERF = dataclasses.replace(
    _MEGATRON,
    source=f"MLPerf submissions of NVIDIA's stack, with CUDA graphs: {_MEGATRON.source}",
    interleaves=True,
    replays_graphs=True,
)
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
)
# --gradient-accumulation-fusion came early in 2022 (megatron/fused_kernels, fused_weight_gradient_dense)
_MEGATRON_2022 = dataclasses.replace(_MEGATRON_V2, accumulates_in_product=True)
_MEGATRON_DEEPSPEED = Habits(
    name="megatron-deepspeed",
    source="Megatron-DeepSpeed: ZeRO-1 with the pipeline engine, gradients reduced after the last microbatch "
    "(deepspeed/runtime/pipe/engine.py, _exec_reduce_grads), fused softmax without flash attention, 16-bit reduction",
    recompute="full",
    flash_attention=False,
    overlaps=False,
    reduce_bytes=2.0,
    float16_gradient_bytes=2.0,
)
_DEEPSPEED = Habits(
    name="deepspeed",
    source="DeepSpeed ZeRO-3 defaults: overlap_comm, 16-bit communication, 16-bit gradients and fp32 states "
    "(deepspeed.ai/docs/config-json)",
    sharding="zero3",
    reduce_bytes=2.0,
    gradient_bytes=2.0,
    float16_gradient_bytes=2.0,
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
    source="PaddleNLP llama scripts: sharding stage 1 or 2, flash attention, fp16 O2 with fp32 master weights",
    sharding="zero1",
    sequence_parallel=True,
    reduce_bytes=2.0,
    gradient_bytes=2.0,
    float16_gradient_bytes=2.0,
)
_OTHER = Habits(name="other", source="no program is stated: FSDP in bf16 with fp32 states", sharding="zero3")
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
    ("colossal", _OTHER),
    ("torchtitan", _TORCHTITAN),
    ("composer", _COMPOSER),
    ("llm-foundry", _COMPOSER),
    ("nanotron", _NANOTRON),
    ("maxtext", _MAXTEXT),
    ("meta internal", _META),
    ("paddle", _PADDLE),
    ("torchtune", _TORCHTUNE),
    ("lit-gpt", _OTHER),
    ("nvidia", _MLPERF),  # MLPerf names the container alone: 'PyTorch NVIDIA Release 25.09' runs NeMo
    ("megatron", _MEGATRON),
    ("nemo", _MEGATRON),
    ("flagscale", _MEGATRON),
    ("ngc", _MLPERF),
    ("dgl", _MLPERF),
)
# by our own names, which need not hold the word that tables use; of several under one name the first
BY_NAME = {habits.name: habits for _, habits in reversed(_BY_WORD)} | {
    habits.name: habits for habits in (_OTHER, _MEGATRON_V2, _DEEPSPEED_V03)
}
NAMES = tuple(sorted(BY_NAME))
# torchtitan turned the compilation of its loss off on 2024-12-18 (e8977b00) and built compiled losses again from
# 2025-04-02 on (bbb1b616), when torch was at 2.8's nightlies
_EAGER_LOSS_UNTIL = 2024
_EAGER_LOSS_TORCH = "torch 2.7"
# what a program was before a year, the earliest first
_ERAS: dict[str, tuple[tuple[int, Habits], ...]] = {
    _MEGATRON.name: ((2022, _MEGATRON_V2), (2023, _MEGATRON_2022)),
    _DEEPSPEED.name: ((2022, _DEEPSPEED_V03),),
}


def habits_of(framework: str, year: int | None = None) -> Habits:
    """Return the defaults of the program that a table names; a name that none of ours holds gets those of 'other'.

    year tells Megatron-LM before Megatron Core apart, and DeepSpeed before it prefetched; their defaults differ.
    """
    name = framework.casefold()
    for word, habits in _BY_WORD:
        if word in name:
            eras = _ERAS.get(habits.name, ()) if year is not None and habits is not _MLPERF else ()
            return next((older for first, older in eras if (year or 0) < first), habits)
    return _OTHER


def compiles_loss(habits: Habits, version: str, year: int | None) -> bool:
    """Return whether a program that compiles its layers compiles its loss as well."""
    old = (year is not None and year <= _EAGER_LOSS_UNTIL) or _EAGER_LOSS_TORCH in version.casefold()
    return not (habits is _TORCHTITAN and old)
