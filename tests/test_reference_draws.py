"""A model that draws is refused though its draws happen to fall alike twice; one that seeds itself is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from autofix.case import CaseSpec, load_case
from autofix.eager import Eager
from autofix.errors import CaseError
from autofix.reference import first_calls

TEXT = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        {seed}
        return torch.nn.functional.dropout(x, 0.5)
def get_inputs():
    return [torch.ones(1)]
"""


def eager_of(tmp_path: Path, seed: str) -> Eager:
    file = tmp_path / f"draws_{len(seed)}.py"
    file.write_text(TEXT.format(seed=seed))
    return Eager(load_case(CaseSpec(str(file))))


def test_draws_that_fall_alike_twice_are_still_draws(tmp_path: Path) -> None:
    with pytest.raises(CaseError, match="not deterministic"):
        first_calls(eager_of(tmp_path, "pass"))
    first, log = first_calls(eager_of(tmp_path, "torch.manual_seed(3)"))
    assert log.random and len(first.outputs) == 1
