"""Intermediate values of PyTorch, in order and with their source lines, and their pairing with values of a file, by value."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from autofix.inner import decomposed_values, decomposition_table, inner_values

if TYPE_CHECKING:
    from autofix.case import Case
    from autofix.reference import ReferenceSet

CLOSE = 3e-5
"""Relative error (largest difference over largest value) below which two values are the same."""


@dataclass
class EagerValue:
    """One result of an eager operator; `inside` is the index of the whole result of which it is a step, or -1."""

    operator: str
    file: str
    line: int
    array: Any
    sources: list[int] = field(default_factory=list)
    is_copy: bool = False
    inside: int = -1


def relative_error(got: Any, want: Any) -> float:
    """Largest difference over the largest value; inf where NaN, infinities, shapes or integers do not agree."""
    if got.size != want.size:
        return float("inf")
    a, b = got.reshape(-1), want.reshape(-1)
    if a.size == 0:
        return 0.0
    if a.dtype.kind not in "fV" and b.dtype.kind not in "fV":
        return 0.0 if np.array_equal(a, b) else float("inf")
    a, b = a.astype(np.float64), b.astype(np.float64)
    odd = ~np.isfinite(b)
    if odd.any():
        if not np.array_equal(a[odd], b[odd], equal_nan=True) or not np.isfinite(a[~odd]).all():
            return float("inf")
        a, b = a[~odd], b[~odd]
        if a.size == 0:
            return 0.0
    if not np.isfinite(a).all():
        return float("inf")
    scale = float(np.abs(b).max())
    gap = float(np.abs(a - b).max())
    return gap / scale if scale else (0.0 if gap == 0 else float("inf"))


def calling_line(frame: Any, files: frozenset[str]) -> tuple[str, int]:
    """(file, line) of the innermost frame in the user's files, else outside PyTorch, else in PyTorch."""
    import torch

    from autofix.coverage import real_path, source_frames

    library, user = source_frames(frame, files)
    chosen = user or library
    inside = str(torch.__file__).rpartition("/")[0]
    outer = library
    while user is None and outer is not None and real_path(outer.f_code.co_filename).startswith(inside):
        outer = outer.f_back
    if user is None and outer is not None and "site-packages" in outer.f_code.co_filename:
        chosen = outer
    return (real_path(chosen.f_code.co_filename), chosen.f_lineno or 0) if chosen else ("", 0)


