"""GPT-2 small as transformers configures it by default, random weights, batch 1, sequence 128, no cache."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gpt = GPT2LMHeadModel(GPT2Config(use_cache=False))

    def forward(self, ids):
        return self.gpt(input_ids=ids).logits


def get_inputs():
    return [torch.randint(0, 50000, (1, 128))]
