"""BERT-base as transformers configures it by default, with random weights; batch and sequence are dynamic."""

import torch
from transformers import BertConfig, BertModel


def build_model():
    return BertModel(BertConfig())


def get_inputs():
    return [torch.randint(0, 30522, (2, 16)), torch.ones(2, 16, dtype=torch.int64)]


dynamic_shapes = {"input_ids": {0: "batch", 1: "sequence"}, "attention_mask": {0: "batch", 1: "sequence"}}
