"""Which values of a file are right, as far as their pairing with PyTorch's values tells.

trusted_values(model, values, paired, eager) -> names. paired: {value name: index into eager, -1 for sizes, None}; pairs that are equal by chance
are dissolved in place.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from autofix.pairing import EagerValue, relative_error

FAITHFUL_NAMES = (
    "Add Sub Mul Div Neg Not Reciprocal Sqrt Exp Log Identity Transpose Reshape Flatten Unsqueeze Squeeze Concat Expand MatMul Gemm Conv "
    "ConvTranspose Tanh Sigmoid Erf Sin Cos ReduceSum ReduceMean GlobalAveragePool AveragePool Resize"
)
FAITHFUL = frozenset(FAITHFUL_NAMES.split())
"""Operators that hardly ever give a right result for a wrong input."""
FAMILIES = (
    {"linear", "addmm", "mm", "matmul", "bmm", "baddbmm"},
    {"convolution", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"},
    {"select", "slice", "index_select"},
    {"sym_size", "sym_numel"},
)
"""Names of one operation at different levels of PyTorch."""


def base_name(operator: str) -> str:
    """`softmax` of `aten._softmax.default`."""
    parts = operator.split(".")
    return (parts[1] if len(parts) > 1 else operator).strip("_").removeprefix("native_")


def same_family(a: str, b: str) -> bool:
    """Whether two operator names stand for one operation."""
    x, y = base_name(a), base_name(b)
    return x == y or any(x in f and y in f for f in FAMILIES)


def noted_operator(node: Any) -> str:
    """The aten operator that the exporter noted for a node, or an empty string."""
    text = next((p.value for p in node.metadata_props if p.key == "pkg.torch.onnx.fx_node"), "")
    return text.partition("target=torch.ops.")[2].partition("]")[0].partition("(")[0].strip() if "target=torch.ops." in text else ""


def input_names(node: Any) -> list[str]:
    """What a node reads, in its subgraphs too."""
    names = [i for i in node.input if i]
    for attribute in node.attribute:
        for graph in [attribute.g] if attribute.HasField("g") else []:
            own = {o for n in graph.node for o in n.output} | {t.name for t in graph.initializer} | {i.name for i in graph.input}
            names += [i for n in graph.node for i in input_names(n) if i not in own]
            names += [o.name for o in graph.output if o.name not in own]
    return names


def trusted_values(model: Any, values: dict[str, Any], paired: dict[str, int | None], eager: list[EagerValue]) -> set[str]:
    """Values with a partner, sizes, and what such values were made from by faithful operators."""
    producer = {name: node for node in model.graph.node for name in node.output if name}
    for name in size_values(model, values):
        paired[name] = -1 if paired.get(name) is None else paired[name]
    dissolve_chance_pairs(model, values, paired, eager, producer)
    trusted = {n for n, p in paired.items() if p is not None}
    telling = {n for n in trusted if (paired[n] or 0) >= 0 and n in values and tells(values[n])}
    for node in reversed(model.graph.node):
        out = node.output[0] if node.output else ""
        if out not in telling or node.op_type not in FAITHFUL:
            continue
        for name in node.input:
            if name in producer and name in values and name not in trusted and passes_on(node, name, values, out):
                trusted.add(name)
                telling.add(name)
    return trusted


def tells(array: Any) -> bool:
    """Whether a value is no constant, so that equality means something."""
    return array.size >= 3 and bool((array.reshape(-1) != array.reshape(-1)[0]).any())


def passes_on(node: Any, name: str, values: dict[str, Any], out: str) -> bool:
    """Whether an error in this input would show in the output: not beside much larger values, nor where it is multiplied by 0."""
    value, result = values[name], values[out]
    if value.dtype.kind != "f" or result.dtype.kind != "f":
        return bool(value.dtype == result.dtype)
    if node.op_type == "Mul":
        return all(bool(values[i].all()) for i in node.input if i in values and i != name)
    if node.op_type in ("Add", "Sub", "Concat"):
        return largest(value) >= 0.1 * largest(result)
    return True


def largest(array: Any) -> float:
    """The largest finite magnitude."""
    finite = np.abs(array[np.isfinite(array)])
    return float(finite.max()) if finite.size else 0.0


def size_values(model: Any, values: dict[str, Any]) -> set[str]:
    """Whole numbers and single numbers that follow from sizes and constants alone: Python numbers in eager, taken to be right."""
    known = {t.name for t in model.graph.initializer}
    static: set[str] = set()
    for node in model.graph.node:
        inputs = input_names(node)
        if node.op_type in ("Shape", "Size", "Constant") or (inputs and all(i in known or i in static for i in inputs)):
            static.update(o for o in node.output if o)
    return {n for n in static if n not in values or values[n].dtype.kind in "iub" or values[n].size == 1}


def partners_above(node: Any, paired: dict[str, int | None], producer: dict[str, Any]) -> set[int]:
    """Eager values that a node reads, through values without a partner."""
    found: set[int] = set()
    seen: set[str] = set()
    stack = input_names(node)
    while stack:
        name = stack.pop()
        if name in seen:
            continue
        seen.add(name)
        partner = paired.get(name)
        if partner is not None and partner >= 0:
            found.add(partner)
        elif partner is None and name in producer:
            stack += input_names(producer[name])
    return found


def dissolve_chance_pairs(
    model: Any, values: dict[str, Any], paired: dict[str, int | None], eager: list[EagerValue], producer: dict[str, Any]
) -> None:
    """Take back pairs that are equal by chance, where the eager value that the node should have given is left without a partner: the
    exporter noted another operator; the node hands on what it reads though it should not; or it gives again what a like node gave."""
    matched = {p for p in paired.values() if p is not None and p >= 0}
    readers: dict[str, list[Any]] = {}
    for node in model.graph.node:
        for name in input_names(node):
            readers.setdefault(name, []).append(node)
    claims: dict[tuple[int, str], int] = {}

    def left_over(node: Any, operator: str, read: set[int]) -> bool:
        """Whether a result of this operator, of the node's size and made from what it reads, is without a partner."""
        out = values[node.output[0]]
        candidates = (v for i, v in enumerate(eager) if i not in matched and v.array.size == out.size and same_family(v.operator, operator))
        return any((not v.sources or read & set(v.sources)) and relative_error(out, v.array) > 1e-6 for v in candidates)

    def last_of_its_kind(node: Any, noted: str) -> bool:
        """Whether a node is the last that the exporter wrote for an operator: what it gives must be the whole result."""
        if not noted:
            return node.op_type in ("Gemm", "Softmax", "LayerNormalization", "Gelu")
        return not any(same_family(noted_operator(r), noted) for r in readers.get(node.output[0], [])) and bool(readers.get(node.output[0]))

    def skipped(partner: int, out: Any) -> bool:
        """Whether an operator that reads this eager value, and gives another of its size, is without a partner."""
        readers = (v for i, v in enumerate(eager) if i not in matched and partner in v.sources and v.inside < 0 and v.array.size == out.size)
        return any(relative_error(out, v.array) > 1e-6 for v in readers)

    for node in model.graph.node:
        out = node.output[0] if node.output else ""
        partner = paired.get(out)
        if partner is None or partner < 0 or out not in values:
            continue
        one, noted = eager[partner], noted_operator(node)
        read = partners_above(node, paired, producer)
        hands_on = any(paired.get(i) == partner for i in node.input)
        unfinished = one.inside >= 0 and one.inside not in matched
        claim = (partner, node.op_type)
        claims[claim] = claims.get(claim, 0) + 1
        if noted and not same_family(noted, one.operator):
            by_chance = left_over(node, noted, read)
        elif unfinished and not hands_on and last_of_its_kind(node, noted):
            by_chance = True
        elif hands_on:
            by_chance = unfinished and (bool(noted) or (node.op_type == "Identity" and eager[one.inside].array.size == one.array.size))
            by_chance |= node.op_type == "Identity" and not noted and skipped(partner, values[out])
        else:
            twins = sum(v.operator == one.operator and relative_error(v.array, one.array) <= 1e-6 for v in eager) if claims[claim] > 1 else 1
            by_chance = claims[claim] > twins and left_over(node, noted or one.operator, read)
        if by_chance:
            paired[out] = None
