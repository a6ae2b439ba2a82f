"""Custom operators and autograd functions opened up: their own Python implementation takes their place."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

CUSTOM_BUILT_IN = (
    "aten",
    "prims",
    "prim",
    "onnx",
    "onnx_symbolic",
    "_operator",
    "quantized",
    "quantized_decomposed",
    "inductor",
    "higher_order",
    "profiler",
    "rngprims",
    "debugprims",
    "debug_mode_ops",
    "c10d",
    "symm_mem",
    "mkldnn",
    "mkl",
    "onednn",
    "static_runtime",
    "sparse",
    "quantization",
    "export",
    "mkldnn_prepacked",
    "inductor_prims",
    "profiler",
)


def custom_op_registered(name: str) -> Callable[..., Any] | None:
    """The Python implementation of the operator `ns::name`: torch.library.custom_op's function, else a Python kernel for the CPU."""
    from torch._library.custom_ops import OPDEFS

    known: Any = OPDEFS.get(name)
    if known is not None:
        functions = getattr(known, "_backend_fns", {})
        overridden = {key: fn for key, fn in functions.items() if key in (None, "cpu")}
        body: Callable[..., Any] = known._init_fn if None in overridden or not overridden else next(iter(overridden.values()))
        return body
    return None


def custom_op_kernel(op: Any) -> Callable[..., Any] | None:
    """A Python kernel that torch.library.impl registered for `op`, called through its dispatch key; None for compiled ones."""
    for key in ("CPU", "CompositeExplicitAutograd", "CompositeImplicitAutograd", "Default"):
        try:
            table = torch._C._dispatch_dump(op.name())
        except RuntimeError:
            return None
        line = next((text for text in table.splitlines() if text.startswith(key)), "")
        if ".py" not in line and "/dev/null" not in line:
            continue
        dispatch_key = (
            torch._C.DispatchKey.CPU if key == "CPU" else getattr(torch._C.DispatchKey, key if key != "Default" else "CompositeImplicitAutograd")
        )
        return custom_op_through_key(op, dispatch_key)
    return None


def custom_op_through_key(op: Any, key: Any) -> Callable[..., Any]:
    """A function that runs the kernel of `op` for one dispatch key, hidden from function modes, which would start over."""

    def run(*args: Any, **kwargs: Any) -> Any:
        with torch._C.DisableTorchFunction():
            return op._op_dk(key, *args, **kwargs)

    return run


def custom_op_names() -> list[str]:
    """Every registered operator outside of torch's own namespaces, as `ns::name.overload`."""
    names = []
    for name in torch._C._dispatch_get_all_op_names():
        space = name.split("::")[0]
        if space not in CUSTOM_BUILT_IN and not space.startswith("_") and hasattr(torch.ops, space):
            names.append(name)
    return names


def custom_op_replacements() -> dict[Any, Callable[..., Any]]:
    """Operator (overload and packet) -> Python implementation, for all custom operators that have one."""
    found: dict[Any, Callable[..., Any]] = {}
    for full in custom_op_names():
        name, _, overload = full.partition(".")
        space, short = name.split("::")
        try:
            packet = getattr(getattr(torch.ops, space), short)
            op = getattr(packet, overload or "default")
        except (AttributeError, RuntimeError):
            continue
        body = custom_op_registered(name) or custom_op_kernel(op)
        if body is not None:
            found[op] = body
            found.setdefault(packet, body)
    return found


class CustomOpMode(torch.overrides.TorchFunctionMode):
    """Calls the Python implementation wherever a custom operator is called."""

    def __init__(self, bodies: dict[Any, Callable[..., Any]]) -> None:
        super().__init__()
        self.bodies = bodies

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Swap a custom operator, leave everything else."""
        body = self.bodies.get(func)
        if body is None:
            return func(*args, **(kwargs or {}))
        with self:
            return body(*args, **(kwargs or {}))


class ForwardContext:
    """What a forward of torch.autograd.Function may do with its ctx when no gradient is wanted."""

    def __init__(self, count: int) -> None:
        self.needs_input_grad = (False,) * count
        self.saved_tensors: tuple[Any, ...] = ()

    def save_for_backward(self, *tensors: Any) -> None:
        """Keep them: some forwards read them again."""
        self.saved_tensors = tensors

    save_for_forward = save_for_backward

    def mark_dirty(self, *tensors: Any) -> None:
        """Nothing."""

    mark_non_differentiable = mark_dirty

    def set_materialize_grads(self, value: bool) -> None:
        """Nothing."""


def autograd_function_forward(cls: Any, *args: Any, **kwargs: Any) -> Any:
    """What cls.apply(*args) computes, without a node of the autograd graph."""
    context = ForwardContext(len(args))
    if cls.setup_context is torch.autograd.Function.setup_context:
        return cls.forward(context, *args, **kwargs)
    return cls.forward(*args, **kwargs)


@contextlib.contextmanager
def custom_op_capture() -> Iterator[None]:
    """While active, custom operators and autograd functions run their own Python code."""
    before = torch.autograd.Function.__dict__["apply"]
    calls: Any = torch._library.custom_ops.CustomOpDef.__call__
    bodies: dict[Any, Any] = custom_op_replacements()

    def call(definition: Any, *args: Any, **kwargs: Any) -> Any:
        body = bodies.get(definition._opoverload)
        return calls(definition, *args, **kwargs) if body is None else body(*args, **kwargs)

    torch.autograd.Function.apply = classmethod(autograd_function_forward)  # type: ignore[method-assign,assignment]
    torch._library.custom_ops.CustomOpDef.__call__ = call  # type: ignore[method-assign,assignment]
    try:
        with CustomOpMode(bodies):
            yield
    finally:
        torch.autograd.Function.apply = before  # type: ignore[method-assign]
        torch._library.custom_ops.CustomOpDef.__call__ = calls  # type: ignore[method-assign]
