"""Forms of operators that ONNX Runtime lacks in double precision, from operators that it has.

Each function takes a writer, the node, and the element type, writes nodes whose last value is the node's output, and
returns True, or returns False where the node is of a form it does not cover. The same forms serve integers, for
which convolutions have no kernels either.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import onnx
from onnx import TensorProto

from autofix.surgery.onnx_types import onnx_attribute
from autofix.surgery.onnx_writer import OnnxWriter

ERF_SMALL = ([3.16112374387056560e00, 1.13864154151050156e02, 3.77485237685302021e02, 3.20937758913846947e03, 1.85777706184603153e-1],
             [2.36012909523441209e01, 2.44024637934444173e02, 1.28261652607737228e03, 2.84423683343917062e03])  # fmt: skip
ERF_MIDDLE = ([5.64188496988670089e-1, 8.88314979438837594e00, 6.61191906371416295e01, 2.98635138197400131e02, 8.81952221241769090e02,
               1.71204761263407058e03, 2.05107837782607147e03, 1.23033935479799725e03, 2.15311535474403846e-8],
              [1.57449261107098347e01, 1.17693950891312499e02, 5.37181101862009858e02, 1.62138957456669019e03, 3.29079923573345963e03,
               4.36261909014324716e03, 3.43936767414372164e03, 1.23033935480374942e03])  # fmt: skip
SELU_ALPHA, SELU_SCALE = 1.6732632423543772, 1.0507009873554805  # torch.nn.SELU's
ERF_LARGE = 6.0  # erf(6) rounds to 1 in double precision, erf(5.9) does not


def double_const(w: OnnxWriter, value: float) -> str:
    """A 0-d double constant."""
    return w.const(value, np.float64)


def double_rational(w: OnnxWriter, x: str, numerator: list[float], denominator: list[float]) -> str:
    """W. J. Cody's scheme: the last coefficient of the numerator leads it, 1 leads the denominator."""
    top, bottom = w.op("Mul", x, double_const(w, numerator[-1])), x
    for a, b in zip(numerator[:-2], denominator[:-1], strict=True):
        top = w.op("Mul", w.op("Add", top, double_const(w, a)), x)
        bottom = w.op("Mul", w.op("Add", bottom, double_const(w, b)), x)
    return w.op("Div", w.op("Add", top, double_const(w, numerator[-2])), w.op("Add", bottom, double_const(w, denominator[-1])))


def double_erf(w: OnnxWriter, node: onnx.NodeProto, code: int) -> bool:
    """erf by Cody's rational approximations (Math. Comp. 23, 1969): relative error below 6e-16 on both pieces."""
    x = node.input[0]
    size = w.op("Abs", x)
    capped = w.op("Min", size, double_const(w, 0.46875))
    small = w.op("Mul", x, double_rational(w, w.op("Mul", capped, capped), *ERF_SMALL))
    bounded = w.op("Max", w.op("Min", size, double_const(w, ERF_LARGE)), double_const(w, 0.46875))
    tail = w.op("Mul", w.op("Exp", w.op("Neg", w.op("Mul", bounded, bounded))), double_rational(w, bounded, *ERF_MIDDLE))
    large = w.op("Mul", w.op("Sign", x), w.op("Sub", double_const(w, 1.0), tail))
    chosen = w.op("Where", w.op("Less", size, double_const(w, 0.46875)), small, large)
    w.op("Where", w.op("IsNaN", x), x, chosen, out=node.output[0])
    return True


def double_gelu(w: OnnxWriter, node: onnx.NodeProto, code: int) -> bool:
    """0.5 x (1 + erf(x / sqrt 2)), or the tanh form."""
    x = node.input[0]
    if onnx_attribute(node, "approximate", b"none") == b"tanh":
        cube = w.op("Mul", w.op("Mul", x, x), x)
        inner = w.op("Mul", double_const(w, float(np.sqrt(2 / np.pi))), w.op("Add", x, w.op("Mul", double_const(w, 0.044715), cube)))
        phi = w.op("Tanh", inner)
    else:
        phi = w.op("Erf", w.op("Mul", x, double_const(w, float(np.sqrt(0.5)))))
    w.op("Mul", w.op("Mul", x, double_const(w, 0.5)), w.op("Add", phi, double_const(w, 1.0)), out=node.output[0])
    return True


