"""A model file -> Case: the module under repair, its input sets and dynamic axes, and its content id."""

from __future__ import annotations

import re
import sys
import sysconfig
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from autofix.errors import CaseError
from autofix.ids import content_id, text_id


@dataclass(frozen=True)
class CaseSpec:
    """What the person asked for, as plain data. `inputs` are texts such as "x=float32[batch,3,224,224]", `dynamic` such as
    "x:0=batch,1=seq"; `samples` is a .npz or .pt file of real inputs. random: "inputs" makes what forward draws further inputs,
    "seeded" makes it constants."""

    file: str
    class_name: str = ""
    inputs: tuple[str, ...] = ()
    dynamic: tuple[str, ...] = ()
    weights: str = ""
    samples: str = ""
    seed: int = 0
    random: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain data; `random` only where it is set."""
        return {k: v for k, v in asdict(self).items() if v or k != "random"}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> CaseSpec:
        """The inverse of `to_json`."""
        kept: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}
        return cls(**kept)

    @property
    def stem(self) -> str:
        """The file's name without its ending."""
        return Path(self.file).stem


@dataclass
class InputSet:
    """One call's arguments. origin: "given", "more", "sample" or "generated"; name is unique within a case."""

    name: str
    origin: str
    args: list[Any]
    kwargs: dict[str, Any] = field(default_factory=dict)


@dataclass
class Case:
    """The model under repair. Lives in the worker process only.

    calibration: the calibration file's sets, the first few of which are among `sets` too. noise: the inputs made of draws (random_inputs.py).
    seeded: the draws that are constants (seeded_draws.py).
    axes: {leaf name: {axis: symbol}} for the declared dynamic axes. build() makes a fresh, seeded model in eval mode.
    """

    spec: CaseSpec
    module: Any
    build: Callable[[], Any]
    sets: list[InputSet]
    axes: dict[str, dict[int, str]]
    sources: dict[str, str]
    noise: list[dict[str, Any]] = field(default_factory=list)
    seeded: list[dict[str, Any]] = field(default_factory=list)
    calibration: list[InputSet] = field(default_factory=list)

    @property
    def given(self) -> InputSet:
        """The example call."""
        return self.sets[0]


def user_line(error: BaseException, files: set[str]) -> tuple[str, int, str]:
    """(file, line, function) of the innermost traceback frame in one of the user's files, or ("", 0, "")."""
    found = ("", 0, "")
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        for frame in traceback.extract_tb(error.__traceback__):
            if frame.filename in files and frame.lineno:
                found = (frame.filename, frame.lineno, frame.name)
        if found[0]:
            return found
        error = error.__cause__ or error.__context__  # type: ignore[assignment]
    return found


