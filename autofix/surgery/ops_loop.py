"""Loops that export: a Python loop where the number of steps is small and known, torch's while_loop operator otherwise.

while_loop becomes ONNX Loop. Its operator is called directly, not through torch.compile, which would turn sizes that change
between two calls into inputs that the exported program's verifier refuses.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

UNROLLED_STEPS = 4
"""Loops of at most this many steps are unrolled."""


def loop_steps(body: Callable[..., Sequence[Tensor]], count: int, state: Sequence[Tensor], extra: Sequence[Tensor] = ()) -> tuple[Tensor, ...]:
    """state = body(k, *state, *extra) for k = 0 .. count - 1 (an int or a SymInt); the tensors of the state keep their shapes.

    k is a 0-d int64 tensor. Bodies use broadcasting and no size of their arguments: a size inside a loop body can be
    traced as a stride, which has no counterpart in ONNX.
    """
    if isinstance(count, int) and count <= UNROLLED_STEPS:
        for k in range(count):
            state = body(torch.full((), k, dtype=torch.int64), *state, *extra)
        return tuple(state)
    from torch._higher_order_ops.while_loop import while_loop_op

    def more(k: Tensor, last: Tensor, *rest: Tensor) -> Tensor:
        return k < last

    def step(k: Tensor, last: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        return (k + 1, last.clone(), *body(k, *rest))

    start = (
        torch.zeros((), dtype=torch.int64),
        torch.full((), count, dtype=torch.int64),
        *(s.clone(memory_format=torch.contiguous_format) for s in state),
    )
    return tuple(while_loop_op(more, step, start, tuple(e.clone(memory_format=torch.contiguous_format) for e in extra))[2:])  # type: ignore[arg-type]


def loop_until(
    body: Callable[..., Sequence[Tensor]], more: Callable[..., Tensor], state: Sequence[Tensor], extra: Sequence[Tensor] = ()
) -> tuple[Tensor, ...]:
    """while more(*state, *extra): state = body(*state, *extra); `more` gives a 0-d bool tensor."""
    from torch._higher_order_ops.while_loop import while_loop_op

    start = tuple(s.clone(memory_format=torch.contiguous_format) for s in state)
    return tuple(while_loop_op(more, body, start, tuple(e.clone(memory_format=torch.contiguous_format) for e in extra)))  # type: ignore[arg-type]


def flatten_batch(a: Tensor, keep: int = 2) -> Tensor:
    """[*batch, ...] -> [product of batch, the last `keep` axes]; right for axes of size 0, too."""
    batch = a.shape[: a.ndim - keep]
    return a.reshape(math.prod(batch), *a.shape[a.ndim - keep :])


@contextlib.contextmanager
def loops_without_asserts() -> Iterator[None]:
    """While open, torch leaves no shape assertions in loop bodies; they may hold strides, which ONNX has no operator for.

    The same assertions stand at the top of the program, where the exporter drops them.
    """
    from torch.fx.passes import runtime_assert

    original = runtime_assert.insert_deferred_runtime_asserts

    def insert_then_drop(gm: Any, shape_env: Any, name: str, export: bool = False) -> None:
        original(gm, shape_env, name, export)
        if name == "reenter_make_fx":
            for node in list(gm.graph.nodes):
                if node.target is torch.ops.aten._assert_scalar.default:
                    gm.graph.erase_node(node)
            gm.graph.eliminate_dead_code()

    runtime_assert.insert_deferred_runtime_asserts = insert_then_drop
    try:
        yield
    finally:
        runtime_assert.insert_deferred_runtime_asserts = original
