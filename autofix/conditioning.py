"""Whether an answer can be trusted: PyTorch in float64 beside PyTorch in float32."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autofix.eager import Eager, EagerCall, Leaves

KNIFE_EDGE = 1e-2
"""Relative disagreement of float32 and float64 beyond which a set is ill-conditioned."""


def check_float64(eager: Eager, first: EagerCall, facts: dict[str, Any], log: Any) -> None:
    """Rule out float64 runs that answer another question: reduced precision inside, or outputs that differ on the example itself."""
    import torch

    outputs = {v.dtype for _, v in first.outputs}
    low = {torch.bfloat16, torch.float16} & log.dtypes
    facts["low_precision"] = sorted(str(d).removeprefix("torch.") for d in low)
    if low and not outputs & low:
        return eager.forget_float64("the model computes in reduced precision on purpose")
    if torch.float64 in log.dtypes and torch.float32 not in log.dtypes:
        return eager.forget_float64("the model is in float64 already")
    wide = eager.call64(eager.example)
    if wide is not None:
        gap = disagreement(first.outputs, wide)
        if gap > KNIFE_EDGE:
            eager.forget_float64("a float64 run gives another answer on the example")
            facts["ill_conditioned"].append({"set": "given", "why": gap_text(gap)})
    return None


def gap_text(gap: float) -> str:
    """What a disagreement means."""
    return (
        "PyTorch in float64 decides otherwise than in float32" if gap == float("inf") else f"PyTorch's own float32 error is {gap:.1e} of the output"
    )


def disagreement(outputs: Leaves, wide: Leaves) -> float:
    """Largest |float32 - float64| relative to the largest value of its output; inf where shapes, integers or NaN differ."""
    import torch

    if len(outputs) != len(wide):
        return float("inf")
    worst = 0.0
    for (_, a), (_, b) in zip(outputs, wide, strict=True):
        if a.shape != b.shape:
            return float("inf")
        if a.numel() == 0:
            continue
        if not a.is_floating_point():
            if not torch.equal(a, b.to(a.dtype)):
                return float("inf")
            continue
        x, y = a.double(), b.double()
        if not torch.equal(torch.isnan(x), torch.isnan(y)):
            return float("inf")
        # beyond float32's range infinity is the right float32 answer
        both = torch.isfinite(x) & torch.isfinite(y)
        if not both.any():
            continue
        scale = float(y[both].abs().max())
        worst = max(worst, float((x - y)[both].abs().max()) / max(scale, 1e-30))
    return worst
