"""Which nodes of an ONNX graph form a chain of element-wise operators, and how its tensors fall into blocks."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import onnx

from autofix.surgery.onnx_fast_nodes import FastGraph, Shape, fast_reads
from autofix.surgery.onnx_types import onnx_attribute

BLOCK_OPERATORS = frozenset(  # a list would take a line for each
    """Abs Acos Acosh Add And Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast Ceil Celu Clip Cos Cosh Div Elu Equal
    Erf Exp Floor Gelu Greater GreaterOrEqual HardSigmoid HardSwish Identity IsInf IsNaN LeakyRelu Less LessOrEqual Log Max Mean Min Mish Mod Mul
    Neg Not Or PRelu Pow Reciprocal Relu Round Selu Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Sub Sum Tan Tanh ThresholdedRelu Where
    Xor""".split()  # noqa: SIM905
)
BLOCK_REDUCTIONS = frozenset(("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare"))
BLOCK_SIZE, LEAST_BLOCK_SIZE, MOST_BLOCK_SIZE = 24_000, 4_000, 140_000
"""Numbers in a block: about 100 KB, a few of which fit a core's second-level cache."""
LEAST_NUMBERS = 200_000
"""Numbers in a tensor from which on it does not stay in that cache."""
LEAST_NODES = 3
WORTH_NO_RESHAPE = 1.5
"""How far a block may be from the best size, as a power of e, where the Scan then has the chain's own shape: reshaping a graph's output copies it."""
MOST_REPEATED = 0.1
"""Part of a tensor's size that an operand repeated over the blocks may take."""


@dataclass
class BlockGroup:
    """Nodes of one chain, and those of the graph that must come before and after them, all in order."""

    shape: Shape
    before: list[onnx.NodeProto] = field(default_factory=list)
    members: list[onnx.NodeProto] = field(default_factory=list)
    after: list[onnx.NodeProto] = field(default_factory=list)


