"""Source without torch.jit.script, and what a model that was built before holds of it."""

from __future__ import annotations

from autofix.rewrite import reaches_built_models
from autofix.surgery.source_unscript import lines_of_tests, unscript_text

SCRIPTED = """import torch
from torch import jit
from torch.jit import freeze, script as compiled

@torch.jit.script
def first(x):
    if x.sum() > 0:
        return x
    return -x

class Cell(torch.nn.Module):
    @cached
    @torch.jit.export
    def step(self, x):
        return x + 1 if x.max() > 2 else x

class Model(torch.nn.Module):
    def __init__(self):
        self.cell = jit.script(Cell())
        self.frozen = freeze(compiled(Cell().eval()))
        self.traced = freeze(torch.jit.trace(Cell(), 1))
"""
PLAIN = """import torch
from torch import jit
from torch.jit import freeze, script as compiled


def first(x):
    if x.sum() > 0:
        return x
    return -x

class Cell(torch.nn.Module):
    @cached

    def step(self, x):
        return x + 1 if x.max() > 2 else x

class Model(torch.nn.Module):
    def __init__(self):
        self.cell = Cell()
        self.frozen = Cell().eval().eval()
        self.traced = freeze(torch.jit.trace(Cell(), 1))
"""


def test_decorators_and_calls_go_and_lines_stay() -> None:
    assert unscript_text(SCRIPTED) == PLAIN
    assert unscript_text(PLAIN) == PLAIN


def test_tests_of_reached_functions() -> None:
    assert lines_of_tests(PLAIN, ["first", "Cell.step"]) == [7, 15]
    assert lines_of_tests(PLAIN, ["Cell.step"]) == [15]


def test_models_are_built_again_where_building_changed() -> None:
    base = "@torch.jit.script\ndef f(x):\n    return x\nclass M:\n    def __init__(self):\n        self.n = 1\n"
    base += "    def forward(self, x):\n        return x\n"
    assert not reaches_built_models(base, base)
    assert reaches_built_models(base, base.replace("@torch.jit.script", ""))
    assert reaches_built_models(base, base.replace("self.n = 1", "self.n = 2"))
    assert not reaches_built_models(base, base.replace("(self, x):\n        return x", "(self, x):\n        return x + 1"))
    assert reaches_built_models("def f():\n    return lambda x: x\n", "def f():\n    return lambda x: x + 1\n")
