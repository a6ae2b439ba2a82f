"""What operators draw, in a standard form, and back: the same draw made of such noise.

Uniform noise lies in [0, 1), normal noise has mean 0 and deviation 1, exponential noise has rate 1. `standard_noise` finds noise that gives what
eager drew; `noise_replacements` are the functions that make draws of noise, with the formulas of ATen (DistributionTemplates.h,
Distributions.cpp, Dropout.cpp).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

MOST_RANDOM_INTEGERS = 2**20
"""A random integer is made of one float32 number: with a larger range not every one would be drawn."""

LEAST_WAIT = 1e-30
"""Exponential noise below this counts as this: nothing is divided by 0."""


def operator_arguments(func: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    """The arguments of an aten operator by the names of its schema."""
    named = {a.name: a.default_value for a in func._schema.arguments if a.has_default_value()}
    named.update(zip((a.name for a in func._schema.arguments), args, strict=False))
    return {**named, **kwargs}


def standard_noise(func: Any, args: Any, kwargs: Any, out: Any, generator: Any) -> tuple[str, Any] | None:
    """(form, noise) from which the operator's result `out` follows, or None where it has no such form. generator: for the freedom that is left."""
    name = func._schema.name.removeprefix("aten::")
    given = operator_arguments(func, args, kwargs)
    if not isinstance(out, torch.Tensor) or out.is_complex():
        return None
    dtype = out.dtype if out.is_floating_point() else torch.float32
    below_one = 1 - (torch.finfo(dtype).eps / 2)

    def free() -> Any:
        return torch.rand(out.shape, dtype=dtype, generator=generator)

    if name in ("rand", "rand_like"):
        return "uniform", out.clone()
    if name in ("randn", "randn_like"):
        return "normal", out.clone()
    if name == "uniform_":
        low, high = given["from"], given["to"]
        return "uniform", ((out - low) / (high - low)).clamp(0, below_one) if high > low else free()
    if name in ("normal_", "normal"):
        std = torch.as_tensor(given["std"], dtype=dtype)
        return "normal", torch.where(std == 0, 0.0, (out - given["mean"]) / torch.where(std == 0, 1.0, std)).to(dtype)
    if name == "exponential_":
        return "exponential", out * given["lambd"]
    if name in ("bernoulli", "bernoulli_"):
        chance = given["self"] if given.get("p") is None else given["p"]
        p = torch.as_tensor(chance, dtype=dtype).expand(out.shape)
        hit = out != 0
        noise = torch.where(hit, free() * p * below_one, (p + free() * (1 - p)).clamp(max=below_one))
        return ("uniform", noise) if bool(((noise < p) == hit).all()) else None
    if name in ("randint", "randint_like", "random_"):
        first = given.get("low", given.get("from", 0)) or 0
        end = given.get("high", given.get("to"))
        if end is None or end - first > MOST_RANDOM_INTEGERS or dtype not in (torch.float32, torch.float64):
            return None
        return "uniform", ((out - first).to(dtype) + 0.25 + free() / 2) / (end - first)
    if name == "multinomial" and given["num_samples"] == 1:  # more are the first of an order, which ties leave open
        return multinomial_noise(given["self"], out, generator)
    return None


def multinomial_noise(weights: Any, drawn: Any, generator: Any) -> tuple[str, Any]:
    """Noise q for which the largest of weights / q is where eager drew."""
    noise = torch.empty(weights.shape, dtype=weights.dtype).exponential_(1, generator=generator).clamp(min=LEAST_WAIT)
    rest = (weights / noise).scatter(-1, drawn, 0.0).amax(-1, keepdim=True)
    own = noise.gather(-1, drawn)
    return "exponential", noise.scatter(-1, drawn, torch.where(rest > 0, torch.minimum(own, weights.gather(-1, drawn) / (2 * rest)), own))


def drawn_size(size: Any) -> tuple[Any, ...]:
    """The sizes of *size arguments, which may be one tuple."""
    return tuple(size[0]) if len(size) == 1 and isinstance(size[0], (tuple, list)) else tuple(size)


TakeNoise = Callable[[str, Any], Any]


def whole_numbers(uniform: Any, low: Any, high: Any, dtype: Any) -> Any:
    """Integers low to high - 1 from uniform noise; noise outside [0, 1) counts as its nearest end."""
    count = high - low
    return (torch.where(uniform > 0, uniform, 0.0) * count).floor().clamp(max=count - 1).to(dtype) + low


