"""Round-off on trial: one eager call in which every rounded result moves by up to one unit in its last place (Parker's Monte Carlo
arithmetic, 1997). Outputs that move much, or integers that change, sit on a knife edge: no other implementation can be held to them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from autofix.ties import SORTS, has_own_order

if TYPE_CHECKING:
    from autofix.eager import Eager, Leaves

ROUNDED_NAMES = (
    "addcmul addcdiv mm addmm bmm baddbmm addbmm mv addmv dot linear convolution exp exp2 expm1 log log2 log10 log1p rsqrt pow tanh sigmoid sum "
    "mean var std var_mean prod cumsum cumprod softmax _softmax _log_softmax log_softmax logsumexp native_layer_norm native_group_norm "
    "native_batch_norm _native_batch_norm_legit_no_training gelu silu mish softplus elu erf erfc erfinv sin cos tan asin acos atan atan2 sinh "
    "cosh lerp linalg_vector_norm norm upsample_bilinear2d upsample_bicubic2d upsample_linear1d upsample_trilinear3d avg_pool1d avg_pool2d "
    "_adaptive_avg_pool2d _fft_r2c _fft_c2c _fft_c2r logaddexp logsigmoid log_sigmoid_forward lgamma digamma mkldnn_rnn_layer "
    "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_attention_math _cdist_forward scatter_add index_add scatter_reduce "
    "grid_sampler_2d grid_sampler_3d linalg_solve_ex linalg_cholesky_ex linalg_inv_ex"
)
ROUNDED = frozenset(ROUNDED_NAMES.split())
"""Operators whose last bit depends on the implementation. Sums and products of two elements do not (IEEE 754), and whole-number results are
taken to be exact: so thresholds and ties keep their meaning."""
IEEE_NAMES = (
    "add sub rsub mul div sqrt neg abs floor ceil round trunc frac fmod remainder floor_divide sign sgn where maximum minimum fmax fmin clamp "
    "clamp_min clamp_max amax amin max min sort argsort relu hardtanh threshold zeros ones full empty zeros_like ones_like full_like empty_like "
    "arange scalar_tensor fill zero masked_fill nan_to_num copysign heaviside"
)
IEEE = frozenset(IEEE_NAMES.split())
"""Operators with one right result for each operand."""
MOVERS_NAMES = (
    "alias as_strided cat clone constant_pad_nd copy detach diag_embed diagonal expand flip gather index index_select lift_fresh masked_select "
    "narrow permute pixel_shuffle pixel_unshuffle reflection_pad1d reflection_pad2d repeat repeat_interleave replication_pad1d "
    "replication_pad2d reshape roll rot90 scatter select select_scatter slice slice_scatter split split_with_sizes squeeze stack t take tile "
    "transpose tril triu unbind unfold unsafe_split unsafe_split_with_sizes unsafe_view unsqueeze view reshape_alias to_copy"
)
MOVERS = frozenset(MOVERS_NAMES.split())
"""Operators that only move elements."""
SUMS = frozenset(("sum", "mean", "mm", "bmm", "mv", "dot", "addmm", "baddbmm"))
"""Operators that add up terms in an order of their own."""
TIE_BREAKERS = frozenset(("topk", "kthvalue", "median", "nanmedian", "mode"))
"""Operators for which PyTorch does not say which of equal entries it takes."""


class Shake(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Moves rounded results; `ties` tells whether an operator of TIE_BREAKERS had equal entries to choose from, or a sort ordered them in a way of
    its own, `rounds` whether any result could be rounded otherwise."""

    def __init__(self, seed: int = 1) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.rng = torch.Generator().manual_seed(seed)
        self.ties = False
        self.rounds = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        parts = str(func).split(".")
        name = parts[1] if len(parts) > 1 else parts[0]
        if name in TIE_BREAKERS and args and isinstance(args[0], torch.Tensor) and args[0].numel() > 1:
            axis = (
                next((a for a in args[1:] if isinstance(a, int) and -args[0].dim() <= a < args[0].dim()), -1)
                if name != "topk"
                else (args[2] if len(args) > 2 else -1)
            )
            if args[0].dim():
                ranked = args[0].sort(axis).values
                self.ties |= bool((ranked.diff(dim=axis) == 0).any())
        out = func(*args, **(kwargs or {}))
        if str(func) in SORTS:
            self.ties |= has_own_order(str(func), args, kwargs, out)
        base = name.rstrip("_") if not name.startswith("_") else name
        if base not in ROUNDED:
            parts_out = out if isinstance(out, (tuple, list)) else (out,)
            makes_reals = any(isinstance(v, torch.Tensor) and v.is_floating_point() for v in parts_out)
            self.rounds |= makes_reals and base.lstrip("_") not in MOVERS and base not in IEEE
            return out
        self.rounds = True
        if base in SUMS and isinstance(out, torch.Tensor) and out.is_floating_point() and not (name.endswith("_") and not name.startswith("_")):
            return self.moved(self.regrouped(func, args, kwargs, out))
        if isinstance(out, torch.Tensor):
            if name.endswith("_") and not name.startswith("_"):  # in place: its result is the argument itself
                moved = self.moved(out)
                if moved is not out:
                    out.copy_(moved)
                return out
            return self.moved(out)
        if isinstance(out, (tuple, list)):
            return type(out)(self.moved(v) if isinstance(v, torch.Tensor) else v for v in out)
        return out

    def regrouped(self, func: Any, args: Any, kwargs: Any, out: torch.Tensor) -> torch.Tensor:
        """A sum as another order of its terms may give it: off by up to one unit in the last place of the sum of their magnitudes. Whole
        numbers are taken to add up exactly."""

        def size(value: Any) -> Any:
            return value.abs() if isinstance(value, torch.Tensor) and value.is_floating_point() else value

        if out.numel() == 0 or bool(is_exact(out).all()):
            return out
        with_signs_gone = func(*map(size, args), **{k: size(v) for k, v in (kwargs or {}).items()})
        step = torch.randint(-1, 2, out.shape, generator=self.rng).to(out.dtype) * torch.finfo(out.dtype).eps
        return torch.where(torch.isfinite(out) & ~is_exact(out), out + step * with_signs_gone, out)

    def moved(self, value: torch.Tensor) -> torch.Tensor:
        """The tensor with each value that is no whole number moved by up to one unit in the last place."""
        if not value.is_floating_point() or value.numel() == 0 or value.layout != torch.strided:
            return value
        step = torch.randint(-1, 2, value.shape, generator=self.rng).to(value.dtype) * torch.finfo(value.dtype).eps
        return torch.where(is_exact(value) | ~torch.isfinite(value), value, value * (1 + step))


