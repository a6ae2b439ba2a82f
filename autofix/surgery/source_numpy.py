"""Rewrite NumPy code in functions so that it computes on tensors: numpy.f(a) -> array_...(a), a.method() -> array_method(a, ...)."""

# ruff: noqa: SIM905
from __future__ import annotations

from typing import Any

import libcst as cst

from autofix.surgery.source_names import parameter_names, root_name, uses_of
from autofix.surgery.source_nodes import call, code_of
from autofix.surgery.source_patch import add_runtime, replace_functions

UNARY = frozenset(
    (
        "exp log log2 log10 log1p expm1 sqrt sin cos tan tanh sinh cosh arctan arcsin arccos floor ceil trunc abs absolute fabs square "
        "sign negative isnan isinf isfinite rint reciprocal exp2 logical_not deg2rad rad2deg"
    ).split()
)
BINARY = frozenset(
    (
        "maximum minimum fmax fmin add subtract multiply divide true_divide power mod remainder floor_divide arctan2 hypot logical_and "
        "logical_or logical_xor equal not_equal greater greater_equal less less_equal matmul dot outer"
    ).split()
)
REDUCE = frozenset(
    ("mean sum max amax min amin std var prod any all argmax argmin median ptp count_nonzero nansum nanmean").split()  # noqa: SIM905
)
SHAPED = frozenset(
    (
        "reshape transpose flatten ravel repeat tile flip flipud fliplr cumsum cumprod diff roll take round squeeze nonzero expand_dims swapaxes"
    ).split()
)
OTHER = {
    "interp": "array_interp", "arange": "array_arange", "linspace": "array_linspace", "where": "array_where", "clip": "array_clip",
    "percentile": "array_percentile", "quantile": "array_quantile", "average": "array_average", "linalg.norm": "array_norm",
    "take_along_axis": "array_along", "pad": "array_pad", "einsum": "array_einsum", "searchsorted": "array_search", "digitize": "array_digitize",
    "histogram": "array_histogram", "bincount": "array_bincount", "meshgrid": "array_grid", "eye": "array_eye", "identity": "array_eye",
    "isclose": "array_close", "isin": "array_member", "trapezoid": "array_trapezoid", "trapz": "array_trapezoid",
    "array": "array_in", "asarray": "array_in", "ascontiguousarray": "array_in", "asanyarray": "array_in",
}  # fmt: skip
NAMED = {
    "array_moved": frozenset(
        "moveaxis broadcast_to diag diagonal trace tril triu rot90 nan_to_num argwhere flatnonzero atleast_1d atleast_2d atleast_3d".split()
    ),
    "array_cut": frozenset({"split", "array_split", "hsplit", "vsplit"}),
    "array_products": frozenset({"heaviside", "inner", "vdot", "kron", "cross", "tensordot", "convolve", "correlate"}),
}
"""Functions that are told by their name, as the first argument of a helper."""
LINALG = frozenset("inv det solve pinv slogdet matrix_power eigvalsh eigh svd cholesky qr".split())
FFT = frozenset("fft ifft rfft irfft hfft ihfft fftfreq rfftfreq fftshift ifftshift".split())
METHODS = (REDUCE - {"median", "amax", "amin", "nansum", "nanmean"}) | (SHAPED - {"tile", "flip", "flipud", "fliplr", "diff", "roll", "expand_dims"})
METHODS |= {"astype", "copy", "clip", "dot", "argsort"}
SIGNS = {
    cst.Add: "+", cst.Subtract: "-", cst.Multiply: "*", cst.Divide: "/", cst.FloorDivide: "//", cst.Modulo: "%", cst.Power: "**",
    cst.MatrixMultiply: "@",
}  # fmt: skip
MAKERS = frozenset({"from_numpy", "tensor", "as_tensor", "Tensor", "FloatTensor", "LongTensor"})


class _Names(cst.CSTVisitor):
    def __init__(self) -> None:
        self.names: set[str] = set()

    def visit_ImportAlias(self, node: cst.ImportAlias) -> None:
        if code_of(node.name) == "numpy":
            self.names.add(code_of(node.asname.name) if node.asname is not None else "numpy")


