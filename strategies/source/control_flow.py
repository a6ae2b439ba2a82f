"""Strategy: rewrite if, while and for that depend on tensors or sizes."""

from __future__ import annotations

from collections.abc import Iterator

from autofix.errors import NothingToDo
from autofix.recipe import Fix
from autofix.strategy import Evidence, Example, SourceStrategy
from autofix.surgery.source_control import rewrite_source
from autofix.surgery.source_evidence import EXPORT_CAPTURES, has_dynamic_axes, number_arguments, user_files, zero_d_names
from autofix.target import Target
from autofix.trial import Diagnosis, Stage

HEAD = """
import torch
from torch import nn
"""
BRANCH = (
    HEAD
    + """

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4)

    def forward(self, x):
        if x.mean() > 0:
            y = self.a(x)
        else:
            y = x * 2.0
        return y + x


def get_inputs():
    return [torch.ones(3, 4)]


dynamic_shapes = {"x": {0: "batch"}}


def get_more_inputs():
    return [[-torch.ones(2, 4)], [torch.ones(5, 4)]]
"""
)
LOOP = (
    HEAD
    + """

class Model(nn.Module):
    def forward(self, x):
        state = torch.zeros_like(x[:, 0])
        out = []
        for t in range(x.shape[1]):
            state = torch.tanh(state + x[:, t])
            out.append(state)
        return torch.stack(out, 1)


def get_inputs():
    return [torch.linspace(-1, 1, 24).reshape(2, 4, 3)]


dynamic_shapes = {"x": {1: "time"}}


def get_more_inputs():
    return [[torch.linspace(-2, 2, 42).reshape(2, 7, 3)]]
"""
)
FORMS = (
    HEAD
    + """

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.heads = nn.ModuleDict({"0": nn.Linear(4, 2), "1": nn.Linear(4, 2)})

    def check(self, x):
        if x.abs().sum() > 60:
            raise ValueError("too large")
        return x + 1

    def forward(self, x, task):
        try:
            y = self.check(x)
        except ValueError:
            y = torch.tanh(x)
        if any(row.sum() > 3 for row in y):
            y = -y
        return self.heads[str(task.item())](y)


def get_inputs():
    torch.manual_seed(0)
    return [torch.ones(3, 4), torch.tensor(1)]


dynamic_shapes = {"x": {0: "batch"}}


def get_more_inputs():
    return [[torch.ones(2, 4) * v, torch.tensor(t)] for v in (-1.0, 0.2, 3.0, 9.0) for t in (0, 1)]
"""
)
PLAIN = (
    HEAD
    + """

class Model(nn.Module):
    def forward(self, x):
        if x.dim() == 2:
            return x * 2
        return x


def get_inputs():
    return [torch.ones(3, 4)]
"""
)


class ControlFlow(SourceStrategy):
    """Rewrite Python control flow that depends on tensors or sizes into torch.cond and while_loop.

    When it helps: capture stops at an `if`, `while`, `for`, `match`, try, any(), all() or assert on a value, or freezes a test or a number of
    turns that depends on the size of a dynamic axis; a value picks an entry of a dictionary or a part of a list of modules.
    Why it is safe: branches and loop bodies become local functions with the same statements; their variables are found by
    live-variable analysis; both branches stay in the graph (ONNX If, Loop). A branch that only raises and an assert
    are dropped: eager accepts no input on which they fire. Inside of a try they become the flag that picks its path.
    """

    treats = (
        "data-dependent-branch",
        "data-dependent-size",
        "axis-specialized",
        "axis-fixed",
        "mismatch-at-other-sizes",
        "mismatch-at-other-values",
        "run-error-at-other-sizes",
        "run-error-at-other-values",
        "baked-value",
        "capture-error",
        "decompose-error",
        "unsupported-python",
    )
    prior = 0.55
    cost = 0.3

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        if evidence.recipe.has(self.name) or evidence.config.capture not in EXPORT_CAPTURES:
            return
        facts = evidence.facts
        for file, text, functions, lines in user_files(facts):
            params = {"functions": functions, "lines": lines, "sizes": has_dynamic_axes(facts), "arguments": number_arguments(facts)}
            if rewrite_source(text, **params, numbers=False) != text:
                yield self.fix(file=file, **params, zero_d=zero_d_names(facts))

    @staticmethod
    def apply(text: str, *, functions: list[str], lines: list[int], sizes: bool, arguments: list[str], zero_d: list[str]) -> str:  # type: ignore[override]
        new = rewrite_source(text, functions, lines, sizes=sizes, arguments=arguments, zero_d=zero_d)
        if new == text:
            raise NothingToDo("no control flow here depends on a tensor or a size")
        return new

    REPAIRS = (
        Example(BRANCH, symptom="data-dependent-branch"),
        Example(LOOP, symptom="axis-specialized"),
        Example(FORMS, symptom="data-dependent-branch"),
        Example(PLAIN, symptom=""),
    )
    DECLINES = (Diagnosis("data-dependent-branch", Stage.CAPTURE),)
