"""Strategy: take away wrappers and computed weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from autofix.errors import NothingToDo
from autofix.recipe import Fix
from autofix.strategy import Evidence, Example, ModuleStrategy
from autofix.target import Target
from autofix.trial import Diagnosis, Stage

COMPILED = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.compile(nn.Linear(4, 4), backend="eager")
        self.head = nn.DataParallel(nn.utils.parametrizations.weight_norm(nn.Linear(4, 2)))

    def forward(self, x):
        return self.head(torch.relu(self.body(x)))


def get_inputs():
    torch.manual_seed(0)
    return [torch.randn(2, 4)]


dynamic_shapes = {"x": {0: "batch"}}


def get_more_inputs():
    torch.manual_seed(1)
    return [[torch.randn(5, 4)]]
"""
WRAPPING = (
    "DataParallel",
    "DistributedDataParallel",
    "FullyShardedDataParallel",
    "CheckpointWrapper",
    "OptimizedModule",
    "AveragedModel",
    "ParametrizationList",
)
"""Classes among the modules that tell of a wrapper or of a computed weight."""
HINTS = (
    "weight_norm",
    "spectral_norm",
    "parametriz",
    "torch._dynamo",
    "torch.compile",
    "_compile.py",
    "eval_frame",
    "data_parallel",
    "checkpoint",
    "hook",
    "prune",
)
"""Words in an error or in the model's source that make a wrapper likely."""


class UnwrapModules(ModuleStrategy):
    """Take away wrappers (DataParallel, torch.compile, checkpointing) and fix computed weights at their value.

    When it helps: a wrapper or a hook that only matters for training or speed stops the capture, or a weight that is computed at every
    call (weight_norm, spectral_norm, pruning, parametrizations) is computed in the file too.
    Why it is safe: in inference the wrappers call what they hold, and these weights are the same at every call.
    """

    treats = (
        "capture-error",
        "unsupported-python",
        "unsupported-operator",
        "convert-error",
        "decompose-error",
        "data-dependent-branch",
        "data-dependent-size",
        "axis-specialized",
        "mutated-buffers",
        "mismatch-at-example",
        "baked-value",
        "too-slow",
        "crash",
        "timeout",
    )
    prior = 0.5

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        if evidence.recipe.has("unwrap_modules"):
            return
        facts = {k: v for k, v in evidence.diagnosis.facts.items() if "Cannot access data pointer" not in v}  # torch names torch.compile there
        told = " ".join([*facts.values(), *evidence.operators, *dict(evidence.facts.get("sources", {})).values()])
        if set(WRAPPING) & set(evidence.modules) or any(m.startswith("Parametrized") for m in evidence.modules) or any(h in told for h in HINTS):
            yield self.fix()

    @staticmethod
    def apply(model: Any) -> Any:
        from autofix.surgery.modules_unwrap import plain_modules

        model, changed = plain_modules(model)
        if not changed:
            raise NothingToDo("no wrapper and no computed weight")
        return model

    REPAIRS = (Example(COMPILED, symptom="capture-error", start=(Fix("capture_trace", ModuleStrategy.level.CONFIG),)),)
    DECLINES = (Diagnosis("mismatch-at-example", Stage.PARITY),)
