"""flex_attention and scaled_dot_product_attention written out while a model is captured."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

import torch

from autofix.surgery.attention_dense import attention_block_mask, attention_dense, attention_flex
from autofix.surgery.capture_swap import swapped_functions


def attention_overrides() -> dict[Any, Any]:
    """The attention function of torch.nn.functional."""
    return {torch.nn.functional.scaled_dot_product_attention: attention_dense}


@contextlib.contextmanager
def attention_capture() -> Iterator[None]:
    """While active, the name scaled_dot_product_attention means the dense function: the built-in refuses a symbolic is_causal
    before any override is asked."""
    from torch.nn.modules import transformer

    builtin = torch.nn.functional.scaled_dot_product_attention
    holders = [m for m in list(sys.modules.values()) if getattr(m, "__dict__", {}).get("scaled_dot_product_attention") is builtin]
    for module in holders:
        module.__dict__["scaled_dot_product_attention"] = attention_dense
    # A mask that is passed is applied; whether it happens to be causal is only a hint, and finding out compares values.
    hints = {transformer._detect_is_causal_mask: lambda mask, is_causal=None, size=None: False}
    try:
        with swapped_functions(hints):
            yield
    finally:
        for module in holders:
            module.__dict__["scaled_dot_product_attention"] = builtin


@contextlib.contextmanager
def flex_attention_capture() -> Iterator[None]:
    """While active, flex_attention computes all scores, also where torch.compile wraps it."""
    import torch._dynamo
    from torch.nn.attention import flex_attention as flex

    with (
        torch._dynamo.config.patch(disable=True),
        swapped_functions({flex.flex_attention: attention_flex, flex.create_block_mask: attention_block_mask}),
    ):
        yield
