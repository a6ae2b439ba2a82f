"""Models that draw random numbers, as models whose draws come in as further inputs.

`with_noise_inputs` runs the untouched model once while the operators that draw are watched, brings what each drew to a standard form (uniform
in [0, 1), standard normal, exponential with rate 1), and wraps the model so that the n-th draw of forward is made of the n-th noise input.
The wrapped model must give eager's own outputs for the numbers that eager drew; from there on it is a model like any other.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from autofix.adapter import as_output_tensor, call_signature, input_leaves, output_leaves, rebuild_value
from autofix.case import InputSet
from autofix.copying import own_copy
from autofix.eager import ordered_call
from autofix.errors import CaseError
from autofix.noise_forms import noise_replacements, standard_noise

NOISE_FORMS = {"uniform": "uniform in [0, 1)", "normal": "standard normal", "exponential": "exponential with rate 1"}
"""What a noise input must hold, by the name of its form."""


@dataclass(frozen=True)
class RandomDraw:
    """One draw of forward: the aten operator, its place in the person's file, the form of the noise, and the noise that eager drew."""

    operator: str
    file: str
    line: int
    form: str
    noise: Any


class DrawLog(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The draws of one call in order; CaseError for one that has no standard form."""

    def __init__(self, files: frozenset[str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.files = files
        self.draws: list[RandomDraw] = []
        self.generator = torch.Generator().manual_seed(0)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if is_draw(func, args):
            name = str(func)
            file, line = drawing_line(self.files)
            made = standard_noise(func, args, kwargs or {}, out, self.generator)
            if made is None:
                raise CaseError(f"{name} can't be made an input (--random inputs): what it draws has no standard form", file=file, line=line)
            self.draws.append(RandomDraw(name, file, line, *made))
        return out


def is_draw(func: Any, args: Any) -> bool:
    """Whether this call of an operator draws random numbers."""
    return torch.Tag.nondeterministic_seeded in getattr(func, "tags", ()) and ("dropout" not in str(func) or (len(args) > 2 and args[2] is True))


def drawing_line(files: frozenset[str]) -> tuple[str, int]:
    """(file, line) of the innermost frame in one of the person's files, or ("", 0)."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        path = os.path.realpath(frame.f_code.co_filename)
        if path in files:
            return path, int(frame.f_lineno)
        frame = frame.f_back
    return "", 0


class DrawsFromInputs(TorchFunctionMode):
    """Makes each draw of the noise that is next in `noise`."""

    def __init__(self, noise: list[Any], forms: tuple[str, ...]) -> None:
        super().__init__()
        self.noise, self.forms, self.taken = noise, forms, 0
        self.table = noise_replacements(self.take)

    def take(self, form: str, shape: Any) -> Any:
        """The next noise tensor; RuntimeError where forward draws more, in another form or of another shape than recorded."""
        if self.taken >= len(self.noise) or self.forms[self.taken] != form:
            raise RuntimeError("forward draws other random numbers on this input than on the example")
        value = self.noise[self.taken]
        self.taken += 1
        if torch._C._get_tracing_state() is None and not torch.compiler.is_compiling() and tuple(value.shape) != tuple(shape):
            raise RuntimeError(f"forward draws noise of shape {list(shape)} where the noise input has {list(value.shape)}")
        return value.clone()  # what is drawn may be changed in place

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.table.get(func, func)(*args, **(kwargs or {}))


class RandomInputs(torch.nn.Module):
    """Calls `model` with the noise inputs in the place of its draws; see `wrap_random`."""

    def __init__(self, model: torch.nn.Module, names: tuple[str, ...], forms: tuple[str, ...]) -> None:
        super().__init__()
        self.model = model
        self.names, self.forms = names, forms

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """forward's own arguments, and one keyword for each noise input."""
        mode = DrawsFromInputs([kwargs.pop(name) for name in self.names], self.forms)
        with mode:
            result = self.model(*args, **kwargs)
        if mode.taken != len(self.names):
            raise RuntimeError("forward draws fewer random numbers on this input than on the example")
        return result


def wrap_random(model: Any, names: tuple[str, ...], forms: tuple[str, ...]) -> Any:
    """A RandomInputs whose forward has the model's own parameters and then the noise inputs."""
    parameters = list(call_signature(model.forward).parameters.values())
    place = len(parameters) - (bool(parameters) and parameters[-1].kind is inspect.Parameter.VAR_KEYWORD)
    noise = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in names]
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY if positional_only(parameters) else inspect.Parameter.POSITIONAL_OR_KEYWORD)

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        return RandomInputs.forward(self, *args, **kwargs)

    setattr(forward, "__signature__", inspect.Signature([own, *parameters[:place], *noise, *parameters[place:]]))  # noqa: B010
    made = type("RandomInputs", (RandomInputs,), {"forward": forward})
    return made(model, names, forms).train(model.training)


