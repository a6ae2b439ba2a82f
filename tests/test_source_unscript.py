"""Source without torch.jit.script, and what a model that was built before holds of it."""

from __future__ import annotations

import inspect
import types

import torch

from autofix.adapter import call_signature
from autofix.rewrite import install_source, reaches_built_models
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


METHODS = """import torch
from torch import jit, nn


class Cell(jit.ScriptModule):
    def __init__(self, n):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n))
        self.scale = jit.Attribute(0.5, float)

    @jit.script_method
    def forward(self, x, steps: int):
        for _ in range(steps):
            x = x * self.weight * self.scale
        return x


class Model(Cell):
    @jit.script_method
    def forward(self, x, steps: int):
        return x + 1


class Other(nn.Module):
    def forward(self, x):
        return x
"""


def test_script_modules_become_plain_ones() -> None:
    plain = unscript_text(METHODS)
    assert "class Cell(torch.nn.Module):" in plain and "self.scale = 0.5" in plain and "script_method" not in plain
    module = types.ModuleType("model_of_methods")
    exec(METHODS.replace("@jit.script_method", "").replace("jit.ScriptModule", "nn.Module"), module.__dict__)  # noqa: S102
    before = module.Cell
    assert set(install_source(module, METHODS, plain, "plain.py")) == {
        "Cell",
        "Model",
    }  # and what derives from it
    assert module.Cell is not before and module.Model.__bases__ == (module.Cell,)
    assert torch.equal(module.Cell(3)(torch.ones(3), 2), torch.full((3,), 0.25))
    assert reaches_built_models(METHODS, plain)


def test_factories_are_called_again() -> None:
    text = "def net():\n    return script(Net())\ndef Model():\n    return net()\ndef other():\n    return script(Net())\n"
    assert reaches_built_models(text, text.replace("return script(Net())\ndef Model", "return Net()\ndef Model"))
    assert not reaches_built_models(text, text.replace("def other():\n    return script(Net())", "def other():\n    return Net()"))


def test_signatures_of_compiled_methods() -> None:
    class Net(torch.nn.Module):
        def forward(self, x: torch.Tensor, gain: float = 2.0) -> torch.Tensor:
            return x * gain

    scripted = torch.jit.script(Net().eval())
    frozen = torch.jit.freeze(scripted)
    for forward in (scripted.forward, frozen.forward):
        signature = call_signature(forward)
        assert list(signature.parameters) == ["x", "gain"] and signature.parameters["gain"].default == 2.0
    traced = torch.jit.trace(torch.nn.Linear(2, 2), torch.ones(1, 2))
    assert list(call_signature(traced.forward).parameters) == ["input"]
    assert call_signature(Net().forward) == inspect.signature(Net().forward)
