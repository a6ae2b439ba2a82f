"""Input sets with NaN and infinity, and whether what a file does with them counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from autofix.classes import nonfinite_leaf, odd_places, zero_beside
from autofix.shake import MOVERS
from autofix.values import LeafPlan, fresh_leaf

if TYPE_CHECKING:
    from autofix.inputs import Candidate, Explorer

NAN_OPERATORS_NAMES = (
    "isnan isinf isfinite nan_to_num heaviside xlogy nansum nanmean nanmedian max min maximum minimum fmax fmin clamp clamp_min clamp_max amax "
    "amin aminmax argmax argmin sort argsort sign atan2 grid_sampler_2d gt lt ge le eq ne where masked_fill hardtanh logaddexp cummax cummin "
    "bucketize searchsorted special_xlog1py relu"
)
NAN_OPERATORS = frozenset(NAN_OPERATORS_NAMES.split())
"""Operators whose treatment of NaN is part of their meaning, where single NaN reach them."""
NO_ORDER = frozenset(("_unique2", "_unique", "unique_dim", "unique_consecutive", "histc", "histogram", "bincount", "signbit", "copysign"))
"""Operators that group equal values or read a sign: what they make of NaN, which equals nothing and has no sign of its own, is left open."""
SPREADERS_NAMES = (
    "mm addmm bmm baddbmm matmul linear convolution conv1d conv2d conv3d mkldnn_rnn_layer sum mean var var_mean std norm linalg_vector_norm "
    "cumsum cumprod prod softmax _softmax _log_softmax native_layer_norm native_group_norm native_batch_norm _native_batch_norm_legit lstm gru "
    "rnn_tanh dot mv addmv scaled_dot_product_attention _scaled_dot_product_flash_attention_for_cpu _fft_r2c _fft_c2c _fft_c2r index_add "
    "scatter_add max_pool2d_with_indices avg_pool2d grid_sampler_2d"
)
SPREADERS = frozenset(SPREADERS_NAMES.split())
"""Operators that mix elements: a NaN that has passed one of them no longer stands for a missing value."""
BY_FORMULA_NAMES = (
    "gelu silu mish hardswish celu elu selu softplus log_sigmoid_forward sinc erfinv digamma lgamma i0 exp2 floor_divide remainder fmod"
)
BY_FORMULA = frozenset(BY_FORMULA_NAMES.split())
"""Functions of one element whose value at infinity depends on how the formula is written down; PyTorch does not say."""


def nonfinite_sets(explorer: Explorer) -> None:
    """NaN and infinity at a few places of one float leaf at a time, where eager takes them."""
    floats = [p for p in explorer.plans if p.is_float and p.example.numel()]
    if explorer.big or not floats:
        return
    for plan in floats[:4]:
        count = plan.example.numel()
        name = "NaN and infinity" + (f" in {plan.name}" if len(floats) > 1 else "")
        partners = any(p is not plan and p.example.numel() == count for p in floats)
        for beside in (False, True) if partners else (False,):
            places = odd_places(count, explorer.rng)
            leaves = []
            for p in explorer.plans:
                value = fresh_leaf(p, explorer.sizes, "usual", explorer.rng)
                value = nonfinite_leaf(value, places) if p is plan else zero_beside(value, places, count) if beside else value
                leaves.append((p.name, value))
            one = explorer.attempt(name + (" against zeros" if beside else ""), "nonfinite", leaves)
            if one is not None:
                one.must = True
                one.advisory = not nan_matters(explorer, one)
                if not one.advisory and not beside:
                    placed_nan_sets(explorer, plan, name)
        if explorer.half_seen:
            infinite_sets(explorer, plan)


def infinite_sets(explorer: Explorer, plan: LeafPlan) -> None:
    """Infinity of either sign without NaN, which a test may ask for by itself; kept where it takes a new branch."""
    for odd in (float("inf"), float("-inf")):
        leaves = [(p.name, fresh_leaf(p, explorer.sizes, "usual", explorer.rng)) for p in explorer.plans]
        place = odd_places(plan.example.numel(), explorer.rng)[0]
        marks = (torch.arange(plan.example.numel()) == place).reshape(plan.example.shape)
        leaves = [(n, torch.where(marks, odd, v) if n == plan.name else v) for n, v in leaves]
        one = explorer.attempt(f"{odd:g} in {plan.name}", "nonfinite", leaves, quiet=True)
        if one is not None and one.branches:
            one.must, one.advisory = True, not nan_matters(explorer, one)


def placed_nan_sets(explorer: Explorer, plan: LeafPlan, name: str) -> None:
    """NaN without infinity at places that vectorised kernels treat differently: a single one at either end, one a row, all of a column."""
    shape, count = plan.example.shape, plan.example.numel()
    width = shape[-1] if shape else 1
    rows = torch.arange(count) // width
    column = torch.arange(count) % width
    patterns = {
        "first": torch.arange(count) == 0,
        "last": torch.arange(count) == count - 1,
        "one a row": column == (rows + 1) % width,
        "a column": column == min(1, width - 1),
    }
    for where, marks in patterns.items():
        if 0 < int(marks.sum()) < max(count, 2):
            leaves = [(p.name, fresh_leaf(p, explorer.sizes, "usual", explorer.rng)) for p in explorer.plans]
            leaves = [(n, torch.where(marks.reshape(v.shape), float("nan"), v) if n == plan.name else v) for n, v in leaves]
            one = explorer.attempt(f"{name.replace(' and infinity', '')}, {where}", "nonfinite", leaves, quiet=True)
            if one is not None:
                one.must, one.advisory = True, not nan_matters(explorer, one)


def given_odd_leaves(explorer: Explorer) -> set[str]:
    """Names of the leaves that hold NaN or infinity in one of the person's own sets."""
    from autofix.adapter import input_leaves
    from autofix.eager import ordered_call

    forward = explorer.eager.model.forward
    leaves = [leaf for one in explorer.eager.case.sets for leaf in input_leaves(forward, *ordered_call(forward, one))]
    return {n for n, v in leaves if isinstance(v, torch.Tensor) and v.is_floating_point() and not bool(torch.isfinite(v).all())}