def positional_only(parameters: list[Any]) -> bool:
    """Whether the first parameter is positional only."""
    return bool(parameters) and parameters[0].kind is inspect.Parameter.POSITIONAL_ONLY


def recorded_draws(model: Any, one: InputSet, files: frozenset[str], seed: int) -> tuple[list[RandomDraw], list[tuple[str, Any]]]:
    """(what one eager call drew, its outputs)."""
    from autofix.loading import seed_all

    leaves = [v.detach().clone() if isinstance(v, torch.Tensor) else v for _, v in input_leaves(model.forward, one.args, one.kwargs)]
    rest = iter(leaves)
    own_args, own_kwargs = ordered_call(model.forward, one)
    args, kwargs = rebuild_value(own_args, rest), rebuild_value(own_kwargs, rest)
    seed_all(seed)
    log = DrawLog(files)
    try:
        with torch.no_grad(), log:
            result = model(*args, **kwargs)
    except Exception as error:
        if isinstance(model, RandomInputs) and log.draws:
            raise out_of_reach(log.draws[0]) from error
        raise
    return log.draws, [(n, as_output_tensor(v).detach().clone()) for n, v in output_leaves(result)]


def out_of_reach(draw: RandomDraw) -> CaseError:
    """The one line for a draw that the wrapped model still makes."""
    return CaseError(f"{draw.operator} can't be made an input (--random inputs): it is drawn out of reach", file=draw.file, line=draw.line)


def noise_names(count: int, taken: set[str]) -> tuple[str, ...]:
    """`noise`, `noise_1`, ... without those that forward has already."""
    found: list[str] = []
    number = 0
    while len(found) < count:
        name = f"noise_{number}" if number else "noise"
        number += 1
        if name not in taken:
            found.append(name)
    return tuple(found)


def noise_axes(model: Any, one: InputSet, axes: dict[str, dict[int, str]], draws: list[RandomDraw], again: Any) -> list[dict[int, str]]:
    """{axis: symbol} for each draw: which axes move with which dynamic axis when the example is resized; CaseError where none explains it."""
    found: list[dict[int, str]] = [{} for _ in draws]
    for symbol, size, other, resized in resized_calls(model, one, axes):
        try:
            more = again(resized)
        except CaseError:
            raise
        except Exception:
            continue  # eager refuses this size
        for i, draw in enumerate(draws):
            if len(more) != len(draws) or more[i].form != draw.form or more[i].noise.dim() != draw.noise.dim():
                raise CaseError(
                    f"{draw.operator} can't be made an input (--random inputs): it draws otherwise at {symbol}={other}",
                    file=draw.file,
                    line=draw.line,
                )
            for axis, (before, after) in enumerate(zip(draw.noise.shape, more[i].noise.shape, strict=True)):
                if before == after and axis not in found[i]:
                    continue
                if (before, after) != (size, other) or found[i].get(axis, symbol) != symbol:
                    text = f"{draw.operator} can't be made an input (--random inputs): axis {axis} of its noise is no dynamic axis itself"
                    raise CaseError(text, file=draw.file, line=draw.line)
                found[i][axis] = symbol
    return found


def resized_calls(model: Any, one: InputSet, axes: dict[str, dict[int, str]]) -> Iterator[tuple[str, int, int, InputSet]]:
    """(symbol, its size, another size, the call at that size) for two other sizes of each dynamic axis."""
    own_args, own_kwargs = ordered_call(model.forward, one)
    leaves = dict(input_leaves(model.forward, own_args, own_kwargs))
    for symbol in sorted({s for named in axes.values() for s in named.values()}):
        size = int(next(leaves[n].shape[a] for n, named in axes.items() for a, s in named.items() if s == symbol))
        for other in (size + 1, 2 * size + 3):
            resized = {
                n: repeated_axes(v, {a: other for a, s in axes.get(n, {}).items() if s == symbol}) if isinstance(v, torch.Tensor) else v
                for n, v in leaves.items()
            }
            rest = iter(resized.values())
            yield symbol, size, other, InputSet("", "", rebuild_value(own_args, rest), rebuild_value(own_kwargs, rest))


