"""An exported program without complex numbers: each complex value becomes a pair of real ones.

The program is made functional first. Nodes that touch no complex value are copied as they stand; the others are traced
again, one by one, over the parts of their operands (complex_tensor.py). Complex parameters, buffers, constants, inputs and
outputs become real tensors with a last axis of 2, as torch.view_as_real lays them out.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

from autofix.surgery.complex_elementwise import COMPLEX_ELEMENTWISE
from autofix.surgery.complex_factors import COMPLEX_FACTORS
from autofix.surgery.complex_functions import COMPLEX_FUNCTIONS
from autofix.surgery.complex_inverses import COMPLEX_INVERSES
from autofix.surgery.complex_linalg import COMPLEX_COMPOSITE, COMPLEX_LINALG
from autofix.surgery.complex_products import COMPLEX_PRODUCTS
from autofix.surgery.complex_structure import COMPLEX_STRUCTURE
from autofix.surgery.complex_tensor import PairMode, RealPair, pair_flatten, pair_unflatten
from autofix.surgery.fft_rules import FFT_RULES


class NodePair:
    """The two nodes of the new graph that stand for a complex node of the old one."""

    def __init__(self, re: Any, im: Any) -> None:
        self.re, self.im = re, im


def complex_is(value: Any) -> bool:
    """Whether a node's meta value is a complex tensor."""
    return isinstance(value, torch.Tensor) and value.is_complex()


def complex_node_touches(node: Any) -> bool:
    """Whether a node reads or makes a complex value."""
    args = [a.meta.get("val") for a in node.all_input_nodes]
    return any(map(complex_is, tree_leaves([args, node.meta.get("val")])))


