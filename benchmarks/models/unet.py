"""A U-Net of four levels on 128 x 128 pixels."""

import torch
from torch import nn


def block(i, o):
    return nn.Sequential(
        nn.Conv2d(i, o, 3, padding=1, bias=False),
        nn.BatchNorm2d(o),
        nn.ReLU(),
        nn.Conv2d(o, o, 3, padding=1, bias=False),
        nn.BatchNorm2d(o),
        nn.ReLU(),
    )


class Model(nn.Module):
    def __init__(self, widths=(16, 32, 64, 128)):
        super().__init__()
        self.down = nn.ModuleList(block(i, o) for i, o in zip((3, *widths[:-1]), widths))
        self.up = nn.ModuleList(nn.ConvTranspose2d(i, o, 2, stride=2) for i, o in zip(widths[:0:-1], widths[-2::-1]))
        self.join = nn.ModuleList(block(2 * o, o) for o in widths[-2::-1])
        self.head = nn.Conv2d(widths[0], 2, 1)

    def forward(self, x):
        kept = []
        for level in self.down:
            x = level(x if not kept else nn.functional.max_pool2d(x, 2))
            kept.append(x)
        for up, join, skip in zip(self.up, self.join, kept[-2::-1]):
            x = join(torch.cat([skip, up(x)], 1))
        return self.head(x)


def get_inputs():
    return [torch.randn(1, 3, 128, 128)]