def double_sinh_cosh(w: OnnxWriter, node: onnx.NodeProto, code: int) -> bool:
    """cosh = (e + 1/e) / 2; sinh from t = tanh(x/2): 2 t / (1 - t^2) near 0, where e - 1/e would cancel. e^(x/2) is squared late, for large x."""
    x = node.input[0]
    half = w.op("Mul", x, double_const(w, 0.5))
    up = w.op("Exp", half)
    down = w.op("Exp", w.op("Neg", half))
    big_up = w.op("Mul", w.op("Mul", up, double_const(w, 0.5)), up)
    big_down = w.op("Mul", w.op("Mul", down, double_const(w, 0.5)), down)
    if node.op_type == "Cosh":
        w.op("Add", big_up, big_down, out=node.output[0])
        return True
    t = w.op("Tanh", half)
    near = w.op("Div", w.op("Mul", t, double_const(w, 2.0)), w.op("Mul", w.op("Sub", double_const(w, 1.0), t), w.op("Add", double_const(w, 1.0), t)))
    w.op("Where", w.op("Less", w.op("Abs", x), double_const(w, 1.0)), near, w.op("Sub", big_up, big_down), out=node.output[0])
    return True


def double_tan(w: OnnxWriter, node: onnx.NodeProto, code: int) -> bool:
    """sin / cos."""
    w.op("Div", w.op("Sin", node.input[0]), w.op("Cos", node.input[0]), out=node.output[0])
    return True


def double_refined(w: OnnxWriter, estimate: str, sine: str, cosine: str) -> str:
    """An angle, given a float32 estimate and the true sine and cosine times a common positive factor.

    The residual angle d has tan d = (s cos e - c sin e) / (c cos e + s sin e); |d| < 3e-4, so d = r - r^3/3 + r^5/5 is exact.
    """
    se, ce = w.op("Sin", estimate), w.op("Cos", estimate)
    top = w.op("Sub", w.op("Mul", sine, ce), w.op("Mul", cosine, se))
    r = w.op("Div", top, w.op("Add", w.op("Mul", cosine, ce), w.op("Mul", sine, se)))
    q = w.op("Mul", r, r)
    series = w.op("Add", double_const(w, -1 / 3), w.op("Mul", q, double_const(w, 0.2)))
    d = w.op("Add", r, w.op("Mul", w.op("Mul", r, q), series))
    return w.op("Add", estimate, d)


def double_inverse_trig(w: OnnxWriter, node: onnx.NodeProto, code: int) -> bool:
    """asin, acos, atan: the float32 kernel's value, then one exact correction in double precision."""
    x = node.input[0]
    estimate = w.cast(w.op(node.op_type, w.cast(x, TensorProto.FLOAT)), TensorProto.DOUBLE)
    one = double_const(w, 1.0)
    if node.op_type == "Atan":
        far = w.op("Greater", w.op("Abs", x), one)  # scaled by 1/|x| there, so that infinity stays finite
        size = w.op("Max", w.op("Abs", x), one)
        sine, cosine = w.op("Where", far, w.op("Sign", x), x), w.op("Div", one, size)
        cosine = w.op("Where", far, cosine, one)
    else:
        other = w.op("Sqrt", w.op("Mul", w.op("Sub", one, x), w.op("Add", one, x)))
        sine, cosine = (x, other) if node.op_type == "Asin" else (other, x)
    refined = double_refined(w, estimate, sine, cosine)
    w.op("Where", w.op("Equal", x, double_const(w, 0.0)), x, refined, out=node.output[0]) if node.op_type != "Acos" else w.op(
        "Identity", refined, out=node.output[0]
    )
    return True


def double_log1p(w: OnnxWriter, x: str) -> str:
    """log(1 + x) = x log(u) / (u - 1) with u = fl(1 + x), Kahan's correction."""
    u = w.op("Add", x, double_const(w, 1.0))
    d = w.op("Sub", u, double_const(w, 1.0))
    same = w.op("Equal", d, double_const(w, 0.0))
    safe = w.op("Where", same, double_const(w, 1.0), d)
    ratio = w.op("Where", w.op("IsInf", u), double_const(w, 1.0), w.op("Div", x, safe))
    return w.op("Where", same, x, w.op("Mul", w.op("Log", u), ratio))


