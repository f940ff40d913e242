"""The workloads that a source published for two GPU generations: what figure generations compares."""

from falloff.analysis.like_workloads import Comparison

_MPT = {"precision": "bf16"}
_LORA = {"model": "Llama-2-70B LoRA (MLPerf)", "gpus": "8", "global_batch": "8", "precision": "fp8"}
_MLPERF_405B = {"model": "Llama-3.1-405B (MLPerf)", "precision": "fp8"}
_BRIDGE_8B = {"model": "LLAMA3_8B", "gpus": "8", "global_batch": "128", "precision": "fp8", "seq": "8192"}
_BRIDGE_70B = {"model": "LLAMA3_70B", "gpus": "64", "global_batch": "256", "precision": "fp8", "seq": "8192"}
_ZERO2 = {"model": "Llama-3.1-8B", "gpus": "8", "seq": "8192", "zero_stage_or_fsdp": "zero2"}
_H100, _H200, _B200 = "H100-80GB-SXM", "H200-141GB-SXM", "B200-SXM"

# Each newer machine over the older one, oldest base first; rates are MFU of the same precision.
COMPARISONS = (
    Comparison(
        name="MPT 760M to 30B, 8 GPUs",
        source="llm-foundry",
        machine="H100",
        base={**_MPT, "gpus": "8", "gpu": "A100-80GB-SXM"},
        other={**_MPT, "gpus": "8", "gpu": _H100},
        differs="nothing that is stated",
        paired=True,
    ),
    Comparison(
        name="MPT-3B and 13B, 32 and 128 GPUs",
        source="llm-foundry",
        machine="H100",
        base={**_MPT, "gpu": "A100-40GB-SXM"},
        other={**_MPT, "gpu": _H100},
        differs="memory 40 → 80 GB",
        paired=True,
    ),
    Comparison(
        name="70B LoRA, 8 GPUs",
        source="mlperf-training",
        machine="H200",
        base={**_LORA, "gpu": _H100, "framework_version": "v4.1"},
        other={**_LORA, "gpu": _H200, "framework_version": "v4.1"},
        differs="layout",
    ),
    Comparison(
        name="405B, 512 GPUs",
        source="mlperf-training",
        machine="H200",
        base={**_MLPERF_405B, "gpus": "512", "gpu": _H100},
        other={**_MLPERF_405B, "gpus": "512", "gpu": _H200},
        differs="tp 8 → 4",
    ),
    Comparison(
        name="70B LoRA, 8 GPUs",
        source="mlperf-training",
        machine="B200",
        base={**_LORA, "gpu": _H100, "framework_version": "v4.1"},
        other={**_LORA, "gpu": _B200, "framework_version": "v4.1"},
        differs="layout",
    ),
    Comparison(
        name="8B, 8 GPUs",
        source="megatron-bridge",
        machine="B200",
        base={**_BRIDGE_8B, "gpu": _H100, "framework_version": "NeMo 25.09"},
        other={**_BRIDGE_8B, "gpu": _B200, "framework_version": "NeMo 25.09"},
        differs="sharding, microbatch",
    ),
    Comparison(
        name="8B, 128 GPUs",
        source="mlperf-training",
        machine="B200",
        base={"model": "Llama-3.1-8B (MLPerf)", "gpus": "128", "precision": "fp8", "gpu": _H100},
        other={"model": "Llama-3.1-8B (MLPerf)", "gpus": "128", "precision": "fp8", "gpu": _B200},
        differs="tp 2 → cp 2",
    ),
    Comparison(
        name="8B ZeRO-2, 8 GPUs (over H200)",
        source="ml-engineering",
        machine="B200",
        base={**_ZERO2, "gpu": _H200},
        other={**_ZERO2, "gpu": _B200},
        differs="nothing that is stated",
    ),
    Comparison(
        name="8B, 8 GPUs",
        source="megatron-bridge",
        machine="GB200",
        base={**_BRIDGE_8B, "gpu": _H100, "framework_version": "NeMo 25.11"},
        other={**_BRIDGE_8B, "gpu": "GB200", "framework_version": "NeMo 25.11"},
        differs="sharding, microbatch",
    ),
    Comparison(
        name="70B, 64 GPUs",
        source="megatron-bridge",
        machine="GB200",
        base={**_BRIDGE_70B, "gpu": _H100},
        other={**_BRIDGE_70B, "gpu": "GB200"},
        differs="tp 4 × pp 8 → FSDP",
    ),
    Comparison(
        name="405B, 512 GPUs",
        source="dgxc-benchmarking",
        machine="GB200",
        base={"model": "Llama3.1 405b", "gpus": "512", "precision": "fp8", "gpu": _H100},
        other={"model": "Llama3.1 405b", "gpus": "512", "precision": "fp8", "gpu": "GB200"},
        differs="tp 8 → 4",
    ),
    Comparison(
        name="405B, 2,048 GPUs",
        source="mlperf-training",
        machine="GB200",
        base={**_MLPERF_405B, "gpus": "2048", "gpu": _H100},
        other={**_MLPERF_405B, "gpus": "2048", "gpu": "GB200"},
        differs="tp 8 → 4, batch 1,152 → 1,280",
    ),
)
