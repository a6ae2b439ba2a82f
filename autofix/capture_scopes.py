"""Contexts around torch's exporter that rewritten sources rely on. Each puts back what it changed."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

NOTED = "numbers_used_as_sizes"
"""Attribute of a ShapeEnv: the symbols of whole numbers that a rewritten source keeps in the graph as sizes (source_numbers.py)."""


@contextlib.contextmanager
def one_subgraph_version() -> Iterator[None]:
    """Give calls of nested subgraphs one version while a program is converted.

    torch 2.13 writes some with the version of the ONNX opset and some with 1, and its inliner then refuses a branch in a loop
    ("Opset mismatch when inlining function"). The domain is private to the exporter and inlined away.
    """
    try:
        from torch.onnx._internal.exporter import _ir_passes as passes

        before = passes._maybe_set_opset_version
    except (ImportError, AttributeError):
        yield
        return

    def agreed(imports: Any, domain: str, version: Any) -> Any:
        return before(imports, domain, None if domain.startswith("pkg.torch") else version)

    setattr(passes, "_maybe_set_opset_version", agreed)  # noqa: B010
    try:
        yield
    finally:
        passes._maybe_set_opset_version = before


def size_for_stride(graph: Any, node: Any) -> Any:
    """Sizes whose product is what a `sym_stride` node of a graph reads, as nodes (tensor, axes) or one node that holds the very number; None where
    nothing in the graph tells it. Compared as symbols: a tensor's strides need not be those of a packed one."""
    tensor, axis = node.args
    value = tensor.meta.get("val")
    if value is None:
        return None
    wanted = value.stride(axis)
    wanted = getattr(getattr(wanted, "node", None), "expr", wanted)

    def same(number: Any) -> bool:
        return bool(getattr(getattr(number, "node", None), "expr", number) == wanted)

    product: Any = 1
    for size in value.shape[axis + 1 :]:
        product = product * size
    if same(product):
        return tensor, range(axis + 1, value.dim())
    for other in graph.nodes:
        held = other.meta.get("val")
        if other is node:
            break
        if other.op == "placeholder" and hasattr(held, "shape"):
            for k, size in enumerate(held.shape):
                if same(size):
                    return other, (k,)
        elif hasattr(held, "node") and same(held) and other.target is not node.target:
            return other, None
    return None


def without_strides(module: Any) -> Any:
    """A decomposed graph module, and those within, with sizes in place of strides, which ONNX has no word for.

    torch reads a size off a stride where two axes turned out to be equal (an assertion in the body of a loop, say).
    """
    import operator

    import torch

    for one in module.modules():
        strides = [n for n in one.graph.nodes if n.target is torch.ops.aten.sym_stride.int]
        if not strides:
            continue
        one.graph.eliminate_dead_code()
        for node in [n for n in one.graph.nodes if n.target is torch.ops.aten.sym_stride.int]:
            found = size_for_stride(one.graph, node)
            if found is None:
                continue
            source, axes = found
            with one.graph.inserting_before(node):
                number = source if axes is None else 1
                for k in axes or ():
                    size = one.graph.call_function(torch.ops.aten.sym_size.int, (source, k))
                    size.meta["val"] = source.meta["val"].shape[k]
                    if number == 1:
                        number = size
                    else:
                        number, first = one.graph.call_function(operator.mul, (number, size)), number
                        number.meta["val"] = first.meta["val"] * size.meta["val"]
            node.replace_all_uses_with(number)
            one.graph.erase_node(node)
        one.recompile()
    return module


def may_be_negative(number: Any) -> bool:
    """Whether a whole number of the graph may be below zero, as far as its symbols tell."""
    if isinstance(number, int):
        return number < 0
    node = getattr(number, "node", None)
    env = getattr(node, "shape_env", None)
    if node is None or env is None:
        return False
    lowest = env.bound_sympy(node.expr).lower
    return not lowest.is_number or bool(lowest < 0)


