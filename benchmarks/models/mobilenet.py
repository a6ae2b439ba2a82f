"""MobileNet-v2 (Sandler et al. 2018), width 1, 224 x 224 pixels."""

import torch
from torch import nn

STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
"""(expansion, channels, blocks, stride)."""


def conv(i, o, size=1, stride=1, groups=1, act=True):
    layers = [nn.Conv2d(i, o, size, stride, size // 2, groups=groups, bias=False), nn.BatchNorm2d(o)]
    return nn.Sequential(*layers, *([nn.ReLU6()] if act else []))


class Inverted(nn.Module):
    def __init__(self, i, o, stride, expand):
        super().__init__()
        wide = i * expand
        self.skip = stride == 1 and i == o
        self.layers = nn.Sequential(*([conv(i, wide)] if expand > 1 else []), conv(wide, wide, 3, stride, groups=wide), conv(wide, o, act=False))

    def forward(self, x):
        return x + self.layers(x) if self.skip else self.layers(x)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        layers, width = [conv(3, 32, 3, 2)], 32
        for expand, channels, blocks, stride in STAGES:
            for k in range(blocks):
                layers.append(Inverted(width, channels, stride if k == 0 else 1, expand))
                width = channels
        self.features = nn.Sequential(*layers, conv(width, 1280))
        self.head = nn.Linear(1280, 1000)

    def forward(self, x):
        return self.head(self.features(x).mean((2, 3)))


def get_inputs():
    return [torch.randn(1, 3, 224, 224)]
