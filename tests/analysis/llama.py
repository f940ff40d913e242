"""The network of TorchTitan's tables, as a record states it."""

from typing import Any

# Llama 3 8B at a sequence of 8192 in bfloat16 on an H100
LLAMA_3_8B: dict[str, Any] = {
    "params": 8030261248,
    "embedding_params": 525336576,
    "layers": 32,
    "hidden": 4096,
    "seq": 8192,
    "hardware": "h100-sxm",
    "param_dtype": "bfloat16",
}
