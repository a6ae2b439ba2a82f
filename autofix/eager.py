"""The untouched model, called in eager mode on flat leaves; in float64 too. Used in the reference child process only.

Each call starts from the model as built: where a call changes parameters, buffers or attributes, the next one gets a fresh copy.
A model that changes buffers is also run as a chain (`Eager.chain`), one call after the other on one model.
"""

from __future__ import annotations

import copy
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from autofix.adapter import as_output_tensor, bind_arguments, input_leaves, output_leaves, rebuild_value
from autofix.case import Case, InputSet, uninitialized
from autofix.copying import own_copy
from autofix.traces import quick_marks, same_tensor

SMALL_MODEL_BYTES = 64 * 2**20
"""A model up to this size is copied before its first call; a larger one is built again where that is needed."""
LARGEST_FLOAT64_BYTES = 1500 * 2**20
Leaves = list[tuple[str, Any]]


@dataclass
class EagerCall:
    """What one call gave. `state_before` and `state_after` are filled for the buffers that forward changes."""

    outputs: Leaves
    seconds: float
    state_before: dict[str, torch.Tensor] = field(default_factory=dict)
    state_after: dict[str, torch.Tensor] = field(default_factory=dict)


def same_outputs(a: Leaves, b: Leaves) -> bool:
    """Equal names and equal tensors."""
    return [n for n, _ in a] == [n for n, _ in b] and all(same_tensor(x, y) for (_, x), (_, y) in zip(a, b, strict=True))


def copy_value(value: Any) -> Any:
    """A leaf that forward may change in place without touching the original."""
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def tensor_bytes(tensors: Iterator[torch.Tensor]) -> int:
    """Their size in memory; tensors without a shape yet count nothing."""
    total = 0
    for t in tensors:
        try:
            total += t.numel() * t.element_size()
        except (RuntimeError, ValueError):
            continue
    return total


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """Factory functions make this dtype inside."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def to_double(value: Any) -> Any:
    """A float or complex tensor in double precision; anything else unchanged."""
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.double()
    if isinstance(value, torch.Tensor) and value.is_complex():
        return value.to(torch.complex128)
    return value


class DoubleMode(TorchFunctionMode):
    """Reads every request for float32 as one for float64, for models that name their type."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def wider(value: Any) -> Any:
            return torch.float64 if value is torch.float32 else value

        if func is torch.Tensor.float:
            func = torch.Tensor.double
        return func(*map(wider, args), **{k: wider(v) for k, v in (kwargs or {}).items()})


def forget_compiled_code() -> None:
    """Drop what torch.compile has kept: operators that compile themselves fail for good after a failure under a mode."""
    if "torch._dynamo" in sys.modules:
        sys.modules["torch._dynamo"].reset()


