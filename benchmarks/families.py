"""Families of models: what is learned from the first serves the next, which has the same modules at other sizes.

usage: families.py [--only NAME] [--check]

For each family: a new cache, which holds the shipped outcomes only, then its models one after the other, each repaired with that cache. Every
file is verified again in a fresh process. The goal: each later model takes at most half of the first one's trials.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from stubborn import LIMITS, verified

from autofix import Budget, CaseSpec, Settings, repair
from autofix.testing import warm_up

HEAD = """import torch
from torch import nn
import torch.nn.functional as F


"""

FAMILIES: dict[str, tuple[str, list[dict[str, int]]]] = {
    "gate on a value": (
        """class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear({width}, {hidden})
        self.down = nn.Linear({hidden}, {width})

    def forward(self, x):
        y = self.down(torch.relu(self.up(x)))
        if y.mean() > 0:
            y = y * 2
        else:
            y = y - x
        return y


def get_inputs():
    return [torch.randn(4, {width})]


dynamic_shapes = {{"x": {{0: "batch"}}}}
""",
        [{"width": 8, "hidden": 16}, {"width": 24, "hidden": 40}, {"width": 5, "hidden": 7}],
    ),
    "decode until done": (
        """class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell({width}, {width})
        self.done = nn.Linear({width}, 1)

    def forward(self, x):
        state = x
        steps = torch.zeros((), dtype=torch.int64)
        while steps < {most} and torch.sigmoid(self.done(state)).mean() < 0.9:
            state = self.cell(x, state)
            steps = steps + 1
        return state, steps


def get_inputs():
    return [torch.randn(3, {width})]


dynamic_shapes = {{"x": {{0: "batch"}}}}
""",
        [{"width": 6, "most": 4}, {"width": 16, "most": 7}],
    ),
    "Gaussian likelihood": (
        """class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.mean = nn.Linear({width}, {size})
        self.factor = nn.Linear({width}, {size} * {size})

    def forward(self, x, y):
        f = self.factor(x).reshape(-1, {size}, {size})
        cov = f @ f.transpose(-1, -2) + torch.eye({size})
        low = torch.linalg.cholesky(cov)
        z = torch.linalg.solve_triangular(low, (y - self.mean(x)).unsqueeze(-1), upper=False)
        return -0.5 * z.square().sum((-1, -2)) - low.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def get_inputs():
    return [torch.randn(3, {width}), torch.randn(3, {size})]


dynamic_shapes = {{"x": {{0: "batch"}}, "y": {{0: "batch"}}}}
""",
        [{"width": 6, "size": 3}, {"width": 10, "size": 5}],
    ),
    "negative binomial": (
        """class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.rate = nn.Linear({width}, {genes})
        self.log_r = nn.Parameter(torch.zeros({genes}))

    def forward(self, x, counts):
        mu = F.softplus(self.rate(x)) + 1e-4
        r = self.log_r.exp()
        return torch.lgamma(counts + r) - torch.lgamma(r) - torch.lgamma(counts + 1) + r * (r / (r + mu)).log() + counts * (mu / (r + mu)).log()


def get_inputs():
    return [torch.randn(4, {width}), torch.randint(0, 9, (4, {genes})).float()]


dynamic_shapes = {{"x": {{0: "batch"}}, "counts": {{0: "batch"}}}}
""",
        [{"width": 5, "genes": 7}, {"width": 12, "genes": 20}],
    ),
    "pyramid pooling": (
        """class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, {channels}, 3, padding=1)
        self.pools = nn.ModuleList([nn.AdaptiveAvgPool2d(n) for n in (1, {a}, {b})])
        self.head = nn.Linear({channels} * (1 + {a} * {a} + {b} * {b}), 4)

    def forward(self, image):
        y = torch.relu(self.stem(image))
        return self.head(torch.cat([pool(y).flatten(1) for pool in self.pools], 1))


def get_inputs():
    return [torch.randn(2, 3, 17, 19)]


dynamic_shapes = {{"image": {{0: "batch", 2: "height", 3: "width"}}}}
""",
        [{"channels": 4, "a": 2, "b": 3}, {"channels": 6, "a": 3, "b": 5}],
    ),
    "rotary embedding": (
        """class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = nn.Linear({heads} * {size}, {heads} * {size})
        self.key = nn.Linear({heads} * {size}, {heads} * {size})
        self.register_buffer("freqs", 1.0 / 10000 ** (torch.arange(0, {size}, 2) / {size}))

    def rotate(self, x, turn):
        pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2).contiguous())
        return torch.view_as_real(pairs * turn).flatten(-2)

    def forward(self, x):
        batch, length = x.shape[:2]
        angles = torch.outer(torch.arange(length, device=x.device).float(), self.freqs)
        turn = torch.polar(torch.ones_like(angles), angles).unsqueeze(1)
        q = self.rotate(self.query(x).view(batch, length, {heads}, {size}), turn)
        k = self.rotate(self.key(x).view(batch, length, {heads}, {size}), turn)
        return torch.einsum("blhd,bmhd->bhlm", q, k)


