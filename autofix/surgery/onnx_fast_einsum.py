"""Einsum of two operands as one MatMul between a transpose and a regrouping of axes.

ONNX Runtime's Einsum transposes its operands number by number before it multiplies; a Transpose of the last two axes goes into its MatMul.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx

from autofix.surgery.onnx_fast_nodes import FastGraph
from autofix.surgery.onnx_types import onnx_attribute
from autofix.surgery.onnx_writer import OnnxWriter


@dataclass(frozen=True)
class Product:
    """A product of two operands: their letters and the result's, those that all three share (batch), that are summed over, and that are one's own."""

    terms: tuple[str, str]
    result: str
    batch: str
    summed: str
    own: tuple[str, str]


def read_product(equation: str) -> Product | None:
    """An equation with two operands, no ellipsis, no letter twice in a term and something to sum over; else None."""
    equation = equation.replace(" ", "")
    left, arrow, result = equation.partition("->")
    terms = left.split(",")
    if len(terms) != 2 or "." in equation:
        return None
    first, second = terms
    if not arrow:  # letters that stand once, in their order
        result = "".join(sorted(c for c in set(first + second) if (first + second).count(c) == 1))
    if any(len(set(t)) != len(t) for t in (first, second, result)) or not set(result) <= set(first + second):
        return None
    shared = set(first) & set(second)
    if not set(first) ^ set(second) <= set(result):
        return None
    own = [[c for c in result if c in term and c not in shared] for term in terms]
    summed = "".join(c for c in first if c in shared and c not in result)
    return Product((first, second), result, "".join(c for c in result if c in shared), summed, ("".join(own[0]), "".join(own[1]))) if summed else None


def arranged(w: OnnxWriter, x: str, letters: str, wanted: str) -> str:
    """x with axes in another order."""
    return x if letters == wanted else w.op("Transpose", x, perm=[letters.index(c) for c in wanted])


def fast_einsum(w: OnnxWriter, node: onnx.NodeProto, known: FastGraph) -> bool:
    """Einsum(a, b) = MatMul of [batch, own of a, summed] and [batch, summed, own of b], or the other way round where that is the result's order."""
    found = read_product(onnx_attribute(node, "equation", b"").decode())
    if found is None or not all(known.is_float(x) for x in node.input):
        return False
    order = (1, 0) if found.result == found.batch + found.own[1] + found.own[0] and found.own[0] and found.own[1] else (0, 1)
    (x, y), (one, two), (left, right) = ([pair[k] for k in order] for pair in (list(node.input), found.terms, found.own))
    sizes: dict[str, str] = {}
    for name, letters in ((x, one), (y, two)):
        for place, letter in enumerate(letters):
            if letter not in sizes:
                fixed = known.size(name, place)
                sizes[letter] = w.const([fixed]) if fixed is not None else w.size(name, place)
    x = arranged(w, x, one, found.batch + left + found.summed)
    y = arranged(w, y, two, found.batch + found.summed + right)

    def joined(value: str, *groups: str) -> str:
        """The axes of each group as one."""
        if all(len(g) == 1 for g in groups):
            return value
        return w.op("Reshape", value, w.shape_of(*[sizes[c] for c in found.batch], *[product_of(g) for g in groups]), **w.keep_zeros())

    def product_of(group: str) -> str:
        total = sizes[group[0]] if group else w.const([1])
        for letter in group[1:]:
            total = w.op("Mul", total, sizes[letter])
        return total

    value = w.op("MatMul", joined(x, left, found.summed), joined(y, found.summed, right))
    letters = found.batch + left + right
    if not (len(left) == len(right) == 1):
        shape = w.shape_of(*[sizes[c] for c in letters]) if letters else w.const([])
        value = w.op("Reshape", value, shape, **w.keep_zeros())
    w.op("Identity", arranged(w, value, letters, found.result), out=node.output[0])
    return True


FAST_EINSUM = {"Einsum": fast_einsum}
