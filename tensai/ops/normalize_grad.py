"""Gradients of softmax and of the normalizations."""

from __future__ import annotations

import math

import numpy as np

from .. import reference, rules
from ..dtypes import f32, narrowed_to
from ..errors import ShapeError
from ..operation import Job, Kernel, Probe, Result, Spec, operation, pack
from .reduction import sum_rows


def row_loops(length: int, walks: int = 3) -> int:
    """Iterations of a lane that walks over a row so often and joins as many results."""
    return walks * (-(-length // 256) + 16)


def _softmax_grad(job: Job, log: bool) -> None:
    y, grad = job.inputs
    axis = job.facts["axis"]
    length, inner = y.shape[axis], math.prod(y.shape[axis + 1 :])
    rows = y.size // length
    params = pack(rows, length, inner)
    operands = [y, grad, job.outputs[0]]
    job.step("softmax_grad", {"LOG": log}, operands, params, rows, row_loops(length))


def _same_shape(name: str, what: str, spec: Spec, grad: Spec) -> None:
    rules.floats_only(name, spec.dtype, grad.dtype)
    if grad.shape != spec.shape:
        raise ShapeError(
            f"[{name}] expected grad of {what}'s shape {spec.shape}, but got {grad.shape}"
        )


def _softmax_rule(name: str, y: Spec, grad: Spec, axis: int) -> Result:
    _same_shape(name, "the result", y, grad)
    axis = rules.axis_index(name, axis, len(y.shape))
    return Result((Spec(y.shape, f32),), (f32, f32), narrowed_to(y.dtype), {"axis": axis})


def _softmax_probes(log: bool) -> list[Probe]:
    rng = np.random.default_rng(9)
    compute = reference.log_softmax if log else reference.softmax
    made = []
    for shape, axis in (((3, 1037), -1), ((4, 85, 3), 1)):
        y = compute(rng.normal(0, 2, shape), axis).astype(np.float32)
        grad = rng.normal(0, 1, shape).astype(np.float32)
        grad[1, 5] = np.nan
        made.append(Probe((y, grad), {"axis": axis}, 2e-6))
    return made


@operation(
    kernels=[Kernel("softmax_grad", lambda job: _softmax_grad(job, log=False))],
    reference=reference.softmax_grad,
    probes=lambda: _softmax_probes(log=False),
)
def softmax_grad(y: Spec, grad: Spec, axis: int = -1) -> Result:
    """The gradient of softmax from its result y: y (grad - sum(grad y)) along an axis."""
    return _softmax_rule("softmax_grad", y, grad, axis)


@operation(
    kernels=[Kernel("log_softmax_grad", lambda job: _softmax_grad(job, log=True))],
    reference=reference.log_softmax_grad,
    probes=lambda: _softmax_probes(log=True),
)
def log_softmax_grad(y: Spec, grad: Spec, axis: int = -1) -> Result:
    """The gradient of log_softmax from its result y: grad - exp(y) sum(grad) along an axis."""
    return _softmax_rule("log_softmax_grad", y, grad, axis)


def _norm_grad(job: Job, centred: bool) -> None:
    x, grad, weight = job.inputs
    by_x, by_weight, *by_bias = job.outputs
    length = x.shape[-1]
    rows = x.size // length
    part = job.temporary(x.size, f32)
    params = pack(rows, length, float(job.arguments["eps"]))
    operands = [x, grad, weight, by_x, part]
    job.step("norm_grad", {"CENTRED": centred}, operands, params, rows, row_loops(length, 4))
    sum_rows(job, part, by_weight)
    if by_bias:
        sum_rows(job, grad, by_bias[0])


def _norm_rule(name: str, x: Spec, grad: Spec, weight: Spec, outputs: int) -> Result:
    _same_shape(name, "x", x, grad)
    rules.floats_only(name, weight.dtype)
    rules.last_axis(name, x.shape, weight=weight.shape)
    specs = (Spec(x.shape, f32), *(Spec(weight.shape, f32),) * (outputs - 1))
    return Result(specs, (f32, f32, f32), narrowed_to(x.dtype))


def _norm_probes() -> list[Probe]:
    rng = np.random.default_rng(10)
    made = []
    # Rows of one element are summed by another kernel; the large eps leaves their results digits,
    # and products without a rounding a dx of 0 where a driver fuses the subtraction too.
    for shape, eps in (((5, 771), 1e-3), ((70, 3, 40), 1e-3), ((3, 2), 1e-3), ((4099, 1), 0.5)):
        x = (rng.normal(0, 2, shape) + rng.normal(0, 3, (*shape[:-1], 1))).astype(np.float32)
        grad = rng.normal(0, 1, shape).astype(np.float32)
        weight = rng.normal(1, 0.5, shape[-1]).astype(np.float32)
        if shape[-1] == 1:
            grad, weight = np.round(4 * grad), np.full(1, 3, np.float32)
        made.append(Probe((x, grad, weight), {"eps": eps}, 1e-5))
    return made


@operation(
    kernels=[Kernel("layer_norm_grad", lambda job: _norm_grad(job, centred=True))],
    reference=reference.layer_norm_grad,
    probes=_norm_probes,
)
def layer_norm_grad(x: Spec, grad: Spec, weight: Spec, eps: float = 1e-5) -> Result:
    """The gradients (dx, dweight, dbias) of layer_norm at x for its result's gradient `grad`.

    With xhat = (x - mean) / s and g = grad * weight, dx = (g - mean(g) - xhat mean(g xhat)) / s,
    dweight and dbias are the sums of grad * xhat and of grad over all rows.
    """
    return _norm_rule("layer_norm_grad", x, grad, weight, 3)


@operation(
    kernels=[Kernel("rms_norm_grad", lambda job: _norm_grad(job, centred=False))],
    reference=reference.rms_norm_grad,
    probes=_norm_probes,
)
def rms_norm_grad(x: Spec, grad: Spec, weight: Spec, eps: float = 1e-6) -> Result:
    """The gradients (dx, dweight) of rms_norm at x for its result's gradient `grad`.

    As layer_norm_grad's, without the means.
    """
    return _norm_rule("rms_norm_grad", x, grad, weight, 2)
