"""Which step of the exporter's own graph optimiser changes a result, and exporting without that step alone.

    leaving_out(names)   a context in which those rewrite rules and passes of onnxscript's optimiser do nothing
    guilty_passes(raw, is_right)   names to leave out so that the file is right, the others kept; None where the optimiser has no part in it

A name is that of a rewrite rule ("FuseSuccessiveClip") or of a pass ("FoldConstantsPass").
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from autofix.optimizers import smallest_set

if TYPE_CHECKING:
    from autofix.attempt import Workpiece
    from autofix.reference import ReferenceSet

PASSES = ("FoldConstantsPass", "CommonSubexpressionEliminationPass", "DeduplicateInitializersPass")
"""Passes that only make the graph smaller. The others of `onnxscript.optimizer.optimize_ir` tidy up or make the file well-formed."""


def rule_name(rule: Any) -> str:
    """A rewrite rule's own name, or that of the function that writes what it puts in place."""
    if rule.name:
        return str(rule.name)
    function = getattr(rule._replacement_pattern, "_function", None)
    function = getattr(function, "__func__", function)
    return f"{getattr(function, '__module__', '').rpartition('.')[2].strip('_')}.{getattr(function, '__name__', 'rule')}"


@contextlib.contextmanager
def leaving_out(names: Collection[str], seen: dict[str, None] | None = None) -> Iterator[None]:
    """Keep the named rules and passes from doing anything meanwhile. seen: gets the names of those that changed a graph, in order."""
    import onnx_ir
    from onnxscript import rewriter

    rule, base = rewriter.RewriteRule, onnx_ir.passes.PassBase
    rewrite, run = rule.try_rewrite, base.__call__

    def try_rewrite(self: Any, *args: Any, **kwargs: Any) -> Any:
        name = rule_name(self)
        found = None if name in names else rewrite(self, *args, **kwargs)
        if found is not None and seen is not None:
            seen[name] = None
        return found

    def call(self: Any, model: Any, /) -> Any:
        name = type(self).__name__
        if name in names:
            return onnx_ir.passes.PassResult(getattr(model, "model", model), False)
        result = run(self, model)
        if result.modified and name in PASSES and seen is not None:
            seen[name] = None
        return result

    setattr(rule, "try_rewrite", try_rewrite)  # noqa: B010
    setattr(base, "__call__", call)  # noqa: B010
    try:
        yield
    finally:
        setattr(rule, "try_rewrite", rewrite)  # noqa: B010
        setattr(base, "__call__", run)  # noqa: B010


@dataclass(frozen=True)
class RawExport:
    """A graph as it was before the exporter's optimiser, an onnx_ir.Model. finished(model): the ModelProto that becomes of it afterwards."""

    model: Any
    finished: Callable[[Any], Any]

    def optimized(self, names: Collection[str], seen: dict[str, None] | None = None) -> Any:
        """The ModelProto that comes of optimising without the named steps."""
        from onnxscript import optimizer

        copy = self.model.clone()
        with leaving_out(names, seen):
            optimizer.optimize_ir(copy)
        return self.finished(copy)

    def unoptimized(self) -> Any:
        """The ModelProto that the exporter writes with its optimiser off."""
        return self.finished(self.model.clone())


@contextlib.contextmanager
def keeping_raw(kept: list[Any]) -> Iterator[None]:
    """Put a copy of each graph that torch.onnx.export is about to optimise in `kept`; the copy shares the weights."""
    from torch.onnx import ONNXProgram

    original = ONNXProgram.optimize

    def optimize(self: Any) -> None:
        with contextlib.suppress(Exception):  # a graph that can't be copied is just not looked into
            kept.append(self.model.clone())
        original(self)

    setattr(ONNXProgram, "optimize", optimize)  # noqa: B010
    try:
        yield
    finally:
        setattr(ONNXProgram, "optimize", original)  # noqa: B010


def guilty_passes(raw: RawExport, is_right: Callable[[Any], bool]) -> tuple[str, ...] | None:
    """See the module's docstring; an empty tuple where no single step is found. `is_right` takes a ModelProto; an error in it counts as no."""

    def right(make: Callable[[], Any]) -> bool:
        try:
            return is_right(make())
        except Exception:
            return False

    if not right(raw.unoptimized):
        return None
    seen: dict[str, None] = {}
    if right(lambda: raw.optimized((), seen)):
        return None
    # rules first: a rule is blamed rather than the pass that brought the graph into the form that the rule takes
    return tuple(smallest_set(sorted(seen, key=lambda name: name in PASSES), lambda names: right(lambda: raw.optimized(names))))


def exporter_facts(piece: Workpiece, one: ReferenceSet | None) -> dict[str, str]:
    """Facts for a Diagnosis: `cause` "exporter-optimization" and `exporter_passes`, comma-separated, where the file is right on the set (or just
    well-formed, where no set is given) without them; empty where the exporter's optimiser has no part in it, or the weights are too large to
    write the file several times."""
    import tempfile
    from pathlib import Path

    import onnx

    from autofix.approximate import apply_onnx_fixes, approximate_fixes
    from autofix.attempt import save_model
    from autofix.session import open_session
    from autofix.verify import session_is_right

    raw, signature = piece.raw, piece.signature
    large = (piece.folder / "model.onnx.data").exists()
    if raw is None or piece.proto is None or large or approximate_fixes(piece.recipe, piece.registry):
        return {}

    def is_right(proto: Any) -> bool:
        with tempfile.TemporaryDirectory(dir=piece.folder) as scratch:
            path = Path(scratch) / "model.onnx"
            save_model(apply_onnx_fixes(piece, proto), path)
            onnx.checker.check_model(str(path))
            session = open_session(str(path), piece.settings, piece.target.threads)
            return one is None or signature is None or session_is_right(session, one, signature, piece.target)

    names = guilty_passes(raw, is_right)
    if names is None:
        return {}
    return {"cause": "exporter-optimization"} | ({"exporter_passes": ",".join(names)} if names else {})
