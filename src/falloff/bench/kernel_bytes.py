"""The fewest bytes that operators bound by memory move: each input read once, each output written once."""

from collections.abc import Mapping

FORWARD_ONLY = ("residual_add", "cast", "copy")  # their backward moves nothing, or is the same again
BACKWARD_ONLY_TOGETHER = ("cross_entropy",)  # nobody trains with its forward alone
_INDEX_BYTES = 8
_FLOAT32_BYTES = 4


def forward_bytes(operator: str, sizes: Mapping[str, int], item_bytes: int) -> int:
    """Return the fewest bytes of an operator's forward, its elements of item_bytes each."""
    elements, vectors = _elements(sizes), sizes.get("width", 0) * item_bytes
    return {
        "rms_norm": 2 * elements * item_bytes + vectors,
        "layer_norm": 2 * elements * item_bytes + 2 * vectors,
        "rotary": 2 * elements * item_bytes + _rotation_bytes(sizes),
        "swiglu": 3 * elements * item_bytes,
        "gelu": 2 * elements * item_bytes,
        "residual_add": 3 * elements * item_bytes,
        "embedding": 2 * elements * item_bytes + sizes.get("tokens", 0) * _INDEX_BYTES,
        "cast": elements * (_FLOAT32_BYTES + item_bytes),
        "copy": 2 * elements * item_bytes,
    }[operator]


def forward_backward_bytes(operator: str, sizes: Mapping[str, int], item_bytes: int) -> int:
    """Return the fewest bytes of forward and backward, which read their inputs each for itself.

    Of cross-entropy the two stand next to each other, so that logits are read once and their gradient written once.
    """
    elements, vectors = _elements(sizes), sizes.get("width", 0) * item_bytes
    if operator == "cross_entropy":
        return 2 * elements * item_bytes + sizes["tokens"] * _INDEX_BYTES
    backward = {
        "rms_norm": 3 * elements * item_bytes + 2 * vectors,
        "layer_norm": 3 * elements * item_bytes + 3 * vectors,
        "rotary": 2 * elements * item_bytes + _rotation_bytes(sizes),
        "swiglu": 5 * elements * item_bytes,
        "gelu": 3 * elements * item_bytes,
        # the gradient of all rows is written, also of those that no token looked up
        "embedding": elements * item_bytes
        + sizes.get("tokens", 0) * _INDEX_BYTES
        + sizes.get("vocab", 0) * sizes.get("width", 0) * item_bytes,
    }[operator]
    return forward_bytes(operator, sizes, item_bytes) + backward


def _elements(sizes: Mapping[str, int]) -> int:
    if "elements" in sizes:
        return sizes["elements"]
    return sizes["tokens"] * (sizes.get("width") or sizes.get("vocab") or sizes["heads"] * sizes["head_size"])


def _rotation_bytes(sizes: Mapping[str, int]) -> int:
    """Return the bytes of cosines and sines, float32, one each for two elements of a head."""
    return sizes.get("tokens", 0) * sizes.get("head_size", 0) * _FLOAT32_BYTES
