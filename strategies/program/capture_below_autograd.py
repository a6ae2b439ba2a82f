"""Capture what derivatives, vmap and functional calls compute, not the calls themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from autofix.recipe import Fix
from autofix.strategy import Evidence, Example, ProgramStrategy
from autofix.target import Target
from autofix.trial import Diagnosis, Stage

DERIVATIVE_SIGNS = (
    "torch.func",
    "functorch",
    "vmap",
    "jacobian",
    "jacrev",
    "jacfwd",
    "hessian",
    "autograd.grad",
    "autograd.functional",
    "functional_call",
    "stack_module_state",
    "enable_grad",
    "requires_grad_",
    "deepcopy",
    "grad(",
    "vjp",
    "jvp",
)

SENSITIVITY = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 2))

    def forward(self, x):
        return torch.autograd.functional.jacobian(lambda z: self.net(z).sum(0), x), torch.func.vmap(torch.func.jacrev(self.net))(x)


def get_inputs():
    return [torch.randn(3, 3)]


def get_more_inputs():
    return [[torch.randn(5, 3)]]


dynamic_shapes = {"x": {0: "batch"}}
"""

ATTRIBUTION = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(2, 3, 3, padding=1)
        self.tail = nn.Sequential(nn.SiLU(), nn.Conv2d(3, 4, 3, stride=2, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Upsample(scale_factor=2))

    def forward(self, x):
        with torch.enable_grad():
            features = self.stem(x).detach().requires_grad_(True)
            score = self.tail(features).amax(1).sum()
            slope = torch.autograd.grad(score, features)[0]
        return slope.mean((2, 3), keepdim=True) * features.detach()


def get_inputs():
    torch.manual_seed(0)
    return [torch.randn(1, 2, 8, 8)]


def get_more_inputs():
    torch.manual_seed(1)
    return [[torch.randn(3, 2, 8, 8)]]


dynamic_shapes = {"x": {0: "batch"}}
"""

WARPED = """
import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def forward(self, x, grid, volume):
        with torch.enable_grad():
            x, grid = x.detach().requires_grad_(True), grid.detach().requires_grad_(True)
            seen = F.grid_sample(F.pad(x, (1, 2, 2, 1), mode="replicate"), grid, padding_mode="border", align_corners=False)
            for_x, for_grid = torch.autograd.grad(seen.pow(2).sum(), (x, grid))
            volume = volume.detach().requires_grad_(True)
            large = F.interpolate(F.max_pool3d(volume, 2), scale_factor=2, mode="trilinear")
            return for_x, for_grid, torch.autograd.grad(large.pow(2).sum(), volume)[0]


def get_inputs():
    torch.manual_seed(0)
    return [torch.randn(1, 2, 5, 6), torch.rand(1, 3, 4, 2) * 2 - 1, torch.randn(1, 2, 4, 6, 4)]


def get_more_inputs():
    torch.manual_seed(1)
    return [[torch.randn(3, 2, 5, 6), torch.rand(3, 3, 4, 2) * 2.4 - 1.2, torch.randn(3, 2, 4, 6, 4)]]


dynamic_shapes = {"x": {0: "batch"}, "grid": {0: "batch"}, "volume": {0: "batch"}}
"""

CURVATURE = """
import torch
from torch import nn
from torch.func import hessian, vmap


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1))

    def energy(self, x):
        return self.net(torch.cat([x[:2], x.sin()])).sum()

    def forward(self, x):
        return vmap(hessian(self.energy))(x).diagonal(dim1=-2, dim2=-1).sum(-1)


def get_inputs():
    torch.manual_seed(0)
    return [torch.randn(4, 2)]


def get_more_inputs():
    torch.manual_seed(1)
    return [[torch.randn(7, 2)]]


dynamic_shapes = {"x": {0: "batch"}}
"""


class CaptureBelowAutograd(ProgramStrategy):
    """Record the model below autograd and torch.func, so that gradients, Jacobians and mapped functions appear as the operators they run.

    When it helps: torch.autograd.grad, autograd.functional.jacobian, torch.func.grad, jacrev, vmap, functional_call, stack_module_state or
    deepcopy inside forward.

    Why it is safe: the operators are those that eager PyTorch runs for these derivatives; nothing is approximated. Gradient operators that ONNX
    lacks are written in forward operators (autofix/surgery/gradient_forms.py and gradient_forms_places.py name the formulas).
    """

    treats = (
        "capture-error",
        "unsupported-python",
        "unsupported-operator",
        "convert-error",
        "decompose-error",
        "data-dependent-branch",
        "mismatch-at-example",
        "invalid-graph",
    )
    prior = 0.5

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        texts = [evidence.fact("message"), *dict(evidence.facts.get("sources", {})).values()]
        if any(sign in text for text in texts for sign in DERIVATIVE_SIGNS):
            yield self.fix()

    @staticmethod
    def apply(plan: Any) -> Any:
        from autofix.surgery.capture_below_autograd import capture_below_autograd
        from autofix.surgery.gradient_forms import GRADIENT_FORMS, decomposed_although_composite
        from autofix.surgery.gradient_forms_places import PLACE_GRADIENTS, counting_losses
        from autofix.surgery.ops_scatter import diagonal_scatter

        plan.contexts += [capture_below_autograd, decomposed_although_composite]
        plan.decompositions.update(GRADIENT_FORMS)
        plan.decompositions.update({**PLACE_GRADIENTS, **counting_losses()})
        plan.decompositions["aten.diagonal_scatter.default"] = diagonal_scatter
        return plan

    REPAIRS = (
        Example(SENSITIVITY, symptom="unsupported-python", fix={}),
        Example(ATTRIBUTION, symptom="capture-error", fix={}),
        Example(WARPED, symptom="capture-error", fix={}),
        Example(CURVATURE, symptom="unsupported-python", fix={}),
    )
    DECLINES = (Diagnosis("capture-error", Stage.CAPTURE, {"message": "something else"}),)