def double_inverse_hyperbolic(w: OnnxWriter, node: onnx.NodeProto, code: int) -> bool:
    """asinh, acosh and atanh as logarithms without cancellation."""
    x, one = node.input[0], double_const(w, 1.0)
    if node.op_type == "Atanh":
        a = w.op("Abs", x)
        value = w.op("Mul", double_const(w, 0.5), double_log1p(w, w.op("Div", w.op("Mul", double_const(w, 2.0), a), w.op("Sub", one, a))))
        w.op("Where", w.op("Less", x, double_const(w, 0.0)), w.op("Neg", value), value, out=node.output[0])
        return True
    a = w.op("Abs", x) if node.op_type == "Asinh" else x
    capped = w.op("Min", a, double_const(w, 1e8))
    if node.op_type == "Asinh":  # log1p(a + a^2 / (1 + sqrt(1 + a^2)))
        square = w.op("Mul", capped, capped)
        body = double_log1p(w, w.op("Add", capped, w.op("Div", square, w.op("Add", one, w.op("Sqrt", w.op("Add", one, square))))))
    else:  # t = a - 1: log1p(t + sqrt(t (t + 2)))
        t = w.op("Sub", capped, one)
        body = double_log1p(w, w.op("Add", t, w.op("Sqrt", w.op("Mul", t, w.op("Add", t, double_const(w, 2.0))))))
    large = w.op("Add", w.op("Log", a), double_const(w, float(np.log(2.0))))
    value = w.op("Where", w.op("Greater", a, double_const(w, 1e8)), large, body)
    if node.op_type == "Acosh":
        w.op("Identity", value, out=node.output[0])
    else:
        w.op(
            "Where",
            w.op("Less", x, double_const(w, 0.0)),
            w.op("Neg", value),
            w.op("Where", w.op("Equal", x, double_const(w, 0.0)), x, value),
            out=node.output[0],
        )
    return True


def double_number(node: onnx.NodeProto, name: str, default: float) -> float:
    """An attribute, which ONNX keeps in float32: the fraction with a denominator up to 1000 that rounds to it, if any (0.01, 1/6)."""
    value = float(onnx_attribute(node, name, default))
    simple = float(Fraction(value).limit_denominator(1000)) if np.isfinite(value) else value
    return simple if np.float32(simple) == np.float32(value) else value


def double_expm1(w: OnnxWriter, x: str) -> str:
    """exp(x) - 1 for x <= 0: 2 t / (1 - t) with t = tanh(x / 2)."""
    t = w.op("Tanh", w.op("Mul", x, double_const(w, 0.5)))
    return w.op("Div", w.op("Mul", t, double_const(w, 2.0)), w.op("Sub", double_const(w, 1.0), t))


def double_elu(w: OnnxWriter, node: onnx.NodeProto, code: int) -> bool:
    """x above 0, else a (exp(x / c) - 1), times a scale: Elu (c = 1), Celu (c = a), and Selu, whose two numbers PyTorch has in full."""
    x, zero, scale, divisor = node.input[0], double_const(w, 0.0), 1.0, 1.0
    a = double_number(node, "alpha", 1.0)
    if node.op_type == "Celu":
        divisor = a
    elif node.op_type == "Selu":
        if any(abs(float(onnx_attribute(node, n, v)) - v) > 1e-6 for n, v in (("alpha", SELU_ALPHA), ("gamma", SELU_SCALE))):
            return False
        a, scale = SELU_ALPHA, SELU_SCALE
    if divisor <= 0:
        return False
    above = w.op("Greater", x, zero)
    below = w.op("Where", above, zero, x)
    if divisor != 1.0:
        below = w.op("Div", below, double_const(w, divisor))
    low = w.op("Mul", double_expm1(w, below), double_const(w, a * scale))
    high = w.op("Mul", x, double_const(w, scale)) if scale != 1.0 else x
    w.op("Where", above, high, low, out=node.output[0])
    return True


def double_softplus(w: OnnxWriter, node: onnx.NodeProto, code: int) -> bool:
    """max(x, 0) + log(1 + exp(-|x|)); Mish is x tanh of that."""
    x, zero = node.input[0], double_const(w, 0.0)
    rest = double_log1p(w, w.op("Exp", w.op("Neg", w.op("Abs", x))))
    high = w.op("Where", w.op("Less", x, zero), zero, x)
    if node.op_type == "Softplus":
        w.op("Add", high, rest, out=node.output[0])
    else:
        w.op("Mul", x, w.op("Tanh", w.op("Add", high, rest)), out=node.output[0])
    return True


def double_bent_line(w: OnnxWriter, node: onnx.NodeProto, code: int) -> bool:
    """LeakyRelu and PRelu: another slope below 0. HardSigmoid and HardSwish: a x + b between 0 and 1, the latter times x. Softsign."""
    x, zero, one, out = node.input[0], double_const(w, 0.0), double_const(w, 1.0), node.output[0]
    if node.op_type in ("LeakyRelu", "PRelu"):
        slope = node.input[1] if node.op_type == "PRelu" else double_const(w, double_number(node, "alpha", 0.01))
        w.op("Where", w.op("Less", x, zero), w.op("Mul", x, slope), x, out=out)
    elif node.op_type == "Softsign":
        w.op("Div", x, w.op("Add", one, w.op("Abs", x)), out=out)
    else:
        steep = 1 / 6 if node.op_type == "HardSwish" else double_number(node, "alpha", 0.2)
        line = w.op("Add", w.op("Mul", x, double_const(w, steep)), double_const(w, double_number(node, "beta", 0.5)))
        cut = w.op("Where", w.op("Less", line, zero), zero, w.op("Where", w.op("Greater", line, one), one, line))
        w.op("Mul", x, cut, out=out) if node.op_type == "HardSwish" else w.op("Identity", cut, out=out)
    return True


