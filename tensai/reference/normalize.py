"""Softmax and layer normalization, computed in float64."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def softmax(x: Array, axis: int = -1) -> Array:
    """exp(x) over its sum; a row whose every element is -inf gives zeros."""
    wide = x.astype(np.float64)
    largest = wide.max(axis=axis, keepdims=True, initial=-np.inf)
    weights = np.exp(wide - np.where(np.isneginf(largest), 0, largest))
    sums = weights.sum(axis=axis, keepdims=True)
    return weights / np.where(sums == 0, 1, sums)


def log_softmax(x: Array, axis: int = -1) -> Array:
    """log(softmax(x)); a row whose every element is -inf stays so."""
    wide = x.astype(np.float64)
    largest = wide.max(axis=axis, keepdims=True, initial=-np.inf)
    shifted = wide - np.where(np.isneginf(largest), 0, largest)
    sums = np.exp(shifted).sum(axis=axis, keepdims=True)
    return shifted - np.log(np.where(sums == 0, 1, sums))


def layer_norm_xhat(x: Array, eps: float = 1e-5) -> Array:
    """(x - mean) / sqrt(variance + eps) over the last axis."""
    wide = x.astype(np.float64)
    if wide.size == 0:
        return wide
    centred = wide - wide.mean(axis=-1, keepdims=True)
    return centred / np.sqrt(np.square(centred).mean(axis=-1, keepdims=True) + eps)


def layer_norm(x: Array, weight: Array, bias: Array, eps: float = 1e-5) -> Array:
    """(x - mean) / sqrt(variance + eps) * weight + bias over the last axis."""
    return layer_norm_xhat(x, eps) * weight + bias


def rms_norm(x: Array, weight: Array, eps: float, residual: Array | None) -> Array:
    """x / sqrt(mean(x^2) + eps) * weight + residual over the last axis."""
    wide = x.astype(np.float64)
    scaled = wide / np.sqrt(np.square(wide).mean(axis=-1, keepdims=True) + eps) * weight
    return scaled if residual is None else scaled + residual