def nan_matters(explorer: Explorer, one: Candidate) -> bool:
    """Whether single NaN reach an operator whose treatment of them is part of its meaning, before a product or a sum spreads them; or
    whether nothing but functions of single elements and moves of elements sees them, so that each has its place in the outputs."""

    def is_real(value: Any) -> bool:
        return isinstance(value, torch.Tensor) and value.is_floating_point()

    odd_leaves = {n for n, v in one.leaves if is_real(v) and not bool(torch.isfinite(v).all())}
    given = bool(odd_leaves & given_odd_leaves(explorer))
    found, grouped, apart = [given], [False], [True]
    marks = [torch.isfinite(v) for _, v in one.leaves if is_real(v) and not bool(torch.isfinite(v).all())]

    def is_input(value: Any) -> bool:
        """Forward gets a copy of the input, which is known by the places of its NaN."""
        return any(m.shape == value.shape and torch.equal(m, torch.isfinite(value)) for m in marks)

    class Spread(TorchDispatchMode):  # type: ignore[no-untyped-call]
        """Follows the tensors that hold the input's own NaN, each in the place of one element."""

        def __init__(self) -> None:
            super().__init__()  # type: ignore[no-untyped-call]
            self.single: dict[int, Any] = {}

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name = str(func).split(".")[1].rstrip("_")
            tensors = [v for a in args for v in (a if isinstance(a, (list, tuple)) else (a,)) if is_real(v)]
            odd = [v for v in tensors if v.numel() and not bool(torch.isfinite(v).all()) and (id(v) in self.single or is_input(v))]
            if name == "grid_sampler_2d":  # NaN places have a meaning; a NaN pixel is spread by weights that round-off may make 0
                odd = [v for v in odd if v is args[1]]
            if odd and (name in NAN_OPERATORS or (name in ("baddbmm", "addmm") and (kwargs or {}).get("beta", 1) == 0)):
                found[0] = True
            grouped[0] |= bool(odd) and name in NO_ORDER
            alone = torch.Tag.pointwise in func.tags and name not in BY_FORMULA and "_mode" not in str(func)
            known = name not in SPREADERS and (alone or name.lstrip("_") in MOVERS or name in NAN_OPERATORS)
            if any(not bool(torch.isfinite(v).all()) for v in tensors) and not (known and not made_whole(name, kwargs)):
                apart[0] = False
            out = func(*args, **(kwargs or {}))
            if odd and name not in SPREADERS:
                for value in out if isinstance(out, (list, tuple)) else (out,):
                    if is_real(value):
                        self.single[id(value)] = value
            return out

    try:
        with Spread():
            explorer.eager.call(one.leaves)
    except Exception:
        return found[0] and (given or not grouped[0])
    return (found[0] or apart[0]) and (given or not grouped[0])


class FirstNaN(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """`from_nothing`: whether the first NaN of a call is what an operator gives for an empty tensor, such as the mean of an empty selection."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.from_nothing: bool | None = None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        made = [v for v in (out if isinstance(out, (list, tuple)) else (out,)) if isinstance(v, torch.Tensor) and v.is_floating_point()]
        made = [v for v in made if not str(func).startswith(("aten.empty", "aten.new_empty"))]
        if self.from_nothing is None and any(bool(torch.isnan(v).any()) for v in made):
            read = [v for a in args for v in (a if isinstance(a, (list, tuple)) else (a,)) if isinstance(v, torch.Tensor)]
            self.from_nothing = any(v.numel() == 0 for v in read)
        return out


def nan_of_nothing(eager: Any, leaves: Any) -> bool:
    """Whether the NaN that eager gives on these leaves begins with an empty tensor: the selection is what is tried, NaN its right answer."""
    log = FirstNaN()
    try:
        with log:
            eager.call(leaves)
    except Exception:
        return False
    return bool(log.from_nothing)


def made_whole(name: str, kwargs: Any) -> bool:
    """Whether an operator turns reals into whole numbers: what NaN becomes there is left open by C."""
    dtype = (kwargs or {}).get("dtype")
    return name == "_to_copy" and dtype is not None and not dtype.is_floating_point and dtype is not torch.bool
