"""Run TorchScript modules as plain PyTorch calls, so that exporters that can't look into them see the operators."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import torch
from torch import nn

from autofix.adapter import call_signature
from autofix.surgery.modules_unscript_values import is_container, plain_result
from autofix.surgery.source_items import loop_range
from autofix.surgery.source_loops import traced_for, traced_while
from autofix.surgery.source_merge import UNSET
from autofix.surgery.source_runtime import all_of, as_flag, none_of, traced_if

OPEN_LOOP = 2**60
"""A loop of more turns than this is a `while`."""


class UnscriptedModule(nn.Module):
    """Interprets the graph of a ScriptModule, node by node, with the script module's own parameters. Branches and loops that depend on
    values are captured as such."""

    def __init__(self, source: Any) -> None:
        super().__init__()
        graph = source.graph.copy()
        torch._C._jit_pass_inline(graph)
        self.graph = graph
        self.takes = call_signature(source.forward)
        self.names: dict[str, str] = {}
        for k, (name, value) in enumerate([*source.named_parameters(), *source.named_buffers()]):
            self.names[name] = f"held_{k}"
            self.register_buffer(f"held_{k}", value.detach())
        self.source = [source]  # in a list, so that it is no submodule

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the graph; the first graph input is the module itself."""
        bound = self.takes.bind(*args, **kwargs)
        bound.apply_defaults()
        first, *inputs = [v.debugName() for v in self.graph.inputs()]
        outputs = self.block(self.graph, {first: "", **dict(zip(inputs, bound.arguments.values(), strict=True))})
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def block(self, block: Any, values: dict[str, Any]) -> list[Any]:
        """Run a block's nodes and give its results; `values` gains what they compute."""
        for node in block.nodes():
            results = self.node(node, values)
            for output, result in zip(node.outputs(), results, strict=True):
                values[output.debugName()] = result
        return [values[o.debugName()] for o in block.outputs()]

    def node(self, node: Any, values: dict[str, Any]) -> list[Any]:
        """Run one node."""
        kind = node.kind()
        inputs = [values[i.debugName()] for i in node.inputs()]
        if kind == "prim::If":
            return self.branch(node, inputs[0], values)
        if kind == "prim::Loop":
            return self.loop(node, inputs, values)
        if kind == "prim::RaiseException":
            raise RuntimeError(str(inputs[0]))
        made = self.structure(node, kind, inputs)
        if made is not None:
            return made
        count = len(list(node.outputs()))
        pieces = any(use.user.kind() not in ("prim::ListUnpack", "prim::TupleUnpack") for use in node.output().uses()) if count == 1 else False
        plain = plain_result(kind, inputs, [i.type().annotation_str for i in node.inputs()], pieces)
        if plain is not UNSET:
            return [plain] if count else []
        if not kind.startswith(("aten::", "prim::")) and not hasattr(torch.ops, kind.split("::")[0]):
            raise TypeError(f"no way to run {kind}")
        if kind == "aten::_convolution":  # what a trace holds; the rest of its arguments are cuDNN's switches
            return [torch.convolution(*inputs[:9])]
        operator, _ = torch._C._jit_get_operation(kind)
        named = keyword_only(node.schema())
        places = len(inputs) - len(named)
        result = operator(*inputs[:places], **dict(zip(named, inputs[places:], strict=True)))
        return [result] if count == 1 else list(result) if count else []

    def structure(self, node: Any, kind: str, inputs: list[Any]) -> list[Any] | None:
        """Nodes that name, gather and take apart; None for others."""
        if kind == "prim::Constant":
            return [node.output().toIValue()]
        if kind == "prim::GetAttr":
            return [self.attribute(inputs[0], node.s("name"))]
        if kind in ("prim::ListConstruct", "prim::TupleConstruct"):
            return [inputs] if kind == "prim::ListConstruct" else [tuple(inputs)]
        if kind in ("prim::ListUnpack", "prim::TupleUnpack"):
            return list(inputs[0])
        if kind == "prim::TupleIndex":
            return [inputs[0][inputs[1]]]
        if kind == "prim::DictConstruct":
            return [dict(zip(inputs[::2], inputs[1::2], strict=True))]
        if kind in ("prim::NumToTensor", "prim::unchecked_cast", "prim::unchecked_unwrap_optional", "aten::_unwrap_optional", "aten::detach"):
            return [inputs[0]]
        if kind == "prim::Uninitialized":
            return [UNSET]
        if kind in ("prim::device", "prim::dtype"):
            return [getattr(inputs[0], kind[6:])]
        return [] if kind == "prim::Print" else None

    def attribute(self, path: str, name: str) -> Any:
        """A weight, an attribute, or the path of a submodule."""
        full = f"{path}.{name}".lstrip(".")
        if full in self.names:
            return getattr(self, self.names[full])
        owner = self.source[0]
        for part in filter(None, path.split(".")):
            owner = getattr(owner, part)
        held = getattr(owner, name)
        return full if isinstance(held, torch.nn.Module) else held

    def branch(self, node: Any, test: Any, values: dict[str, Any]) -> list[Any]:
        """A branch: one of its blocks where the test is known, else both; a block that only raises is never taken by an input that eager takes."""
        blocks = list(node.blocks())
        flag = as_flag(test)
        raises = [any(n.kind() == "prim::RaiseException" for n in b.nodes()) for b in blocks]
        if isinstance(flag, bool) or any(raises):
            taken = (0 if flag else 1) if isinstance(flag, bool) else raises.index(False)
            return self.block(blocks[taken], values)
        names = sorted({n for b in blocks for n in reads(b) if n in values})
        lists = [n for n in names if is_container(values[n])]

        def arm(block: Any) -> Any:
            def run(*now: Any) -> tuple[Any, ...]:
                inner = dict(zip(names, now, strict=True))
                return (*self.block(block, inner), *[inner[n] for n in lists])

            return run

        done = list(traced_if(flag, arm(blocks[0]), arm(blocks[1]), *[values[n] for n in names]))
        return self.with_lists(done, lists, values)

    def loop(self, node: Any, inputs: list[Any], values: dict[str, Any]) -> list[Any]:
        """A loop: at most so many turns, as long as a flag holds."""
        limit, going, *state = inputs
        body = next(node.blocks())
        first, *carried = [i.debugName() for i in body.inputs()]
        outer = [n for n in sorted(reads(body)) if n in values]
        lists = [n for n in outer if is_container(values[n])]
        start = (*state, *[values[n] for n in lists])

        def turn(i: Any, *now: Any) -> tuple[Any, ...]:
            inner = {n: values[n] for n in outer} | {first: i} | dict(zip([*carried, *lists], now, strict=True))
            going, *new = self.block(body, inner)
            return (going, *new, *[inner[n] for n in lists])

        def counted(i: Any, *now: Any) -> tuple[Any, ...]:
            going, *new = turn(i, *now)
            return (none_of(going), *new)

        def open_turn(i: Any, going: Any, *now: Any) -> tuple[Any, ...]:
            going, *new = turn(i, *now)
            return (False, i + 1, going, *new)

        if going is True and not (type(limit) is int and limit > OPEN_LOOP):
            done = traced_for(loop_range(limit), counted, *start)
        elif type(limit) is int and limit > OPEN_LOOP:
            done = traced_while(lambda i, going, *now: going, open_turn, 0, going, *start)[2:]
        else:
            done = traced_while(lambda i, going, *now: all_of(lambda: i < limit, lambda: going), open_turn, 0, going, *start)[2:]
        return self.with_lists(list(done), lists, values)

    def with_lists(self, done: list[Any], lists: list[str], values: dict[str, Any]) -> list[Any]:
        """The results of a block; what it did to lists from outside of it is done under each of their names."""
        for name, new in zip(lists, done[len(done) - len(lists) :], strict=True):
            old = values[name]
            values.update({n: new for n, v in values.items() if v is old})
        return done[: len(done) - len(lists)]


