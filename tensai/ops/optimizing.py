"""Optimizers' steps, in place."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import reference, rules
from ..dtypes import f32
from ..errors import DTypeError, ShapeError
from ..operation import Job, Kernel, Probe, Result, Spec, composition, operation, pack
from ..tensor import Tensor


def _logarithm(beta: float) -> float:
    return math.log(beta) if beta > 0 else -1e30  # whose e-th power is 0 all the same


def _adam(job: Job) -> None:
    given = job.arguments
    beta1, beta2 = float(given["beta1"]), float(given["beta2"])
    params = pack(
        job.inputs[0].size,
        bool(given["decoupled"]),
        1 - beta1,
        1 - beta2,
        beta1,
        beta2,
        _logarithm(beta1),
        _logarithm(beta2),
        float(given["eps"]),
        float(given["weight_decay"]),
    )
    job.step("adam_step", {}, job.inputs, params, -(-job.inputs[0].size // 256))


def _adam_probes() -> list[Probe]:
    rng = np.random.default_rng(23)
    made = []
    for step, decoupled in ((1, True), (3, False), (5000, True)):
        x, grad, m, v = rng.normal(0, 1, (4, 1027)).astype(np.float32)
        inputs = (x, grad, m, v * v, np.float32(0.05), np.float32(step))
        attributes = {
            "beta1": 0.9,
            "beta2": 0.999,
            "eps": 1e-3,
            "weight_decay": 0.1,
            "decoupled": decoupled,
        }
        made.append(Probe(tuple(map(np.asarray, inputs)), attributes, 1e-6))
    # Moments far larger than what comes: the new ones are all that counts.
    small = attributes | {"beta1": 0.0, "beta2": 0.0, "eps": 1e-8, "weight_decay": 0.0}
    rest = np.ones(1027, np.float32), np.float32(0.05), np.float32(2)
    inputs = (rest[0], rest[0] * np.float32(1e-4), *([rest[0] * 3] * 2), *rest[1:])
    made.append(Probe(tuple(map(np.asarray, inputs)), small, 1e-6))
    return made


def _alike(name: str, x: Spec, *others: Spec) -> None:
    for spec in (x, *others):
        if spec.dtype != f32:
            raise DTypeError(f"[{name}] expected float32, but got {spec.dtype}")
        if spec.shape != x.shape:
            raise ShapeError(f"[{name}] expected shapes alike, but got {x.shape} and {spec.shape}")


def _numbers(name: str, *given: Spec) -> None:
    for spec in given:
        if spec.dtype != f32 or spec.size != 1:
            raise ShapeError(
                f"[{name}] expected lr and step as one float32 number, but got {spec.dtype} "
                f"{spec.shape}"
            )


@operation(
    kernels=[Kernel("adam_step", _adam)],
    reference=reference.adam_step,
    probes=_adam_probes,
    name="adam_update_",
    method=False,
    writes=("x", "m", "v"),
)
def adam_update(
    x: Spec,
    grad: Spec,
    m: Spec,
    v: Spec,
    lr: Spec,
    step: Spec,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    decoupled: bool,
) -> Result:
    """A step of Adam on x, with its moments, in place."""
    _alike("adam_step_", x, grad, m, v)
    for name, beta in (("beta1", beta1), ("beta2", beta2)):
        if not 0 <= beta < 1:
            raise ValueError(f"[adam_step_] expected {name} from 0 to below 1, but got {beta}")
    _numbers("adam_step_", lr, step)
    return Result((), (f32,) * 6)


@composition
def adam_step_(
    x: Tensor,
    grad: Tensor,
    m: Tensor,
    v: Tensor,
    lr: float | Tensor,
    beta1: float,
    beta2: float,
    eps: float,
    step: float | Tensor,
    weight_decay: float = 0.0,
    decoupled: bool = True,
) -> Tensor:
    """A step of Adam (Kingma and Ba, 2014) on x in place, with its moments m and v; returns x.

    All float32 of one shape. m and v start as zeros, `step` counts from 1; lr and step may be
    tensors of one element, so that recorded work can follow them. weight_decay shrinks x by
    lr * weight_decay first (AdamW, Loshchilov and Hutter, 2017), or with decoupled=False is added
    to the gradient as weight_decay * x.
    """
    rate, count = (
        value
        if isinstance(value, Tensor)
        else x.device.constant(rules.number("adam_step_", what, value), f32)
        for what, value in (("lr", lr), ("step", step))
    )
    if not isinstance(step, Tensor) and step < 1:
        raise ValueError(f"[adam_step_] expected a step from 1 up, but got {step}")
    attributes = (beta1, beta2, eps, weight_decay, decoupled)
    adam_update(x, grad, m, v, rate, count, *attributes)
    return x


def _sgd(job: Job) -> None:
    given = job.arguments
    size = job.inputs[0].size
    params = pack(
        size, bool(given["nesterov"]), float(given["momentum"]), float(given["weight_decay"])
    )
    job.step("sgd_step", {}, job.inputs, params, -(-size // 256))


def _sgd_probes() -> list[Probe]:
    rng = np.random.default_rng(24)
    made = []
    for nesterov in (False, True):
        x, grad, velocity = rng.normal(0, 1, (3, 1027)).astype(np.float32)
        attributes: dict[str, Any] = {"momentum": 0.9, "weight_decay": 0.1, "nesterov": nesterov}
        made.append(Probe((x, grad, velocity, np.array(0.05, f32)), attributes, 1e-6))
    return made


@operation(
    kernels=[Kernel("sgd_step", _sgd)],
    reference=reference.sgd_step,
    probes=_sgd_probes,
    name="sgd_update_",
    method=False,
    writes=("x", "velocity"),
)
def sgd_update(
    x: Spec,
    grad: Spec,
    velocity: Spec,
    lr: Spec,
    momentum: float,
    weight_decay: float,
    nesterov: bool,
) -> Result:
    """velocity = momentum velocity + grad + weight_decay x; x -= lr velocity, in place.

    With nesterov, x -= lr (grad + weight_decay x + momentum velocity) (Sutskever et al., 2013).
    """
    _alike("sgd_update_", x, grad, velocity)
    _numbers("sgd_update_", lr)
    return Result((), (f32,) * 4)
