"""Leaves of forward's arguments and results, and the adapter that gives a model flat tensor inputs and outputs.

The order and the names are a contract: inputs carry forward's parameter names (nested: `cache.0.key`), outputs are
`output`, `output_1`, ... or dict keys and field names. None is dropped; Python numbers are leaves.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import keyword
from collections.abc import Iterator
from typing import Any

import torch


def flatten_value(value: Any, path: str) -> list[tuple[str, Any]]:
    """The leaves (tensors and Python numbers) of `value` in order, each with its dotted path below `path`."""

    def below(name: Any) -> str:
        return f"{path}.{name}" if path else str(name)

    if value is None or isinstance(value, str):
        return []
    if isinstance(value, (torch.Tensor, bool, int, float, torch.SymInt, torch.SymFloat, torch.SymBool)):
        return [(path, value)]
    if isinstance(value, dict):
        return [leaf for k, v in value.items() for leaf in flatten_value(v, below(k))]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return [leaf for k, v in zip(value._fields, value, strict=True) for leaf in flatten_value(v, below(k))]
    if isinstance(value, (list, tuple)):
        return [leaf for i, v in enumerate(value) for leaf in flatten_value(v, below(i))]
    if dataclasses.is_dataclass(value):
        return [leaf for f in dataclasses.fields(value) for leaf in flatten_value(getattr(value, f.name), below(f.name))]
    if hasattr(value, "to_tuple"):
        return flatten_value(value.to_tuple(), path)
    if hasattr(value, "__dict__") and not callable(value):
        return [leaf for k, v in vars(value).items() for leaf in flatten_value(v, below(k)) if isinstance(leaf[1], torch.Tensor)]
    return []


def rebuild_value(template: Any, leaves: Iterator[Any]) -> Any:
    """`template` with its leaves replaced, in the order of `flatten_value`."""
    if template is None or isinstance(template, str):
        return template
    if isinstance(template, (torch.Tensor, bool, int, float)):
        return next(leaves)
    if isinstance(template, dict):
        if type(template) is dict:
            return {k: rebuild_value(v, leaves) for k, v in template.items()}
        out = copy.copy(template)
        for k, v in template.items():
            out[k] = rebuild_value(v, leaves)
        return out
    if isinstance(template, tuple):
        items = [rebuild_value(v, leaves) for v in template]
        return type(template)(*items) if hasattr(template, "_fields") else tuple(items)
    if isinstance(template, list):
        return [rebuild_value(v, leaves) for v in template]
    if dataclasses.is_dataclass(template):
        twin = copy.copy(template)
        for f in dataclasses.fields(template):
            object.__setattr__(twin, f.name, rebuild_value(getattr(template, f.name), leaves))
        return twin
    if hasattr(template, "__dict__") and not callable(template):
        twin = copy.copy(template)
        for k, v in vars(template).items():
            twin.__dict__[k] = rebuild_inside_object(v, leaves)
        return twin
    return template


def rebuild_inside_object(template: Any, leaves: Iterator[Any]) -> Any:
    """As `rebuild_value`, for what an opaque object holds: there only tensors are leaves, numbers stay."""
    if isinstance(template, (bool, int, float)) and not isinstance(template, torch.Tensor):
        return template
    if isinstance(template, list):
        return [rebuild_inside_object(v, leaves) for v in template]
    if isinstance(template, tuple) and not hasattr(template, "_fields"):
        return tuple(rebuild_inside_object(v, leaves) for v in template)
    if isinstance(template, dict):
        return {k: rebuild_inside_object(v, leaves) for k, v in template.items()}
    return rebuild_value(template, leaves)


def call_signature(forward: Any) -> inspect.Signature:
    """What forward takes. A compiled method of TorchScript is asked for its schema: inspect finds none for what was traced, frozen or
    loaded, and `self` among the parameters of a script_method."""
    if not isinstance(forward, torch._C.ScriptMethod):
        return inspect.signature(forward)
    parameters = []
    for one in forward.schema.arguments[1:]:
        kind = inspect.Parameter.KEYWORD_ONLY if one.kwarg_only else inspect.Parameter.POSITIONAL_OR_KEYWORD
        default = one.default_value if one.has_default_value() else inspect.Parameter.empty
        parameters.append(inspect.Parameter(one.name if one.name.isidentifier() else parameter_name(one.name), kind, default=default))
    return inspect.Signature(parameters)


def bind_arguments(forward: Any, args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """{parameter name: value} in the order of forward's parameters; raises TypeError where they do not fit."""
    signature = call_signature(forward)
    bound = signature.bind(*args, **kwargs)
    named: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        if signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
            named.update(value)
        else:
            named[name] = value
    return named


def input_leaves(forward: Any, args: list[Any], kwargs: dict[str, Any]) -> list[tuple[str, Any]]:
    """The leaves of one call's arguments, named by parameter."""
    return [leaf for name, value in bind_arguments(forward, args, kwargs).items() for leaf in flatten_value(value, name)]


