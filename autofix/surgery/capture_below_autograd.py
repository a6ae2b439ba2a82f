"""Capture below autograd and torch.func: derivatives and vmap are carried out, and what they compute is recorded."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_map

from autofix.surgery.capture_swap import function_copy, swapped_functions
from autofix.surgery.vmap_rules import vmap_keeps_sizes


def export_below_autograd(model: Any, args: Any, kwargs: Any = None, *, dynamic_shapes: Any = None, strict: bool = False, **options: Any) -> Any:
    """torch.export.export with the recorder under autograd and functorch (pre_dispatch=False)."""
    from torch.export._trace import _export

    known = {k: v for k, v in options.items() if k == "prefer_deferred_runtime_asserts_over_guards"}
    # Results that ask for gradients would be taken for a training step.
    hook = model.register_forward_hook(lambda module, inputs, output: tree_map(without_gradient, output))
    try:
        return _export(model, args, kwargs, dynamic_shapes=dynamic_shapes, strict=False, pre_dispatch=False, **known)
    finally:
        hook.remove()


def without_gradient(value: Any) -> Any:
    """A tensor detached; anything else as it is."""
    return value.detach() if isinstance(value, torch.Tensor) else value


def jacobian_by_rows(func: Any, argnums: Any = 0, has_aux: bool = False, *, chunk_size: Any = None, randomness: str = "error") -> Any:
    """torch.func.jacfwd by reverse mode: forward mode's formulas fix dynamic sizes."""
    return torch.func.jacrev(func, argnums, has_aux=has_aux, chunk_size=chunk_size)


def hessian_by_rows(func: Any, argnums: Any = 0) -> Any:
    """torch.func.hessian by reverse mode twice."""
    return torch.func.jacrev(torch.func.jacrev(func, argnums), argnums)


def jvp_by_vjp(func: Any, primals: Any, tangents: Any, *, strict: bool = False, has_aux: bool = False) -> Any:
    """torch.func.jvp as the derivative of the (linear) reverse mode."""
    vjp: Any = torch.func.vjp
    made = vjp(func, *primals, has_aux=has_aux)
    out, pull, aux = made if has_aux else (*made, None)
    _, push = vjp(pull, tree_map(torch.zeros_like, out))
    moved = push(tuple(tangents))[0]
    return (out, moved, aux) if has_aux else (out, moved)


def tensor_deepcopy(tensor: Any, memo: Any) -> Any:
    """copy.deepcopy of a tensor that is being recorded: a copy of its values."""
    known = memo.get(id(tensor))
    if known is None:
        known = tensor.detach().clone()
        # A module's copy goes on being treated as a module with parameters.
        known._is_param = True
        memo[id(tensor)] = known
    return known


@contextlib.contextmanager
def recurrent_steps_unrolled() -> Iterator[None]:
    """While active, LSTM and GRU over a known number of steps are recorded step by step: the gradient of torch's loop has no ONNX form."""
    try:
        from torch._decomp.decompositions import gru_impl, lstm_impl
        from torch.export import _patches
    except ImportError:  # torch versions without the loop
        yield
        return

    def chosen(plain: Any, loop: Any) -> Any:
        def layer(input: Any, hx: Any, params: Any, *options: Any) -> Any:
            steps = input.shape[1 if options[-1] else 0]  # batch_first comes last
            return (plain if isinstance(steps, int) else loop)(input, hx, params, *options)

        return layer

    aten, register = torch.ops.aten, _patches._register_rnn_while_loop_decomposition
    with (
        register(aten.lstm.input, chosen(lstm_impl, _patches.lstm_while_loop_impl)),
        register(aten.gru.input, chosen(gru_impl, _patches.gru_while_loop_impl)),
    ):
        yield


@contextlib.contextmanager
def capture_below_autograd() -> Iterator[None]:
    """While active, torch.export.export records below autograd."""
    grad = function_copy(torch.autograd.grad)

    def grad_that_keeps(*args: Any, **kwargs: Any) -> Any:
        # Recording calls forward's pieces more than once.
        kwargs["retain_graph"] = True
        return grad(*args[:3], **kwargs) if len(args) > 3 else grad(*args, **kwargs)

    swaps: dict[Any, Any] = {
        torch.autograd.grad: grad_that_keeps,
        torch.func.jacfwd: jacobian_by_rows,
        torch.func.jvp: jvp_by_vjp,
        torch.func.hessian: hessian_by_rows,
    }
    before = torch.export.export
    deepcopy = torch.Tensor.__deepcopy__
    parameter_deepcopy = torch.nn.Parameter.__deepcopy__
    torch.export.export = export_below_autograd  # type: ignore[assignment]
    torch.Tensor.__deepcopy__ = tensor_deepcopy  # type: ignore[method-assign]
    torch.nn.Parameter.__deepcopy__ = tensor_deepcopy  # type: ignore[method-assign]
    try:
        # The fused attention kernels have fused gradients.
        with swapped_functions(swaps), sdpa_kernel(SDPBackend.MATH), vmap_keeps_sizes(), recurrent_steps_unrolled():
            yield
    finally:
        torch.export.export = before
        torch.Tensor.__deepcopy__ = deepcopy  # type: ignore[method-assign]
        torch.nn.Parameter.__deepcopy__ = parameter_deepcopy  # type: ignore[method-assign]