@functools.cache
def keyword_only(schema: str) -> tuple[str, ...]:
    """The names of an operator's arguments that may be given by name only; they come last. `alpha` is one for the tensors that may stand for
    numbers here."""
    if not schema or schema.startswith("(no schema"):
        return ()
    return tuple(a.name for a in torch._C.parse_schema(schema).arguments if (a.kwarg_only or a.name == "alpha") and not a.is_out)


def reads(block: Any) -> set[str]:
    """The names that a block and the blocks in it read."""
    found = {o.debugName() for o in block.outputs()}
    for node in block.nodes():
        found |= {i.debugName() for i in node.inputs()}
        for inner in node.blocks():
            found |= reads(inner)
    return found


def unscripted(source: Any) -> nn.Module:
    """The interpreter of a script module, with the script module's own parameters in its signature."""
    source = getattr(source, "_actual_script_module", source)
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        return UnscriptedModule.forward(self, *args, **kwargs)

    setattr(forward, "__signature__", inspect.Signature([own, *call_signature(source.forward).parameters.values()]))  # noqa: B010
    made: nn.Module = type("UnscriptedModule", (UnscriptedModule,), {"forward": forward})(source)
    return made.train(False)


def unscript(model: nn.Module) -> tuple[nn.Module, list[str]]:
    """The model with the outermost TorchScript modules replaced by interpreters of their graphs, in place below itself; and their paths."""
    if isinstance(model, torch.jit.ScriptModule):
        return unscripted(model), [""]
    changed: list[str] = []
    for path, module in list(model.named_modules()):
        inside = any(path.startswith(c + ".") for c in changed)
        if path and isinstance(module, torch.jit.ScriptModule) and not inside:
            owner, _, name = path.rpartition(".")
            setattr(model.get_submodule(owner), name, unscripted(module))
            changed.append(path)
    return model, changed
