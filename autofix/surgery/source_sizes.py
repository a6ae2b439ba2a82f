"""Static data flow inside one function: which tests, loops and numbers depend on tensor values or on sizes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import libcst as cst
from libcst.metadata import PositionProvider

from autofix.surgery.source_assignments import Assignments, converts
from autofix.surgery.source_lookups import FLAGS, held_names
from autofix.surgery.source_names import root_name, uses_of
from autofix.surgery.source_nodes import code_of
from autofix.surgery.source_pieces import SPLITS, LoopsOver, Truths, grown_lists, loop_names, pieces_of

SIZE_METHODS = frozenset({"size", "numel", "nelement", "__len__"})
VALUE_METHODS = frozenset({"item", "tolist", "any", "all", "equal", "allclose", "is_nonzero", "nonzero", "unique", "argwhere"})
REDUCTIONS = frozenset(
    {"sum", "mean", "max", "min", "amax", "amin", "norm", "std", "var", "argmax", "argmin", "count_nonzero", "prod", "median", "abs", "dist"}
)
NUMBER_CALLS = frozenset(
    {
        "int",
        "float",
        "bool",
        "len",
        "min",
        "max",
        "abs",
        "round",
        "divmod",
        "sum",
        "range",
        "list",
        "tuple",
        "sorted",
        "reversed",
        "enumerate",
        "zip",
        "pow",
        "whole_number",  # from here on what rewritten numbers call
        "whole_round",
        "number_of",
        "index_of",
        "real_number",
        "real_of",
        "real_math",
        "extreme_number",
        "list_length",
    }
)
STATIC_CALLS = frozenset({"isinstance", "hasattr", "getattr", "callable", "issubclass", "type"})


class _Reach(cst.CSTVisitor):
    """Whether an expression reads a size or a value of a tensor, given names that hold some."""

    def __init__(self, sizes: set[str], values: set[str], indices: bool = True) -> None:
        self.sizes, self.values, self.size, self.value, self.indices = sizes, values, False, False, indices

    def visit_Subscript(self, node: cst.Subscript) -> bool:
        if not self.indices:
            node.value.visit(self)
        return self.indices

    def visit_Lambda(self, node: cst.Lambda) -> bool:
        return False

    def visit_Name(self, node: cst.Name) -> None:
        self.size |= node.value in self.sizes
        self.value |= node.value in self.values

    def visit_Attribute(self, node: cst.Attribute) -> bool:
        if node.attr.value == "shape":
            self.size |= root_name(node.value) != "self"
            return False
        node.value.visit(self)
        return False

    def visit_Arg(self, node: cst.Arg) -> bool:
        node.value.visit(self)
        return False

    def visit_Comparison(self, node: cst.Comparison) -> bool:
        return not all(isinstance(c.operator, (cst.Is, cst.IsNot)) for c in node.comparisons)

    def visit_Call(self, node: cst.Call) -> bool:
        func = node.func
        if isinstance(func, cst.Name):
            if func.value in STATIC_CALLS:
                return False
            if (
                func.value in ("len", "list_length")
                and node.args
                and root_name(node.args[0].value) != "self"
                and not isinstance(node.args[0].value, (cst.List, cst.Tuple))
            ):
                self.size = True
            self.value |= func.value in ("number_of", "size_list", "index_of", "array_rows")
            for arg in node.args:
                arg.visit(self)
            return False
        if isinstance(func, cst.Attribute):
            name = func.attr.value
            if name in SIZE_METHODS:
                self.size |= root_name(func.value) != "self"
                return False
            if root_name(func) == "math":
                for arg in node.args:
                    arg.visit(self)
                return False
            if (
                root_name(func) in ("torch", "F")
                and name in VALUE_METHODS | REDUCTIONS | {"isnan", "isfinite", "isinf"}
                or (name in VALUE_METHODS and root_name(func) not in ("torch", "np", "numpy"))
                or (name in REDUCTIONS and root_name(func) not in ("np", "numpy", "math"))
            ):
                self.value = True
            return not self.value
        return True


def reach(node: cst.CSTNode, sizes: set[str], values: set[str], indices: bool = True) -> tuple[bool, bool]:
    """(depends on a size, depends on a tensor's value) for an expression. indices: by what picks a part of something, too."""
    found = _Reach(sizes, values, indices)
    node.visit(found)
    return found.size, found.value


def is_number_expression(node: cst.BaseExpression) -> bool:
    """Whether an expression gives Python numbers when its operands are numbers: arithmetic, shapes, int(), math calls."""
    if isinstance(node, (cst.Integer, cst.Float, cst.Name)):
        return True
    if isinstance(node, cst.Attribute):
        return node.attr.value == "shape" or root_name(node) == "self"
    if isinstance(node, cst.Subscript):
        return is_number_expression(node.value)
    if isinstance(node, cst.BinaryOperation):
        return is_number_expression(node.left) and is_number_expression(node.right)
    if isinstance(node, (cst.UnaryOperation,)):
        return is_number_expression(node.expression)
    if isinstance(node, (cst.Comparison, cst.BooleanOperation)):
        return True
    if isinstance(node, (cst.Tuple, cst.List)):
        return all(is_number_expression(e.value) for e in node.elements)
    if isinstance(node, cst.IfExp):
        return is_number_expression(node.body) and is_number_expression(node.orelse)
    if isinstance(node, (cst.ListComp, cst.GeneratorExp)):
        return is_number_expression(node.elt)
    if isinstance(node, cst.Call):
        if isinstance(node.func, cst.Name):
            return node.func.value in NUMBER_CALLS
        return isinstance(node.func, cst.Attribute) and (node.func.attr.value in SIZE_METHODS | {"item", "tolist"} or root_name(node.func) == "math")
    return False


def tainted_names(
    function: cst.FunctionDef, integer_arguments: Iterable[str] = (), hit: Any = None, given: Iterable[str] = ()
) -> tuple[set[str], set[str]]:
    """Local names that hold sizes of tensors, and names that hold values of tensors as Python numbers.

    given: parameters that hold sizes. hit: says of a node whether it stands on a line where a tensor was seen to become a Python value.
    """
    found = Assignments()
    function.body.visit(found)
    sizes: set[str] = set(given)
    values: set[str] = set(integer_arguments)
    for names, expression in found.pairs:
        if hit is not None and hit(expression) and is_number_expression(expression) and converts(expression):
            values |= names
    for _ in range(4):
        for names, expression in found.pairs:
            if is_number_expression(expression):
                size, value = reach(expression, sizes, values)
                sizes |= names if size else set()
                values |= names if value else set()
    return sizes, values


class _Tests(cst.CSTVisitor):
    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self, sizes: set[str], values: set[str], lines: set[int], with_sizes: bool) -> None:
        super().__init__()
        self.sizes, self.values, self.lines, self.with_sizes = sizes, values, lines, with_sizes
        self.dynamic: set[str] = set()
        self.arguments: set[str] = set()

    def _hit(self, node: cst.CSTNode) -> bool:
        place: Any = self.get_metadata(PositionProvider, node)
        return any(place.start.line <= n <= place.end.line for n in self.lines)

    def _test(self, node: cst.BaseExpression) -> None:
        size, value = reach(node, self.sizes, self.values)
        if (
            value
            or (size and self.with_sizes)
            or (self._hit(node) and not isinstance(node, cst.Name))
            or isinstance(node, cst.Name)
            and (self._hit(node) or node.value in self.arguments)
            or isinstance(node, cst.UnaryOperation)
            and code_of(node.expression) in self.arguments
        ):
            self.dynamic.add(code_of(node))

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        pass

    def visit_If(self, node: cst.If) -> None:
        self._test(node.test)

    def visit_While(self, node: cst.While) -> None:
        self._test(node.test)

    def visit_IfExp(self, node: cst.IfExp) -> None:
        self._test(node.test)

    def visit_Assert(self, node: cst.Assert) -> None:
        self._test(node.test)

    def visit_Match(self, node: cst.Match) -> None:
        self._test(node.subject)
        for case in node.cases:
            if case.guard is not None:
                self._test(case.guard)

    def visit_Call(self, node: cst.Call) -> None:
        if isinstance(node.func, cst.Name) and node.func.value in ("any", "all") and len(node.args) == 1:
            self._test(node)

    def visit_BooleanOperation(self, node: cst.BooleanOperation) -> None:
        parts = [node.left, node.right]
        if all(
            isinstance(p, (cst.Comparison, cst.BooleanOperation)) or (isinstance(p, cst.UnaryOperation) and isinstance(p.operator, cst.Not))
            for p in parts
        ):
            self._test(node)
            return
        before = set(self.dynamic)  # c = a and b: Python gives one of the two
        self._test(node)
        if self.dynamic - before:
            self.dynamic = before | {f"value {code_of(node)}"}

    def visit_UnaryOperation(self, node: cst.UnaryOperation) -> None:
        if isinstance(node.operator, cst.Not):
            self._test(node)

    def visit_For(self, node: cst.For) -> None:
        self._items(node.iter, node.target)

    def visit_CompFor(self, node: cst.CompFor) -> None:
        self._items(node.iter)

    def _items(self, node: cst.BaseExpression, target: Any = None) -> None:
        size, value = reach(node, self.sizes, self.values)
        split = isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and node.func.attr.value in SPLITS
        if self._hit(node) or value or ((size or split) and self.with_sizes):
            self.dynamic.add(code_of(node))
            if target is not None:
                self.dynamic |= {f"index {name}" for name in uses_of(cst.Assign([cst.AssignTarget(target)], cst.Name("None"))).stores}

    def visit_Comparison(self, node: cst.Comparison) -> None:
        if any(isinstance(c.operator, (cst.In, cst.NotIn)) for c in node.comparisons) and reach(node.left, self.sizes, self.values)[1]:
            self.dynamic.add(code_of(node))

    def visit_Arg(self, node: cst.Arg) -> None:
        if node.keyword is not None and node.keyword.value in FLAGS:
            size, value = reach(node.value, self.sizes, self.values)
            if value or (size and self.with_sizes):
                self.dynamic.add(f"flag {code_of(node.value)}")


