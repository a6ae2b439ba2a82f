"""What one eager call did: operators, branches taken in the user's code, places where a tensor became a Python value.

Watch(files) is a context manager for one call:
  watch.arcs      {(code name, line, jump offset, next offset): times} of conditional jumps in the user's files
  watch.outcomes  {(file, line, column, truth)} of tensors that were tested; a line may hold several tests (`a and b`), told by their columns
  watch.sites     [{file, line, function, kind, locals, user_file?, user_line?}], one a place and kind
  watch.numbers   [((file, line, column), tensor)] of float tensors that became a Python number
  watch.tests     [((file, line, column), truth, margin or None)]; a margin is a tensor that is positive where the test holds
  watch.parts     {id(margin): (margin, "any" or "all", margins of the elements)} of tests of many elements
OperatorLog is a dispatch mode that lists the aten operators of one call with their source lines.
"""

from __future__ import annotations

import dis
import os
import sys
from functools import lru_cache
from itertools import islice
from types import CodeType, FrameType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

PLUMBING = tuple(
    os.path.join("torch", name)
    for name in (
        "_tensor.py",
        "overrides.py",
        "_ops.py",
        "_tensor_str.py",
        "_jit_internal.py",
        "_compile.py",
        "_dynamo/",
        "_library",
        "_subclasses",
        "utils/_python_dispatch.py",
        "utils/_contextlib.py",
        "autograd/",
    )
)
SITE_KINDS = {
    "__bool__": "bool",
    "__int__": "int",
    "__float__": "float",
    "__index__": "index",
    "item": "item",
    "tolist": "tolist",
    "numpy": "numpy",
    "__array__": "numpy",
    "__len__": "len",
    "__format__": "format",
    "__repr__": "format",
    "__contains__": "contains",
}
COMPARISONS = {
    "gt": 1,
    "__gt__": 1,
    "ge": 1,
    "__ge__": 1,
    "greater": 1,
    "greater_equal": 1,
    "lt": -1,
    "__lt__": -1,
    "le": -1,
    "__le__": -1,
    "less": -1,
    "less_equal": -1,
}
EQUALITIES = {"eq": -1, "__eq__": -1, "ne": 1, "__ne__": 1, "not_equal": 1}


@lru_cache(maxsize=4096)
def real_path(name: str) -> str:
    """The resolved path of a code object's file."""
    return os.path.realpath(name) if not name.startswith("<") else name


@lru_cache(maxsize=4096)
def jump_offsets(code: CodeType) -> frozenset[int]:
    """Offsets of the conditional jumps in a code object."""
    return frozenset(i.offset for i in dis.get_instructions(code) if ("JUMP" in i.opname and "IF" in i.opname) or i.opname == "FOR_ITER")


