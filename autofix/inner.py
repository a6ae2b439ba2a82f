"""The values inside an operator that exporters write as several nodes: by their usual way of writing it, or by PyTorch's decomposition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def inner_values(name: str, args: Any, kwargs: Any) -> list[Any]:
    """The values inside an operator that exporters write as several nodes, as they usually write it."""
    import torch

    try:
        if name.startswith(("aten.addmm.", "aten.baddbmm.")):
            return [torch.matmul(args[1], args[2])]
        if name.startswith("aten.linear.") and len(args) > 2:
            return [torch.matmul(args[0], args[1].t())]
        if name.startswith("aten.trunc."):
            return [args[0].abs(), args[0].abs().floor(), args[0].sign()]
        if name.startswith("aten.ne."):
            return [torch.eq(args[0], args[1])]
        if name.startswith("aten.rsqrt."):
            return [torch.sqrt(args[0])]
        if name.startswith("aten.addcmul."):
            scale = kwargs.get("value", 1)
            return [args[1] * args[2], args[1] * scale, args[2] * scale, args[1] * args[2] * scale]
        if name.startswith("aten.lerp."):
            gap, rest = args[1] - args[0], 1 - args[2]
            return [gap, args[2] * gap, args[0] + args[2] * gap, gap * rest, args[1] - gap * rest]
        if name.startswith("aten.softplus."):
            beta, most = (args[1] if len(args) > 1 else 1), (args[2] if len(args) > 2 else 20)
            bent = torch.nn.functional.softplus(args[0] * beta, 1, 1e30)
            return [args[0] * beta, bent, bent / beta, args[0] * beta > most]
        if name.startswith("aten.glu."):
            first, second = args[0].chunk(2, args[1] if len(args) > 1 else -1)
            return [first.contiguous(), second.contiguous(), torch.sigmoid(second)]
        if name.startswith("aten.hardshrink."):
            return [args[0].abs(), args[0].abs() <= (args[1] if len(args) > 1 else 0.5)]
        if name.startswith("aten.threshold."):
            return [args[0] <= args[1], args[0] > args[1]]
        if name.startswith("aten.mish."):
            return [torch.nn.functional.softplus(args[0]), torch.tanh(torch.nn.functional.softplus(args[0]))]
        if name.startswith("aten.gelu."):
            inner = 0.044715 * args[0] ** 3
            bent = torch.tanh((2 / torch.pi) ** 0.5 * (args[0] + inner))
            gelu = [args[0] ** 3, inner, args[0] + inner, (2 / torch.pi) ** 0.5 * (args[0] + inner), bent, bent + 1, 0.5 * args[0]]
            if kwargs.get("approximate", "none") == "tanh":
                return gelu
        if name.startswith("aten.roll.") and len(args[1]) == 1 and len(args) > 2 and len(args[2]) == 1:
            size = args[0].shape[args[2][0]]
            cut = (size - args[1][0]) % size if size else 0
            return [args[0].narrow(args[2][0], cut, size - cut).contiguous(), args[0].narrow(args[2][0], 0, cut).contiguous()]
        if name.startswith("aten.silu."):
            return [torch.sigmoid(args[0])]
        if name.startswith("aten.gelu.") and kwargs.get("approximate", "none") == "none":
            scaled = args[0] / 2**0.5
            bent = torch.erf(scaled)
            return [scaled, bent, bent + 1, 0.5 * (bent + 1), args[0] * (bent + 1), 0.5 * args[0]]
        if name.startswith(("aten._softmax.", "aten.softmax.")):
            powers = torch.exp(args[0] - args[0].amax(args[1], keepdim=True))
            return [args[0] - args[0].amax(args[1], keepdim=True), powers, powers.sum(args[1], keepdim=True)]
        if "scaled_dot_product" in name:
            return attention_steps(name, args, kwargs)
        if name.startswith(("aten.var.", "aten.std.")):
            axes = args[1] if len(args) > 1 and isinstance(args[1], (list, tuple)) else None
            off = args[0] - (args[0].mean(axes, keepdim=True) if axes else args[0].mean())
            return [
                args[0].mean(axes, keepdim=True) if axes else args[0].mean(),
                off,
                off * off,
                (off * off).mean(axes) if axes else (off * off).mean(),
            ]
    except Exception:
        return []
    return []


def attention_steps(name: str, args: Any, kwargs: Any) -> list[Any]:
    """The values inside scaled_dot_product_attention (query, key, value, then mask, dropout, is_causal in the order of either form)."""
    import torch

    fused = "flash" in name  # (..., dropout_p, is_causal, *, attn_mask, scale)
    mask = kwargs.get("attn_mask") if fused else (args[3] if len(args) > 3 else kwargs.get("attn_mask"))
    causal = (args[4] if len(args) > 4 else False) if fused else (args[5] if len(args) > 5 else kwargs.get("is_causal", False))
    scale = kwargs.get("scale") or args[0].shape[-1] ** -0.5
    query, key = args[0] * scale**0.5, (args[1] * scale**0.5).transpose(-2, -1)
    logits = query @ key
    steps = [query, key, args[1].transpose(-2, -1), args[1] * scale**0.5, logits]
    if causal:
        square = torch.ones(logits.shape[-2:], dtype=torch.bool).tril()
        mask = torch.zeros(square.shape, dtype=logits.dtype).masked_fill(~square, float("-inf"))
        steps += [square, mask]
    if mask is not None:
        extra = torch.zeros(mask.shape, dtype=logits.dtype).masked_fill(~mask, float("-inf")) if mask.dtype is torch.bool else mask
        logits = logits + extra
        steps += [extra, logits]
    weights = torch.softmax(logits, -1)
    return [*steps, weights, torch.isnan(weights), torch.nan_to_num(weights, nan=0.0)]


def decomposition_table() -> dict[Any, Any]:
    """Decompositions by which the exporter writes operators that it does not know; empty where this torch has no such table."""
    try:
        from torch.onnx._internal.exporter import _decomp, _registration

        registry = _registration.ONNXRegistry.from_torchlib(opset_version=20)
        return dict(_decomp.create_onnx_friendly_decomposition_table(set(_decomp.get_onnx_implemented_overloads(registry))))
    except Exception:
        return {}


def decomposed_values(decompose: Callable[..., Any], args: Any, kwargs: Any) -> list[Any]:
    """The values inside a decomposition."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    found: list[Any] = []

    class Collect(TorchDispatchMode):  # type: ignore[no-untyped-call]
        """Keeps every dense real result."""

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            found.extend(v for v in (out if isinstance(out, (tuple, list)) else (out,)) if isinstance(v, torch.Tensor) and not v.is_complex())
            return out

    try:
        with Collect():  # type: ignore[no-untyped-call]
            decompose(*args, **kwargs)
    except Exception:
        return []
    return found[:64]
