"""The workloads that a source published for one chip in nodes of eight and in NVL72: what figure node_size compares."""

from falloff.analysis.like_workloads import Comparison

_B200, _B300 = "B200-SXM", "B300-SXM"


def _of(machine: str, name: str, version: str, differs: str, **stated: str) -> Comparison:
    """Return a comparison of cells of Megatron-Bridge of one version: a chip in NVL72 over it in nodes of eight."""
    both = {"framework_version": f"NeMo {version}", **stated}
    return Comparison(
        name=name,
        source="megatron-bridge",
        machine=machine,
        base={**both, "gpu": {"GB200": _B200, "GB300": _B300}[machine]},
        other={**both, "gpu": machine},
        differs=differs,
    )


_QWEN_30B = {"model": "Qwen3_30B_a3B", "gpus": "8", "precision": "mxfp8"}
_QWEN_235B = {"model": "Qwen3_235B_a22B", "gpus": "256", "precision": "mxfp8"}
_DEEPSEEK = {"model": "DeepSeekV3", "gpus": "256", "precision": "mxfp8", "global_batch": "4096"}
_GPT_OSS = {"model": "GPT OSS 120B", "gpus": "64", "precision": "bf16", "global_batch": "1280"}
_405B = {"model": "Llama-3.1-405B (MLPerf)", "gpus": "256", "precision": "fp8"}
_LORA = {"model": "Llama-2-70B LoRA (MLPerf)", "gpus": "8", "precision": "fp8", "framework_version": "v5.0"}

WITHIN, DENSE, EXPERTS = "8 GPUs, joined by NVLink in both", "dense, beyond 8 GPUs", "experts, beyond 8 GPUs"
# Tokens per second of a chip in NVL72 over the same chip's in nodes of eight.
COMPARISONS = {
    WITHIN: (
        _of("GB200", "8B", "25.11", "nothing that is stated", model="LLAMA3_8B", gpus="8", precision="mxfp8"),
        Comparison(
            name="70B LoRA",
            source="mlperf-training",
            machine="GB200",
            base={**_LORA, "gpu": _B200},
            other={**_LORA, "gpu": "GB200"},
            differs="submitters",
        ),
        _of("GB200", "Qwen3 30B-A3B", "26.04.01", "nothing that is stated", **_QWEN_30B),
        _of("GB300", "Qwen3 30B-A3B", "26.04.01", "nothing that is stated", **_QWEN_30B),
    ),
    DENSE: (
        _of("GB200", "405B, 128", "25.09", "tp 4 × pp 8 × cp 2 → FSDP × tp 2", model="LLAMA3.1_405B", gpus="128",
            precision="fp8"),
        Comparison(
            name="405B, 256",
            source="mlperf-training",
            machine="GB200",
            base={**_405B, "gpu": _B200, "framework_version": "v5.1"},
            other={**_405B, "gpu": "GB200", "framework_version": "v5.0"},
            differs="round, batch 576 → 448",
        ),
    ),
    EXPERTS: (
        _of("GB200", "GPT OSS 120B, 64", "26.04.01", "ep 8 → 64", **_GPT_OSS),
        _of("GB300", "GPT OSS 120B, 64", "26.04.01", "ep 8 → 64", **_GPT_OSS),
        _of("GB200", "Qwen3 235B-A22B, 256", "26.04.01", "ep 8 → 32", **_QWEN_235B),
        _of("GB300", "Qwen3 235B-A22B, 256", "26.04", "ep 8 → 32, pp 8 → 4", **_QWEN_235B),
        _of("GB200", "DeepSeek V3, 256", "26.04.01", "ep 8 → 64, pp 8 → 4", **_DEEPSEEK),
        _of("GB300", "DeepSeek V3, 256", "26.04.01", "ep 8 → 32, pp 8 → 2", **_DEEPSEEK),
    ),
}  # fmt: skip