def with_floors(module: Any) -> Any:
    """A decomposed graph module, and those within, in which `a // b` of an `a` that may be negative (-(-n // 4), say) is (a - a % b) // b.

    The exporter writes // as a division that rounds towards zero; the remainder has the divisor's sign, as Python's has.
    """
    import operator

    for one in module.modules():
        changed = False
        for node in [n for n in one.graph.nodes if n.target is operator.floordiv]:
            top, below = node.args
            number, divisor = (getattr(n, "meta", {}).get("val", n) for n in (top, below))
            if getattr(top, "target", None) is operator.sub and getattr(top.args[1], "target", None) is operator.mod:
                continue
            if not may_be_negative(number):
                continue
            with one.graph.inserting_before(node):
                rest = one.graph.call_function(operator.mod, (top, below))
                whole = one.graph.call_function(operator.sub, (top, rest))
            rest.meta = {**node.meta, "val": number % divisor}
            whole.meta = {**node.meta, "val": number - rest.meta["val"]}
            node.args = (whole, below)
            changed = True
        if changed:
            one.recompile()
    return module


@contextlib.contextmanager
def sizes_for_strides() -> Iterator[None]:
    """Let the exporter read sizes where its decomposed program reads strides, and round quotients of sizes down."""
    try:
        from torch.onnx._internal.exporter import _fx_passes as passes

        before = passes.remove_assertion_nodes
    except (ImportError, AttributeError):
        yield
        return
    setattr(passes, "remove_assertion_nodes", lambda module: with_floors(without_strides(before(module))))  # noqa: B010
    try:
        yield
    finally:
        passes.remove_assertion_nodes = before


def asked_by_library() -> bool:
    """Whether the test that is being evaluated stands in torch itself: compiled code, or a file of torch's."""
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename in (__file__, sys.modules["torch.fx.experimental.sym_node"].__file__):
        frame = frame.f_back
    while frame is not None and frame.f_code.co_filename.endswith("/autofix/watch.py"):
        frame = frame.f_back
    if frame is None or frame.f_code.co_name != "__bool__":
        return True
    caller = frame.f_back
    return caller is not None and "/torch/" in caller.f_code.co_filename


def holds_for_usual_sizes(test: Any, allowed: Any) -> bool | None:
    """What a test of sizes (sympy) comes to where each of its symbols is 2 or more; None where that does not decide it,
    or where it has symbols outside of `allowed` (None allows every symbol)."""
    import sympy  # type: ignore[import-untyped]

    symbols = list(test.free_symbols)
    if not symbols or (allowed is not None and not set(symbols) <= allowed):
        return None
    shifted = test.subs({s: sympy.Symbol(f"usual_{i}", integer=True, nonnegative=True) + 2 for i, s in enumerate(symbols)})
    if isinstance(shifted, sympy.core.relational.Relational):  # the sign of a product less a number shows once it is multiplied out
        shifted = shifted.func(sympy.expand(shifted.lhs - shifted.rhs), 0)
    return bool(shifted) if shifted in (sympy.true, sympy.false) else None


@contextlib.contextmanager
def numbers_like_axes(everywhere: bool = False) -> Iterator[None]:
    """Let torch take a whole number that became a size to be neither 0 nor 1 in its own tests, as it does with every dynamic axis.

    Only where torch would give up otherwise, and only for tests in torch's own code (whether a stride is that of a packed tensor, whether
    an axis is broadcast): a test of the model's is never decided like that. Only for numbers that a rewritten source has noted;
    everywhere: for all of them, once one is noted (symbols get new names when a program is decomposed).
    """
    from torch.fx.experimental.sym_node import SymNode
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

    before = SymNode.guard_bool

    def guard_bool(self: Any, file: str, line: int) -> bool:
        try:
            return bool(before(self, file, line))
        except GuardOnDataDependentSymNode:
            noted: set[Any] | None = None if everywhere else set(getattr(self.shape_env, NOTED, ()))
            answer = holds_for_usual_sizes(self.expr, noted) if asked_by_library() else None
            if answer is None:
                raise
            return answer

    SymNode.guard_bool = guard_bool  # type: ignore[method-assign]
    try:
        yield
    finally:
        SymNode.guard_bool = before  # type: ignore[method-assign]


def notes_numbers(program: Any) -> bool:
    """Whether a captured program has numbers that a rewritten source noted."""
    for node in program.graph.nodes:
        env = getattr(getattr(node.meta.get("val"), "node", None), "shape_env", None)
        if env is not None:
            return bool(getattr(env, NOTED, ()))
    return False