def is_exact(value: torch.Tensor) -> torch.Tensor:
    """Where a value is a whole number so small that it says something: beyond 1 / eps every real is one."""
    return (value == value.round()) & (value.abs() < 1 / torch.finfo(value.dtype).eps)


def shaken_change(
    eager: Eager, leaves: Leaves, outputs: Leaves, template: Any = None, draws: int = 1, state: dict[str, torch.Tensor] | None = None
) -> tuple[Leaves | None, Shake]:
    """([(name, largest change of each element)], what the shaking met); None where an integer, a shape or a NaN changes; an empty list where
    the model does not run like this."""
    met = Shake()
    floor = [torch.zeros(v.shape, dtype=torch.float64) for _, v in outputs]
    for seed in range(draws):
        shake = Shake(seed + 1)
        try:
            model = model_in_state(eager, state) if state else None
            with shake:
                moved = eager.call(leaves, model, template).outputs
        except Exception:
            met.ties |= shake.ties
            met.rounds = True
            return [], met
        met.ties |= shake.ties
        met.rounds |= shake.rounds
        if len(moved) != len(outputs):
            return None, met
        for i, ((_, a), (_, b)) in enumerate(zip(outputs, moved, strict=True)):
            if a.shape != b.shape:
                return None, met
            if not a.is_floating_point():
                if not torch.equal(a, b):
                    return None, met
                continue
            x, y = a.double(), b.double()
            if not torch.equal(torch.isnan(x), torch.isnan(y)):
                return None, met
            floor[i] = torch.maximum(floor[i], torch.nan_to_num((x - y).abs(), nan=0.0, posinf=0.0))
    return [(n, f) for (n, _), f in zip(outputs, floor, strict=True)], met


def model_in_state(eager: Eager, state: dict[str, torch.Tensor]) -> Any:
    """A model as built, but for these buffers."""
    model = eager.fresh()
    for name, value in state.items():
        model.get_buffer(name).copy_(value)
    return model


def shaken_ratio(outputs: Leaves, change: Leaves) -> float:
    """The largest change over what parity allows for that value (see compare.TOLERANCES)."""
    from autofix.compare import TOLERANCES

    worst = 0.0
    for (_, value), (_, moved) in zip(outputs, change, strict=True):
        if value.is_floating_point() and value.numel():
            rtol, atol = TOLERANCES.get(str(value.dtype).removeprefix("torch."), (1e-3, 1e-5))
            allowed = atol + rtol * torch.nan_to_num(value.double().abs(), nan=0.0, posinf=0.0)
            worst = max(worst, float((moved / allowed).max()))
    return worst