def get_inputs():
    return [torch.randn(2, 5, {heads} * {size})]


dynamic_shapes = {{"x": {{0: "batch", 1: "length"}}}}
""",
        [{"heads": 2, "size": 4}, {"heads": 3, "size": 8}],
    ),
    "trim to the longest": (
        """class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding({words}, {width})
        self.out = nn.Linear({width}, 3)

    def forward(self, ids, lengths):
        most = int(lengths.max())
        y = self.embed(ids[:, :most])
        mask = torch.arange(most, device=ids.device)[None, :] < lengths[:, None]
        return self.out(y) * mask.unsqueeze(-1)


def get_inputs():
    return [torch.randint(0, {words}, (3, 8)), torch.tensor([5, 8, 2])]


def get_more_inputs():
    return [[torch.randint(0, {words}, (2, 9)), torch.tensor([4, 6])]]


dynamic_shapes = {{"ids": {{0: "batch", 1: "length"}}, "lengths": {{0: "batch"}}}}
""",
        [{"words": 20, "width": 6}, {"words": 90, "width": 10}],
    ),
    "spectral layer": (
        """class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn({channels}, {channels}, {modes}, 2) * 0.1)
        self.local = nn.Conv1d({channels}, {channels}, 1)

    def forward(self, x):
        spectrum = torch.fft.rfft(x)
        low = torch.einsum("bcm,cdm->bdm", spectrum[..., :{modes}], torch.view_as_complex(self.weight))
        rest = torch.zeros_like(spectrum[..., {modes}:])
        return F.gelu(torch.fft.irfft(torch.cat([low, rest], -1), n=x.shape[-1]) + self.local(x))


def get_inputs():
    return [torch.randn(2, {channels}, 32)]


dynamic_shapes = {{"x": {{0: "batch"}}}}
""",
        [{"channels": 2, "modes": 4}, {"channels": 3, "modes": 6}],
    ),
    "running state": (
        """class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm({width})
        self.register_buffer("seen", torch.zeros({width}))

    def forward(self, x):
        y = self.norm(x)
        self.seen.mul_(0.9).add_(y.mean(0), alpha=0.1)
        return y - self.seen


def get_inputs():
    return [torch.randn(4, {width})]


dynamic_shapes = {{"x": {{0: "batch"}}}}
""",
        [{"width": 6}, {"width": 14}],
    ),
    "half sums": (
        """class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear({width}, {width})

    def forward(self, x):
        y = self.layer(x).to(torch.float64)
        return F.gelu(y.cumsum(-1) / {width}).sum(-1), y.mean(-1)


def get_inputs():
    return [torch.randn(3, {width})]


dynamic_shapes = {{"x": {{0: "batch"}}}}
""",
        [{"width": 8}, {"width": 21}],
    ),
}


def members(name: str, folder: Path) -> list[tuple[int, bool, str]]:
    """(trials, right, fixes) of each model of a family, in order."""
    text, sizes = FAMILIES[name]
    found: list[tuple[int, bool, str]] = []
    for n, values in enumerate(sizes):
        file = folder / f"model_{n}.py"
        file.write_text(HEAD + text.format(**values))
        settings = Settings(output=folder / f"out_{n}", cache=folder / "cache.db", budget=Budget(300, 40), limits=LIMITS, latency_seconds=0)
        done = repair(CaseSpec(str(file)), settings=settings, fork=True)
        wrong = verified(file, folder / f"out_{n}" / "model.onnx") if done.ok else done.stopped
        fixes = ", ".join(f.strategy for f in done.winner.recipe.fixes) if done.winner else ""
        found.append((len(done.trials), not wrong, fixes))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    warm_up()
    held = counted = 0
    print("| family | trials, one model after the other | fixes | |")
    print("|---|---|---|---|")
    for name in FAMILIES:
        if options.only in name:
            with tempfile.TemporaryDirectory(prefix="families-") as folder:
                found = members(name, Path(folder))
            first = found[0][0]
            good = all(right for _, right, _ in found) and all(2 * trials <= first for trials, _, _ in found[1:])
            counted, held = counted + 1, held + good
            trials = ", ".join(str(t) + ("" if right else " (not right)") for t, right, _ in found)
            print(f"| {name} | {trials} | {'; '.join(dict.fromkeys(f for _, _, f in found))} | {'met' if good else 'missed'} |", flush=True)
    print(f"families: in {held} of {counted} every later model took at most half of the first one's trials")
    return 1 if options.check and held < counted else 0


if __name__ == "__main__":
    sys.exit(main())
