"""Rotary positions and caches by NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from .normalize import rms_norm

Array = np.ndarray[Any, Any]


def turned(x: Array, positions: Array, frequencies: Array, neighbours: bool, scale: float) -> Array:
    """x (..., rows, heads, dim) with each pair of elements turned by its angle.

    `frequencies` (pairs, 2) are fractions of a turn for each position, 64 bits in two uint32.
    """
    words = frequencies.astype(np.uint64)
    whole = (words[:, 0] << np.uint64(32)) | words[:, 1]
    # The product wraps around at a whole turn.
    turns = positions.astype(np.uint64)[:, None] * whole
    angles = turns.astype(np.float64) * (2 * np.pi / 2.0**64)
    cosine, sine = np.cos(angles)[:, None] * scale, np.sin(angles)[:, None] * scale
    pairs = len(frequencies)
    first = slice(0, 2 * pairs, 2) if neighbours else slice(0, pairs)
    second = slice(1, 2 * pairs, 2) if neighbours else slice(pairs, 2 * pairs)
    result = x.astype(np.float64)
    a, b = x[..., first].astype(np.float64), x[..., second].astype(np.float64)
    result[..., first] = a * cosine - b * sine
    result[..., second] = a * sine + b * cosine
    return result


def rope(
    x: Array, positions: Array, frequencies: Array, heads: int, neighbours: bool, scale: float
) -> Array:
    """x (..., rows, heads * dim), turned; one position is that of the first row."""
    rows = x.shape[-2]
    each = positions.reshape(-1)
    if each.size == 1 and rows != 1:
        each = each + np.arange(rows)
    split = x.reshape(*x.shape[:-1], heads, x.shape[-1] // heads)
    return turned(split, each, frequencies, neighbours, scale).reshape(x.shape)


def append_kv(
    k_cache: Array,
    v_cache: Array,
    qkv: Array,
    at: Array,
    frequencies: Array,
    norms: Array | None,
    heads: int,
    kv_heads: int,
    neighbours: bool,
    scale: float,
    eps: float,
) -> tuple[Array, Array, Array]:
    """Queries, and the caches with the new rows in them (see ops.append_kv_)."""
    rows = len(qkv)
    dim = qkv.shape[-1] // (heads + 2 * kv_heads)
    split = qkv.reshape(rows, heads + 2 * kv_heads, dim)
    q, k, v = np.split(split, [heads, heads + kv_heads], axis=1)
    if norms is not None:
        q, k = rms_norm(q, norms[0], eps, None), rms_norm(k, norms[1], eps, None)
    places = int(at.reshape(())) + np.arange(rows)
    positions = places % (1 << 32)
    q, k = (turned(part, positions, frequencies, neighbours, scale) for part in (q, k))
    new_k = copy_rows(k_cache, k.reshape(rows, kv_heads * dim), at)
    new_v = copy_rows(v_cache, v.reshape(rows, kv_heads * dim), at)
    return q.reshape(rows, heads * dim), new_k, new_v


def copy_rows(x: Array, source: Array, at: Array) -> Array:
    """x with the rows of source at `at` and after it, as far as there is room."""
    start = int(at.reshape(()))
    made = x.copy()
    if 0 <= start < len(x):
        count = min(len(source), len(x) - start)
        made[start : start + count] = source[:count]
    return made
