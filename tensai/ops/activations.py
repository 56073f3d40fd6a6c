"""Activations, and their derivatives by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .. import reference, rules
from ..dtypes import f32, narrowed_to
from ..operation import Job, Probe, Result, Spec, composition, operation
from ..tensor import Tensor
from .elementwise import COUNT, binary, sample, typed, unary
from .strided import elementwise

relu = unary(
    "relu",
    "max(x, 0), and NaN for NaN.",
    typed("select(max(a, 0.0), a, is_nan(a))", "max(a, 0)", "a"),
    lambda x: np.maximum(x, 0),
    lambda grad, x: x.activate_grad("relu", grad),
    integers=True,
    tolerance=0,
)
tanh = unary(
    "tanh",
    "Hyperbolic tangent.",
    "tanh_f32(a)",
    np.tanh,
    lambda grad, x: x.activate_grad("tanh", grad),
    tolerance=1e-6,
)
sigmoid = unary(
    "sigmoid",
    "1 / (1 + e ** -x).",
    "sigmoid_f32(a)",
    reference.sigmoid,
    lambda grad, x: x.activate_grad("sigmoid", grad),
    tolerance=1e-6,
)
silu = unary(
    "silu",
    "x sigmoid(x).",
    "silu_f32(a)",
    reference.silu,
    lambda grad, x: x.activate_grad("silu", grad),
    tolerance=1e-6,
)


def _gelu_expression(job: Job) -> str:
    return "gelu_erf(a)" if job.arguments["approximate"] == "none" else "gelu_tanh(a)"


@operation(
    kernels=[elementwise("gelu", _gelu_expression)],
    reference=reference.gelu,
    probes=lambda: [
        Probe((sample(COUNT, f32, 1),), {"approximate": form}, 2e-6, floor=1e-6)
        for form in ("none", "tanh")
    ],
    gradients={
        "x": lambda grad, x, approximate: x.activate_grad(
            "gelu" if approximate == "none" else "gelu_tanh", grad
        )
    },
)
def gelu(x: Spec, approximate: str = "none") -> Result:
    """Gaussian error linear unit (Hendrycks and Gimpel, 2016).

    x/2 (1 + erf(x / sqrt 2)) for approximate="none", and with "tanh" the form
    x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))). Same shape as x.
    """
    if approximate not in ("none", "tanh"):
        raise ValueError(f'[gelu] expected approximate "none" or "tanh", but got {approximate!r}')
    return Result((Spec(x.shape, f32),), (f32,), narrowed_to(x.dtype))


# An activation by name: what computes it, and the WGSL of its derivative.
ACTIVATIONS: dict[str, tuple[Callable[..., Any], str]] = {
    "relu": (relu, "relu_slope(a)"),
    "tanh": (tanh, "tanh_slope(a)"),
    "sigmoid": (sigmoid, "sigmoid_slope(a)"),
    "silu": (silu, "silu_slope(a)"),
    "gelu": (gelu, "gelu_erf_slope(a)"),
    "gelu_tanh": (lambda x: gelu(x, "tanh"), "gelu_tanh_slope(a)"),
}


def _activation(operation: str, name: str) -> tuple[Callable[..., Any], str]:
    if not isinstance(name, str) or name not in ACTIVATIONS:
        raise ValueError(
            f"[{operation}] expected one of {', '.join(ACTIVATIONS)}, but got {name!r}"
        )
    return ACTIVATIONS[name]


@composition
def activate(x: Tensor, name: str) -> Tensor:
    """The activation of that name: relu, tanh, sigmoid, silu, gelu or gelu_tanh."""
    made: Tensor = _activation("activate", name)[0](x)
    return made


@operation(
    kernels=[
        elementwise("activate_grad", lambda job: f"{ACTIVATIONS[job.arguments['name']][1]} * b")
    ],
    reference=lambda x, name, grad: reference.slope(name, x) * grad,
    probes=lambda: [
        Probe((x, grad), {"name": name}, 5e-7)
        for name in ACTIVATIONS
        for x, grad in (
            (sample(COUNT, f32, 1), np.linspace(-3, 3, COUNT, dtype=f32)),
            (
                sample(64, f32, 1).reshape(1, 2, 1, 2, 1, 16),
                np.linspace(-3, 3, 12, dtype=f32).reshape(2, 1, 3, 1, 2, 1),
            ),
        )
    ],
)
def activate_grad(x: Spec, name: str, grad: Spec) -> Result:
    """grad times the derivative at x of the activation of that name (see activate).

    Both broadcast. The derivative of relu at 0 is 0.
    """
    _activation("activate_grad", name)
    rules.floats_only("activate_grad", x.dtype, grad.dtype)
    shape = rules.broadcast("activate_grad", x.shape, grad.shape)
    return Result((Spec(shape, f32),), (f32, f32), narrowed_to(x.dtype))


silu_mul = binary(
    "silu_mul",
    "silu(a) * b, as in a gated feed-forward layer.",
    "silu_mul_f32(a, b)",
    lambda a, b: reference.silu(a) * b,
    {
        "a": lambda grad, a, b: a.activate_grad("silu", grad * b),
        "b": lambda grad, a: silu(a) * grad,
    },
    dtypes=(f32,),
    tolerance=1e-6,
)
