"""Lists whose length only the graph knows, counters of open loops, `and` and `or` of values; pooling by sizes. Values are PyTorch's own."""

import itertools

import pytest
import torch
from torch import nn

from autofix.export import capture_surroundings
from autofix.program import CapturePlan
from autofix.surgery import ops_pool_windows
from autofix.surgery.ops_pool_windows import average_windows, largest_windows
from autofix.surgery.source_control import rewrite_source
from autofix.surgery.source_evidence import reached_functions

HEAD = "import torch\nfrom torch import nn\n\n\nclass Model(nn.Module):\n"

PIECES = """
    def forward(self, x):
        parts = torch.chunk(x, 3, dim=1)
        carry = x.new_zeros(x.shape[0], 2)
        out = []
        for part in parts:
            carry = carry + part.sum(1)
            out.append(part + carry[:, None])
        return torch.cat(out, 1) * len(parts)
"""

COUNTED = """
    def forward(self, x):
        out = []
        steps = 0
        while x.norm() > 1.0:
            x = x * 0.5
            out.append(x)
            steps += 1
            if steps >= 4:
                break
        if len(out) == 0:
            return x
        return torch.stack(out).mean(0)
"""

HALVED = """
    def forward(self, x):
        while x.shape[1] > 1:
            if x.shape[1] % 2 == 1:
                x = torch.cat([x, x[:, -1:]], 1)
            x = torch.tanh(x[:, 0::2] + x[:, 1::2])
        return x[:, 0]
"""

PICKED = """
    def forward(self, x):
        high = x.mean() > 0
        wide = x.max() > 2
        both = high and wide
        some = high or wide
        y = x * 2 if both else x
        return y + 1 if some else y - 1
"""


TURNED = """
    def forward(self, x):
        rows = turned(x.unbind(0))
        out = []
        carry = torch.zeros(2)
        for i in range(len(rows)):
            carry = torch.tanh(rows[i] + 0.5 * carry)
            out += [carry]
        back = out[::-1]
        return torch.stack(turned(out)), torch.stack(back), torch.stack(out[:-1]), torch.cat(list(reversed(out)))


def turned(rows):
    return rows[::-1]
"""


WINDOWS = """
    def tiles(self, x):
        for top in range(0, x.shape[0] - 1, 2):
            for left in range(0, x.shape[1] - 2, 3):
                yield x[top : top + 2, left : left + 3]

    def forward(self, x):
        parts = windows(x, 4, 3)
        sums = [p.sum() for p in parts]
        return torch.stack(list(self.tiles(x))), torch.cat(parts, 0), torch.stack(sums), len(parts)


def windows(x, size, hop):
    found, start = [], 0
    while start + size <= x.shape[1]:
        found.append(x[:, start : start + size])
        start += hop
    return found
"""

RAGGED = """
    def forward(self, x):
        out = []
        for row in x.unbind(0):
            out.append(row[row > 0])
        sums = [part.sum() * len(part) for part in out]
        total = torch.zeros(())
        if not out:
            total = total - 1
        last = out[1]
        padded = nn.utils.rnn.pad_sequence(out, batch_first=True, padding_value=-1.0)
        return padded, torch.stack(sums), torch.tensor([len(p) for p in out]), last, total
"""

STOPPED = """
    def forward(self, x):
        order = x.argsort(descending=True)
        keep = []
        while order.numel() > 0:
            keep.append(order[0])
            if order.numel() == 1:
                break
            rest = order[1:]
            order = rest[x[rest] < x[order[0]] - 0.5]
        row = [x[0]]
        for j in range(len(x)):
            row.append(torch.maximum(row[j] * 0.9, x[j]))
        return torch.stack(keep), torch.stack(row)
"""

LOOKED_UP = """
    def __init__(self):
        super().__init__()
        self.gains = {2: 0.5, 7: 1.5}

    def forward(self, x):
        k = x.argmax().item()
        wide = x.shape[1] > 8
        gains = [1.0, 2.0, 4.0]
        y = x * self.gains.get(k, -1.0) * gains[k % 3]
        if k in (1, 2):
            y = y + (100 if wide else 10)
        return y + (k not in self.gains), x.std(1, unbiased=x.shape[1] > 1)
"""


