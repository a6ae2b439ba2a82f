# ruff: noqa: E501
"""Text-level tests of the source rewriter: what it changes, what it leaves alone, and that eager values stay the same."""

import torch

from autofix.surgery.source_control import rewrite_source
from autofix.surgery.source_names import exposed
from autofix.surgery.source_patch import functions_at

HEAD = "import math\nimport torch\n\n\n"


def run(text, *args):
    scope = {}
    exec(compile(text, "<model>", "exec"), scope)
    return scope["f"](*args)


def rewritten(body, **options):
    text = HEAD + body
    new = rewrite_source(text, ["f"], **options)
    return text, new


def same(body, *inputs, **options):
    text, new = rewritten(body, **options)
    assert new != text
    for args in inputs:
        before, after = run(text, *args), run(new, *args)
        torch.testing.assert_close(after, before)
    return new


def test_branches_become_local_functions():
    body = "def f(x):\n    if x.sum() > 0:\n        y = x * 2\n    else:\n        y = x - 1\n    return y\n"
    new = same(body, (torch.ones(2),), (-torch.ones(2),))
    assert "traced_if(x.sum() > 0" in new


def test_early_returns_and_elif():
    body = (
        "def f(x):\n    m = x.mean()\n    if m > 1:\n        return x, 1\n    elif m > 0:\n        x = x + 1\n    y = x * 2\n"
        "    if y.max() > 3:\n        y = y - 1\n    return y, 2\n"
    )
    same(body, (torch.ones(2) * 3,), (torch.ones(2) * 0.6,), (-torch.ones(2),), (torch.ones(2),))


def test_loops_with_break_continue_and_return():
    body = (
        "def f(x):\n    out = []\n    for i in range(x.shape[0]):\n        if x[i] < 0:\n            continue\n        if x[i] > 5:\n            break\n"
        "        out.append(x[i] * 2)\n    n = 0\n    while n < 10:\n        if x.sum() > 100:\n            return x, n\n        x = x * 2\n        n += 1\n    return torch.stack(out), n\n"
    )
    same(body, (torch.tensor([1.0, -1.0, 2.0, 9.0, 3.0]),), (torch.tensor([0.0, 1e-6]),))


def test_guards_on_values_are_dropped():
    body = "def f(x):\n    assert torch.isfinite(x).all()\n    if x.max() > 1e9:\n        raise ValueError(x)\n    return x + 1\n"
    new = same(body, (torch.ones(2),))
    assert "raise ValueError" not in new and "assert torch" not in new


def test_numbers():
    body = "def f(x):\n    k = int(x.shape[0] * 0.7)\n    return x[:k] * math.sqrt(x.shape[0]) / x.shape[0] ** 0.5 + round(x.shape[0] * 0.25)\n"
    new = same(body, (torch.ones(10),), (torch.ones(7),))
    assert "whole_number(real_number(x.shape[0]) * real_number(0.7))" in new


def test_static_tests_stay():
    body = "def f(x, mask=None):\n    if mask is None and isinstance(x, torch.Tensor):\n        x = x * 2\n    for i in range(3):\n        x = x + i\n    return x\n"
    text, new = rewritten(body)
    assert new == text


def test_exposed_names():
    import libcst as cst

    reads, sure = exposed(cst.parse_module("a = b\nif a:\n    c = d\nelse:\n    c = 1\ne[0] = c\n").body)
    assert reads == {"b", "d", "e"}
    assert {"a", "c"} <= sure


def test_functions_at():
    text = "class M:\n    def forward(self, x):\n        return x\n\n\ndef g(x):\n    return x\n"
    assert functions_at(text, [3, 7]) == ["M.forward", "g"]
