"""Sparse and nested tensors out of the way while a model is captured."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from autofix.surgery.capture_swap import swapped_functions
from autofix.surgery.sparse_dense import nested_made, nested_padded


@contextlib.contextmanager
def nested_capture() -> Iterator[None]:
    """While active, torch.nested makes lists of items."""
    nested = torch.nested
    padded = nested.to_padded_tensor
    nested.to_padded_tensor = nested_padded  # a built-in, so only the module's name can be swapped
    try:
        with swapped_functions({nested.nested_tensor: nested_made, nested.as_nested_tensor: nested_made}):
            yield
    finally:
        nested.to_padded_tensor = padded