class ComplexRewriter:
    """Builds the new graph of one exported program."""

    def __init__(self, program: Any) -> None:
        self.program = program
        self.module = program.graph_module
        self.graph = torch.fx.Graph()
        self.env: dict[Any, Any] = {}
        self.table = {
            **COMPLEX_ELEMENTWISE,
            **COMPLEX_FUNCTIONS,
            **COMPLEX_INVERSES,
            **COMPLEX_PRODUCTS,
            **COMPLEX_LINALG,
            **COMPLEX_FACTORS,
            **COMPLEX_STRUCTURE,
            **FFT_RULES,
        }
        self.constants: list[tuple[str, torch.Tensor]] = []
        self.first: Any = None
        self.fake_mode = next(
            leaf.fake_mode for node in self.module.graph.nodes for leaf in tree_leaves(node.meta.get("val")) if hasattr(leaf, "fake_mode")
        )

    def run(self) -> Any:
        """The new ExportedProgram."""
        for node in self.module.graph.nodes:
            getattr(self, "do_" + node.op)(node)
        complex_merge_parts(self.graph)
        self.graph.eliminate_dead_code()
        return self.assemble()

    def value_of(self, node: Any) -> Any:
        """What the old node's fake value is for rules: a RealPair of fake parts where the node is complex."""
        here = self.env[node]
        return tree_map(
            lambda n: (
                RealPair(n.re.meta["val"], n.im.meta["val"]) if isinstance(n, NodePair) else n.meta["val"] if isinstance(n, torch.fx.Node) else n
            ),
            here,
        )

    def do_placeholder(self, node: Any) -> None:
        """Copy; a complex one gets a real value with a last axis of 2 and is taken apart."""
        value = node.meta.get("val")
        new = self.graph.placeholder(node.name)
        new.meta = dict(node.meta)
        self.env[node] = new
        if complex_is(value):
            with self.fake_mode:
                new.meta["val"] = torch.stack([torch.real(value), torch.imag(value)], -1)

    def do_get_attr(self, node: Any) -> None:
        """Copy (submodules of control flow)."""
        self.env[node] = self.graph.node_copy(node, lambda n: self.env[n])

    def do_call_function(self, node: Any) -> None:
        """Copy a node without complex values, expand the others."""
        if node.target is operator.getitem and not isinstance(self.env[node.args[0]], torch.fx.Node):
            self.env[node] = self.env[node.args[0]][node.args[1]]
        elif node.target is torch.ops.aten._neg_view.default:
            self.env[node] = self.graph.call_function(torch.ops.aten.neg.default, (self.env[node.args[0]],))
            self.env[node].meta = dict(node.meta)
        elif complex_node_touches(node) or any(not isinstance(self.env[a], torch.fx.Node) for a in node.all_input_nodes):
            self.expand(node)
        else:
            self.env[node] = self.graph.node_copy(node, lambda n: self.env[n])

    def parts_of(self, node: Any) -> Any:
        """The new node, or the pair of nodes, that holds an old node's value; complex placeholders are split at first use."""
        here = self.env[node]
        if isinstance(here, torch.fx.Node) and complex_is(node.meta.get("val")):
            halves = []
            for i in (0, 1):
                half = self.graph.call_function(torch.ops.aten.select.int, (here, -1, i))
                with self.fake_mode:
                    half.meta["val"] = torch.select(here.meta["val"], -1, i)
                halves.append(half)
            here = self.env[node] = NodePair(*halves)
        return here

    def expand(self, node: Any) -> None:
        """Trace one complex node again over its parts and splice the trace in."""
        if not isinstance(node.target, torch._ops.OpOverload):
            raise NotImplementedError(f"{node.target} with complex numbers")
        leaves, spec = tree_flatten((node.args, node.kwargs))
        sources: list[Any] = []  # new nodes, in the order of the traced function's arguments
        values: list[Any] = []
        plan: list[tuple[str, Any]] = []
        for leaf in leaves:
            if isinstance(leaf, torch.fx.Node):
                flat, how = pair_flatten_nodes(self.parts_of(leaf))
                plan.append(("nodes", (len(flat), how)))
                sources.extend(flat)
                values.extend(n.meta["val"] for n in flat)
            else:
                plan.append(("plain", leaf))
        result_form: list[Any] = []

        def traced(*inputs: Any) -> Any:
            rest = iter(inputs)
            rebuilt = []
            for kind, what in plan:
                if kind == "plain":
                    rebuilt.append(what)
                else:
                    count, how = what
                    rebuilt.append(pair_unflatten([next(rest) for _ in range(count)], how))
            args, kwargs = tree_unflatten(rebuilt, spec)
            with PairMode(self.table):
                whole = COMPLEX_COMPOSITE.get(node.target)
                out = whole(node.target, *args, **kwargs) if whole else node.target(*args, **kwargs)
            flat, how = pair_flatten(out)
            result_form.append(how)
            return flat

        before = self.fake_mode.allow_non_fake_inputs
        self.fake_mode.allow_non_fake_inputs = True
        try:
            with self.fake_mode:
                trace = make_fx(traced)(*values)
        finally:
            self.fake_mode.allow_non_fake_inputs = before
        new_flat = self.splice(trace, sources, node)
        form = result_form[-1]
        built = pair_unflatten(new_flat, form, NodePair)
        self.check(node, built)
        self.env[node] = built

    def splice(self, trace: Any, sources: list[Any], origin: Any) -> list[Any]:
        """Copy the nodes of a trace behind the new graph's end; its tensor constants become placeholders."""
        inner: dict[Any, Any] = {}
        rest = iter(sources)
        for node in trace.graph.nodes:
            if node.op == "placeholder":
                inner[node] = next(rest)
            elif node.op == "get_attr":
                inner[node] = self.constant(getattr(trace, node.target))
            elif node.op == "output":
                return [inner[a] if isinstance(a, torch.fx.Node) else a for a in node.args[0]]
            else:
                inner[node] = self.graph.node_copy(node, lambda n: inner[n])
                for key in ("stack_trace", "nn_module_stack", "source_fn_stack", "from_node"):
                    if key in origin.meta:
                        inner[node].meta[key] = origin.meta[key]
        raise AssertionError("a trace without output")

    def constant(self, value: torch.Tensor) -> Any:
        """A placeholder for a tensor constant; equal ones are shared."""
        for name, known in self.constants:
            if known.dtype == value.dtype and known.shape == value.shape and torch.equal(known, value):
                return next(n for n in self.graph.nodes if n.name == name)
        if complex_is(value):
            raise NotImplementedError("a complex constant inside an operator")
        first = next(iter(self.graph.nodes))
        with self.graph.inserting_before(first):
            node = self.graph.placeholder(f"pair_constant_{len(self.constants)}")
        node.meta["val"] = self.fake_mode.from_tensor(value, static_shapes=True)
        self.constants.append((node.name, value))
        return node

    def check(self, node: Any, built: Any) -> None:
        """The new values must have the shapes and dtypes of the old ones."""
        olds, news = tree_leaves(node.meta.get("val")), tree_leaves(built)
        if len(olds) != len(news):
            raise NotImplementedError(f"{node.target}: {len(news)} results instead of {len(olds)}")
        for old, new in zip(olds, news, strict=True):
            parts = [new.re, new.im] if isinstance(new, NodePair) else [new]
            for part in parts:
                if not isinstance(old, torch.Tensor) or not isinstance(part, torch.fx.Node):
                    continue
                value = part.meta["val"]
                if value.dim() != old.dim() or (not isinstance(new, NodePair) and value.dtype != old.dtype):
                    raise NotImplementedError(f"{node.target}: {tuple(value.shape)} {value.dtype} instead of {tuple(old.shape)} {old.dtype}")

    def do_output(self, node: Any) -> None:
        """Complex results become real ones with a last axis of 2."""

        def finish(arg: Any) -> Any:
            if not isinstance(arg, torch.fx.Node):
                return arg
            here = self.env[arg]
            if not isinstance(here, NodePair):
                return here
            both = self.graph.call_function(torch.ops.aten.stack.default, ([here.re, here.im], -1))
            with self.fake_mode:
                both.meta["val"] = torch.stack([here.re.meta["val"], here.im.meta["val"]], -1)
            return both

        self.graph.output(tree_map(finish, node.args[0]))

    def assemble(self) -> Any:
        """The new program around the new graph."""
        from torch._export.verifier import TrainingIRVerifier
        from torch.export.exported_program import ExportedProgram
        from torch.export.graph_signature import InputKind, InputSpec, TensorArgument

        old = self.program
        module = torch.fx.GraphModule(self.module, self.graph)
        module.meta.update(self.module.meta)
        signature = old.graph_signature
        output = next(n for n in self.graph.nodes if n.op == "output")
        for spec, arg in zip(signature.output_specs, output.args[0], strict=True):
            if isinstance(arg, torch.fx.Node) and hasattr(spec.arg, "name"):
                spec.arg.name = arg.name
        placed = [n.name for n in self.graph.nodes if n.op == "placeholder"]
        extra = dict(self.constants)
        by_name = {spec.arg.name: spec for spec in signature.input_specs}
        signature.input_specs = [
            by_name[name] if name in by_name else InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(name=name), name, persistent=None)
            for name in placed
        ]
        state = {k: complex_as_real(v) for k, v in old.state_dict.items()}
        constants = {**{k: complex_as_real(v) for k, v in old.constants.items()}, **extra}
        # Writes that composite operators make are left to the exporter, which makes the program functional again.
        writes = any(getattr(getattr(n.target, "_schema", None), "is_mutable", False) for n in self.graph.nodes)
        return ExportedProgram(
            root=module,
            graph=module.graph,
            graph_signature=signature,
            state_dict=state,
            range_constraints=old.range_constraints,
            module_call_graph=old.module_call_graph,
            example_inputs=complex_inputs_as_real(old.example_inputs),
            constants=constants,
            verifiers=[TrainingIRVerifier if writes else old.verifier],
        )


