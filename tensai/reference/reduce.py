"""Reductions. Sums accumulate in float64, so they are right to the last digit of float32."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Axis = int | tuple[int, ...] | None


def _wide(x: Array) -> Any:
    return np.float64 if x.dtype.kind == "f" else x.dtype


def total(x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
    """numpy.sum; integers wrap around at 32 bits."""
    return np.asarray(np.sum(x, axis=axis, keepdims=keepdims, dtype=_wide(x)))


def mean(x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
    """numpy.mean."""
    sums = np.sum(x, axis=axis, keepdims=keepdims, dtype=np.float64)
    return np.asarray(sums / (x.size / sums.size if sums.size else 1))


def maximum(x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
    """numpy.max: NaN if there is one."""
    return np.asarray(np.max(x, axis=axis, keepdims=keepdims))


def minimum(x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
    """numpy.min: NaN if there is one."""
    return np.asarray(np.min(x, axis=axis, keepdims=keepdims))


def argmax(x: Array, axis: int | None = None, keepdims: bool = False) -> Array:
    """numpy.argmax: the first NaN, else the first of the largest."""
    return np.asarray(np.argmax(x, axis=axis, keepdims=keepdims))