def repeated_axes(value: Any, sizes: dict[int, int]) -> Any:
    """A tensor repeated to other sizes, {axis: size}."""
    for axis, size in sizes.items():
        value = value.index_select(axis, torch.arange(size) % max(1, value.shape[axis]))
    return value


def same_with_noise(ours: list[tuple[str, Any]], eager: list[tuple[str, Any]]) -> bool:
    """Whether two calls' outputs are the same to round-off."""
    if [(n, v.dtype, v.shape) for n, v in ours] != [(n, v.dtype, v.shape) for n, v in eager]:
        return False
    pairs = [(a, b) for (_, a), (_, b) in zip(ours, eager, strict=True)]
    return all(
        torch.allclose(a, b, rtol=1e-4, atol=1e-5, equal_nan=True) if a.is_floating_point() or a.is_complex() else torch.equal(a, b) for a, b in pairs
    )


@dataclass(frozen=True)
class NoisyCase:
    """A case with noise inputs: `build` makes the wrapped model, `sets` and `axes` hold the noise too.

    noise: [{name, form, holds, operator, file, line}].
    """

    build: Callable[[], Any]
    sets: list[InputSet]
    axes: dict[str, dict[int, str]]
    noise: list[dict[str, Any]]


def recorded_noise(build: Callable[[], Any], sets: list[InputSet], noise: dict[str, str], files: frozenset[str], seed: int) -> list[InputSet]:
    """The sets with the noise that eager draws on each; CaseError unless the wrapped model gives eager's outputs for it. noise: {name: form}."""
    made = []
    for number, one in enumerate(sets):
        own, eager = recorded_draws(fresh_model(build), one, files, seed + number)
        if [d.form for d in own] != list(noise.values()):
            file, line = (own[0].file, own[0].line) if own else ("", 0)
            raise CaseError(f"input set {one.name!r} draws other random numbers than the example (--random inputs)", file=file, line=line)
        first = own[0]
        noisy = InputSet(one.name, one.origin, one.args, {**one.kwargs, **{n: d.noise for n, d in zip(noise, own, strict=True)}})
        left, ours = checked_call(wrap_random(fresh_model(build), tuple(noise), tuple(noise.values())), noisy, files, seed, first)
        if left:
            raise out_of_reach(left[0])
        if not same_with_noise(ours, eager):
            text = f"with eager's own draws as inputs (--random inputs) the model gives other outputs on input set {one.name!r}"
            raise CaseError(text, file=first.file, line=first.line)
        made.append(noisy)
    return made


def fresh_model(build: Callable[[], Any]) -> Any:
    """A model of its own for one call, which may leave traces in it."""
    model = build()
    copied = own_copy(model)
    return model if copied is None else copied


def with_noise_inputs(build: Callable[[], Any], sets: list[InputSet], axes: dict[str, dict[int, str]], files: frozenset[str], seed: int) -> NoisyCase:
    """See the module's docstring. CaseError, with the line, for a draw that can't be an input; where nothing is drawn all stays as it was."""

    def draws_of(one: InputSet) -> list[RandomDraw]:
        return recorded_draws(fresh_model(build), one, files, seed)[0]

    given = sets[0]
    draws = draws_of(given)
    if not draws:
        return NoisyCase(build, sets, axes, [])
    names = noise_names(len(draws), {n.partition(".")[0] for n, _ in input_leaves(build().forward, given.args, given.kwargs)})
    forms = tuple(d.form for d in draws)
    moving = noise_axes(build(), given, axes, draws, draws_of)

    def build_wrapped() -> Any:
        return wrap_random(build(), names, forms)

    made = recorded_noise(build, sets, dict(zip(names, forms, strict=True)), files, seed)
    noise = [
        {"name": n, "form": d.form, "holds": NOISE_FORMS[d.form], "operator": d.operator, "file": d.file, "line": d.line}
        for n, d in zip(names, draws, strict=True)
    ]
    return NoisyCase(build_wrapped, made, {**axes, **{n: m for n, m in zip(names, moving, strict=True) if m}}, noise)


def checked_call(model: Any, one: InputSet, files: frozenset[str], seed: int, first: RandomDraw) -> tuple[list[RandomDraw], list[tuple[str, Any]]]:
    """The wrapped model's draws that are left, and its outputs; CaseError where it does not run."""
    try:
        return recorded_draws(model, one, files, seed)
    except CaseError:
        raise
    except Exception as error:
        where = f"{first.operator} can't be made an input (--random inputs): {type(error).__name__}: {error}"
        raise CaseError(where.splitlines()[0], file=first.file, line=first.line) from error
