"""Random numbers of a model that seeds its own generator: drawn for real while the model is captured, and kept as constants.

Only for shapes without dynamic axes: PyTorch fills tensors in blocks, so a larger draw does not begin with the smaller one.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes


def random_size(sizes: Any) -> list[int]:
    """Sizes as plain integers; NotImplementedError where one is dynamic."""
    flat = list(sizes[0]) if len(sizes) == 1 and isinstance(sizes[0], (tuple, list, torch.Size)) else list(sizes)
    for size in flat:
        if not isinstance(size, int):
            raise NotImplementedError("random numbers whose shape depends on a dynamic axis")
    return flat


def random_draw(make: Any) -> Any:
    """The tensor that `make` draws from PyTorch's generators, outside of any tracing."""
    with torch._C.DisableTorchFunction(), _disable_current_modes():
        return make()


def random_factory(name: str) -> Any:
    """A replacement of torch.rand or torch.randn."""

    def draw(*size: Any, generator: Any = None, dtype: Any = None, **kwargs: Any) -> Any:
        shape = random_size(kwargs.get("size", size))
        return random_draw(lambda: getattr(torch, name)(shape, generator=generator, dtype=dtype))

    return draw


def random_like(name: str) -> Any:
    """A replacement of torch.rand_like or torch.randn_like."""

    def draw(input: Any, *, dtype: Any = None, generator: Any = None, **kwargs: Any) -> Any:
        shape, kind = random_size(input.shape), dtype or input.dtype
        return random_draw(lambda: getattr(torch, name)(shape, dtype=kind, generator=generator))

    return draw


def random_randint(*args: Any, generator: Any = None, dtype: Any = torch.int64, **kwargs: Any) -> Any:
    """torch.randint."""
    low: Any
    high: Any
    low, high, size = (
        (0, *args)
        if len(args) == 2
        else args
        if len(args) == 3
        else (args[0] if args else kwargs.get("low", 0), kwargs.get("high"), kwargs.get("size"))
    )
    if len(args) == 1 and "high" not in kwargs:
        low, high = 0, args[0]
    shape = random_size(size)
    return random_draw(lambda: torch.randint(low, high, shape, generator=generator, dtype=dtype))


def random_randint_like(input: Any, *args: Any, dtype: Any = None, **kwargs: Any) -> Any:
    """torch.randint_like."""
    shape = random_size(input.shape)
    return random_draw(lambda: torch.randint_like(torch.empty(shape, dtype=input.dtype), *args, dtype=dtype, **kwargs))


def random_permutation(n: Any, *, generator: Any = None, dtype: Any = torch.int64, **kwargs: Any) -> Any:
    """torch.randperm."""
    size = random_size((n,))[0]
    return random_draw(lambda: torch.randperm(size, generator=generator, dtype=dtype))


def random_normal(mean: Any = 0.0, std: Any = 1.0, size: Any = None, *, generator: Any = None, dtype: Any = None, **kwargs: Any) -> Any:
    """torch.normal: mean + std * z, as ATen computes it for tensors."""
    if size is not None:
        shape = random_size(size)
        return random_draw(lambda: torch.normal(mean, std, shape, generator=generator, dtype=dtype))
    like = mean * torch.ones_like(std) if isinstance(std, torch.Tensor) else mean
    shape = random_size(like.shape)
    noise = random_draw(lambda: torch.empty(shape, dtype=like.dtype).normal_(0, 1, generator=generator))
    return noise * std + mean


def random_fill(name: str) -> Any:
    """A replacement of Tensor.normal_, uniform_, exponential_, ... : the draw is copied into the tensor."""

    def draw(self: Any, *args: Any, **kwargs: Any) -> Any:
        shape, kind = random_size(self.shape), self.dtype
        if any(isinstance(a, torch.Tensor) for a in (*args, *kwargs.values())):
            raise NotImplementedError(f"Tensor.{name} with a tensor argument")
        return self.copy_(random_draw(lambda: getattr(torch.empty(shape, dtype=kind), name)(*args, **kwargs)))

    return draw


def random_bernoulli(input: Any, p: Any = None, *, generator: Any = None, out: Any = None) -> Any:
    """torch.bernoulli; with a tensor of probabilities ATen compares one uniform number with each (DistributionTemplates.h)."""
    shape, kind = random_size(input.shape), input.dtype
    if p is not None and not isinstance(p, torch.Tensor):
        return random_draw(lambda: torch.empty(shape, dtype=kind).bernoulli_(p, generator=generator))
    chance = input if p is None else p
    uniform = random_draw(lambda: torch.rand(shape, dtype=chance.dtype, generator=generator))
    return (uniform < chance).to(kind)