def numpy_names(module: cst.Module) -> set[str]:
    """The names under which a module has imported numpy."""
    found = _Names()
    module.visit(found)
    return found.names


class _Bindings(cst.CSTVisitor):
    def __init__(self) -> None:
        self.pairs: list[tuple[cst.BaseExpression, cst.BaseExpression]] = []

    def visit_Assign(self, node: cst.Assign) -> None:
        for target in node.targets:
            left, right = target.target, node.value
            if isinstance(left, cst.Tuple) and isinstance(right, cst.Tuple) and len(left.elements) == len(right.elements):
                self.pairs += [(t.value, v.value) for t, v in zip(left.elements, right.elements)]
            else:
                self.pairs.append((left, right))

    def visit_For(self, node: cst.For) -> None:
        self.pairs.append((node.target, node.iter))

    def visit_CompFor(self, node: cst.CompFor) -> None:
        self.pairs.append((node.target, node.iter))


class _Given(cst.CSTVisitor):
    """Names in the arguments of numpy's functions."""

    def __init__(self, rewriter: NumpyRewriter) -> None:
        self.rewriter, self.names = rewriter, set[str]()

    def visit_Call(self, node: cst.Call) -> None:
        if self.rewriter.numpy_name(node.func) and node.args:
            self.names |= uses_of(node.args[0].value).loads