def one_line(error: BaseException, limit: int = 240) -> str:
    """`Type: first meaningful line` of an error."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    return text if len(text) <= limit else text[: limit - 1] + "…"


def user_sources() -> dict[str, str]:
    """{absolute path: text} of every imported module outside the standard library, installed packages and autofix."""
    paths = sysconfig.get_paths()
    outside = {p for k, p in paths.items() if k in ("stdlib", "platstdlib", "purelib", "platlib")}
    own = str(Path(__file__).resolve().parent)
    beyond = tuple(p.rstrip("/") + "/" for p in {*outside, *(str(Path(p).resolve()) for p in outside), own})
    found: dict[str, str] = {}
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or not file.endswith(".py") or file.startswith(beyond) or "site-packages" in file:
            continue
        path = str(Path(file).resolve())
        if path.startswith(beyond) or "site-packages" in path or "dist-packages" in path or module.__name__ == "__main__":
            continue
        try:
            found[path] = Path(path).read_text()
        except (OSError, UnicodeDecodeError):
            continue
    return found


def load_case(spec: CaseSpec) -> Case:
    """Import the model file and build everything that needs no forward; raises CaseError with one clear line."""
    from autofix.loading import build_model, find_builder, given_inputs, import_model_file

    path = Path(spec.file)
    if path.is_dir():
        raise CaseError("is a folder; name a Python file with class Model and get_inputs()", file=spec.file)
    if not path.exists():
        raise CaseError("no such file", file=spec.file)
    file = str(path.resolve())
    before = set(user_sources())

    def failed(error: BaseException, what: str) -> CaseError:
        where, line, _ = user_line(error, {file} | set(user_sources()))
        if isinstance(error, SyntaxError) and error.filename:
            where, line = error.filename, error.lineno or 0
        return CaseError(f"{what}: {one_line(error)}", file=where or spec.file, line=line)

    try:
        module = import_model_file(file, spec.seed)
    except (Exception, SystemExit) as error:
        raise failed(error, "the model file can't be imported") from error
    sources = {p: t for p, t in user_sources().items() if p not in before or p == file}
    try:
        find_builder(module, spec.class_name)
        model = build_model(module, spec.class_name, spec.weights, spec.seed)
    except LookupError as error:
        raise CaseError(f"{error.args[0]}; see `autofix --help` for what a model file holds", file=spec.file) from error
    except (Exception, SystemExit) as error:
        raise failed(error, "the model can't be built") from error
    try:
        if spec.inputs:
            args, kwargs, declared = inputs_from_texts(spec.inputs, spec.seed)
        else:
            args, kwargs = given_inputs(module, spec.seed)
            declared = {}
    except LookupError as error:
        raise CaseError(f"{error.args[0]}; add one, or give --input NAME=DTYPE[SHAPE]", file=spec.file) from error
    except CaseError:
        raise
    except (Exception, SystemExit) as error:
        raise failed(error, "get_inputs() raised") from error
    sets = [InputSet("given", "given", args, kwargs)]
    if hasattr(module, "get_more_inputs"):
        try:
            more = list(module.get_more_inputs())
        except (Exception, SystemExit) as error:
            raise failed(error, "get_more_inputs() raised") from error
        for i, one in enumerate(more):
            sets.append(InputSet(f"more {i + 1}", "more", *(([], one) if isinstance(one, dict) else (list(one), kwargs))))
    axes = declared_axes(spec, module, model, sets[0], declared)

    def build() -> Any:
        return build_model(module, spec.class_name, spec.weights, spec.seed)

    case = Case(spec, module, build, sets, axes, sources)
    if spec.samples:
        from autofix.samples import sample_sets

        case.sets += sample_sets(spec.samples, model, sets[0])
    if spec.random:
        try:
            settle_draws(case)
        except CaseError:
            raise
        except (Exception, SystemExit) as error:
            raise failed(error, "forward raises while its random draws are recorded") from error
    return case


def settle_draws(case: Case) -> None:
    """Make what forward draws inputs of the model, or constants; see random_inputs.py and seeded_draws.py."""
    from autofix.random_inputs import with_noise_inputs
    from autofix.seeded_draws import seed_draws, seeded_draws

    build, files, seed = case.build, frozenset(case.sources), case.spec.seed
    if case.spec.random == "inputs":
        noisy = with_noise_inputs(build, case.sets, case.axes, files, seed)
        case.build, case.sets, case.axes, case.noise = noisy.build, noisy.sets, noisy.axes, noisy.noise
        return
    case.seeded = seeded_draws(build, case.given, case.axes, files, seed)
    if case.seeded:
        case.build = lambda: seed_draws(build(), seed)


def declared_axes(spec: CaseSpec, module: Any, model: Any, given: InputSet, declared: dict[str, dict[int, str]]) -> dict[str, dict[int, str]]:
    """{leaf name: {axis: symbol}} from the file's dynamic_shapes, `--input` and `--dynamic`; raises CaseError."""
    from autofix.adapter import bind_arguments, input_leaves

    try:
        named = bind_arguments(model.forward, given.args, given.kwargs)
        leaves = dict(input_leaves(model.forward, given.args, given.kwargs))
    except TypeError as error:
        raise CaseError(f"forward does not take the given inputs: {error}", file=spec.file) from error
    axes: dict[str, dict[int, str]] = {}
    shapes = getattr(module, "dynamic_shapes", None) or {}
    if isinstance(shapes, (list, tuple)):
        shapes = dict(zip(named, shapes, strict=False))
    for name, value in shapes.items():
        if name not in named:
            raise CaseError(f"dynamic_shapes names {name!r}, forward has {', '.join(named)}", file=spec.file)
        collect_axes(value, name, axes, spec.file)
    axes.update(declared)
    for text in spec.dynamic:
        match = re.fullmatch(r"([\w.]+):(.+)", text)
        if not match:
            raise CaseError(f"--dynamic {text!r} is not NAME:AXIS=SYMBOL[,AXIS=SYMBOL]")
        for part in match[2].split(","):
            axis, _, symbol = part.partition("=")
            if not axis.strip().lstrip("-").isdigit():
                raise CaseError(f"--dynamic {text!r}: {axis!r} is not an axis number")
            axes.setdefault(match[1], {})[int(axis)] = symbol.strip() or f"{match[1]}_{axis.strip()}".replace(".", "_")
    for name, spec_axes in list(axes.items()):
        leaf = leaves.get(name)
        if leaf is None or not hasattr(leaf, "shape"):
            raise CaseError(f"dynamic axes are declared for {name!r}, which is no tensor input; there are {', '.join(leaves)}", file=spec.file)
        for axis in spec_axes:
            if not -leaf.dim() <= axis < leaf.dim():
                raise CaseError(f"dynamic axis {axis} of {name!r} does not exist: its shape is {list(leaf.shape)}", file=spec.file)
        axes[name] = {a % leaf.dim(): s for a, s in sorted(spec_axes.items())}
    return {k: v for k, v in axes.items() if v}


