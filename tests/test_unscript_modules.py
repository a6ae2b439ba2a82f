"""TorchScript graphs run as PyTorch calls: the values are the script module's own."""

from __future__ import annotations

import io

import pytest
import torch
from torch import nn

from autofix.adapter import call_signature
from autofix.surgery.modules_unscript import unscript


class Lists(nn.Module):
    def forward(self, x: torch.Tensor, parts: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        seen: list[torch.Tensor] = []
        alias = seen
        for p in parts:
            if p.sum() > 0:
                seen.append(p * 2)
            elif p.numel() > 3:
                continue
            else:
                seen += [p, p + 1]
        if len(seen) == 0:
            return x, x
        table: dict[str, torch.Tensor] = {"last": seen[-1]}
        table["first"] = alias[0]
        return torch.stack(seen[::-1]), table["first"] - table["last"]


class Numbers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.5))

    def forward(self, x: torch.Tensor, low: float = 0.25, most: int | None = None) -> torch.Tensor:
        n = int(x.abs().sum() / 3)
        count = n // 2 + (n % 3) * 2 - min(n, 4)
        while float(x.abs().max()) > low and count > -20:
            x = x * 0.5 * self.scale / 1.4
            count -= 1
            if count == 5:
                break
        if most is not None:
            count = max(count, most)
        return x + float(count) + torch.tensor([count, n])[0]


CASES = [
    (Lists(), [(torch.zeros(2), [torch.ones(2), -torch.ones(2)]), (torch.zeros(2), []), (torch.zeros(4), [-torch.ones(4), torch.ones(4)])]),
    (Numbers(), [(torch.randn(4) * s,) for s in (0.1, 1.0, 30.0)] + [(torch.ones(3), 0.01, 7)]),
]


@pytest.mark.parametrize(("module", "calls"), CASES, ids=["lists", "numbers"])
@pytest.mark.parametrize("frozen", [False, True])
def test_the_interpreter_gives_the_script_modules_values(module, calls, frozen):
    scripted = torch.jit.script(module.eval())
    if frozen:
        data = io.BytesIO()
        torch.jit.save(torch.jit.freeze(scripted), data)
        data.seek(0)
        scripted = torch.jit.load(data)
    plain, changed = unscript(scripted)
    assert changed == [""] and call_signature(plain.forward).parameters.keys() == call_signature(scripted.forward).parameters.keys()
    for args in calls:
        torch.testing.assert_close(plain(*args), scripted(*args))


def test_branches_and_loops_are_captured_with_both_sides():
    plain, _ = unscript(torch.jit.script(Numbers().eval()))
    with torch.no_grad():
        program = torch.export.export(plain, (torch.ones(4),)).module()
        for scale in (0.1, 1.0, 30.0):
            x = torch.linspace(-1, 2, 4) * scale
            torch.testing.assert_close(program(x), plain(x))


def test_submodules_are_replaced_where_they_stand():
    model = nn.Sequential(torch.jit.trace(nn.Linear(3, 3), torch.ones(1, 3)), nn.ReLU()).eval()
    x = torch.randn(2, 3)
    want = model(x)
    plain, changed = unscript(model)
    assert plain is model and changed == ["0"]
    torch.testing.assert_close(plain(x), want)
