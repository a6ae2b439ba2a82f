"""ExportConfig -> torch.onnx.export. The only file that knows the exporters' arguments; fix.py uses it too."""

from __future__ import annotations

import ast
import contextlib
import copy
import linecache
import warnings
import zlib
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import torch

from autofix.adapter import input_leaves, make_flat_model, parameter_name
from autofix.capture_scopes import notes_numbers, numbers_like_axes, one_subgraph_version, sizes_for_strides
from autofix.exporter_passes import RawExport, keeping_raw, leaving_out
from autofix.graph_names import finish_names
from autofix.program import CapturePlan
from autofix.target import DEFAULT_OPSET, ExportConfig


class FunctionOverrides(torch.overrides.TorchFunctionMode):
    """Swaps torch functions for replacements in all that is captured; a replacement's own calls are swapped by the others, not by itself."""

    def __init__(self, table: dict[Callable[..., Any], Callable[..., Any]]) -> None:
        super().__init__()
        self.table = table

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the replacement where there is one."""
        replacement = self.table.get(func)
        if replacement is None:
            if isinstance(func, torch._ops.HigherOrderOperator) and not torch.compiler.is_dynamo_compiling():
                args = tuple(self.within(a) if isinstance(a, FunctionType) else a for a in args)
            return func(*args, **(kwargs or {}))
        rest = {k: v for k, v in self.table.items() if v is not replacement}
        with FunctionOverrides(rest):
            return replacement(*args, **(kwargs or {}))

    def within(self, body: Callable[..., Any]) -> Callable[..., Any]:
        """A body that is traced while this mode is out of force, since a mode is not active in what it calls."""

        def called(*args: Any) -> Any:
            with FunctionOverrides(self.table):
                return body(*args)

        return called


def export_dims(leaves: list[Any], sources: list[str], axes: dict[str, dict[int, str]], style: str) -> tuple[Any, ...]:
    """torch.export's dynamic_shapes for flat leaves; a Python int leaf is dynamic itself."""
    from torch.export import Dim

    hint = Dim.AUTO if style == "auto" else Dim.DYNAMIC
    dims: list[Any] = []
    for leaf, source in zip(leaves, sources, strict=True):
        if isinstance(leaf, torch.Tensor):
            named = axes.get(source, {})
            dims.append(dict.fromkeys(named, hint) or None)
        else:
            dims.append(hint if isinstance(leaf, int) and not isinstance(leaf, bool) else None)
    return tuple(dims)


def number_as_leaf(value: Any) -> Any:
    """A Python number as captured by torch.export: an int stays (a symbolic int), bool and float become 0-d tensors."""
    if isinstance(value, torch.Tensor) or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    return torch.as_tensor(value)