@dataclass(frozen=True)
class BlockCut:
    """How a shape falls into blocks: the first `lead` axes are counted through; the next one is split into parts of `part` first where that is
    not 0."""

    lead: int
    part: int

    @property
    def keeps_shape(self) -> bool:
        """Whether the blocks lie along the first axis alone, as it is."""
        return self.lead == 1 and not self.part

    def blocked(self, shape: Shape, rank: int) -> tuple[Shape, Shape]:
        """(sizes that are counted through, sizes of one block) of a value that is broadcast to `rank` axes; the former are () where the value has
        none of those axes."""
        missing = rank - len(shape)
        leading, rest = shape[: max(0, self.lead - missing)], shape[max(0, self.lead - missing) :]
        if self.part and missing <= self.lead:
            size = rest[0]
            assert isinstance(size, int)
            leading = (*leading, 1 if size == 1 else size // self.part)
            rest = (1 if size == 1 else self.part, *rest[1:])
        return leading, rest


def block_reduction(node: onnx.NodeProto, known: FastGraph) -> list[int] | None:
    """The axes of a reduction over axes of a known input, none of them the first; None for any other node."""
    if node.op_type not in BLOCK_REDUCTIONS:
        return None
    rank, axes = known.rank(node.input[0]), onnx_attribute(node, "axes")
    if axes is None and len(node.input) > 1 and node.input[1]:
        axes = known.numbers(node.input[1])
    if rank is None or not axes or not known.is_float(node.input[0]):
        return None
    found = sorted(a % rank for a in axes)
    return found if found[0] > 0 else None


def block_shape(node: onnx.NodeProto, known: FastGraph) -> Shape | None:
    """The shape of an element-wise node's result where it is known well enough and large, else None."""
    if node.op_type not in BLOCK_OPERATORS or node.domain not in ("", "ai.onnx") or len(node.output) != 1:
        return None
    shape = known.shapes.get(node.output[0])
    if shape is None or "" in shape or any(known.types.get(n) is None or n not in known.shapes for n in (*node.input, *node.output) if n):
        return None
    return shape if len(shape) > 0 and math.prod(d for d in shape if isinstance(d, int)) > 0 else None


def block_group(nodes: list[onnx.NodeProto], start: int, known: FastGraph) -> BlockGroup:
    """The chain that begins with an element-wise node: all later nodes of its shape that need nothing which comes after the chain."""
    shape = block_shape(nodes[start], known)
    assert shape is not None
    group = BlockGroup(shape, before=list(nodes[:start]))
    inside: set[str] = set()
    late: set[str] = set()
    for node in nodes[start:]:
        reads = set(fast_reads(node))
        if reads & late:
            group.after.append(node)
            late.update(node.output)
        elif block_shape(node, known) == shape or (node.input and node.input[0] in inside and reduces_shape(node, shape, known)):
            group.members.append(node)
            inside.update(node.output)
        elif reads & inside:
            group.after.append(node)
            late.update(node.output)
        else:
            group.before.append(node)
    return group


def reduces_shape(node: onnx.NodeProto, shape: Shape, known: FastGraph) -> bool:
    """Whether a node is a reduction of a value of this shape, with a result of a known one."""
    if block_reduction(node, known) is None:
        return False
    return known.shapes.get(node.input[0]) == shape and node.output[0] in known.shapes and known.types.get(node.output[0]) is not None


def block_cut(group: BlockGroup, known: FastGraph) -> BlockCut | None:
    """The cut whose blocks come nearest to the best size, or None."""
    shape = group.shape
    reduced = [a for node in group.members for a in block_reduction(node, known) or []]
    found: list[tuple[float, BlockCut]] = []
    for lead in range(len(shape)):
        rest = shape[lead:]
        if not all(isinstance(d, int) for d in rest) or any(a < lead for a in reduced):
            continue
        sizes = [int(d) for d in rest]
        parts = [0] if lead else []
        if lead not in reduced:
            parts += [p for p in range(1, sizes[0]) if sizes[0] % p == 0]
        for part in parts:
            size = (part or sizes[0]) * math.prod(sizes[1:])
            if LEAST_BLOCK_SIZE <= size <= MOST_BLOCK_SIZE:
                cut = BlockCut(lead, part)
                found.append((abs(math.log(size / BLOCK_SIZE)) + (0.0 if cut.keeps_shape else WORTH_NO_RESHAPE), cut))
    for _, cut in sorted(found, key=lambda entry: (entry[0], entry[1].part)):
        counted, _ = cut.blocked(shape, len(shape))
        several = any(d != 1 for d in counted)
        if several and all(block_operand(name, cut, group, known) != "no" for name in block_operands(group)):
            return cut
    return None


def block_operands(group: BlockGroup) -> list[str]:
    """What the chain reads from outside, each name once; the axes of reductions apart."""
    made = {o for node in group.members for o in node.output}
    names = [n for node in group.members for n in (node.input[:1] if node.op_type in BLOCK_REDUCTIONS else node.input)]
    return [n for n in dict.fromkeys(names) if n and n not in made]


def block_operand(name: str, cut: BlockCut, group: BlockGroup, known: FastGraph) -> str:
    """How an operand comes in: "whole" as it is, "reshaped" the same for every block, "scanned", "repeated" first, or "no"."""
    shape, rank = known.shapes[name], len(group.shape)
    leading, rest = cut.blocked(shape, rank)
    counted, block = cut.blocked(group.shape, rank)
    if not leading:
        return "whole"
    if "" in shape:
        return "no"
    if all(d == 1 for d in leading):
        return "reshaped" if all(isinstance(d, int) for d in rest) else "no"
    if not all(isinstance(d, int) for d in rest):
        return "no"
    if leading == counted:
        return "scanned"
    small = math.prod(int(d) for d in rest) <= MOST_REPEATED * math.prod(int(d) for d in block)
    return "repeated" if small and all(isinstance(d, int) for d in counted) else "no"


def block_worth(group: BlockGroup, known: FastGraph) -> bool:
    """Whether a chain is long and large enough to gain."""
    numbers = math.prod(d for d in group.shape if isinstance(d, int))
    return len(group.members) >= LEAST_NODES and (numbers >= LEAST_NUMBERS or (not all(isinstance(d, int) for d in group.shape) and numbers > 4096))
