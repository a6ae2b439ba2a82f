"""Lists that grow in loops over a dynamic axis: their length is known after the loop, and they can be turned round."""

import importlib.util

import torch

from autofix.surgery.source_control import rewrite_source

TABLE = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, cost):
        n, m = cost.shape
        above = cost[0]
        rows = [above]
        for i in range(1, n):
            row = [cost[i, 0] + above[0]]
            for j in range(1, m):
                row.append(cost[i, j] + torch.minimum(above[j], above[j - 1]))
            above = torch.stack(row)
            rows.append(above)
        table = torch.stack(rows)
        rows.reverse()
        return table, torch.stack(rows)
"""


def test_a_table_filled_row_by_row(tmp_path):
    file = tmp_path / "table.py"
    file.write_text(rewrite_source(TABLE, ["Model.forward"], [], sizes=True, arguments=[], zero_d=[]))
    spec = importlib.util.spec_from_file_location("table", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    auto = torch.export.Dim.DYNAMIC
    with torch.fx.experimental._config.patch(backed_size_oblivious=True):
        program = torch.export.export(
            module.Model(), (torch.randn(4, 3),), dynamic_shapes=({0: auto, 1: auto},), prefer_deferred_runtime_asserts_over_guards=True
        ).module()
    plain: dict = {}
    exec(TABLE, plain)
    for rows, columns in ((4, 3), (2, 5), (6, 2)):
        cost = torch.randn(rows, columns)
        for ours, theirs in zip(program(cost), plain["Model"]()(cost), strict=True):
            assert torch.equal(ours, theirs)
