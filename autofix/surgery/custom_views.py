"""Views of an exported program made reshapes."""

from __future__ import annotations

from typing import Any

import torch


def views_as_reshapes(program: Any) -> Any:
    """Replace each aten.view by aten.reshape, which also accepts a tensor whose layout changed since capture. In place."""
    for module in program.graph_module.modules():
        for node in getattr(getattr(module, "graph", None), "nodes", ()):
            if node.target is torch.ops.aten.view.default:
                node.target = torch.ops.aten.reshape.default
        if isinstance(module, torch.fx.GraphModule):
            module.recompile()
    return program
