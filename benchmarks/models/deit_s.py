"""DeiT-S as transformers' DeiTModel with the small configuration, random weights, batch 1."""

import torch
from transformers import DeiTConfig, DeiTModel


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.deit = DeiTModel(DeiTConfig(hidden_size=384, num_attention_heads=6, intermediate_size=1536), add_pooling_layer=False)

    def forward(self, pixels):
        return self.deit(pixel_values=pixels).last_hidden_state


def get_inputs():
    return [torch.randn(1, 3, 224, 224)]
