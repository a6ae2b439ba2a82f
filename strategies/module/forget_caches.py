"""Empty the caches that a model filled before it is captured."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from autofix.errors import NothingToDo
from autofix.recipe import Fix
from autofix.strategy import Evidence, Example, ModuleStrategy
from autofix.target import Target
from autofix.trial import Diagnosis, Stage

WARM_TABLE = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.table = None
        self.positions(5)

    def positions(self, n):
        if self.table is None or self.table.shape[0] < n:
            self.table = torch.sin(torch.arange(n).float()[:, None] * torch.arange(1, 5).float())
        return self.table[:n]

    def forward(self, x):
        return self.fc(x) + self.positions(x.shape[1])


def get_inputs():
    return [torch.randn(2, 5, 4)]


def get_more_inputs():
    return [[torch.randn(1, 3, 4)], [torch.randn(1, 9, 4)]]


dynamic_shapes = {"x": {0: "batch", 1: "seq"}}
"""


def cache_constants(cls: type) -> dict[str, Any]:
    """{attribute: value} for each `self.NAME = None`, `= {}`, `= []` or whole number in the source of a class and its bases."""
    import ast
    import inspect
    import textwrap

    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        if base.__module__.startswith(("torch.", "builtins")) or base is object:
            continue
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(base)))
        except (OSError, TypeError, SyntaxError):
            continue
        for node in ast.walk(tree):
            targets = (
                node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) and node.value is not None else []
            )
            for target in targets:
                if not (isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self"):
                    continue
                try:
                    value = ast.literal_eval(node.value)
                except ValueError:
                    continue
                if value is None or value in ({}, []) or (type(value) is int and value <= 0):
                    found.setdefault(target.attr, value)
    return found


def cache_holds_tensors(value: Any) -> bool:
    """Whether a value is a tensor or a collection with one."""
    import torch

    items = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else [value]
    return any(isinstance(v, torch.Tensor) or (isinstance(v, (list, tuple)) and cache_holds_tensors(v)) for v in items)


class ForgetCaches(ModuleStrategy):
    """Set plain attributes that hold tensors back to the None, {}, [] or 0 that the class itself starts them with.

    When it helps: position tables, masks and rotary angles that an earlier call left behind; captured, they are constants of that
    call's length. Emptied, they are computed in the graph, for any length.

    Why it is safe: the class's own code starts from these values and fills them on demand.
    """

    treats = (
        "run-error",
        "run-error-at-other-sizes",
        "mismatch-at-other-sizes",
        "mismatch-at-other-values",
        "axis-specialized",
        "axis-fixed",
        "capture-error",
        "convert-error",
        "data-dependent-branch",
        "data-dependent-size",
    )
    prior = 0.4

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        texts = list(dict(evidence.facts.get("sources", {})).values())
        if any(
            f"self.{name}" in text and ("= None" in text or "= {}" in text)
            for text in texts
            for name in ("_", "cos", "sin", "cache", "mask", "table", "pos", "")
        ):
            yield self.fix()

    @staticmethod
    def apply(model: Any) -> Any:
        forgotten = 0
        for module in model.modules():
            constants = cache_constants(type(module))
            held = [name for name in constants if cache_holds_tensors(module.__dict__.get(name))]
            for name in held:
                module.__dict__[name] = constants[name]
            if held:
                for name, value in constants.items():
                    if type(value) is int and type(module.__dict__.get(name)) is int:
                        module.__dict__[name] = value
            forgotten += len(held)
        if not forgotten:
            raise NothingToDo("no module holds a tensor in an attribute that its class starts empty")
        return model

    REPAIRS = (Example(WARM_TABLE, symptom="run-error-at-other-sizes", fix={}),)
    DECLINES = (Diagnosis("run-error", Stage.RUN, {"message": "something else"}),)
