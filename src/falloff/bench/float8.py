"""Linears in float8 by torchao, where it is installed."""

from torch import nn


def use_float8(block: nn.Module) -> None:
    """Make the linears of a block multiply in float8, scaled by tensor; ValueError without torchao.

    FSDP then gathers float8, too: half the bytes of bfloat16.
    """
    try:
        from torchao.float8 import Float8LinearConfig, convert_to_float8_training
    except ImportError as error:
        raise ValueError(f"float8 needs torchao, and it cannot be imported here ({error})") from error
    convert_to_float8_training(block, config=Float8LinearConfig(enable_fsdp_float8_all_gather=True))