def captured(body, example, axes):
    """The rewritten model as torch.export captures it, and the model as it was written."""
    text = HEAD + body.lstrip("\n")
    new = rewrite_source(text, reached_functions(text), sizes=True)
    assert new != text
    before, after = {}, {}
    exec(compile(text, "before.py", "exec"), before)
    exec(compile(new, "after.py", "exec"), after)
    dims = {"x": dict.fromkeys(axes, torch.export.Dim.DYNAMIC)}
    with capture_surroundings(CapturePlan(), bool(axes)):
        program = torch.export.export(after["Model"](), (example,), dynamic_shapes=dims, prefer_deferred_runtime_asserts_over_guards=True)
    return program.module(), before["Model"]()


@pytest.mark.parametrize(
    ("body", "example", "axes", "others"),
    [
        (PIECES, torch.randn(2, 6, 2), (1,), [torch.randn(2, 7, 2), torch.randn(2, 4, 2), torch.randn(2, 2, 2)]),
        (TURNED, torch.randn(4, 2), (0,), [torch.randn(7, 2), torch.randn(3, 2)]),
        (COUNTED, torch.ones(2, 3) * 3, (), [torch.ones(2, 3) * 100, torch.ones(2, 3) * 0.01, torch.ones(2, 3)]),
        (HALVED, torch.randn(2, 7, 3), (1,), [torch.randn(2, 1, 3), torch.randn(2, 2, 3), torch.randn(2, 13, 3)]),
        (WINDOWS, torch.randn(4, 7), (0, 1), [torch.randn(6, 11), torch.randn(2, 4), torch.randn(9, 4)]),
        (RAGGED, torch.randn(3, 5), (0, 1), [torch.randn(2, 9), torch.ones(4, 2)]),
        (STOPPED, torch.randn(6), (0,), [torch.randn(1), torch.arange(4.0), torch.randn(17)]),
        (LOOKED_UP, torch.eye(9)[2:3], (1,), [torch.eye(9)[7:8], torch.eye(9)[1:2], torch.eye(5)[2:3], torch.ones(1, 1)]),
        (PICKED, torch.ones(2, 3), (), [torch.ones(2, 3) * 5, -torch.ones(2, 3), torch.tensor([[9.0, -20, 0], [0, 0, 0]])]),
    ],
    ids=["pieces", "turned", "counted", "halved", "windows", "ragged", "stopped", "looked up", "picked"],
)
def test_a_rewritten_model_keeps_its_values(body, example, axes, others):
    program, model = captured(body, example, axes)
    for x in [example, *others]:
        torch.testing.assert_close(program(x), model(x))


def test_python_values_stay_what_python_picks():
    text = HEAD + "    def forward(self, x, n):\n        m = n.item() or 5\n        return x * m\n"
    space = {}
    exec(compile(rewrite_source(text, ["Model.forward"], sizes=True), "picked.py", "exec"), space)
    model = space["Model"]()
    assert model(2, torch.tensor(0)) == 10
    assert model(2, torch.tensor(3)) == 6


def test_windows_of_any_size_are_pooled_as_torch_does(monkeypatch):
    monkeypatch.setattr(ops_pool_windows, "fixed", lambda *groups: False)
    x = torch.randn(2, 3, 8, 11, generator=torch.Generator().manual_seed(0))
    for kernel, step, pad, ceil, whole in itertools.product(((2, 3), (4, 5)), (None, 2, 3), (0, 1), (False, True), (False, True)):
        mean = average_windows(nn.functional.avg_pool2d, 2)(x, kernel, step, pad, ceil, whole)
        torch.testing.assert_close(mean, nn.functional.avg_pool2d(x, kernel, step, pad, ceil, whole))
        most = largest_windows(torch.max_pool2d, 2)(x, kernel, step, pad, 1, ceil)
        assert torch.equal(most, nn.functional.max_pool2d(x, kernel, step, pad, 1, ceil))
