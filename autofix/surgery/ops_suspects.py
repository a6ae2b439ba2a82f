"""Operators whose translation parts from PyTorch on some values, and which of them can be at fault; plain strings, no torch."""

from __future__ import annotations

FAULTY = (
    "aten._native_batch_norm_legit_functional.default",
    "aten.abs.default",
    "aten.addbmm.default",
    "aten.addmm.default",
    "aten.addmv.default",
    "aten.addr.default",
    "aten.any.default",
    "aten.any.dim",
    "aten.any.dims",
    "aten.atan2.default",
    "aten.avg_pool2d.default",
    "aten.avg_pool3d.default",
    "aten.baddbmm.default",
    "aten.binary_cross_entropy.default",
    "aten.binary_cross_entropy_with_logits.default",
    "aten.cross_entropy_loss.default",
    "aten.diagonal.default",
    "aten.div.Scalar_mode",
    "aten.div.Tensor_mode",
    "aten.expm1.default",
    "aten.floor_divide.default",
    "aten.fmax.default",
    "aten.fmin.default",
    "aten.fmod.Tensor",
    "aten.group_norm.default",
    "aten.heaviside.default",
    "aten.instance_norm.default",
    "aten.log1p.default",
    "aten.log_sigmoid.default",
    "aten.log_sigmoid_forward.default",
    "aten.logaddexp.default",
    "aten.logaddexp2.default",
    "aten.logit.default",
    "aten.mean.default",
    "aten.mean.dim",
    "aten.multilabel_margin_loss.default",
    "aten.multilabel_margin_loss_forward.default",
    "aten.pow.Scalar",
    "aten.pow.Tensor_Scalar",
    "aten.pow.Tensor_Tensor",
    "aten.prod.default",
    "aten.prod.dim_int",
    "aten.remainder.Scalar",
    "aten.remainder.Tensor",
    "aten.scaled_dot_product_attention.default",
    "aten.sgn.default",
    "aten.sign.default",
    "aten.softplus.default",
    "aten.std.correction",
    "aten.std_mean.correction",
    "aten.special_xlog1py.default",
    "aten.special_xlog1py.other_scalar",
    "aten.special_xlog1py.self_scalar",
    "aten.sum.default",
    "aten.sum.dim_IntList",
    "aten.trace.default",
    "aten.var.correction",
    "aten.var_mean.correction",
    "aten.xlogy.Scalar_Other",
    "aten.xlogy.Scalar_Self",
    "aten.xlogy.Tensor",
)
"""Operators whose translation is wrong on some values, or where options are dropped."""

DELICATE = (
    "aten.all.default",
    "aten.all.dim",
    "aten.all.dims",
    "aten.amax.default",
    "aten.amin.default",
    "aten.argmax.default",
    "aten.argmin.default",
    "aten.celu.default",
    "aten.clamp.default",
    "aten.clamp_max.default",
    "aten.clamp_min.default",
    "aten.elu.default",
    "aten.max.default",
    "aten.max.dim",
    "aten.min.default",
    "aten.min.dim",
    "aten.selu.default",
    "aten.sigmoid.default",
    "aten.silu.default",
    "aten.sinc.default",
)
"""Operators that part from PyTorch at NaN, infinities or far out only."""

ENTERED_BY = {
    "_native_batch_norm_legit_functional": ("native_batch_norm", "native_batch_norm_legit", "native_batch_norm_legit_no_training", "batch_norm"),
    "group_norm": ("native_group_norm",),
    "instance_norm": ("native_batch_norm",),
    "cross_entropy_loss": ("log_softmax", "nll_loss", "nll_loss2d"),
    "scaled_dot_product_attention": ("scaled_dot_product_flash_attention_for_cpu", "scaled_dot_product_attention_math", "safe_softmax"),
}
"""Composite operators by what eager mode runs in their place."""


COMPLEX = frozenset(("complex", "polar", "view_as_complex", "view_as_real", "stft", "fft_r2c", "fft_c2c", "fft_c2r"))
"""Operators that only models with complex numbers run."""


def everyday_suspect(key: str, symptom: str, written: str, message: str, ran: set[str]) -> bool:
    """Whether an operator that almost every model runs can be at fault: it is wrong in rare cases only. ran: what the model runs."""
    if key == "abs":
        return bool(ran & COMPLEX)
    if key in ("addbmm", "addmm", "addmv", "addr", "baddbmm"):
        return "beta" in written
    if key == "native_batch_norm_legit_functional":
        return "batch_norm" in written or "BatchNorm" in written
    if key == "instance_norm":
        return "instance_norm" in written or "InstanceNorm" in written
    if key in ("avg_pool2d", "avg_pool3d"):
        return "divisor_override" in written
    if key == "sum":
        return symptom == "dtype-mismatch" or (symptom.startswith("mismatch") and "places differ" in message)  # of whole numbers
    if key in ("mean", "any", "var", "std", "var_mean", "std_mean"):
        return symptom != "mismatch-at-example"
    return True