def collect_axes(value: Any, path: str, axes: dict[str, dict[int, str]], file: str) -> None:
    """Read one entry of a dynamic_shapes declaration, nested as the argument is."""
    if value is None:
        return
    if isinstance(value, dict) and all(isinstance(k, int) for k in value) and value:
        named = {}
        for axis, dim in value.items():
            if dim is None or isinstance(dim, int):
                continue
            label = dim if isinstance(dim, str) else getattr(dim, "__name__", None)
            named[axis] = str(label) if label else f"{path}_{axis}".replace(".", "_")
        axes[path] = named
    elif isinstance(value, dict):
        for k, v in value.items():
            collect_axes(v, f"{path}.{k}", axes, file)
    elif isinstance(value, (list, tuple)):
        if value and all(v is None or isinstance(v, (str, int)) or hasattr(v, "__name__") for v in value):
            collect_axes({i: v for i, v in enumerate(value) if v is not None}, path, axes, file)
        else:
            for i, v in enumerate(value):
                collect_axes(v, f"{path}.{i}", axes, file)
    else:
        raise CaseError(f"dynamic_shapes of {path!r} is a {type(value).__name__}; write {{axis: 'name'}}", file=file)


def inputs_from_texts(texts: tuple[str, ...], seed: int) -> tuple[list[Any], dict[str, Any], dict[str, dict[int, str]]]:
    """Random inputs for `x=float32[batch,3,224]`: a name stands for a dynamic axis (size 2 in the example). Raises CaseError."""
    import torch

    from autofix.loading import seed_all

    seed_all(seed)
    kwargs: dict[str, Any] = {}
    axes: dict[str, dict[int, str]] = {}
    for text in texts:
        match = re.fullmatch(r"(\w+)=(\w+)\[(.*)\](?:\{(-?\d+)\.\.(-?\d+)\})?", text.replace(" ", ""))
        dtype = getattr(torch, match[2], None) if match else None
        if not match or not isinstance(dtype, torch.dtype):
            raise CaseError(f"--input {text!r} is not NAME=DTYPE[SHAPE], such as x=float32[batch,3,224,224] or ids=int64[batch,seq]{{0..99}}")
        shape: list[int] = []
        for axis, size in enumerate(filter(None, match[3].split(","))):
            if size.isdigit():
                shape.append(int(size))
            else:
                name, _, example = size.partition(":")
                axes.setdefault(match[1], {})[axis] = name
                shape.append(int(example) if example.isdigit() else 2)
        if dtype.is_floating_point or dtype.is_complex:
            kwargs[match[1]] = torch.randn(shape, dtype=dtype)
        elif dtype is torch.bool:
            kwargs[match[1]] = torch.rand(shape) > 0.5
        else:
            low, high = (int(match[4]), int(match[5]) + 1) if match[4] else (0, 2)
            kwargs[match[1]] = torch.randint(low, high, shape, dtype=dtype)
    return [], kwargs, axes


def case_id(case: Case, model: Any) -> str:
    """Content id: user sources, module tree with shapes and dtypes, inputs and dynamic axes; neither weights nor paths."""
    from autofix.adapter import input_leaves

    base = Path(case.spec.file).resolve().parent
    sources = []
    for path, text in sorted(case.sources.items()):
        try:
            name = str(Path(path).relative_to(base))
        except ValueError:
            name = Path(path).name
        sources.append([name, text_id(text)])
    own = case.module.__name__  # may depend on where the file lies
    kinds = [(name, type(m)) for name, m in model.named_modules()]
    tree = [[name, ("" if kind.__module__ == own else kind.__module__) + "." + kind.__qualname__] for name, kind in kinds]
    named = [*model.named_parameters(), *model.named_buffers()]
    tensors = [[n, None if uninitialized(t) else list(t.shape), str(t.dtype)] for n, t in named]
    leaves = [[n, *describe_leaf(v)] for n, v in input_leaves(model.forward, case.given.args, case.given.kwargs)]
    axes = {k: {str(a): s for a, s in v.items()} for k, v in case.axes.items()}
    return content_id(
        {"class": case.spec.class_name, "sources": sources, "tree": tree, "tensors": tensors, "inputs": leaves, "axes": axes, "seed": case.spec.seed}
    )


def uninitialized(tensor: Any) -> bool:
    """Whether this is a lazy module's parameter that has no shape yet."""
    from torch.nn.parameter import is_lazy

    return bool(is_lazy(tensor))


def describe_leaf(value: Any) -> tuple[str, list[int]]:
    """(dtype, shape) of an input leaf; Python numbers are 0-d."""
    if hasattr(value, "shape"):
        return str(value.dtype).removeprefix("torch."), [int(s) for s in value.shape]
    return {bool: "bool", int: "int64", float: "float32"}.get(type(value), type(value).__name__), []
