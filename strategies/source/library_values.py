"""Strategy: rewrite library functions that test or convert tensors' values."""

from __future__ import annotations

from collections.abc import Iterator

from autofix.errors import NothingToDo
from autofix.recipe import Fix
from autofix.strategy import Evidence, Example, SourceStrategy
from autofix.surgery.source_control import rewrite_source
from autofix.surgery.source_evidence import EXPORT_CAPTURES, library_files, zero_d_names
from autofix.surgery.source_patch import functions_at, replace_expression
from autofix.target import Target
from autofix.trial import Diagnosis, Stage

DISTRIBUTION = """
import torch
from torch import nn
from torch.distributions import Normal


class Model(nn.Module):
    def forward(self, mean, x):
        return Normal(mean, mean.exp(), validate_args=True).log_prob(x)


def get_inputs():
    return [torch.linspace(-1, 1, 6).reshape(3, 2), torch.linspace(-2, 2, 6).reshape(3, 2)]


dynamic_shapes = {"mean": {0: "batch"}, "x": {0: "batch"}}


def get_more_inputs():
    return [[torch.ones(5, 2), torch.zeros(5, 2)]]
"""
CAUSAL = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16, batch_first=True), 1)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(5))

    def forward(self, x):
        return self.net(x, x, tgt_mask=self.mask)


def get_inputs():
    return [torch.linspace(-1, 1, 80).reshape(2, 5, 8)]


dynamic_shapes = {"x": {0: "batch"}}


def get_more_inputs():
    return [[torch.linspace(-2, 1, 120).reshape(3, 5, 8)]]
"""
RARE_WORDS = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.AdaptiveLogSoftmaxWithLoss(4, 9, cutoffs=[3, 6])

    def forward(self, x, target):
        output, loss = self.head(x, target)
        return output, loss, self.head.predict(x)


def get_inputs():
    torch.manual_seed(0)
    return [torch.randn(4, 4), torch.tensor([0, 3, 8, 4])]


dynamic_shapes = {"x": {0: "batch"}, "target": {0: "batch"}}


def get_more_inputs():
    torch.manual_seed(1)
    return [[torch.randn(2, 4), torch.tensor([1, 2])], [torch.randn(3, 4) * 4, torch.tensor([7, 6, 3])]]
"""
LOSS = """
import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def forward(self, x, variance):
        return F.gaussian_nll_loss(x, x * 2, variance, reduction="none")


def get_inputs():
    return [torch.linspace(-1, 1, 6).reshape(3, 2), torch.linspace(0, 2, 6).reshape(3, 2)]


dynamic_shapes = {"x": {0: "batch"}, "variance": {0: "batch"}}


def get_more_inputs():
    return [[torch.ones(5, 2), torch.linspace(0, 1, 10).reshape(5, 2)]]
"""

SHORTCUTS = (
    ("_detect_is_causal_mask", "bool((mask == causal_comparison).all())", "False"),
    ("AdaptiveLogSoftmaxWithLoss.forward", "target_mask.nonzero().squeeze()", "target_mask.nonzero().squeeze(1)"),
    ("AdaptiveLogSoftmaxWithLoss.forward", "row_indices.numel() == 0", "False"),
    ("AdaptiveLogSoftmaxWithLoss.forward", "used_rows != batch_size", "False"),
)
"""(function, expression, what stands for it). The causal hint only lets attention ignore the mask that it is given anyway. A cluster without a
target adds nothing to the adaptive softmax, whose targets all lie in range where eager does not raise."""


class LibraryValues(SourceStrategy):
    """Rewrite functions of installed libraries that test a tensor's value or make a Python number of it.

    When it helps: torch.distributions validates its arguments, nn.Transformer looks whether a mask is causal, a library's
    forward branches or loops on values; an installed model loops over a dynamic axis (a state space model's plain path), or tests its size.
    Why it is safe: the same rewriting as control_flow and numbers_in_graph, on the library's text; checks that only raise are
    dropped (eager accepts no input on which they fire). A causal hint that is not given means that attention applies the mask itself.
    """

    treats = ("data-dependent-branch", "data-dependent-size", "baked-value", "mismatch-at-other-values", "capture-error")
    treats += ("axis-specialized", "axis-fixed", "mismatch-at-other-sizes", "run-error-at-other-sizes")
    prior = 0.5
    cost = 1.0

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        if evidence.config.capture not in EXPORT_CAPTURES:
            return
        done = {f.params["file"] for f in evidence.recipe.fixes if f.strategy == self.name}
        found = dict(library_files(evidence.facts, frozenset({"bool", "int", "item", "tolist", "index", "iter", "float"})))
        stopped, line = evidence.fact("library"), evidence.fact("library_line")
        if stopped and line.isdigit():  # where capture stopped; torch.nn.functional is not looked into while eager runs
            found[stopped] = sorted({*found.get(stopped, []), int(line)})
        for module, lines in found.items():
            if module in done or module.startswith(("torch._", "torch.utils", "torch.jit", "torch.fx", "torch.export", "torch.onnx", "numpy")):
                continue
            yield self.fix(file=module, lines=lines, zero_d=zero_d_names(evidence.facts))
        pinned: dict[str, list[int]] = {}
        for place in evidence.fact("library_pinned").split("; "):
            module, _, number = place.rpartition(":")
            if module and number.isdigit() and module not in done:
                pinned[module] = sorted({*pinned.get(module, []), int(number)})
        for module, lines in pinned.items():
            yield self.fix(file=module, lines=lines, zero_d=[], sizes=True)

    @staticmethod
    def apply(text: str, *, lines: list[int], zero_d: list[str], sizes: bool = False) -> str:  # type: ignore[override]
        names = functions_at(text, lines)
        changed = text
        for function, old, new in SHORTCUTS:
            if function in names and old in changed:
                changed = replace_expression(changed, function, old, new)
        left = [n for n in names if n not in {function for function, _, _ in SHORTCUTS}]
        changed = rewrite_source(changed, left, () if sizes else lines, sizes=sizes, zero_d=zero_d) if left else changed
        if changed == text:
            raise NothingToDo("no function here depends on a tensor's value")
        return changed

    REPAIRS = (
        Example(DISTRIBUTION, symptom="data-dependent-branch"),
        Example(CAUSAL, symptom="data-dependent-branch"),
        Example(RARE_WORDS, symptom="data-dependent-branch"),
        Example(LOSS, symptom="data-dependent-branch"),
    )
    DECLINES = (Diagnosis("data-dependent-branch", Stage.CAPTURE),)
