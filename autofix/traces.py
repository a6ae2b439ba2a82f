"""What a call leaves behind in a model: buffers, parameters and plain attributes that are not what they were.

model_marks(model), then traces_of(marks, model) -> Traces, by values.
quick_marks(model) differ after a call that leaves traces; they come without a look at values.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from autofix.case import uninitialized


@dataclass
class Traces:
    """What a call left behind in a model: buffers whose values changed, and whether anything else changed."""

    buffers: list[str]
    parameters: list[str]
    attributes: list[str]

    @property
    def any(self) -> bool:
        """Whether the next call needs a fresh model."""
        return bool(self.buffers or self.parameters or self.attributes)


def same_tensor(a: torch.Tensor, b: torch.Tensor, rtol: float = 0.0, atol: float = 0.0) -> bool:
    """Equal in dtype, shape and values, reals within a tolerance if one is given; NaN equals NaN."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.layout != torch.strided or a.is_quantized:
        a, b = (t.dequantize() if t.is_quantized else t.to_dense() for t in (a, b))
    if a.numel() == 0:
        return True
    with torch.no_grad():
        if a.is_floating_point() or a.is_complex():
            if rtol or atol:
                return torch.allclose(a, b, rtol, atol, equal_nan=True)
            return bool(torch.all((a == b) | ((a != a) & (b != b))))
        return bool(torch.equal(a, b))


def attribute_mark(value: Any) -> Any:
    """Something that changes when a plain attribute changes: identity, version of a tensor, members of a container."""
    if isinstance(value, torch.Tensor):
        try:
            return id(value), value._version
        except RuntimeError:  # tensors of inference mode count no versions
            return id(value), 0
    if isinstance(value, (list, tuple, set, frozenset)):
        return id(value), len(value), tuple(attribute_mark(v) if isinstance(v, torch.Tensor) else id(v) for v in list(value)[:64])
    if isinstance(value, dict):
        return id(value), len(value), tuple((id(k), id(v)) for k, v in list(value.items())[:64])
    if isinstance(value, (int, float, str, bool, type(None))):
        return value
    return id(value)


def plain_attributes(model: torch.nn.Module) -> Iterator[tuple[str, Any]]:
    """(dotted name, value) of what the modules hold besides parameters, buffers, submodules and hooks."""
    for path, module in model.named_modules():
        for key, value in vars(module).items():
            if key not in ("_parameters", "_buffers", "_modules") and not key.endswith("_hooks"):
                yield f"{path}.{key}".lstrip("."), value


def quick_marks(model: torch.nn.Module) -> list[Any]:
    """Something that changes when a call leaves traces in a model, without a look at the tensors' values."""
    marks = [(name, attribute_mark(value)) for name, value in plain_attributes(model)]
    for module in model.modules():
        held = (*module._parameters.items(), *module._buffers.items())
        marks += [(name, attribute_mark(tensor)) for name, tensor in held]
    return marks


def model_marks(model: torch.nn.Module) -> dict[str, dict[str, Any]]:
    """What `traces_of` compares: values of buffers, versions of parameters, marks of plain attributes."""
    marks: dict[str, dict[str, Any]] = {"buffers": {}, "parameters": {}, "attributes": {}}
    for name, tensor in model.named_buffers():
        if not uninitialized(tensor):
            marks["buffers"][name] = tensor.detach().clone()
    for name, parameter in model.named_parameters():
        marks["parameters"][name] = attribute_mark(parameter)
    marks["attributes"] = {name: attribute_mark(value) for name, value in plain_attributes(model)}
    return marks


def traces_of(marks: dict[str, dict[str, Any]], model: torch.nn.Module) -> Traces:
    """Compare a model with its marks from before a call."""
    now = dict(model.named_buffers())
    old = marks["buffers"]
    buffers = [n for n, t in now.items() if n in old and not same_tensor(t.detach(), old[n])]
    parameters = [n for n, p in model.named_parameters() if marks["parameters"].get(n) != attribute_mark(p)]
    attributes = [n for n in now if n not in old]
    marked = marks["attributes"]
    attributes += [n for n, value in plain_attributes(model) if n not in marked or marked[n] != attribute_mark(value)]
    return Traces(buffers, parameters, attributes)
