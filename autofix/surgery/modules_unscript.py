"""Run TorchScript submodules as plain PyTorch calls, so that exporters that can't look into them see the operators."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class UnscriptedModule(nn.Module):
    """Interprets the graph of a ScriptModule, node by node, with the script module's own parameters."""

    def __init__(self, source: Any) -> None:
        super().__init__()
        graph = source.graph.copy()
        torch._C._jit_pass_inline(graph)
        self.graph = graph
        self.names: dict[str, str] = {}
        for k, (name, value) in enumerate([*source.named_parameters(), *source.named_buffers()]):
            self.names[name] = f"held_{k}"
            self.register_buffer(f"held_{k}", value.detach())
        self.constants = {n: getattr(source, n) for n in getattr(source, "__constants__", [])}
        self.source = [source]  # in a list, so that it is no submodule

    def forward(self, *args: Any) -> Any:
        """Call the graph; the first graph input is the module itself."""
        inputs = [v.debugName() for v in self.graph.inputs()]
        values: dict[str, Any] = {inputs[0]: ""}
        values.update(zip(inputs[1:], args, strict=False))
        outputs = self.block(self.graph, values)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def block(self, block: Any, values: dict[str, Any]) -> list[Any]:
        """Run a block's nodes and give its results."""
        for node in block.nodes():
            results = self.node(node, values)
            for output, result in zip(node.outputs(), results, strict=True):
                values[output.debugName()] = result
        return [values[o.debugName()] for o in block.outputs()]

    def node(self, node: Any, values: dict[str, Any]) -> list[Any]:
        """Run one node."""
        kind = node.kind()
        inputs = [values[i.debugName()] for i in node.inputs()]
        if kind == "prim::Constant":
            return [node.output().toIValue()]
        if kind == "prim::GetAttr":
            path = f"{inputs[0]}.{node.s('name')}".lstrip(".")
            if path in self.names:
                return [getattr(self, self.names[path])]
            owner = self.source[0].get_submodule(inputs[0]) if inputs[0] else self.source[0]
            held = getattr(owner, node.s("name"))
            return [path if isinstance(held, torch.nn.Module) else held]
        if kind in ("prim::ListConstruct", "prim::TupleConstruct"):
            return [inputs] if kind == "prim::ListConstruct" else [tuple(inputs)]
        if kind in ("prim::ListUnpack", "prim::TupleUnpack"):
            return list(inputs[0])
        if kind == "prim::DictConstruct":
            return [dict(zip(inputs[::2], inputs[1::2], strict=True))]
        if kind == "prim::NumToTensor":
            return [inputs[0]]
        if kind in ("aten::Int", "aten::ScalarImplicit", "aten::IntImplicit", "aten::Float", "aten::Bool"):
            return [inputs[0]] if not isinstance(inputs[0], torch.Tensor) else [inputs[0].item()]
        if kind in ("prim::unchecked_cast", "aten::detach"):
            return [inputs[0]]
        if kind == "prim::If":
            chosen = list(node.blocks())[0 if inputs[0] else 1]
            return self.block(chosen, values)
        if kind == "prim::Loop":
            return self.loop(node, inputs, values)
        if kind == "prim::device":
            return [inputs[0].device]
        if kind == "prim::dtype":
            return [inputs[0].dtype]
        if kind in ("prim::RaiseException", "prim::Print"):
            return []
        if not kind.startswith(("aten::", "prim::")) and not hasattr(torch.ops, kind.split("::")[0]):
            raise TypeError(f"no way to run {kind}")
        if kind == "aten::_convolution":  # what a trace holds; the rest of its arguments are cuDNN's switches
            return [torch.convolution(*inputs[:9])]
        operator, _ = torch._C._jit_get_operation(kind)
        result = operator(*inputs)
        count = len(list(node.outputs()))
        return [result] if count == 1 else list(result) if count else []

    def loop(self, node: Any, inputs: list[Any], values: dict[str, Any]) -> list[Any]:
        """Run a loop whose number of turns is known."""
        body = next(node.blocks())
        names = [i.debugName() for i in body.inputs()]
        limit, going, state = inputs[0], inputs[1], inputs[2:]
        turn = 0
        while turn < limit and going:
            values.update(zip(names, [turn, *state], strict=True))
            going, *state = self.block(body, values)
            turn += 1
        return list(state)


def unscript(model: nn.Module) -> list[str]:
    """Replace the outermost TorchScript submodules by interpreters of their graphs, in place; returns their paths."""
    changed: list[str] = []
    for path, module in list(model.named_modules()):
        inside = any(path.startswith(c + ".") for c in changed)
        if path and isinstance(module, torch.jit.ScriptModule) and not inside:
            owner, _, name = path.rpartition(".")
            setattr(model.get_submodule(owner), name, UnscriptedModule(module))
            changed.append(path)
    return changed