@contextmanager
def time_limit(seconds: float | None) -> Iterator[None]:
    """Raises TimeoutError in Python code that runs longer (a loop that some generated input never ends); None: no limit."""
    if not seconds or threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(signum: int, frame: Any) -> None:
        raise TimeoutError(f"forward took more than {seconds:.1f} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def under_mode() -> bool:
    """Whether a torch function or dispatch mode is active."""
    from torch.overrides import _get_current_function_mode_stack
    from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

    return bool(_get_current_function_mode_stack() or _get_current_dispatch_mode_stack())  # type: ignore[no-untyped-call]


class Eager:
    """The model of a Case; see the module's docstring. Leaves are [(dotted name, tensor or number)] in forward's order."""

    def __init__(self, case: Case, *, trying: Path | None = None, skip: frozenset[str] = frozenset()) -> None:
        self.case = case
        self.trying, self.skip = trying, skip
        self.limit: float | None = None  # seconds that one call on a generated set may take
        self.model = case.build()
        self.rng_state = torch.get_rng_state()
        self.lazy = any(uninitialized(t) for t in [*self.model.parameters(), *self.model.buffers()])
        self.template = ordered_call(self.model.forward, case.given)
        self.example: Leaves = input_leaves(self.model.forward, *self.template)
        self.bytes = tensor_bytes(iter([*self.model.parameters(), *self.model.buffers()]))
        self.pristine: Any = own_copy(self.model) if self.bytes <= SMALL_MODEL_BYTES else None
        self.fresh_each_call = False
        self.mutated_buffers: list[str] = []
        self.mutated_parameters: list[str] = []
        self.mutated_attributes: list[str] = []
        self.own_ratio = 0.0
        self.sorts = False
        self.calls = 0
        self.seconds_spent = 0.0
        self._double: Any = None
        self._double_failed = ""
        self._double_ran = False
        self._double_mode = False

    def fresh(self) -> Any:
        """A model as it was built, in eval mode."""
        return copy.deepcopy(self.pristine) if self.pristine is not None else self.case.build()

    def ready(self) -> Any:
        """A model to call once: the shared one unless calls leave traces."""
        return self.fresh() if self.fresh_each_call else self.model

    def arguments(self, leaves: Leaves, template: Any = None) -> tuple[list[Any], dict[str, Any]]:
        """args and kwargs with copies of these leaves in the places of the example's."""
        rest = iter([copy_value(v) for _, v in leaves])
        args, kwargs = template or self.template
        return rebuild_value(list(args), rest), rebuild_value(dict(kwargs), rest)

    def call(self, leaves: Leaves, model: Any = None, template: Any = None) -> EagerCall:
        """One call without gradients; raises what forward raises. A shared model in which it leaves traces, as some do at certain sizes only, is
        not used again."""
        shared = model is None
        kept = not self.fresh_each_call and (shared or model is self._double)
        model = self.ready() if shared else model
        marks = quick_marks(model) if kept else []
        try:
            return self._called(leaves, model, template)
        finally:
            if kept and marks != quick_marks(model):
                self.fresh_each_call = True
                if shared:
                    self.model = self.fresh()

    def _called(self, leaves: Leaves, model: Any, template: Any) -> EagerCall:
        """`call` on a given model."""
        before = {n: t.detach().clone() for n, t in model.named_buffers() if n in self.mutated_buffers} if self.mutated_buffers else {}
        args, kwargs = self.arguments(leaves, template)
        self.calls += 1
        if self.lazy:  # its first call makes weights, with the random numbers that follow building
            torch.set_rng_state(self.rng_state)
        start = time.perf_counter()
        with torch.no_grad(), time_limit(self.limit):
            try:
                result = model(*args, **kwargs)
            except Exception as error:
                if not type(error).__module__.startswith("torch._dynamo") or under_mode():
                    raise
                forget_compiled_code()
                args, kwargs = self.arguments(leaves, template)
                result = model(*args, **kwargs)
        seconds = time.perf_counter() - start
        self.seconds_spent += seconds
        taken = tuple(n for n, _ in leaves)
        outputs = [(n, as_output_tensor(v).detach().clone()) for n, v in output_leaves(result, taken)]
        after = {n: t.detach().clone() for n, t in model.named_buffers() if n in self.mutated_buffers} if self.mutated_buffers else {}
        return EagerCall(outputs, seconds, before, after)

    def call_for_gradients(self, leaves: Leaves, watch: Any) -> Leaves:
        """Run under `watch` with gradients on; gives the float leaves that require them. Raises what forward raises, but for what
        happens after the watch has all it needs."""
        inputs = [(n, v.detach().clone().requires_grad_(v.is_floating_point()) if isinstance(v, torch.Tensor) else v) for n, v in leaves]
        rest = iter([v for _, v in inputs])
        args, kwargs = rebuild_value(list(self.template[0]), rest), rebuild_value(dict(self.template[1]), rest)
        self.calls += 1
        try:
            with warnings.catch_warnings(), torch.enable_grad(), time_limit(self.limit), watch:
                warnings.simplefilter("ignore")
                self.ready()(*args, **kwargs)
        except Exception:
            if not watch.tests and not watch.numbers:
                raise
        return [(n, v) for n, v in inputs if isinstance(v, torch.Tensor) and v.requires_grad]

    def call64(self, leaves: Leaves, template: Any = None, state: dict[str, torch.Tensor] | None = None) -> Leaves | None:
        """The outputs of the model in double precision, or None where it can't run so (`why_no_float64` tells)."""
        if self._double_failed:
            return None
        wide = [(n, to_double(v)) for n, v in leaves]
        reason = ""
        for mode in (self._double_mode,) if self._double_ran else (False, True):
            try:
                model = self._double_model()
                for name, value in (state or {}).items():
                    model.get_buffer(name).copy_(to_double(value))
                with default_dtype(torch.float64), DoubleMode() if mode else nullcontext():
                    outputs = self.call(wide, model, template).outputs
            except Exception as error:
                reason = reason or f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"[:200]
                continue
            self._double_ran, self._double_mode = True, mode
            return outputs
        if not self._double_ran:  # else it works as such, and only this set does not
            self._double_failed = reason
        return None

    def _double_model(self) -> Any:
        if self._double is None or self.fresh_each_call:
            if 2 * self.bytes > LARGEST_FLOAT64_BYTES:
                raise MemoryError("the model is too large to be copied in float64")
            model = self.fresh()
            self._double = (copy.deepcopy(model) if model is self.model else model)._apply(to_double).eval()
        return self._double

    @property
    def why_no_float64(self) -> str:
        """Why the last float64 run did not work, or an empty string."""
        return self._double_failed

    def forget_float64(self, reason: str) -> None:
        """Make no more float64 runs, and free their model."""
        self._double, self._double_failed = None, reason


def ordered_call(forward: Any, one: InputSet) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of a set with keywords in the order of forward's parameters, as leaves come."""
    named = bind_arguments(forward, one.args, one.kwargs)
    order = {name: i for i, name in enumerate(named)}
    return list(one.args), dict(sorted(one.kwargs.items(), key=lambda kv: order.get(kv[0], len(order))))
