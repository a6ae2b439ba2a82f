"""BERT-base as transformers configures it by default, random weights, batch 1, sequence 32."""

import torch
from transformers import BertConfig, BertModel


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.bert = BertModel(BertConfig(), add_pooling_layer=False)

    def forward(self, ids):
        return self.bert(input_ids=ids).last_hidden_state


def get_inputs():
    return [torch.randint(0, 30000, (1, 32))]
