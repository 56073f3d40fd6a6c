"""Moving elements without computing."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def strided_copy(
    x: Array, shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0
) -> Array:
    """Elements of x, as one row, read from `offset` on with `strides` (in elements)."""
    flat = np.ascontiguousarray(x).reshape(-1)
    item = flat.itemsize
    steps = tuple(stride * item for stride in strides)
    return np.lib.stride_tricks.as_strided(flat[offset:], shape, steps).copy()


def embed(table: Array, indices: Array) -> Array:
    """Rows of the table; NaN (0 for integers) where an index is out of range."""
    right = (indices >= 0) & (indices < table.shape[0])
    found = np.full(
        (*indices.shape, table.shape[1]), np.nan if table.dtype.kind == "f" else 0, table.dtype
    )
    found[right] = table[indices[right]]
    return found


def put(x: Array, part: Array, axis: int, start: int) -> Array:
    """x with `part` from place `start` of an axis on."""
    made = x.copy()
    made[(slice(None),) * axis + (slice(start, start + part.shape[axis]),)] = part
    return made