@contextlib.contextmanager
def capture_surroundings(plan: CapturePlan, dynamic: bool) -> Iterator[None]:
    """What torch.onnx.export itself sets up around a capture, and the plan's own overrides and contexts."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(torch.fx.experimental._config.patch(backed_size_oblivious=True))  # type: ignore[attr-defined]
        except AttributeError:  # torch versions without the option
            pass
        if dynamic:
            try:
                from torch.export._patches import register_gru_while_loop_decomposition, register_lstm_while_loop_decomposition

                stack.enter_context(register_lstm_while_loop_decomposition())
                stack.enter_context(register_gru_while_loop_decomposition())
            except ImportError:
                pass
        for make in plan.contexts:
            stack.enter_context(make())
        if plan.overrides:
            stack.enter_context(FunctionOverrides(plan.overrides))
        stack.enter_context(numbers_like_axes())
        stack.enter_context(torch.no_grad())
        yield


def capture_program(
    model: Any, leaves: list[Any], sources: list[str], axes: dict[str, dict[int, str]], config: ExportConfig, plan: CapturePlan
) -> Any:
    """torch.export of a model with flat parameters; raises what torch.export raises (the first error of two)."""
    dims = export_dims(leaves, sources, axes, config.axes)
    args = tuple(leaves)
    with capture_surroundings(plan, any(dims)):
        if config.capture == "draft":
            return torch.export.draft_export(model, args, dynamic_shapes=dims)
        strict = config.capture == "strict"
        try:
            return torch.export.export(model, args, dynamic_shapes=dims, strict=strict, prefer_deferred_runtime_asserts_over_guards=True)
        except Exception as error:
            if not config.strict_fallback:
                raise
            try:
                return torch.export.export(model, args, dynamic_shapes=dims, strict=True, prefer_deferred_runtime_asserts_over_guards=True)
            except Exception:
                raise error from error.__cause__


def find_overload(name: str) -> Any:
    """The OpOverload called e.g. "aten.lgamma.default", or None."""
    namespace, _, rest = name.partition(".")
    packet, _, overload = rest.rpartition(".")
    return getattr(getattr(getattr(torch.ops, namespace, None), packet, None), overload, None)


@contextlib.contextmanager
def extra_decompositions(plan: CapturePlan) -> Iterator[None]:
    """Let the exporter decompose the plan's operators with the plan's functions."""
    from torch.onnx._internal.exporter import _decomp

    ours = {op: fn for op, fn in ((find_overload(n), f) for n, f in plan.decompositions.items()) if op is not None}
    original = _decomp.create_onnx_friendly_decomposition_table

    def with_ours(registered: Any) -> Any:
        table = dict(original(registered))
        for op in plan.translations:
            table.pop(find_overload(op), None)
        table.update(ours)
        return table

    setattr(_decomp, "create_onnx_friendly_decomposition_table", with_ours)  # noqa: B010
    try:
        yield
    finally:
        _decomp.create_onnx_friendly_decomposition_table = original


def convert_program(program: Any, inputs: list[str], outputs: list[str], config: ExportConfig, plan: CapturePlan, raw: list[Any] | None) -> Any:
    """ExportedProgram -> onnx.ModelProto; raises torch.onnx.errors / ConversionError. raw: gets a copy of the graph before it is optimised."""
    for change in plan.passes:
        program = change(program)
    table = {op: fn for op, fn in ((find_overload(n), f) for n, f in plan.translations.items()) if op is not None}
    with contextlib.ExitStack() as stack:
        for make in plan.contexts:
            stack.enter_context(make())
        stack.enter_context(extra_decompositions(plan))
        stack.enter_context(one_subgraph_version())
        stack.enter_context(sizes_for_strides())
        stack.enter_context(leaving_out(config.without_passes))
        if raw is not None:
            stack.enter_context(keeping_raw(raw))
        if notes_numbers(program):
            stack.enter_context(numbers_like_axes(everywhere=True))
        made = torch.onnx.export(
            program,
            (),
            dynamo=True,
            input_names=inputs,
            output_names=outputs,
            opset_version=config.opset or DEFAULT_OPSET[config.capture],
            optimize=config.optimize,
            custom_translation_table=table or None,
            verbose=False,
            **dict(config.flags),
        )
    assert made is not None
    return made.model_proto


def script_model(model: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """torch.jit.script of the model, inside a module that takes tensors where forward wants Python numbers or containers."""
    scripted = torch.jit.script(model)
    leaves = input_leaves(model.forward, args, kwargs)
    if not kwargs and all(isinstance(a, torch.Tensor) for a in args):
        return scripted
    names = iter(parameter_name(n) for n, _ in leaves)

    def text(value: Any) -> str:
        if value is None or isinstance(value, str):
            return repr(value)
        if isinstance(value, torch.Tensor):
            return next(names)
        if isinstance(value, (bool, int, float)):
            return f"{type(value).__name__}({next(names)})"
        if isinstance(value, dict):
            return "{" + ", ".join(f"{k!r}: {text(v)}" for k, v in value.items()) + "}"
        if isinstance(value, (list, tuple)):
            inner = ", ".join(text(v) for v in value)
            return f"[{inner}]" if isinstance(value, list) else f"({inner},)"
        raise TypeError(f"TorchScript can't take a {type(value).__name__} argument")

    call = ", ".join([text(a) for a in args] + [f"{k}={text(v)}" for k, v in kwargs.items()])
    header = ", ".join(f"{parameter_name(n)}: torch.Tensor" for n, _ in leaves)
    source = f"def forward(self, {header}):\n    return self.model({call})\n"
    return compile_scripted_wrapper(scripted, source)


def compile_scripted_wrapper(scripted: Any, source: str) -> Any:
    """A ScriptModule that holds `scripted` as `model` and has the forward whose source is given."""
    text = f"import torch\n\n\n{source}"
    filename = f"<scripted wrapper {zlib.crc32(text.encode())}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)  # the script compiler reads source
    scope: dict[str, Any] = {}
    exec(compile(text, filename, "exec"), scope)  # noqa: S102
    holder = type("ScriptedWrapper", (torch.nn.Module,), {"forward": scope["forward"]})()
    holder.model = scripted
    return torch.jit.script(holder.eval())


def export_torchscript(
    model: Any,
    args: list[Any],
    kwargs: dict[str, Any],
    axes: dict[str, dict[int, str]],
    outputs: list[str],
    config: ExportConfig,
    plan: CapturePlan,
) -> tuple[Any, list[str]]:
    """Trace, script or mixed capture and the TorchScript exporter: (onnx.ModelProto, what the tracer warned of)."""
    import io

    import onnx

    examples = input_types(model, args, kwargs, config)
    names, tensors = list(examples), [t.clone() for t in examples.values()]
    dynamic = {n: axes[n] for n in names if n in axes}
    if config.capture == "script":
        target: Any = script_model(model, args, kwargs)
    else:
        for path in config.script_modules:
            owner, _, child = path.rpartition(".")
            setattr(model.get_submodule(owner) if owner else model, child, torch.jit.script(model.get_submodule(path)))
        target = make_flat_model(model, args, kwargs, config.lift_buffers, config.numbers == "baked")
    buffer = io.BytesIO()
    with contextlib.ExitStack() as stack:
        for opname, symbolic in plan.symbolics.items():
            torch.onnx.register_custom_op_symbolic(opname, symbolic, config.opset or DEFAULT_OPSET[config.capture])  # type: ignore[attr-defined]
        caught = stack.enter_context(warnings.catch_warnings(record=True))
        warnings.simplefilter("always")
        stack.enter_context(
            capture_surroundings(CapturePlan(overrides={} if config.capture == "script" else plan.overrides, contexts=plan.contexts), False)
        )
        if config.capture != "script" and any(isinstance(m, torch.jit.ScriptModule) for m in target.modules()):
            # scripted submodules hold values of their own, which the exporter's tracer refuses ("not part of the active trace")
            target = torch.jit.trace(target, tuple(tensors), check_trace=False)  # type: ignore[no-untyped-call]
        torch.onnx.export(
            target,
            tuple(tensors),
            buffer,  # type: ignore[arg-type]
            dynamo=False,
            input_names=names,
            output_names=outputs,
            dynamic_axes=dynamic or None,
            opset_version=config.opset or DEFAULT_OPSET[config.capture],
            do_constant_folding=config.fold_constants,
            **dict(config.flags),
        )
    tracer = torch.jit._trace.TracerWarning
    warned = [w for w in caught if issubclass(w.category, tracer) and not guards_an_error(w.filename, w.lineno)]
    baked = [f"{w.filename}:{w.lineno}: {str(w.message).splitlines()[0]}" for w in warned]
    return onnx.load_from_string(buffer.getvalue()), list(dict.fromkeys(baked))


def guards_an_error(filename: str, line: int) -> bool:
    """Whether a source line is an assert, or an `if` that can do nothing but raise or warn: where eager accepts the
    input, the baked outcome is the only one, so such a tracer warning is harmless."""
    try:
        with open(filename) as file:
            tree = ast.parse(file.read())
    except (OSError, SyntaxError, UnicodeDecodeError):
        return False
    for node in ast.walk(tree):
        first = getattr(node, "lineno", 0)
        if isinstance(node, ast.Assert) and first <= line <= (node.end_lineno or first):
            return True
        if isinstance(node, ast.If) and first <= line <= (node.test.end_lineno or first):
            warns = [isinstance(s, ast.Expr) and isinstance(s.value, ast.Call) and "warn" in ast.unparse(s.value.func) for s in node.body]
            return not node.orelse and all(isinstance(s, ast.Raise) or w for s, w in zip(node.body, warns, strict=True))
    return False


def export_model(
    model: Any,
    args: list[Any],
    kwargs: dict[str, Any],
    axes: dict[str, dict[int, str]],
    outputs: list[str],
    config: ExportConfig,
    plan: CapturePlan,
    captured: Callable[[Any], None] | None = None,
    unoptimized: Callable[[RawExport], None] | None = None,
) -> tuple[Any, list[str]]:
    """Capture and convert: (onnx.ModelProto with the contract's input and output names, tracer warnings).

    args, kwargs: the example call. axes: dynamic axes by leaf name. outputs: output names. captured: called with the
    ExportedProgram between capture and conversion; unoptimized: with the graph before the exporter's optimiser.
    """
    args, kwargs = copy.deepcopy(args), copy.deepcopy(kwargs)
    outputs = outputs + ["buffers." + b + ".after" for b in config.lift_buffers]
    examples = input_types(model, args, kwargs, config)
    names = list(examples)
    if config.capture in ("trace", "script", "mixed"):
        proto, baked = export_torchscript(model, args, kwargs, axes, outputs, config, plan)
        return finish_names(proto, names, axes, examples), baked
    leaves = dict(input_leaves(model.forward, args, kwargs))
    values = [number_as_leaf(leaves[n]) if n in leaves else examples[n].clone() for n in names]
    target = make_flat_model(model, args, kwargs, config.lift_buffers, config.numbers == "baked")
    program = capture_program(target, values, names, axes, config, plan)
    if captured is not None:
        captured(program)
    raw: list[Any] | None = None if unoptimized is None else []
    proto = convert_program(program, names, outputs, config, plan, raw)
    if raw and unoptimized is not None:

        def finished(graph: Any) -> Any:
            return finish_names(named_proto(graph, names, outputs), names, axes, examples)

        unoptimized(RawExport(raw[-1], finished))
    return finish_names(proto, names, axes, examples), []


def named_proto(graph: Any, inputs: list[str], outputs: list[str]) -> Any:
    """onnx_ir.Model -> onnx.ModelProto as torch.onnx.export does after its optimiser."""
    import onnx_ir
    from torch.onnx._internal.exporter import _ir_passes

    _ir_passes.rename_inputs(graph, inputs)
    _ir_passes.rename_outputs(graph, outputs)
    return onnx_ir.serde.serialize_model(graph)


def input_types(model: Any, args: list[Any], kwargs: dict[str, Any], config: ExportConfig) -> dict[str, Any]:
    """{input name: example tensor} for every input of the file, in order: leaves (numbers too unless baked), then lifted buffers."""
    baked = config.numbers == "baked"
    known = {n: torch.as_tensor(v) for n, v in input_leaves(model.forward, args, kwargs) if isinstance(v, torch.Tensor) or not baked}
    buffers = dict(model.named_buffers())
    known.update({"buffers." + b: buffers[b] for b in config.lift_buffers})
    return known