def noise_replacements(take: TakeNoise) -> dict[Any, Any]:
    """{function that draws: function that makes the draw of take(form, shape)}."""

    def factory(form: str) -> Any:
        def draw(*size: Any, generator: Any = None, dtype: Any = None, **kwargs: Any) -> Any:
            return take(form, drawn_size(kwargs.get("size", size)))

        return draw

    def like(form: str) -> Any:
        def draw(input: Any, **kwargs: Any) -> Any:
            return take(form, input.shape)

        return draw

    def randint(*args: Any, low: Any = 0, high: Any = None, size: Any = None, dtype: Any = None, **kwargs: Any) -> Any:
        values = list(args)
        if size is None:
            size = values.pop()
        if len(values) == 2:
            low, high = values
        elif values and high is None:
            high = values[0]
        elif values:
            low = values[0]
        return whole_numbers(take("uniform", tuple(size)), low, high, dtype or torch.int64)

    def randint_like(input: Any, *args: Any, low: Any = 0, high: Any = None, dtype: Any = None, **kwargs: Any) -> Any:
        if len(args) == 2:
            low, high = args
        elif args and high is None:
            high = args[0]
        elif args:
            low = args[0]
        return whole_numbers(take("uniform", input.shape), low, high, dtype or input.dtype)

    def normal(mean: Any = 0.0, std: Any = 1.0, size: Any = None, **kwargs: Any) -> Any:
        if size is None:
            size = (mean + std).shape
        return take("normal", tuple(size)) * std + mean

    def normal_fill(self: Any, mean: Any = 0.0, std: Any = 1.0, *, generator: Any = None) -> Any:
        return self.copy_(take("normal", self.shape) * std + mean)

    def uniform_fill(self: Any, a: Any = 0.0, b: Any = 1.0, *, generator: Any = None, **kwargs: Any) -> Any:
        low, high = kwargs.get("from", a), kwargs.get("to", b)
        return self.copy_(take("uniform", self.shape) * (high - low) + low)

    def exponential_fill(self: Any, lambd: Any = 1.0, *, generator: Any = None) -> Any:
        return self.copy_(take("exponential", self.shape) / lambd)

    def bernoulli_fill(self: Any, p: Any = 0.5, *, generator: Any = None) -> Any:
        return self.copy_((take("uniform", self.shape) < p).to(self.dtype))

    def bernoulli(input: Any, p: Any = None, *, generator: Any = None, **kwargs: Any) -> Any:
        return (take("uniform", input.shape) < (input if p is None else p)).to(input.dtype)

    def dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False, **kwargs: Any) -> Any:
        return dropped(input, p, kwargs.get("train", training), inplace, input.shape)

    def feature_dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False, **kwargs: Any) -> Any:
        return dropped(input, p, kwargs.get("train", training), inplace, (*input.shape[:2], *[1] * (input.dim() - 2)))

    def dropped(input: Any, p: float, training: bool, inplace: bool, shape: Any) -> Any:
        if not training or p == 0:
            return input
        mask = torch.zeros_like(input) if p == 1 else (take("uniform", shape) < 1 - p).to(input.dtype) / (1 - p)
        return input.mul_(mask) if inplace else input * mask

    def gumbel_softmax(logits: Any, tau: float = 1.0, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Any:
        soft = torch.softmax((logits - take("exponential", logits.shape).log()) / tau, dim)
        if not hard:
            return soft
        one_hot = torch.zeros_like(logits).scatter(dim, soft.max(dim, keepdim=True)[1], 1.0)
        return one_hot - soft + soft

    def multinomial(input: Any, num_samples: int, replacement: bool = False, **kwargs: Any) -> Any:
        if num_samples != 1:
            raise NotImplementedError("torch.multinomial of several samples")
        return (input / take("exponential", input.shape).clamp(min=LEAST_WAIT)).argmax(-1, keepdim=True)

    functional = torch.nn.functional
    return {
        torch.rand: factory("uniform"),
        torch.randn: factory("normal"),
        torch.rand_like: like("uniform"),
        torch.randn_like: like("normal"),
        torch.randint: randint,
        torch.randint_like: randint_like,
        torch.normal: normal,
        torch.bernoulli: bernoulli,
        torch.Tensor.bernoulli: bernoulli,
        torch.Tensor.normal_: normal_fill,
        torch.Tensor.uniform_: uniform_fill,
        torch.Tensor.exponential_: exponential_fill,
        torch.Tensor.bernoulli_: bernoulli_fill,
        functional.dropout: dropout,
        functional.dropout1d: feature_dropout,
        functional.dropout2d: feature_dropout,
        functional.dropout3d: feature_dropout,
        functional.gumbel_softmax: gumbel_softmax,
        torch.multinomial: multinomial,
        torch.Tensor.multinomial: multinomial,
        torch.dropout: dropout,
        torch.feature_dropout: feature_dropout,
        torch.manual_seed: lambda seed: None,
    }
