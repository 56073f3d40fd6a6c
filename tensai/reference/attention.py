"""Attention, with the scores stored, in float64."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def attention(
    q: Array,
    k: Array,
    v: Array,
    kv_length: Array,
    mask: Array | None,
    heads: int,
    kv_heads: int | None,
    causal: bool,
    scale: float | None,
    window: int | None,
    softcap: float | None,
) -> Array:
    """softmax(scale q k^T + mask) v for each head, as tensai.ops.attention describes it."""
    queries, rows = q.shape[-2], k.shape[-2]
    valid = min(max(int(kv_length.reshape(())), 0), rows)
    kv_heads = heads if kv_heads is None else kv_heads
    dim = q.shape[-1] // heads
    batch = q.shape[0] if q.ndim == 3 else 1

    def split(x: Array, count: int) -> Array:
        parts = x.reshape(batch, x.shape[-2], count, dim).transpose(0, 2, 1, 3)
        return np.repeat(parts.astype(np.float64), heads // count, axis=1)

    keys, values = split(k, kv_heads)[:, :, :valid], split(v, kv_heads)[:, :, :valid]
    factor = 1 / np.sqrt(max(dim, 1)) if scale is None else scale
    scores = split(q, heads) @ np.swapaxes(keys, -1, -2) * factor
    if softcap is not None:
        scores = softcap * np.tanh(scores / softcap)
    position = np.arange(valid)
    last = np.arange(queries)[:, None] + valid - queries
    seen: Array = np.ones(scores.shape, dtype=bool)
    if causal:
        seen &= position <= last
    if window is not None:
        seen &= position > last - window
    if mask is not None:
        full = np.broadcast_to(mask, (*scores.shape[:-1], rows))[..., :valid]
        if mask.dtype == np.bool_:
            seen &= full
        else:
            seen &= ~np.isneginf(full)
            scores = scores + full
    scores = np.where(seen, scores, -np.inf)
    largest = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    weights = np.exp(scores - np.where(np.isneginf(largest), 0, largest))
    sums = weights.sum(axis=-1, keepdims=True)
    weights = weights / np.where(sums == 0, 1, sums)
    # What is hidden stays out even where v holds NaN.
    spoiled: Array = np.logical_not(np.isfinite(values).all(axis=(0, 1, 3)))
    result = weights @ np.where(spoiled[:, None], 0, values)
    few, spoiled_values = weights[..., spoiled, None], values[:, :, None, spoiled]
    result += np.where(few == 0, 0, few * spoiled_values).sum(axis=-2)
    return result.transpose(0, 2, 1, 3).reshape(q.shape)