def record_values(run: Callable[[], None], files: frozenset[str], place: Callable[[], tuple[str, int]] | None = None) -> list[EagerValue]:
    """What every aten operator gives while run() runs, in order, with the values that it reads; place() tells the source line."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    from autofix.compare import as_array

    found: list[EagerValue] = []
    known: dict[int, tuple[Any, int]] = {}
    table = decomposition_table()

    class Record(TorchDispatchMode):  # type: ignore[no-untyped-call]
        """Keeps a copy of every dense real result."""

        supports_higher_order_operators = True

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if isinstance(func, torch._ops.HigherOrderOperator):
                return self.inside(func, args, kwargs or {})
            inputs = [v for a in args for v in (a if isinstance(a, (list, tuple)) else (a,)) if isinstance(v, torch.Tensor)]
            out = func(*args, **(kwargs or {}))
            if place is not None:
                where = place()
            else:
                where = calling_line(sys._getframe(1), files)
            for value in out if isinstance(out, (tuple, list)) else (out,):
                if isinstance(value, torch.Tensor) and not value.is_complex() and value.layout == torch.strided and not value.is_quantized:
                    sources = [known[id(v)][1] for v in inputs if id(v) in known and known[id(v)][0] is v]
                    found.append(EagerValue(str(func), *where, as_array(value).copy(), sources))
                    known[id(value)] = (value, len(found) - 1)
            whole, first = len(found) - 1, found[-1].sources if found else []
            parts = inner_values(str(func), args, kwargs or {})
            decompose = next((table[f] for f in (func, getattr(func.overloadpacket, "vec", None)) if f in table), None) if not parts else None
            if decompose is not None and not func._schema.is_mutable:
                parts = decomposed_values(table.get(func) or torch._decomp.decomposition_table.get(func) or decompose, args, kwargs or {})
            for part in parts:
                found.append(EagerValue(str(func), *where, as_array(part).copy(), first, inside=whole))
            return out

        def inside(self, func: Any, args: Any, kwargs: Any) -> Any:
            """torch.cond: the branch that is taken, and its operators; other control flow as a whole."""
            if func.name() != "cond":
                return func(*args, **kwargs)
            with self:
                return (args[1] if bool(args[0]) else args[2])(*args[3])

    with torch.no_grad(), Record():  # type: ignore[no-untyped-call]
        run()
    return found


def eager_values(case: Case, one: ReferenceSet) -> list[EagerValue]:
    """The values of the untouched model on this set."""
    from autofix.eager import Eager

    eager = Eager(case)
    model = eager.model  # just built
    for name, value in one.state_before.items():
        model.get_buffer(name).copy_(value)
    import torch

    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)  # the fast paths of attention hide what happens inside
    try:
        return record_values(lambda: (eager.call(one.leaves, model), None)[1], frozenset(case.sources))
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


def program_values(program: Any, one: ReferenceSet, files: frozenset[str]) -> tuple[list[EagerValue], list[Any]]:
    """(the values of a captured program on this set, its outputs); source lines are those that capture noted."""
    import torch

    try:
        module = program.module(check_guards=False)
    except TypeError:  # PyTorch before 2.9
        module = program.module()
    count = sum(1 for node in module.graph.nodes if node.op == "placeholder")
    tensors = [v if isinstance(v, torch.Tensor) else torch.tensor(v) for _, v in one.leaves] + list(one.state_before.values())
    if count != len(tensors):
        tensors = [v for _, v in one.leaves if isinstance(v, torch.Tensor)] + list(one.state_before.values())
    current: list[Any] = [None]
    outputs: list[Any] = []

    class Walk(torch.fx.Interpreter):
        """Knows which node runs."""

        def run_node(self, n: Any) -> Any:
            current[0] = n
            return super().run_node(n)

    def place() -> tuple[str, int]:
        frames = re.findall(r'File "([^"]+)", line (\d+)', (current[0].meta.get("stack_trace") or "") if current[0] is not None else "")
        own = [f for f in frames if real_path(f[0]) in files]
        return (own or frames)[-1][0] if frames else "", int((own or frames)[-1][1]) if frames else 0

    from autofix.coverage import real_path

    def run() -> None:
        result = Walk(module).run(*[t.detach().clone() for t in tensors])
        outputs.extend(torch.utils._pytree.tree_leaves(result))

    return record_values(run, files, place), outputs


def merge_copies(values: list[EagerValue]) -> None:
    """Let sources name the original where a value is a copy or a view of another: copies count as one."""
    original: list[int] = []
    for i, value in enumerate(values):
        value.sources = [original[s] for s in value.sources]
        same = (s for s in value.sources if values[s].array.size == value.array.size and relative_error(value.array, values[s].array) <= CLOSE)
        original.append(next(same, i))
        value.is_copy = original[i] != i


def same_everywhere(got: Any, want: Any) -> bool:
    """Whether small values agree too, as far as the round-off of the largest lets them."""
    a, b = got.reshape(-1), want.reshape(-1)
    if a.dtype.kind not in "fV" or a.size == 0:
        return True
    a, b = a.astype(np.float64), b.astype(np.float64)
    a, b = a[np.isfinite(b)], b[np.isfinite(b)]
    return not b.size or bool((np.abs(a - b) <= 1e-4 * np.abs(b) + 5e-7 * np.abs(b).max()).all())


class Pairing:
    """Finds, for a value of the file, the eager value that equals it (same elements in the same order; shapes may differ). strict: small values
    beside large ones must agree too."""

    def __init__(self, values: list[EagerValue], strict: bool = False) -> None:
        self.values, self.strict = values, strict
        self.by_size: dict[int, list[int]] = {}
        for i, value in enumerate(values):
            self.by_size.setdefault(value.array.size, []).append(i)
        self.sums = [self.fingerprint(v.array) for v in values]
        self.marks: dict[str, float] = {}

    @staticmethod
    def fingerprint(array: Any) -> float:
        """The mean absolute value of what is finite."""
        if array.size == 0:
            return 0.0
        flat = array.reshape(-1).astype(np.float64)
        finite = flat[np.isfinite(flat)]
        return float(np.abs(finite).mean()) if finite.size else 0.0

    def partner(self, array: Any, name: str) -> int | None:
        """The index of the first eager value that equals the file's value of this name, or None."""
        if name not in self.marks:
            self.marks[name] = self.fingerprint(array)
        mark = self.marks[name]
        for i in self.by_size.get(array.size, []):
            like = abs(self.sums[i] - mark) <= 1e-3 * max(abs(mark), 1e-30) and relative_error(array, self.values[i].array) <= CLOSE
            if like and (not self.strict or same_everywhere(array, self.values[i].array)):
                return i
        return None
