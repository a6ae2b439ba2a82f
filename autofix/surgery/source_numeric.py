"""Rewrite Python numbers that come from sizes and values (int, float, round, math, item, tolist, /, **) to stay in the graph."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import libcst as cst
from libcst.metadata import PositionProvider

from autofix.surgery.source_assignments import listed_names, may_be_tensor
from autofix.surgery.source_names import root_name
from autofix.surgery.source_nodes import call, code_of
from autofix.surgery.source_sizes import is_number_expression, reach, tainted_names

ROUNDING = frozenset(
    {"sqrt", "log", "log2", "log10", "log1p", "exp", "floor", "ceil", "trunc", "pow", "isqrt", "sin", "cos", "tan", "tanh", "fabs", "fmod"}
)
SIZE_TAKERS = frozenset(
    {"arange", "zeros", "ones", "full", "empty", "eye", "linspace", "randn", "rand", "narrow", "repeat", "expand", "view", "reshape"}
    | {"split", "topk", "pad", "new_zeros", "new_ones", "new_full", "repeat_interleave", "one_hot", "roll", "unfold", "tril_indices"}
)
WHOLE_CALLS = frozenset({"math.ceil", "math.floor", "math.trunc", "math.isqrt", "math.gcd", "math.comb"})
"""Functions of math that give whole numbers, whatever they are given."""
WHOLE_MATH = tuple(f'real_math("{name}"' for name in ("ceil", "floor", "trunc", "isqrt"))
TALK = frozenset({"print", "logger", "logging", "log", "warnings", "LOG", "LOGGER", "_logger"})


def _is_float_operation(node: cst.BaseExpression) -> bool:
    """Whether an expression of whole numbers gives a float: a division, a float literal, a power that is no whole number, a math call."""
    if isinstance(node, cst.Float):
        return True
    if isinstance(node, cst.BinaryOperation):
        power = isinstance(node.operator, cst.Power) and not isinstance(node.right, cst.Integer)
        return isinstance(node.operator, cst.Divide) or power or _is_float_operation(node.left) or _is_float_operation(node.right)
    if isinstance(node, cst.UnaryOperation):
        return _is_float_operation(node.expression)
    if isinstance(node, cst.Call) and (code_of(node.func) in WHOLE_CALLS or code_of(node).startswith(WHOLE_MATH)):
        return False
    if isinstance(node, cst.Call):
        return (
            root_name(node.func) in ("math", "np", "numpy")
            if isinstance(node.func, cst.Attribute)
            else code_of(node.func) in ("float", "real_number", "real_math")
        )
    return False


def _may_be_float(node: cst.BaseExpression) -> bool:
    """As `_is_float_operation`, or holds an attribute or a subscript that may be a float (self.ratio)."""
    if isinstance(node, cst.BinaryOperation):
        return _is_float_operation(node) or _may_be_float(node.left) or _may_be_float(node.right)
    if isinstance(node, cst.UnaryOperation):
        return _may_be_float(node.expression)
    return _is_float_operation(node) or (isinstance(node, (cst.Attribute, cst.Subscript)) and root_name(node) == "self")


class NumberRewriter(cst.CSTTransformer):
    """One function. `lines`: numbers of lines on which a tensor became a Python value; `zero_d`: names of 0-d whole tensors."""

    def __init__(self, sizes: set[str], values: set[str], hit: Any, zero_d: set[str], with_sizes: bool, lists: Iterable[str] = ()) -> None:
        super().__init__()
        self.lists = set(lists)
        self.sizes, self.values, self.hit, self.zero_d, self.with_sizes = sizes, values, hit, zero_d, with_sizes
        self.changed = False

    def _depends(self, node: cst.BaseExpression) -> bool:
        size, value = reach(node, self.sizes, self.values)
        return value or (size and self.with_sizes)

    def _made_of(self, node: cst.BaseExpression) -> bool:
        """Whether a number is made of sizes or values: y[i] of a tensor is not, though a size may be what i is."""
        size, value = reach(node, self.sizes, self.values, indices=False)
        return value or (size and self.with_sizes)

    def _value(self, node: cst.BaseExpression) -> bool:
        return reach(node, self.sizes, self.values)[1]

    def visit_Call(self, node: cst.Call) -> bool:
        return not code_of(node.func).startswith("traced_")

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        return None

    def real(self, node: cst.BaseExpression) -> cst.BaseExpression:
        """The expression with the sizes in it made real numbers."""
        if isinstance(node, cst.BinaryOperation) and _may_be_float(node):
            return node.with_changes(left=self.real(node.left), right=self.real(node.right))
        if isinstance(node, cst.UnaryOperation) and not isinstance(node.operator, cst.Not):
            return node.with_changes(expression=self.real(node.expression))
        if isinstance(node, cst.Call):
            return node
        exact = isinstance(node, cst.Float) and float(node.value) * 1024 % 1 == 0  # no rounding in single precision
        constant = (isinstance(node, cst.Float) and not exact) or (isinstance(node, (cst.Attribute, cst.Subscript)) and root_name(node) == "self")
        if self._made_of(node) or constant:
            return call("real_number", node.with_changes(lpar=[], rpar=[]) if hasattr(node, "lpar") else node)
        return node

    def leave_BinaryOperation(self, original_node: cst.BinaryOperation, updated_node: cst.BinaryOperation) -> cst.BaseExpression:
        if not is_number_expression(original_node) or not self._made_of(original_node):
            return updated_node
        divides = isinstance(original_node.operator, cst.Divide)
        if divides or (isinstance(original_node.operator, cst.Power) and not isinstance(original_node.right, cst.Integer)):
            self.changed = True
            return self.real_sides(updated_node)
        if isinstance(original_node.operator, (cst.Multiply, cst.Add, cst.Subtract)) and any(
            _is_float_operation(n) for n in (original_node.left, original_node.right)
        ):
            self.changed = True
            return self.real_sides(updated_node)
        return updated_node

    def real_sides(self, node: cst.BinaryOperation) -> cst.BinaryOperation:
        """Both operands as real numbers."""
        return node.with_changes(left=self._once(node.left), right=self._once(node.right))

    def _once(self, node: cst.BaseExpression) -> cst.BaseExpression:
        text = code_of(node)
        return node if text.startswith(("real_number(", "real_math(", "(real")) or "real_number(" in text else self.real(node)

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        func = original_node.func
        args = [a.value for a in updated_node.args]
        if isinstance(func, cst.Name) and len(args) == 1 and func.value in ("int", "float", "round"):
            inner = original_node.args[0].value
            if self._depends(inner) or self.hit(original_node):
                self.changed = True
                new = args[0] if "real_number(" in code_of(args[0]) or not _may_be_float(inner) else self.real(args[0])
                if func.value == "int":
                    signed = "-" in code_of(inner) or self._value(inner)
                    return call("whole_number", new, **({"signed": cst.Name("True")} if signed else {}))
                return call("whole_round" if func.value == "round" else "real_of", new)
        if code_of(func) == "len" and len(args) == 1 and may_be_tensor(original_node.args[0].value, self.lists):
            self.changed = True
            return call("list_length", *args)
        if isinstance(func, cst.Name) and func.value in ("min", "max") and args and any(self._value(a.value) for a in original_node.args):  # noqa: SIM102
            if all(is_number_expression(a.value) or isinstance(a.value, cst.Name) for a in original_node.args) and all(
                a.keyword is None for a in updated_node.args
            ):
                self.changed = True
                return call("extreme_number", cst.SimpleString(f'"{func.value}"'), *args)
        if isinstance(func, cst.Attribute):
            return self._method(original_node, updated_node, func, args)
        if code_of(func).rsplit(".", 1)[-1] == "pad_sequence":
            self.changed = True
            return updated_node.with_changes(func=cst.Name("padded_parts"))
        return updated_node

    def _method(self, original: cst.Call, updated: cst.Call, func: cst.Attribute, args: list[cst.BaseExpression]) -> cst.BaseExpression:
        name, root = func.attr.value, root_name(func)
        receiver = updated.func.value if isinstance(updated.func, cst.Attribute) else func.value
        if root == "math" and name in ROUNDING and any(self._depends(a.value) for a in original.args):
            self.changed = True
            return call("real_math", cst.SimpleString(f'"{name}"'), *args)
        if name == "item" and not args:
            self.changed = True
            return call("number_of", receiver)
        if name == "tolist" and not args and (self.hit(original) or root in self.values):
            self.changed = True
            return call("size_list", receiver)
        if name in ("split", "split_with_sizes") and len(args) >= 1:
            sizes = args[-1] if root == "torch" and len(args) == 2 else args[0]
            if isinstance(sizes, cst.Call) and code_of(sizes.func) == "size_list":
                self.changed = True
                held = sizes.args[0].value
                new = [a.with_changes(value=held) if a.value is sizes else a for a in updated.args]
                return cst.Call(cst.Name("split_by"), new if root == "torch" else [cst.Arg(receiver), *new])
        if (
            root == "torch"
            and name == "tensor"
            and original.args
            and isinstance(original.args[0].value, (cst.List, cst.Tuple, cst.Name, cst.Subscript))
        ):
            leaf = original.args[0].value
            if self._depends(leaf) or self.hit(original) or (isinstance(leaf, (cst.List, cst.Tuple)) and not _plain(leaf)):
                self.changed = True
                return updated.with_changes(func=cst.Name("tensor_of"))
        if name == "pad_sequence":
            self.changed = True
            return updated.with_changes(func=cst.Name("padded_parts"))
        if name in SIZE_TAKERS and self.zero_d:
            new_args = [a.with_changes(value=self.index(a.value)) for a in updated.args]
            return updated.with_changes(args=new_args)
        return updated

    def index(self, node: cst.BaseExpression) -> cst.BaseExpression:
        """A name of a 0-d tensor where a whole number is wanted."""
        if isinstance(node, cst.Name) and node.value in self.zero_d:
            self.changed = True
            return call("index_of", node)
        if isinstance(node, (cst.Tuple, cst.List)):
            return node.with_changes(elements=[e.with_changes(value=self.index(e.value)) for e in node.elements])
        if isinstance(node, cst.BinaryOperation) and any(isinstance(n, cst.Name) and n.value in self.zero_d for n in (node.left, node.right)):
            self.changed = True
            return call("index_of", node)
        return node

    def leave_Subscript(self, original_node: cst.Subscript, updated_node: cst.Subscript) -> cst.BaseExpression:
        """A slice whose ends come from values."""
        arguments = self.slices(original_node, updated_node)
        return updated_node if arguments is None else call("cut_view", updated_node.value, *arguments)

    def slices(self, original: cst.Subscript, updated: cst.Subscript) -> list[cst.BaseExpression] | None:
        """The parts of an index as arguments, where an end of a slice comes from a value."""
        if not any(isinstance(e.slice, cst.Slice) and self._open(e.slice) for e in original.slice):
            return None
        out: list[cst.BaseExpression] = []
        for e in updated.slice:
            if isinstance(e.slice, cst.Slice):
                ends = [end if end is not None else cst.Name("None") for end in (e.slice.lower, e.slice.upper)]
                step = [e.slice.step] if e.slice.step is not None else []
                whole_slice = e.slice.lower is None and e.slice.upper is None and not step
                out.append(call("slice", *([cst.Name("None")] if whole_slice else [*ends, *step])))
            else:
                assert isinstance(e.slice, cst.Index)
                out.append(e.slice.value)
        self.changed = True
        return out

    def _open(self, node: cst.Slice) -> bool:
        ends = [e for e in (node.lower, node.upper) if e is not None]
        return any(self._value(e) or any(isinstance(n, cst.Name) and n.value in self.zero_d for n in (e, *e.children)) for e in ends)

    def leave_Assign(self, original_node: cst.Assign, updated_node: cst.Assign) -> Any:
        target = original_node.targets[0].target
        if len(original_node.targets) == 1 and isinstance(target, cst.Subscript) and isinstance(updated_node.targets[0].target, cst.Call):
            made = updated_node.targets[0].target
            if code_of(made.func) == "cut_view":
                receiver, *rest = made.args
                return cst.Expr(cst.Call(cst.Name("put_view"), [receiver, cst.Arg(updated_node.value), *rest]))
        return updated_node

    def leave_AugAssign(self, original_node: cst.AugAssign, updated_node: cst.AugAssign) -> Any:
        """cut_view() gives a view, so that an in-place operator works on it once it has a name."""
        target = updated_node.target
        if isinstance(target, cst.Call) and code_of(target.func) == "cut_view":
            method = {"AddAssign": "add_", "SubtractAssign": "sub_", "MultiplyAssign": "mul_", "DivideAssign": "div_"}.get(
                type(updated_node.operator).__name__
            )
            if method is None:
                return original_node
            return cst.Expr(cst.Call(cst.Attribute(target, cst.Name(method)), [cst.Arg(updated_node.value)]))
        return updated_node

    def leave_SimpleStatementLine(self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine) -> Any:
        only = original_node.body[0]
        if len(original_node.body) == 1 and isinstance(only, cst.Expr) and isinstance(only.value, cst.Call):
            speaks = root_name(only.value.func) in TALK
            if speaks and (self._depends(only.value) or self.hit(original_node)):
                self.changed = True
                return cst.SimpleStatementLine([cst.Pass()], leading_lines=updated_node.leading_lines)
        return updated_node


def _plain(node: cst.BaseExpression) -> bool:
    """Whether a list display holds literals only."""
    if isinstance(node, (cst.List, cst.Tuple)):
        return all(_plain(e.value) for e in node.elements)
    return isinstance(node, (cst.Integer, cst.Float, cst.UnaryOperation, cst.Attribute)) or code_of(node) in ("True", "False", "None")


def rewrite_numbers(
    wrapper: cst.MetadataWrapper, function: cst.FunctionDef, lines: Iterable[int], zero_d: Iterable[str], *, sizes: bool, given: Iterable[str] = ()
) -> cst.FunctionDef | None:
    """`function` with its numbers kept in the graph, None where nothing had to change. given: parameters that hold sizes."""
    positions: Any = wrapper.resolve(PositionProvider)
    marked = set(lines)

    def hit(node: cst.CSTNode) -> bool:
        place = positions.get(node)
        return place is not None and any(place.start.line <= n <= place.end.line for n in marked)

    size_names, value_names = tainted_names(function, (), hit, given)
    rewriter = NumberRewriter(size_names, value_names, hit, set(zero_d), sizes, listed_names(function))
    body = function.body.visit(rewriter)
    return function.with_changes(body=body) if rewriter.changed else None