class NumpyRewriter(cst.CSTTransformer):
    """One function. `names`: of numpy; `arrays`: local names that hold arrays."""

    def __init__(self, names: set[str], function: cst.FunctionDef) -> None:
        super().__init__()
        self.names, self.arrays, self.changed = names, set[str](), False
        self.local = uses_of(function.body).stores | parameter_names(function.params)
        found = _Bindings()
        function.body.visit(found)
        if function.name.value != "forward":  # what a helper hands to numpy is an array
            given = _Given(self)
            function.body.visit(given)
            self.arrays |= given.names & parameter_names(function.params)
        for _ in range(4):
            for target, value in found.pairs:
                if self.is_array(value):
                    self.arrays |= uses_of(cst.Assign([cst.AssignTarget(target)], cst.Name("None"))).stores  # type: ignore[arg-type]

    def numpy_name(self, func: cst.BaseExpression) -> str:
        """ "linalg.norm" of `np.linalg.norm`, "" for what is not numpy's."""
        head, _, rest = code_of(func).partition(".")
        return rest if head in self.names and rest.replace(".", "").replace("_", "").isalnum() else ""

    def is_array(self, node: cst.BaseExpression) -> bool:
        """Whether an expression gives an array."""
        if isinstance(node, cst.Name):
            return node.value in self.arrays
        if isinstance(node, cst.Subscript):
            return self.is_array(node.value)
        if isinstance(node, cst.BinaryOperation):
            return self.is_array(node.left) or self.is_array(node.right)
        if isinstance(node, cst.UnaryOperation):
            return self.is_array(node.expression)
        if isinstance(node, cst.Comparison):
            return self.is_array(node.left) or any(self.is_array(c.comparator) for c in node.comparisons)
        if isinstance(node, cst.IfExp):
            return self.is_array(node.body) or self.is_array(node.orelse)
        if isinstance(node, cst.Attribute):
            return node.attr.value in ("T", "real") and self.is_array(node.value)
        if isinstance(node, (cst.ListComp, cst.GeneratorExp)):
            return self.is_array(node.elt)
        if isinstance(node, (cst.List, cst.Tuple)):
            return any(self.is_array(e.value) for e in node.elements)
        if isinstance(node, cst.Call):
            if isinstance(node.func, cst.Name):
                return node.func.value in ("zip", "enumerate", "reversed", "list", "tuple") and any(self.is_array(a.value) for a in node.args)
            if isinstance(node.func, cst.Attribute) and (self.numpy_name(node.func) or node.func.attr.value == "numpy"):
                return True
            return isinstance(node.func, cst.Attribute) and node.func.attr.value in METHODS and self.is_array(node.func.value)
        return False

    def visit_FunctionDef(self, node: cst.FunctionDef) -> bool:
        return True

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        func = original_node.func
        if code_of(func) == "len" and self.is_array(original_node.args[0].value):
            self.changed = True
            return cst.parse_expression(f"{code_of(updated_node.args[0].value)}.shape[0]")
        if not isinstance(func, cst.Attribute):
            return updated_node
        args, name = list(updated_node.args), self.numpy_name(func)
        if name:
            return self._function(name, args, updated_node)
        receiver = updated_node.func.value if isinstance(updated_node.func, cst.Attribute) else func.value
        method = func.attr.value
        if method == "numpy":
            self.changed = True
            return call("array_in", receiver)
        made = root_name(func) == "torch" and method in MAKERS and args
        if made and (self.is_array(original_node.args[0].value) or (isinstance(args[0].value, cst.Name) and args[0].keyword is None)):
            self.changed = True
            kind = {"Tensor": "float32", "FloatTensor": "float32", "LongTensor": "int64"}.get(method)
            more = {"dtype": cst.parse_expression(f"torch.{kind}")} if kind else {}
            return call("tensor_from", args[0].value, **more).with_changes(args=[*call("tensor_from", args[0].value, **more).args, *args[1:]])
        if method in METHODS and (self.is_array(func.value) or method == "astype"):
            self.changed = True
            return cst.Call(cst.Name("array_method"), [cst.Arg(receiver), cst.Arg(cst.SimpleString(f'"{method}"')), *args])
        return updated_node

    def _function(self, name: str, args: list[cst.Arg], updated: cst.Call) -> cst.BaseExpression:
        """A call of numpy.name."""
        first: list[cst.Arg] = []
        if name in UNARY | BINARY | REDUCE | SHAPED:
            new = "unary" if name in UNARY else "binary" if name in BINARY else "reduce" if name in REDUCE else "shaped"
            new, first = f"array_{new}", [cst.Arg(cst.SimpleString(f'"{"matmul" if name == "dot" else name}"'))]
        elif name in ("sort", "argsort"):
            new, first = "array_order", [cst.Arg(cst.SimpleString(f'"{name}"'))]
        elif name in ("stack", "concatenate", "vstack", "hstack", "column_stack", "dstack"):
            new, first = "array_join", [cst.Arg(cst.SimpleString(f'"{name}"'))]
        elif name in ("zeros", "ones", "empty", "full"):
            new = "array_filled"
            if name != "full":
                args = [*args[:1], cst.Arg(cst.Float("1.0" if name == "ones" else "0.0")), *args[1:]]
        elif name in ("zeros_like", "ones_like", "empty_like", "full_like"):
            new = "array_filled"
            like = cst.Arg(args[0].value, keyword=cst.Name("like"), equal=cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace("")))
            fill = args.pop(1).with_changes(keyword=None) if name == "full_like" else cst.Arg(cst.Float("1.0" if name == "ones_like" else "0.0"))
            args = [cst.Arg(cst.Name("None")), fill, *args[1:], like]
        elif name in ("maximum.accumulate", "minimum.accumulate"):
            new, first = "array_running", [cst.Arg(cst.SimpleString(f'"{name.partition(".")[0]}"'))]
        elif name.startswith("linalg.") and name[7:] in LINALG:
            new, first = "array_linalg", [cst.Arg(cst.SimpleString(f'"{name[7:]}"'))]
        elif name.startswith("fft.") and name[4:] in FFT:
            new, first = "array_fft", [cst.Arg(cst.SimpleString(f'"{name[4:]}"'))]
        elif any(name in names for names in NAMED.values()):
            new = next(helper for helper, names in NAMED.items() if name in names)
            first = [cst.Arg(cst.SimpleString(f'"{name}"'))]
        elif name in ("float32", "float64", "int64", "int32") and len(args) == 1:
            new, args = "array_in", [*args, cst.Arg(cst.SimpleString(f'"{name}"'))]
        elif name in OTHER:
            new = OTHER[name]
            args = [a for a in args if a.keyword is None or a.keyword.value != "copy"]
        else:
            return updated
        self.changed = True
        return updated.with_changes(func=cst.Name(new), args=[*first, *args])

    def _constant(self, node: cst.BaseExpression) -> bool:
        """An attribute of the model or a global that may be a numpy array."""
        return root_name(node) == "self" if isinstance(node, cst.Attribute) else isinstance(node, cst.Name) and node.value not in self.local

    def leave_BinaryOperation(self, original_node: cst.BinaryOperation, updated_node: cst.BinaryOperation) -> cst.BaseExpression:
        sign = SIGNS.get(type(original_node.operator))
        if sign is None or not self.is_array(original_node):
            return updated_node
        self.changed = True
        left, right = (n.with_changes(lpar=[], rpar=[]) for n in (updated_node.left, updated_node.right))
        return call("array_op", cst.SimpleString(f'"{sign}"'), left, right)

    def leave_Comparison(self, original_node: cst.Comparison, updated_node: cst.Comparison) -> cst.BaseExpression:
        only = original_node.comparisons[0]
        if len(original_node.comparisons) == 1 and self.is_array(original_node) and self._constant(only.comparator):
            self.changed = True
            return updated_node.with_changes(comparisons=[updated_node.comparisons[0].with_changes(comparator=call("array_in", only.comparator))])
        return updated_node

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.BaseExpression:
        if original_node.attr.value == "T" and self.is_array(original_node.value):
            self.changed = True
            return call("array_shaped", cst.SimpleString('"transpose"'), updated_node.value)
        if original_node.attr.value == "size" and self.is_array(original_node.value):
            self.changed = True
            return cst.Call(cst.Attribute(updated_node.value, cst.Name("numel")))
        return updated_node

    def leave_Subscript(self, original_node: cst.Subscript, updated_node: cst.Subscript) -> cst.BaseExpression:
        """`a[::-1]`, `a[:, ::-1]`: tensors know no steps backwards."""
        if not self.is_array(original_node.value):
            return updated_node
        slices = [e.slice for e in original_node.slice]
        back = [i for i, s in enumerate(slices) if isinstance(s, cst.Slice) and s.step is not None and code_of(s.step) == "-1"]
        dots = [i for i, s in enumerate(slices) if code_of(s) == "..."]
        if not back or not all((isinstance(s, cst.Slice) and s.lower is None and s.upper is None) or i in dots for i, s in enumerate(slices)):
            return updated_node
        self.changed = True
        back = [i - len(slices) if dots and i > dots[0] else i for i in back]
        axes = cst.parse_expression(f"[{', '.join(map(str, back))}]")
        return cst.Call(cst.Name("array_shaped"), [cst.Arg(cst.SimpleString('"flip"')), cst.Arg(updated_node.value), cst.Arg(axes)])

    def _rows(self, original: cst.BaseExpression, updated: cst.BaseExpression) -> cst.BaseExpression:
        """What a loop runs over, marked where it is an array: how many rows there are may be known only at run time."""
        if isinstance(original, cst.Call):
            return updated
        self.changed = True
        return call("array_rows", updated)

    def leave_For(self, original_node: cst.For, updated_node: cst.For) -> cst.For:
        if self.is_array(original_node.iter):
            return updated_node.with_changes(iter=self._rows(original_node.iter, updated_node.iter))
        return updated_node

    def leave_CompFor(self, original_node: cst.CompFor, updated_node: cst.CompFor) -> cst.CompFor:
        if self.is_array(original_node.iter):
            return updated_node.with_changes(iter=self._rows(original_node.iter, updated_node.iter))
        return updated_node


def rewrite_numpy(text: str, functions: list[str]) -> str:
    """`text` with the NumPy code of `functions` (qualified names) on tensors; `text` itself where there is none."""
    module = cst.parse_module(text)
    names = numpy_names(module)
    wanted = set(functions)
    if not names and ".numpy(" not in text:
        return text

    def change(wrapper: cst.MetadataWrapper, name: str, node: cst.FunctionDef) -> Any:
        if name not in wanted:
            return None
        rewriter = NumpyRewriter(names, node)
        body = node.body.visit(rewriter)
        return node.with_changes(body=body) if rewriter.changed else None

    new = replace_functions(text, change)
    return text if new == text else add_runtime(new, text)
