"""The model of `make demo`: a small spectral denoiser that no stock route of torch.onnx takes.

Two faults in one forward: complex numbers, which ONNX does not have, and an `if` on the loudness of the input, which a trace
would freeze to the branch that the example takes.
"""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, frame=64, hidden=48):
        super().__init__()
        self.frame = frame
        self.register_buffer("window", torch.hann_window(frame))
        bins = frame // 2 + 1
        self.gain = nn.Sequential(nn.Linear(bins, hidden), nn.ReLU(), nn.Linear(hidden, bins), nn.Sigmoid())
        self.phases = nn.Parameter(torch.randn(2, bins))
        self.limiter = nn.Linear(frame, frame)

    def forward(self, frames):
        spectrum = torch.fft.rfft(frames * self.window)
        taps = torch.polar(torch.ones_like(self.phases), self.phases)
        spectrum = (spectrum.unsqueeze(-2) * taps).mean(-2)
        mask = self.gain(torch.log1p(spectrum.abs()))
        clean = torch.fft.irfft(spectrum * mask, n=self.frame)
        if clean.abs().mean() > 0.5:
            clean = torch.tanh(self.limiter(clean))
        else:
            clean = clean * 2.0
        return clean


def get_inputs():
    return [torch.randn(3, 10, 64)]


dynamic_shapes = {"frames": {0: "batch", 1: "time"}}