def random_dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """Dropout: input * (noise / (1 - p)), as ATen's CPU kernel."""
    if not training or p == 0:
        return input
    if p == 1:
        return input * 0.0
    shape, kind = random_size(input.shape), input.dtype
    noise = random_draw(lambda: torch.empty(shape, dtype=kind).bernoulli_(1 - p).div_(1 - p))
    return input.mul_(noise) if inplace else input * noise


def random_feature_dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """Dropout of whole channels (dropout1d, 2d, 3d)."""
    if not training or p == 0:
        return input
    shape = [*random_size(input.shape[:2]), *[1] * (input.dim() - 2)]
    kind = input.dtype
    noise = random_draw(lambda: torch.empty(shape, dtype=kind).bernoulli_(1 - p).div_(1 - p))
    return input.mul_(noise) if inplace else input * noise


def random_torch_dropout(input: Any, p: float, train: bool) -> Any:
    """torch.dropout, with positional arguments."""
    return random_dropout(input, p, train)


def random_gumbel_softmax(logits: Any, tau: float = 1.0, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Any:
    """torch.nn.functional.gumbel_softmax."""
    shape, kind = random_size(logits.shape), logits.dtype
    gumbels = random_draw(lambda: -torch.empty(shape, dtype=kind).exponential_().log())
    soft = torch.softmax((logits + gumbels) / tau, dim)
    if not hard:
        return soft
    index = soft.max(dim, keepdim=True)[1]
    one_hot = torch.zeros_like(logits).scatter(dim, index, 1.0)
    return one_hot - soft + soft


def random_multinomial(input: Any, num_samples: int, replacement: bool = False, *, generator: Any = None, out: Any = None) -> Any:
    """torch.multinomial without replacement, or of one sample: the largest of p / q with q exponential (ATen's Distributions.cpp)."""
    if replacement and num_samples != 1:
        raise NotImplementedError("torch.multinomial of several samples with replacement")
    shape, kind = random_size(input.shape), input.dtype
    ratio = input / random_draw(lambda: torch.empty(shape, dtype=kind).exponential_(1, generator=generator))
    return ratio.argmax(-1, keepdim=True) if num_samples == 1 else ratio.topk(num_samples, -1).indices


def random_rrelu(input: Any, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False, inplace: bool = False) -> Any:
    """torch.nn.functional.rrelu: slopes drawn for what is not positive, or their mean where it is not training."""
    slope: Any = (lower + upper) / 2
    if training:  # ATen draws for these elements only, in order
        raise NotImplementedError("rrelu in training mode draws as many numbers as there are negative elements")
    value = torch.where(input >= 0, input, input * slope)
    return input.copy_(value) if inplace else value


def random_seed_default(seed: Any) -> Any:
    """torch.manual_seed, for real."""
    return random_draw(lambda: torch.default_generator.manual_seed(int(seed)))


RANDOM_FILLS = ("normal_", "uniform_", "exponential_", "random_", "bernoulli_", "log_normal_", "cauchy_", "geometric_")


def random_overrides() -> dict[Any, Any]:
    """Every function that draws, with its replacement."""
    functional = torch.nn.functional
    table: dict[Any, Any] = {
        torch.rand: random_factory("rand"),
        torch.randn: random_factory("randn"),
        torch.rand_like: random_like("rand"),
        torch.randn_like: random_like("randn"),
        torch.randint: random_randint,
        torch.randint_like: random_randint_like,
        torch.randperm: random_permutation,
        torch.normal: random_normal,
        torch.bernoulli: random_bernoulli,
        torch.Tensor.bernoulli: random_bernoulli,
        functional.dropout: random_dropout,
        functional.dropout1d: random_feature_dropout,
        functional.dropout2d: random_feature_dropout,
        functional.dropout3d: random_feature_dropout,
        functional.gumbel_softmax: random_gumbel_softmax,
        functional.rrelu: random_rrelu,
        torch.multinomial: random_multinomial,
        torch.Tensor.multinomial: random_multinomial,
        torch.dropout: random_torch_dropout,
        torch.feature_dropout: random_feature_dropout,
    }
    for name in RANDOM_FILLS:
        table[getattr(torch.Tensor, name)] = random_fill(name)
    return table
