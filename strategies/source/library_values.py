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
        return Normal(mean, mean.exp()).log_prob(x)


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

    def forward(self, x, mask):
        return self.net(x, x, tgt_mask=mask)


def get_inputs():
    return [torch.linspace(-1, 1, 80).reshape(2, 5, 8), nn.Transformer.generate_square_subsequent_mask(5)]


dynamic_shapes = {"x": {0: "batch"}}


def get_more_inputs():
    return [[torch.linspace(-2, 1, 120).reshape(3, 5, 8), torch.zeros(5, 5)]]
"""

SHORTCUTS = {
    "torch.nn.modules.transformer": {"_detect_is_causal_mask": ("bool((mask == causal_comparison).all())", "False")},
}
"""{module: {function: (expression, what stands for it)}}. The causal hint only lets attention ignore the mask that it is given anyway."""


class LibraryValues(SourceStrategy):
    """Rewrite functions of installed libraries that test a tensor's value or make a Python number of it.

    When it helps: torch.distributions validates its arguments, nn.Transformer looks whether a mask is causal, a library's
    forward branches or loops on values.
    Why it is safe: the same rewriting as control_flow and numbers_in_graph, on the library's text; checks that only raise are
    dropped (eager accepts no input on which they fire). A causal hint that is not given means that attention applies the mask itself.
    """

    treats = ("data-dependent-branch", "data-dependent-size", "baked-value", "mismatch-at-other-values", "capture-error")
    prior = 0.5
    cost = 1.0

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        if evidence.config.capture not in EXPORT_CAPTURES:
            return
        done = {f.params["file"] for f in evidence.recipe.fixes if f.strategy == self.name}
        for module, lines in library_files(evidence.facts, frozenset({"bool", "int", "item", "tolist", "index", "iter", "float"})):
            if module in done or module.startswith(("torch._", "torch.utils", "torch.jit", "numpy")):
                continue
            yield self.fix(file=module, lines=lines, zero_d=zero_d_names(evidence.facts))

    @staticmethod
    def apply(text: str, *, lines: list[int], zero_d: list[str]) -> str:  # type: ignore[override]
        functions = functions_at(text, lines)
        for shortcuts in SHORTCUTS.values():
            for function, (old, new) in shortcuts.items():
                if function in functions and old in text:
                    text = replace_expression(text, function, old, new)
                    functions.remove(function)
                    if not functions:
                        return text
        changed = rewrite_source(text, functions, lines, sizes=False, zero_d=zero_d)
        if changed == text:
            raise NothingToDo("no function here depends on a tensor's value")
        return changed

    REPAIRS = (Example(DISTRIBUTION, symptom="data-dependent-branch"), Example(CAUSAL, symptom="data-dependent-branch"))
    DECLINES = (Diagnosis("data-dependent-branch", Stage.CAPTURE),)