def pair_flatten_nodes(value: Any) -> tuple[list[Any], Any]:
    """Like pair_flatten, for nodes of the new graph."""
    leaves, spec = tree_flatten(value)
    flat: list[Any] = []
    for leaf in leaves:
        flat.extend([leaf.re, leaf.im] if isinstance(leaf, NodePair) else [leaf])
    return flat, (spec, [isinstance(leaf, NodePair) for leaf in leaves])


def complex_as_real(value: Any) -> Any:
    """A complex tensor with its parts on a last axis; anything else as it is."""
    if not complex_is(value):
        return value
    real = torch.view_as_real(value.detach().resolve_conj().resolve_neg()).contiguous()
    return torch.nn.Parameter(real, requires_grad=value.requires_grad) if isinstance(value, torch.nn.Parameter) else real


def complex_inputs_as_real(inputs: Any) -> Any:
    """Example inputs with complex tensors as real ones."""
    return None if inputs is None else tree_map(complex_as_real, inputs)


def complex_merge_parts(graph: Any) -> None:
    """Replace a part selected from a stack of parts by the part itself."""
    for node in list(graph.nodes):
        if node.target is not torch.ops.aten.select.int or not isinstance(node.args[0], torch.fx.Node):
            continue
        source, dim, index = node.args
        if source.target is not torch.ops.aten.stack.default or not isinstance(index, int):
            continue
        rank = source.meta["val"].dim()
        stack_dim = source.args[1] if len(source.args) > 1 else 0
        if dim % rank == stack_dim % rank:
            node.replace_all_uses_with(source.args[0][index])


def without_checks(program: Any) -> Any:
    """The program without tests of a factor's error code, which a functional graph would order among its values; the file can't raise."""
    for module in program.graph_module.modules():
        for node in list(module.graph.nodes) if isinstance(module, torch.fx.GraphModule) else []:
            if node.target is torch.ops.aten._linalg_check_errors.default:
                module.graph.erase_node(node)
    return program


def complex_to_pairs(program: Any) -> Any:
    """The ExportedProgram without complex numbers; NotImplementedError for an operator without a rule."""
    if not any(complex_node_touches(node) for module in program.graph_module.modules() if hasattr(module, "graph") for node in module.graph.nodes):
        return program
    # A dynamic axis of size 1 in the example would otherwise be taken for one that broadcasts.
    with torch.fx.experimental._config.patch(backed_size_oblivious=True):  # type: ignore[attr-defined]
        return without_checks(ComplexRewriter(program.run_decompositions({})).run())