@lru_cache(maxsize=4096)
def column_of(code: CodeType, offset: int) -> int:
    """Where in its line the expression stands that an instruction belongs to: 1000 x its last column + its first. Unlike the offset itself,
    which the interpreter's specialised instructions move, it is the same in every call; 0 where the file has no columns."""
    where = next(islice(code.co_positions(), offset // 2, None), (None, None, None, None))
    return 1000 * (where[3] or 0) + (where[2] or 0)


def is_plumbing(name: str) -> bool:
    """Whether a file only moves tensors about (torch's own machinery, or this package)."""
    return name.startswith("<") or any(p in name for p in PLUMBING) or os.path.dirname(name) == os.path.dirname(os.path.abspath(__file__))


def source_frames(frame: FrameType | None, files: frozenset[str]) -> tuple[FrameType | None, FrameType | None]:
    """(innermost frame outside torch's plumbing, innermost frame in the user's files)."""
    library = None
    while frame is not None:
        name = frame.f_code.co_filename
        if real_path(name) in files:
            return library or frame, frame
        if library is None and not is_plumbing(name):
            library = frame
        frame = frame.f_back
    return library, None


def kind_of_value(value: Any) -> str:
    """A local variable's kind, such as "tensor:float32:2", "int", "list", "module"."""
    if isinstance(value, torch.Tensor):
        return f"tensor:{str(value.dtype).removeprefix('torch.')}:{value.dim()}"
    if isinstance(value, torch.nn.Module):
        return "module"
    if value is None:
        return "none"
    for kind in (bool, int, float, str, list, tuple, dict):
        if isinstance(value, kind):
            return kind.__name__
    return type(value).__name__


class OperatorLog(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The aten operators of one call: `operators` {name: "file:line"}, `random` those that draw numbers, `dtypes` of all results."""

    def __init__(self, files: frozenset[str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.files = files
        self.operators: dict[str, str] = {}
        self.random: dict[str, str] = {}
        self.dtypes: set[torch.dtype] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func)
        if name not in self.operators:
            library, user = source_frames(sys._getframe(1), self.files)
            frame = user or library
            self.operators[name] = f"{real_path(frame.f_code.co_filename)}:{frame.f_lineno}" if frame else ""
            draws = torch.Tag.nondeterministic_seeded in getattr(func, "tags", ())
            if draws and ("dropout" not in name or (len(args) > 2 and args[2] is True)):
                self.random[name] = self.operators[name]
        out = func(*args, **(kwargs or {}))
        for one in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(one, torch.Tensor):
                self.dtypes.add(one.dtype)
        return out


class Watch(TorchFunctionMode):
    """See the module's docstring. `trace=False` leaves Python's own tracing alone (large models)."""

    def __init__(self, files: frozenset[str], *, trace: bool = True, margins: bool = False) -> None:
        super().__init__()
        self.files, self.trace, self.margins = files, trace, margins
        self.arcs: dict[tuple[str, int, int, int], int] = {}
        self.jumps: dict[tuple[str, int], int] = {}
        self.outcomes: set[tuple[str, int, int, bool]] = set()
        self.sites: dict[tuple[str, int, str], dict[str, Any]] = {}
        self.tests: list[tuple[tuple[str, int, int], bool, Any]] = []
        self.numbers: list[tuple[tuple[str, int, int], Any]] = []
        self.parts: dict[int, tuple[Any, str, Any]] = {}
        self._compared: dict[int, tuple[Any, Any]] = {}
        self._before: Any = None
        self.outputs: Any = None

    def __enter__(self) -> Any:
        entered = super().__enter__()  # type: ignore[no-untyped-call]
        if self.trace:
            self._before = sys.gettrace()
            sys.settrace(self._on_call)
        return entered

    def __exit__(self, *error: Any) -> None:
        if self.trace:
            sys.settrace(self._before)
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        self._compared.clear()

    def _on_call(self, frame: FrameType, event: str, arg: Any) -> Any:
        code = frame.f_code
        if real_path(code.co_filename) not in self.files:
            return None
        jumps = jump_offsets(code)
        if not jumps:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        arcs, name = self.arcs, f"{code.co_filename}:{code.co_name}:{code.co_firstlineno}"
        last = [-1, 0]

        def on_opcode(frame: FrameType, event: str, arg: Any) -> Any:
            if event == "opcode":
                here = frame.f_lasti
                if last[0] in jumps:
                    key = (name, last[1], last[0], here)
                    arcs[key] = arcs.get(key, 0) + 1
                last[0] = here
                if here in jumps:
                    last[1] = frame.f_lineno or 0
            return on_opcode

        return on_opcode

    def features(self) -> set[Any]:
        """What this call covered, comparable between calls: branches with rough counts, outcomes of tests."""
        found: set[Any] = {(*key, min(count, 3) if count < 4 else 4) for key, count in self.arcs.items()}
        return found | {("outcome", *o) for o in self.outcomes}

    def branches(self) -> set[Any]:
        """The branches that this call took and the outcomes of its tests, without counts."""
        return set(self.arcs) | self.outcomes

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        kind = SITE_KINDS.get(name)
        if name == "unbind":
            caller = sys._getframe(1)
            kind = "iter" if caller.f_code.co_name == "__iter__" and caller.f_code.co_filename.endswith("_tensor.py") else None
        out = func(*args, **(kwargs or {}))
        if kind is not None:
            self._site(kind, args[0] if args else None, out)
        elif name in ("equal", "allclose") and isinstance(out, bool):
            self._closeness(name, args, kwargs or {}, out)
        elif self.margins and isinstance(out, torch.Tensor):
            self._compare(name, args, kwargs or {}, out)
        return out

    def _site(self, kind: str, value: Any, out: Any) -> None:
        library, user = source_frames(sys._getframe(2), self.files)
        frame = library or user
        if frame is None or (kind == "len" and isinstance(value, torch.Tensor) and sys._getframe(2).f_code.co_filename.endswith("_tensor.py")):
            return
        file, line = real_path(frame.f_code.co_filename), frame.f_lineno or 0
        if (file, line, kind) not in self.sites:
            site: dict[str, Any] = {"file": file, "line": line, "function": frame.f_code.co_name, "kind": kind}
            site["locals"] = {k: kind_of_value(v) for k, v in list(frame.f_locals.items())[:64]}
            if isinstance(value, torch.Tensor):
                site["tensor"] = kind_of_value(value)
            if user is not None:
                site["user_file"], site["user_line"] = real_path(user.f_code.co_filename), user.f_lineno
            self.sites[file, line, kind] = site
        if self.margins and kind in ("item", "float", "int") and isinstance(value, torch.Tensor) and value.numel() == 1:
            self.numbers.append(((file, line, column_of(frame.f_code, frame.f_lasti)), value))
        if kind == "bool":
            self._tested(frame, bool(out), self._margin(value) if self.margins else None)

    def _tested(self, frame: FrameType, truth: bool, margin: Any) -> None:
        """Note the outcome of a test made at this frame's present place, and its margin."""
        place = (real_path(frame.f_code.co_filename), frame.f_lineno or 0, column_of(frame.f_code, frame.f_lasti))
        self.outcomes.add((*place, truth))
        if self.margins:
            self.tests.append((place, truth, margin))

    def _closeness(self, name: str, args: Any, kwargs: Any, out: bool) -> None:
        """torch.equal and torch.allclose, which give a Python bool at once."""
        library, user = source_frames(sys._getframe(2), self.files)
        frame = library or user
        if frame is None or len(args) < 2 or not all(isinstance(v, torch.Tensor) for v in args[:2]):
            return
        margin = None
        if self.margins and args[0].numel() and args[1].numel() and (name == "allclose" or args[0].shape == args[1].shape):
            margin = near_margin(name, args, kwargs).min()
            self.parts[id(margin)] = (margin, "all", -(as_float(args[0]) - as_float(args[1])).abs())
        self._tested(frame, bool(out), margin)

    def _all_of(self, inner: Any, kind: str) -> Any:
        """The margin of "all" or "any" of elements with these margins."""
        margin = inner.min() if kind == "all" else inner.max()
        self.parts[id(margin)] = (margin, kind, inner)
        return margin

    def _compare(self, name: str, args: Any, kwargs: Any, out: Any) -> None:
        """Remember a margin for the result of a comparison or of logic on comparisons."""
        if out.dtype is not torch.bool or not args:
            return
        a, b = args[0], args[1] if len(args) > 1 else kwargs.get("other")
        margin: Any = None
        if name in COMPARISONS and b is not None:
            margin = COMPARISONS[name] * (as_float(a) - as_float(b))
        elif name in EQUALITIES and b is not None:
            margin = EQUALITIES[name] * (as_float(a) - as_float(b)).abs()
        elif name == "isclose" and b is not None:
            margin = near_margin(name, args, kwargs)
        elif name in ("any", "all"):
            inner = self._margin(a)
            if inner is not None and inner.numel():
                along = {k: v for k, v in (("dim", b if b is not None else kwargs.get("dim")),) if v is not None}
                margin = (inner.amax(**along) if name == "any" else inner.amin(**along)).reshape(out.shape) if along else self._all_of(inner, name)
        elif name in ("logical_not", "bitwise_not", "__invert__"):
            inner = self._margin(a)
            margin = None if inner is None else -inner
        elif name in ("logical_and", "__and__", "bitwise_and", "logical_or", "__or__", "bitwise_or"):
            x, y = self._margin(a), self._margin(b)
            if x is not None and y is not None:
                margin = torch.minimum(x, y) if "and" in name else torch.maximum(x, y)
        elif name in ("__getitem__", "squeeze", "reshape", "view", "flatten"):
            inner = self._margin(a)
            if inner is not None and inner.numel() == out.numel() == 1:
                margin = inner.reshape(out.shape)
        if margin is not None:
            self._compared[id(out)] = (out, margin)

    def _margin(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return None
        held = self._compared.get(id(value))
        if held is not None and held[0] is value:
            return held[1]
        if value.dtype is not torch.bool and value.numel() == 1:
            return as_float(value).abs()
        return None


def near_margin(name: str, args: Any, kwargs: Any) -> Any:
    """How far each element is within the tolerance of equal, allclose or isclose."""
    a, b = as_float(args[0]), as_float(args[1])
    rtol = 0.0 if name == "equal" else args[2] if len(args) > 2 else kwargs.get("rtol", 1e-5)
    atol = 0.0 if name == "equal" else args[3] if len(args) > 3 else kwargs.get("atol", 1e-8)
    return atol + rtol * b.detach().abs() - (a - b).abs()


def as_float(value: Any) -> Any:
    """A tensor in a float type, keeping its gradient; numbers as they are."""
    if isinstance(value, torch.Tensor):
        return value if value.is_floating_point() else value.to(torch.float32)
    return value


def one_sided(arcs: dict[tuple[str, int, int, int], int]) -> set[tuple[str, int, int]]:
    """The conditional jumps of which only one outcome was seen: (code, line, offset)."""
    seen: dict[tuple[str, int, int], set[int]] = {}
    for name, line, jump, after in arcs:
        seen.setdefault((name, line, jump), set()).add(after)
    return {key for key, after in seen.items() if len(after) == 1}
