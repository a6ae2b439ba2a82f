"""Quantized networks on processors without VNNI: FBGEMM adds pairs of 8-bit products in 16 bits there, which saturate.

What eager PyTorch gives then depends on the processor (get_default_qconfig reduces the range of activations to 7 bits for that reason, but
values beyond those of the calibration use all 8), so that such an input set tells nothing about the file.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

STEPS = 1
"""Rounding a sum to the output's scale may differ by this many steps between kernels."""


def is_quantized(model: Any) -> bool:
    """Whether some module of it is one of torch.ao.nn.quantized or its fused relatives."""
    return any("quantized" in type(m).__module__ and hasattr(m, "_packed_params") for m in model.modules())


class EightBitSums(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """`saturated`: a statically quantized linear or convolution gave another result than its whole numbers do."""

    saturated = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = str(func).removesuffix(".new").removesuffix(".default")
        if name.startswith("quantized.") and isinstance(out, torch.Tensor) and out.is_quantized and not self.saturated:
            with torch._C._DisableTorchDispatch():
                self.saturated = differs(name.removeprefix("quantized."), args[0], args[1], out)
        return out


def differs(name: str, x: Any, packed: Any, out: Any) -> bool:
    """Whether `out` is off from the exact sums, rounded to its scale, by more than rounding is; False for other operators."""
    kind = name.removesuffix("_relu")
    if kind not in ("linear", "conv1d", "conv2d", "conv3d") or not hasattr(packed, "unpack"):
        return False
    weight, bias = packed.unpack()
    real, factors = x.dequantize().double(), weight.dequantize().double()
    offset = None if bias is None else bias.detach().double()
    if kind == "linear":
        exact = torch.nn.functional.linear(real, factors, offset)
    else:
        places = [list(getattr(packed, part)())[-factors.dim() + 2 :] for part in ("stride", "padding", "dilation")]
        if kind == "conv1d" and factors.dim() == 4:  # kept as a convolution over images of height 1
            real = real.unsqueeze(2)
        exact = torch.nn.functional.__dict__[f"conv{factors.dim() - 2}d"](real, factors, offset, *places, packed.groups())
        exact = exact.reshape(out.shape)
    steps = torch.round(exact / out.q_scale()) + out.q_zero_point()
    low = out.q_zero_point() if name.endswith("_relu") else 0
    limits = torch.iinfo(out.int_repr().dtype)
    wanted = steps.clamp(max(low, limits.min), limits.max)
    return bool((wanted - out.int_repr().double()).abs().max() > STEPS) if out.numel() else False


def saturates_inside(eager: Any, leaves: Any) -> bool:
    """Whether the sums of 8-bit products saturate in an eager call on these inputs."""
    if not is_quantized(eager.model):
        return False
    watch = EightBitSums()  # type: ignore[no-untyped-call]
    with watch:
        eager.call(leaves)
    return watch.saturated
