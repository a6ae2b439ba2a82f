"""Whether a model's outputs hang on how its sums, products and transcendental functions are rounded.

Stochastic arithmetic (Parker 1997, "Monte Carlo arithmetic"): run eager again with one unit in the last place of noise on the result of
every operator that implementations may round differently. Where the outputs move by more than the tolerance, neither PyTorch's
nor ONNX Runtime's answer is the right one, and the input proves nothing. Additions, products and comparisons of single elements
are the same everywhere (IEEE 754) and stay as they are, so that thresholds and ties keep their meaning.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

ROUNDED = frozenset(
    "mm addmm bmm baddbmm addbmm mv addmv dot matmul linear convolution _convolution mkldnn_convolution conv_transpose2d mkldnn_linear "
    "mkldnn_rnn_layer lstm gru rnn_tanh rnn_relu lstm_cell gru_cell rnn_tanh_cell sum mean var var_mean std std_mean norm linalg_vector_norm linalg_norm "
    "cumsum cumprod prod nansum logsumexp logcumsumexp _softmax _log_softmax softmax log_softmax native_layer_norm native_group_norm native_batch_norm "
    "_native_batch_norm_legit _native_batch_norm_legit_no_training _fft_r2c _fft_c2c _fft_c2r exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan "
    "atan2 sinh cosh tanh asinh acosh atanh sigmoid log_sigmoid_forward silu gelu mish elu selu celu softplus erf erfc erfinv lgamma digamma pow rsqrt "
    "logaddexp logaddexp2 xlogy special_ndtri special_i0 special_i0e _scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_attention_math "
    "upsample_bilinear2d upsample_bicubic2d upsample_linear1d upsample_trilinear3d _upsample_bilinear2d_aa _upsample_bicubic2d_aa grid_sampler_2d grid_sampler_3d "
    "avg_pool1d avg_pool2d avg_pool3d _adaptive_avg_pool2d _adaptive_avg_pool3d _cdist_forward _euclidean_dist _pdist_forward index_add scatter_add "
    "scatter_reduce _embedding_bag linalg_inv_ex _linalg_solve_ex _linalg_det _linalg_slogdet linalg_cholesky_ex _linalg_eigh _linalg_svd linalg_qr".split()
)
"""aten operators whose last bit depends on the implementation."""


class RoundingNoise(TorchDispatchMode):
    """Multiplies what ROUNDED operators give by 1 + r eps, with r drawn from {-1, 0, 1} for each element."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.rng = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operator, then blur its float outputs."""
        out = func(*args, **(kwargs or {}))
        if func._schema.name.split("::")[1] not in ROUNDED:
            return out
        if isinstance(out, torch.Tensor):
            return self.blurred(out)
        if isinstance(out, (tuple, list)):
            return type(out)(self.blurred(v) if isinstance(v, torch.Tensor) else v for v in out)
        return out

    def blurred(self, value: torch.Tensor) -> torch.Tensor:
        """The tensor with noise in its last place."""
        if not value.is_floating_point() or value.layout != torch.strided:
            return value
        step = torch.randint(-1, 2, value.shape, generator=self.rng).to(value.dtype)
        return value * (1 + step * torch.finfo(value.dtype).eps)


def rounding_matters(call: Any, outputs: list[tuple[str, Any]], tries: int = 2, rtol: float = 1e-3, atol: float = 1e-5) -> bool:
    """Whether rounding noise moves some output beyond a third of the tolerance, or flips an integer one.

    call() runs eager and gives [(name, tensor)]; outputs are those of a run without noise.
    """
    for seed in range(tries):
        try:
            with RoundingNoise(seed):
                noisy = call()
        except Exception:  # a model that can't run under a dispatch mode can't be judged this way
            return False
        for (_, a), (_, b) in zip(outputs, noisy, strict=False):
            if a.shape != b.shape:
                return True
            if a.is_floating_point():
                wide, other = a.double(), b.double()
                same = (wide - other).abs() <= (atol + rtol * wide.abs()) / 3
                if not bool((same | (wide == other) | (wide.isnan() & other.isnan())).all()):
                    return True
            elif not a.is_complex() and not torch.equal(a, b):
                return True
    return False