def output_leaves(result: Any, taken: tuple[str, ...] = ()) -> list[tuple[str, Any]]:
    """The leaves of forward's result by output name; a name that an input has already gets the suffix `_output`."""
    if isinstance(result, dict) or hasattr(result, "_fields") or (dataclasses.is_dataclass(result) and not isinstance(result, torch.Tensor)):
        leaves = flatten_value(result, "")
    elif isinstance(result, (list, tuple)):
        leaves = [leaf for i, v in enumerate(result) for leaf in flatten_value(v, f"output_{i}" if i else "output")]
    else:
        leaves = flatten_value(result, "output")
    used = set(taken)
    named: list[tuple[str, Any]] = []
    for name, value in leaves:
        while name in used:
            name += "_output"
        used.add(name)
        named.append((name, value))
    return named


def as_output_tensor(value: Any) -> torch.Tensor:
    """An output leaf as the tensor that stands in the file: numbers 0-d, sparse dense, complex as pairs of reals."""
    if not isinstance(value, torch.Tensor):
        if isinstance(value, torch.SymInt):
            return torch.scalar_tensor(value, dtype=torch.int64)  # type: ignore[arg-type]
        if isinstance(value, torch.SymFloat):
            return torch.scalar_tensor(value, dtype=torch.float32)  # type: ignore[arg-type]
        return torch.as_tensor(value)
    if value.layout != torch.strided:
        value = value.to_dense()
    dense: torch.Tensor = torch.view_as_real(value.resolve_conj()) if value.is_complex() else value
    return dense


def distinct_outputs(result: Any, leaves: list[Any]) -> tuple[torch.Tensor, ...]:
    """The output tensors of `result`, cloned where one is an input itself or stands twice: exporters merge such names."""
    outputs: list[torch.Tensor] = []
    for _, value in output_leaves(result):
        tensor = as_output_tensor(value)
        twice = any(tensor is other for other in [*leaves, *outputs])
        outputs.append(tensor.clone() if twice else tensor)
    return tuple(outputs)


def parameter_name(path: str) -> str:
    """A leaf's dotted path as a Python parameter name."""
    name = "".join(c if c.isalnum() or c == "_" else "_" for c in path)
    return f"{name}_" if keyword.iskeyword(name) or name in ("self", "model") else name


def get_submodule_and_name(model: torch.nn.Module, path: str) -> tuple[torch.nn.Module, str]:
    """The module that owns the buffer at dotted `path`, and the buffer's own name."""
    owner, _, name = path.rpartition(".")
    return (model.get_submodule(owner) if owner else model), name


class FlatModel(torch.nn.Module):
    """Calls a model with flat leaves and returns flat tensors.

    `call(leaves)` takes the leaves of the named arguments in order (without the Python numbers where they are baked), then one tensor
    per lifted buffer, and returns a tuple: the output tensors, then the lifted buffers as forward left them.
    """

    def __init__(
        self, model: torch.nn.Module, args: list[Any], kwargs: dict[str, Any], lift_buffers: tuple[str, ...] = (), bake_numbers: bool = False
    ) -> None:
        super().__init__()
        self.model = model
        named = bind_arguments(model.forward, args, kwargs)
        self.template = (list(args), {k: kwargs[k] for k in named if k in kwargs})
        self.example = [v for _, v in input_leaves(model.forward, args, kwargs)]
        self.lift_buffers = lift_buffers
        self.bake_numbers = bake_numbers

    def call(self, leaves: list[Any]) -> tuple[torch.Tensor, ...]:
        """The flat outputs for flat inputs."""
        count = len(leaves) - len(self.lift_buffers)
        given = iter(leaves[:count])
        rest = iter([v if self.bake_numbers and not isinstance(v, torch.Tensor) else next(given) for v in self.example])
        args = rebuild_value(self.template[0], rest)
        kwargs = rebuild_value(self.template[1], rest)
        if not self.lift_buffers:
            return distinct_outputs(self.model(*args, **kwargs), leaves)
        owners = [get_submodule_and_name(self.model, path) for path in self.lift_buffers]
        before = [owner._buffers[name] for owner, name in owners]
        try:
            for (owner, name), value in zip(owners, leaves[count:], strict=True):
                owner._buffers[name] = value.clone()
            result = self.model(*args, **kwargs)
            state: list[Any] = [owner._buffers[name] for owner, name in owners]
        finally:
            for (owner, name), old in zip(owners, before, strict=True):
                owner._buffers[name] = old
        return distinct_outputs(result, leaves) + tuple(s.clone() for s in state)


def make_flat_model(
    model: torch.nn.Module, args: list[Any], kwargs: dict[str, Any], lift_buffers: tuple[str, ...] = (), bake_numbers: bool = False
) -> torch.nn.Module:
    """A FlatModel whose forward has one named parameter per leaf (dots become underscores), as exporters want."""
    leaves = input_leaves(model.forward, args, kwargs)
    names = [parameter_name(n) for n, v in leaves if isinstance(v, torch.Tensor) or not bake_numbers]
    names += [parameter_name("buffers." + b) for b in lift_buffers]
    scope: dict[str, Any] = {}
    exec(f"def forward(self, {', '.join(names)}):\n    return self.call([{', '.join(names)}])\n", scope)  # noqa: S102
    made = type("FlatModel", (FlatModel,), {"forward": scope["forward"]})
    flat: torch.nn.Module = made(model, args, kwargs, lift_buffers, bake_numbers)
    return flat.train(model.training)