def gemm_parts(w: OnnxWriter, node: onnx.NodeProto, code: int) -> bool:
    """Gemm as Transpose, MatMul and Add; for integers alpha and beta must be 1."""
    if float(onnx_attribute(node, "alpha", 1.0)) != 1.0 or float(onnx_attribute(node, "beta", 1.0)) != 1.0:
        return False
    a = w.op("Transpose", node.input[0], perm=[1, 0]) if onnx_attribute(node, "transA", 0) else node.input[0]
    b = w.op("Transpose", node.input[1], perm=[1, 0]) if onnx_attribute(node, "transB", 0) else node.input[1]
    has_bias = len(node.input) > 2 and bool(node.input[2])
    product = w.op("MatMul", a, b, out=None if has_bias else node.output[0])
    if has_bias:
        w.op("Add", product, node.input[2], out=node.output[0])
    return True


def nonzero_parts(w: OnnxWriter, node: onnx.NodeProto, code: int) -> bool:
    """NonZero of booleans; a cast to bool is False for zeros alone."""
    w.op("NonZero", w.cast(node.input[0], TensorProto.BOOL), out=node.output[0])
    return code != TensorProto.BOOL


def relu_parts(w: OnnxWriter, node: onnx.NodeProto, code: int) -> bool:
    """Relu of whole numbers as Max with 0."""
    w.op("Max", node.input[0], w.cast(w.const(0), code), out=node.output[0])
    return code not in (TensorProto.FLOAT, TensorProto.DOUBLE)


def sum_parts(w: OnnxWriter, node: onnx.NodeProto, code: int) -> bool:
    """Sum and Mean of several tensors as Add (and Div)."""
    total = node.input[0]
    for other in list(node.input)[1:]:
        total = w.op("Add", total, other)
    if node.op_type == "Mean":
        total = w.op("Div", total, w.cast(w.const(float(len(node.input)), np.float64), code))
    w.op("Identity", total, out=node.output[0])
    return True


def instance_norm_parts(w: OnnxWriter, node: onnx.NodeProto, code: int, rank: int | None = None) -> bool:
    """(x - mean) / sqrt(var + eps) * scale + bias over everything behind axis 1; the input is viewed as [N, C, -1]."""
    x, scale, bias = node.input
    flat = w.op("Reshape", x, w.shape_of(w.size(x, 0), w.size(x, 1), w.op("ReduceProd", w.slice(w.op("Shape", x), [2], [2**31], [0]), keepdims=1)))
    centred = w.op("Sub", flat, w.reduce("ReduceMean", flat, [2], True))
    variance = w.reduce("ReduceMean", w.op("Mul", centred, centred), [2], True)
    eps = w.cast(w.const(float(np.float64(np.float32(onnx_attribute(node, "epsilon", 1e-5)))), np.float64), code)
    normal = w.op("Div", centred, w.op("Sqrt", w.op("Add", variance, eps)))
    scaled = w.op("Add", w.op("Mul", normal, w.unsqueeze(scale, [0, 2])), w.unsqueeze(bias, [0, 2]))
    w.op("Reshape", scaled, w.op("Shape", x), out=node.output[0])
    return True


def global_pool_parts(w: OnnxWriter, node: onnx.NodeProto, code: int) -> bool:
    """Mean or maximum over everything behind axis 1, kept as axes of size 1."""
    x = node.input[0]
    shape = w.op("Shape", x)
    count = w.op("ReduceProd", w.slice(shape, [2], [2**31], [0]), keepdims=1)
    flat = w.op("Reshape", x, w.op("Concat", w.slice(shape, [0], [2], [0]), count, axis=0))
    pooled = w.reduce("ReduceMean" if node.op_type == "GlobalAveragePool" else "ReduceMax", flat, [2], False)
    ones = w.op("ConstantOfShape", w.op("Shape", w.slice(shape, [2], [2**31], [0])), value=onnx.numpy_helper.from_array(np.ones(1, np.int64)))
    w.op("Reshape", pooled, w.op("Concat", w.slice(shape, [0], [2], [0]), ones, axis=0), out=node.output[0])
    return True
