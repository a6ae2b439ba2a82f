"""A bidirectional LSTM of two layers, 256 wide."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(128, 256, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(512, 32)

    def forward(self, x):
        return self.head(self.rnn(x)[0])


def get_inputs():
    return [torch.randn(1, 64, 128)]