def dynamic_tests(
    wrapper: cst.MetadataWrapper,
    function: cst.FunctionDef,
    lines: Iterable[int],
    *,
    sizes: bool,
    arguments: Iterable[str] = (),
    given: Iterable[str] = (),
) -> set[str]:
    """Texts of the tests and iterables of `function` (a node of wrapper.module) that depend on tensor values, on `lines`
    where a value was seen to be used, or (with `sizes`) on sizes. `arguments` are parameters that are numbers which vary, `given` those that
    hold sizes."""
    positions: Any = wrapper.resolve(PositionProvider)
    marked = set(lines)

    def hit(node: cst.CSTNode) -> bool:
        place = positions.get(node)
        return place is not None and any(place.start.line <= n <= place.end.line for n in marked)

    size_names, value_names = tainted_names(function, arguments, hit, given)
    held = Assignments()
    function.body.visit(held)
    for names, expression in held.pairs:  # m = x.mean(): a test of m is a test of a value, also where eager did not come by
        if isinstance(expression, cst.Call) and reach(expression, set(), set())[1]:
            value_names |= names
    flags: set[str] = set()
    for _ in range(3):
        for names, expression in held.pairs:  # full = not mask.any(); both = full and big
            if isinstance(expression, (cst.UnaryOperation, cst.Comparison, cst.BooleanOperation)) and reach(expression, set(), flags)[1]:
                flags |= names
    visitor = _Tests(size_names, value_names | flags, marked, sizes)
    visitor.arguments = set(arguments)
    visitor.metadata = {PositionProvider: positions}
    function.body.visit(visitor)
    counted = loop_names(function, visitor.dynamic)
    if counted - visitor.values:
        visitor.values |= counted
        function.body.visit(visitor)
    pieces = pieces_of(function, held.pairs) if sizes else set()
    grown = grown_lists(function, visitor.dynamic | {f"pieces {name}" for name in pieces})
    over, truths = LoopsOver(pieces | grown), Truths(grown)
    function.body.visit(over)
    function.body.visit(truths)
    held_lists = {f"held {name}" for name in held_names(function, held.pairs)}
    return (
        visitor.dynamic | over.found | truths.found | held_lists | {f"index {name}" for name in value_names} | {f"pieces {name}" for name in pieces}
    )
