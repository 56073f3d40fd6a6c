"""Attention and its gradient, with the scores stored, in float64."""

from __future__ import annotations

from typing import Any

import numpy as np

from .functions import TINY

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
    valid = _valid(k, kv_length)
    kv_heads = heads if kv_heads is None else kv_heads
    queries, keys, values = _split(q, k[..., :valid, :], v[..., :valid, :], heads, kv_heads)
    weights, _ = _weights(
        queries, keys, k.shape[-2], mask, causal, _scale(scale, queries), window, softcap
    )
    return _weighted(weights, values).transpose(0, 2, 1, 3).reshape(q.shape)


def attention_grad(
    q: Array,
    k: Array,
    v: Array,
    grad: Array,
    kv_length: Array,
    mask: Array | None,
    heads: int,
    kv_heads: int | None,
    causal: bool,
    scale: float | None,
    window: int | None,
    softcap: float | None,
) -> tuple[Array, Array, Array]:
    """The gradients of q, k and v, by the formulas of tensai.ops.attention_grad."""
    valid = _valid(k, kv_length)
    kv_heads = heads if kv_heads is None else kv_heads
    queries, keys, values = _split(q, k[..., :valid, :], v[..., :valid, :], heads, kv_heads)
    factor = _scale(scale, queries)
    weights, slopes = _weights(queries, keys, k.shape[-2], mask, causal, factor, window, softcap)
    grads = _heads(grad, heads)
    # What is hidden stays out even where v holds NaN.
    of_weights = np.where(weights == 0, 0, grads @ np.swapaxes(values, -1, -2))
    delta = (weights * of_weights).sum(axis=-1, keepdims=True)
    steep = np.where(weights == 0, 0, weights * slopes)
    of_scores = np.where(steep == 0, 0, steep * (of_weights - delta))

    def to_rows(parts: Array) -> Array:
        """Rows of k's shape: summed over the heads that share one of k and v, zeros at the end."""
        batch, _, rows, dim = parts.shape
        shared = parts.reshape(batch, kv_heads, heads // kv_heads, rows, dim).sum(axis=2)
        full = np.zeros((batch, k.shape[-2], kv_heads, dim))
        full[:, :rows] = shared.transpose(0, 2, 1, 3)
        return full.reshape(k.shape)

    dq = _weighted(of_scores, keys).transpose(0, 2, 1, 3).reshape(q.shape) * factor
    dk = to_rows(_weighted(np.swapaxes(of_scores, -1, -2), queries)) * factor
    return dq, dk, to_rows(_weighted(np.swapaxes(weights, -1, -2), grads))


def _valid(k: Array, kv_length: Array) -> int:
    return min(max(int(kv_length.reshape(())), 0), k.shape[-2])


def _scale(scale: float | None, queries: Array) -> float:
    return float(1 / np.sqrt(max(queries.shape[-1], 1))) if scale is None else scale


def _heads(x: Array, count: int) -> Array:
    """(batch, heads, rows, dim) of (batch, rows, heads * dim)."""
    batch = x.shape[0] if x.ndim == 3 else 1
    parts = x.reshape(batch, x.shape[-2], count, x.shape[-1] // count)
    return parts.transpose(0, 2, 1, 3).astype(np.float64)


def _split(q: Array, k: Array, v: Array, heads: int, kv_heads: int) -> tuple[Array, Array, Array]:
    """Each as (batch, heads, rows, dim); heads of k and v come as often as they are shared."""
    keys, values = (np.repeat(_heads(x, kv_heads), heads // kv_heads, axis=1) for x in (k, v))
    return _heads(q, heads), keys, values


def _weights(
    queries: Array,
    keys: Array,
    rows: int,
    mask: Array | None,
    causal: bool,
    factor: float,
    window: int | None,
    softcap: float | None,
) -> tuple[Array, Array]:
    """The softmax's weights, 0 for what is hidden, and the derivative of the cap at each score.

    What weighs less than float32's normal numbers beside the heaviest is hidden as well, as on
    devices, which may take it for 0.
    """
    count, valid = queries.shape[-2], keys.shape[-2]
    scores = queries @ np.swapaxes(keys, -1, -2) * factor
    slopes = np.ones_like(scores)
    if softcap is not None:
        share = np.tanh(scores / softcap)
        scores, slopes = softcap * share, 1 - share**2
    position = np.arange(valid)
    last = np.arange(count)[:, None] + valid - count
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
    seen &= ~np.isneginf(scores)  # a score of -inf hides, as a mask's does
    scores = np.where(seen, scores, -np.inf)
    largest = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    weights = np.exp(scores - np.where(np.isneginf(largest), 0, largest))
    weights = np.where(weights < TINY, 0, weights)  # NaN stays
    sums = weights.sum(axis=-1, keepdims=True)
    return np.where(seen, weights / np.where(sums == 0, 1, sums), 0), slopes


def _weighted(weights: Array, rows: Array) -> Array:
    """weights @ rows, where what has no weight stays out even if it holds NaN."""
    spoiled: Array = np.logical_not(np.isfinite(rows).all(axis=(0, 1, 3)))
    result: Array = weights @ np.where(spoiled[:, None], 0, rows)
    few, spoiled_rows = weights[..., spoiled, None], rows[:, :, None, spoiled]
    result += np.where(few == 0, 0, few * spoiled_rows).sum(axis=-2)
    return result
