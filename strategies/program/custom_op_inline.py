"""Open up custom operators and autograd functions: capture their own Python code."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from autofix.recipe import Fix
from autofix.strategy import Evidence, Example, ProgramStrategy
from autofix.target import Target
from autofix.trial import Diagnosis, Stage

CUSTOM_KNOWN_SPACES = ("aten", "prims", "prim", "quantized", "quantized_decomposed", "torchvision", "higher_order", "_operator", "math", "torch")

LIBRARY_OP = """
import torch
from torch import nn


@torch.library.custom_op("autofixexample::scaled_tanh", mutates_args=())
def scaled_tanh(x: torch.Tensor, scale: float) -> torch.Tensor:
    return torch.tanh(x) * scale


@scaled_tanh.register_fake
def _(x, scale):
    return torch.empty_like(x)


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, grad):
        return grad


class Model(nn.Module):
    def forward(self, x):
        return torch.ops.autofixexample.scaled_tanh(x, 0.5) + Swish.apply(x)


def get_inputs():
    return [torch.randn(2, 6)]


def get_more_inputs():
    return [[torch.randn(5, 6)]]


dynamic_shapes = {"x": {0: "batch"}}
"""


class CustomOpInline(ProgramStrategy):
    """Capture the Python function behind a torch.library operator or a torch.autograd.Function instead of a call to it.

    When it helps: operators made with torch.library.custom_op or torch.library.impl, and autograd functions, that no exporter knows or that
    have no fake implementation. Not where the code is compiled (C++) or computes with NumPy.

    Why it is safe: the code that PyTorch runs on the CPU is what gets captured; the results are compared like any other.
    """

    treats = (
        "unsupported-operator",
        "capture-error",
        "convert-error",
        "decompose-error",
        "unsupported-python",
        "data-dependent-size",
        "data-dependent-branch",
    )
    prior = 0.6

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        names = [n.replace("::", ".") for n in (*evidence.operators, evidence.fact("operator")) if n]
        # what torch says of any fake tensor that is read names custom kernels and operators as well
        message = "" if "Cannot access data pointer" in evidence.fact("message") else evidence.fact("message")
        signs = ("fake impl", "autograd.Function", "custom op", "custom_op", "autograd_function", "meta kernel", "abstract impl")
        uses = any("torch.library" in text or "autograd.Function" in text for text in dict(evidence.facts.get("sources", {})).values())
        if uses or any(n.split(".")[0] not in CUSTOM_KNOWN_SPACES for n in names) or any(s in message for s in signs):
            yield self.fix()

    @staticmethod
    def apply(plan: Any) -> Any:
        from autofix.surgery.custom_ops import custom_op_capture

        plan.contexts.append(custom_op_capture)
        return plan

    REPAIRS = (Example(LIBRARY_OP, symptom="unsupported-operator", fix={}),)
    DECLINES = (Diagnosis("unsupported-operator", Stage.CONVERT, {"operator": "aten.lgamma.default", "message": "no translation"}),)
