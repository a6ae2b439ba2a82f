"""Facts about a model as plain JSON, for diagnosis and for strategies; made in the reference child process."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Mapping
from typing import Any

import torch

from autofix.adapter import call_signature
from autofix.carried import carried_attributes
from autofix.case import describe_leaf
from autofix.coverage import OperatorLog, Watch, real_path
from autofix.eager import Eager, EagerCall, Leaves


def watch_given(eager: Eager) -> Watch:
    """One call of the example under a Watch; an empty Watch where the model does not bear it."""
    from autofix.eager import forget_compiled_code

    files = frozenset(eager.case.sources)
    watch = Watch(files, margins=True)
    try:
        with watch:
            watch.outputs = eager.call(eager.example).outputs
    except Exception:
        forget_compiled_code()
        watch.outputs = None
    return watch


def input_facts(eager: Eager) -> list[dict[str, Any]]:
    """The example's leaves: {name, dtype, shape, axes {axis: symbol}, kind tensor|int|float|bool}."""
    found = []
    for name, value in eager.example:
        dtype, shape = describe_leaf(value)
        kind = "tensor" if isinstance(value, torch.Tensor) else type(value).__name__
        axes = {str(a): s for a, s in eager.case.axes.get(name, {}).items()}
        found.append({"name": name, "dtype": dtype, "shape": shape, "axes": axes, "kind": kind})
    return found


def module_facts(eager: Eager) -> tuple[dict[str, list[str]], dict[str, list[Any]]]:
    """({class name: [module paths]}, {module path: [file, first line, last line]} for classes of the person's own)."""
    classes: dict[str, list[str]] = {}
    places: dict[str, list[Any]] = {}
    known: dict[type, list[Any] | None] = {}
    for path, module in eager.model.named_modules():
        cls = type(module)
        classes.setdefault(cls.__name__, []).append(path)
        if cls not in known:
            known[cls] = None
            try:
                file = real_path(inspect.getsourcefile(cls) or "")
                if file in eager.case.sources:
                    lines, first = inspect.getsourcelines(cls)
                    known[cls] = [file, first, first + len(lines) - 1]
            except (OSError, TypeError):
                pass
        place = known[cls]
        if place is not None:
            places[path] = place
    return classes, places


def collect_facts(eager: Eager, first: EagerCall, log: OperatorLog, watch: Watch) -> dict[str, Any]:
    """Everything known after the example's calls; make_reference adds what the input sets show."""
    classes, places = module_facts(eager)
    return {
        "parameters": list(call_signature(eager.model.forward).parameters),
        "inputs": input_facts(eager),
        "outputs": [{"name": n, "dtype": str(v.dtype).removeprefix("torch."), "shape": list(v.shape)} for n, v in first.outputs],
        "modules": classes,
        "module_files": places,
        "operators": dict(log.operators),
        "random_operators": dict(log.random),
        "sites": list(watch.sites.values()),
        "sources": dict(eager.case.sources),
        "mutated_buffers": list(eager.mutated_buffers),
        "mutated_parameters": list(eager.mutated_parameters),
        "mutated_attributes": list(eager.mutated_attributes),
        "carried_attributes": carried_attributes(eager, bool(log.random)),
        "weights_mb": round(eager.bytes / 2**20, 2),
        "eager_seconds": round(first.seconds, 6),
        "ill_conditioned": [],
        **({"noise_inputs": list(eager.case.noise)} if eager.case.noise else {}),
        **({"seeded_draws": list(eager.case.seeded)} if eager.case.seeded else {}),
    }


def operators_elsewhere(eager: Eager, calls: list[tuple[Leaves, Any]], known: Mapping[str, str]) -> dict[str, str]:
    """{operator: "file:line"} of those that other (leaves, template) run and the example does not: other sizes and values may take another path."""
    log = OperatorLog(frozenset(eager.case.sources))
    for leaves, template in calls:
        with contextlib.suppress(Exception, SystemExit), log:  # the log itself disturbs some models
            eager.call(leaves, eager.fresh() if eager.mutated_buffers else None, template)
    return {name: place for name, place in log.operators.items() if name not in known}
