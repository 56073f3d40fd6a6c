"""Gradients and optimizers' steps, computed in float64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def strided_put(part: Array, shape: Any, strides: Any, offset: int) -> Array:
    """Zeros of `shape` with the elements of `part` where strided_copy would have read them."""
    flat = np.zeros(math.prod(shape), part.dtype)
    if part.size:
        steps = tuple(stride * flat.itemsize for stride in strides)
        np.lib.stride_tricks.as_strided(flat[offset:], part.shape, steps)[...] = part
    return flat.reshape(shape)


def softmax_grad(y: Array, grad: Array, axis: int = -1) -> Array:
    """y (grad - sum(grad y))."""
    y, grad = y.astype(np.float64), grad.astype(np.float64)
    return y * (grad - (grad * y).sum(axis=axis, keepdims=True))


def log_softmax_grad(y: Array, grad: Array, axis: int = -1) -> Array:
    """grad - exp(y) sum(grad)."""
    grad = grad.astype(np.float64)
    return grad - np.exp(y.astype(np.float64)) * grad.sum(axis=axis, keepdims=True)


def _norm_grad(
    x: Array, grad: Array, weight: Array, eps: float, centred: bool
) -> tuple[Array, Array]:
    wide, grad = x.astype(np.float64), grad.astype(np.float64)
    axes = tuple(range(x.ndim - 1))
    if wide.size == 0:
        return wide, np.zeros(weight.shape)
    if centred:
        wide = wide - wide.mean(axis=-1, keepdims=True)
    scale = 1 / np.sqrt(np.square(wide).mean(axis=-1, keepdims=True) + eps)
    normal, weighted = wide * scale, grad * weight
    slope = (weighted * normal).mean(axis=-1, keepdims=True)
    shift = weighted.mean(axis=-1, keepdims=True) if centred else 0
    return scale * (weighted - shift - normal * slope), (grad * normal).sum(axis=axes)


def layer_norm_grad(
    x: Array, grad: Array, weight: Array, eps: float = 1e-5
) -> tuple[Array, Array, Array]:
    """Gradients of layer_norm for x, weight and bias."""
    by_x, by_weight = _norm_grad(x, grad, weight, eps, centred=True)
    by_bias = grad.sum(axis=tuple(range(x.ndim - 1)), dtype=np.float64)
    return by_x, by_weight, by_bias


def rms_norm_grad(x: Array, grad: Array, weight: Array, eps: float = 1e-6) -> tuple[Array, Array]:
    """Gradients of rms_norm for x and weight."""
    return _norm_grad(x, grad, weight, eps, centred=False)


def embed_grad(indices: Array, grad: Array, rows: int) -> Array:
    """Rows of grad added up by index; an index out of range adds nothing."""
    dim = grad.shape[-1]
    made = np.zeros((rows, dim))
    flat = indices.reshape(-1)
    right = (flat >= 0) & (flat < rows)
    np.add.at(made, flat[right], grad.reshape(flat.size, dim)[right])
    return made


def cross_entropy(logits: Array, labels: Array) -> tuple[Array, Array]:
    """Losses of the rows, and softmax minus one at the label; NaN where there is no such class."""
    wide = logits.astype(np.float64)
    largest = wide.max(axis=1, keepdims=True, initial=-np.inf)
    weights = np.exp(wide - largest)
    sums = weights.sum(axis=1, keepdims=True)
    slopes = weights / sums
    rows = np.arange(len(labels))
    valid = (labels >= 0) & (labels < logits.shape[1])
    losses = np.full(len(labels), np.nan)
    kept, chosen = rows[valid], labels[valid]
    losses[valid] = np.log(sums[valid, 0]) - (wide[kept, chosen] - largest[valid, 0])
    slopes[kept, chosen] -= 1
    slopes[~valid] = np.nan
    return losses, slopes


def adam_step(
    x: Array,
    grad: Array,
    m: Array,
    v: Array,
    lr: Array,
    step: Array,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    decoupled: bool,
) -> tuple[Array, Array, Array]:
    """x, m and v after a step."""
    x, grad, m, v = (array.astype(np.float64) for array in (x, grad, m, v))
    rate, count = lr.reshape(()).astype(np.float64), step.reshape(()).astype(np.float64)
    if decoupled:
        kept = x - rate * weight_decay * x
    else:
        kept, grad = x, grad + weight_decay * x
    m = beta1 * m + (1 - beta1) * grad
    v = beta2 * v + (1 - beta2) * grad * grad
    root = np.sqrt(v / (1 - beta2**count)) + eps
    return kept - rate / (1 - beta1**count) * m / root, m, v


def sgd_step(
    x: Array,
    grad: Array,
    velocity: Array,
    lr: Array,
    momentum: float,
    weight_decay: float,
    nesterov: bool,
) -> tuple[Array, Array]:
    """x and velocity after a step."""
    x, velocity = x.astype(np.float64), velocity.astype(np.float64)
    slope = grad + weight_decay * x
    velocity = momentum * velocity + slope
    ahead = slope + momentum * velocity if nesterov else velocity
    return x - float(lr.reshape(())) * ahead, velocity
