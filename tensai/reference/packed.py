"""Packed matrices (tensai/formats.py) by NumPy: what their elements are, and products with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..formats import FORMATS, UNIT
from .functions import gelu, silu

Array = np.ndarray[Any, Any]

AT_ONCE = 1 << 24  # elements unpacked at a time


def unpack(codes: Array, scales: Array | None, kind: str, k: int, group: int) -> Array:
    """The elements (n, k) of a packed matrix, float32."""
    made = FORMATS[kind]
    n = codes.shape[0]
    if n * k == 0:
        return np.zeros((n, k), np.float32)
    packed = np.ascontiguousarray(codes).view(np.uint8)
    if scales is None:
        return _floats(packed, kind)[:, :k]
    if made.grouped:
        values = _signed_bytes(packed) if kind == "q8" else _nibbles(packed)
        factors = scales.view(np.float32).reshape(n, -1)
        return values[:, :k] * np.repeat(factors, group, axis=1)[:, :k]
    blocks = packed.reshape(-1, made.codes)
    count = len(blocks)
    stored = np.ascontiguousarray(scales).view(np.uint8)[: count * made.scales]
    values = _BLOCKS[kind](blocks, stored.reshape(count, made.scales))
    return values.reshape(n, k)


def _floats(packed: Array, kind: str) -> Array:
    if kind == "F32":
        return packed.view(np.float32)
    if kind == "F16":
        return packed.view(np.float16).astype(np.float32)
    return (packed.view(np.uint16).astype(np.uint32) << 16).view(np.float32)


def _signed_bytes(packed: Array) -> Array:
    return packed.view(np.int8).astype(np.float32)


def _nibbles(packed: Array) -> Array:
    """Low and high nibbles of 16 bytes in turn, less 8."""
    halves = packed.reshape(len(packed), -1, 1, 16)
    both = np.concatenate([halves & 15, halves >> 4], axis=2)
    return both.reshape(len(packed), -1).astype(np.float32) - 8


def _halves(scales: Array, at: int) -> Array:
    """The float16 at a byte of every block's scales, as a column."""
    two = np.ascontiguousarray(scales[:, at : at + 2])
    return two.view(np.float16).astype(np.float32)


def _q8_0(codes: Array, scales: Array) -> Array:
    return _signed_bytes(codes) * _halves(scales, 0)


def _q4_0(codes: Array, scales: Array) -> Array:
    return _nibbles(codes) * _halves(scales, 0)


def _scales_and_minima(scales: Array) -> tuple[Array, Array]:
    """What each of 8 parts of a block is multiplied by, and what is subtracted then."""
    low, middle, high = scales[:, 4:8], scales[:, 8:12], scales[:, 12:16]
    factors = np.concatenate([low & 63, (high & 15) | (low >> 2 & 48)], axis=1)
    minima = np.concatenate([middle & 63, (high >> 4) | (middle >> 2 & 48)], axis=1)
    return _halves(scales, 0) * factors, _halves(scales, 2) * minima


def _k_quants(codes: Array, scales: Array, high_bits: bool) -> Array:
    count = len(codes)
    low = codes[:, :128].reshape(count, 4, 1, 32)
    values = np.concatenate([low & 15, low >> 4], axis=2).reshape(count, 8, 32)
    if high_bits:
        bits = codes[:, 128:].reshape(count, 1, 32) >> np.arange(8, dtype=np.uint8)[:, None]
        values |= (bits & 1) << 4
    factors, minima = _scales_and_minima(scales)
    return values * factors[..., None] - minima[..., None]


def _q4_k(codes: Array, scales: Array) -> Array:
    return _k_quants(codes, scales, high_bits=False)


def _q5_k(codes: Array, scales: Array) -> Array:
    return _k_quants(codes, scales, high_bits=True)


def _q6_k(codes: Array, scales: Array) -> Array:
    count = len(codes)
    low = codes[:, :128].reshape(count, 2, 1, 64)
    values = np.concatenate([low & 15, low >> 4], axis=2).reshape(count, 2, 4, 32)
    shifts = np.array([0, 2, 4, 6], np.uint8)[:, None]
    values |= (codes[:, 128:192].reshape(count, 2, 1, 32) >> shifts & 3) << 4
    factors = _halves(scales, 0) * codes[:, 192:].view(np.int8)
    return (values.reshape(count, 16, 16).astype(np.float32) - 32) * factors[..., None]


def _q4_1(codes: Array, scales: Array) -> Array:
    values = (_nibbles(codes) + 8) * _halves(scales, 0) + _halves(scales, 2)
    return values.astype(np.float32)


_BLOCKS: dict[str, Callable[[Array, Array], Array]] = {
    "Q8_0": _q8_0,
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
}


def packed_dequantize(codes: Array, scales: Array | None, kind: str, k: int, group: int) -> Array:
    """The matrix (k, n), float32."""
    return unpack(codes, scales, kind, k, group).T


def packed_embed(
    codes: Array, indices: Array, scales: Array | None, kind: str, k: int, group: int
) -> Array:
    """Rows of n by index, (*indices.shape, k); rows of NaN where an index is out of range."""
    right = (indices >= 0) & (indices < codes.shape[0])
    found = np.full((*indices.shape, k), np.nan, np.float32)
    found[right] = _unpack_rows(codes, scales, kind, k, group, indices[right])
    return found


def _unpack_rows(
    codes: Array, scales: Array | None, kind: str, k: int, group: int, rows: Array | slice
) -> Array:
    """Some of the n rows."""
    made = FORMATS[kind]
    nbytes = made.row_scales(k, group) * (4 if made.grouped else made.scales)
    if nbytes and scales is not None:
        stored = scales.view(np.uint8)[: len(codes) * nbytes].reshape(-1, nbytes)
        picked = stored[rows].reshape(-1)
        scales = np.pad(picked, (0, -picked.size % 4)).view(np.uint32)
    return unpack(codes[rows], scales, kind, k, group)


def rounded_rows(x: Array) -> Array:
    """x (m, k) rounded to int8 with a scale for each 32 elements of a row, as numbers again.

    The scale is max|x| / 127 in float32, an element the nearest multiple of it, and the one
    further from zero of two that are as near.
    """
    m, k = x.shape
    padded = np.zeros((m, k + -k % UNIT), np.float32)
    padded[:, :k] = x
    blocks = padded.reshape(m, -1, UNIT)
    scales = (np.abs(blocks).max(axis=2, keepdims=True) / np.float32(127)).astype(np.float32)
    ratios = np.divide(
        blocks, scales, out=np.zeros(blocks.shape), where=scales != 0, dtype=np.float64
    )
    codes = np.trunc(ratios + np.copysign(0.5, ratios))
    return (codes * scales).reshape(m, -1)[:, :k]


def packed_matmul(
    x: Array,
    codes: Array,
    scales: Array | None,
    norm: Array | None,
    bias: Array | None,
    residual: Array | None,
    kind: str,
    group: int,
    eps: float,
    gate: str | None,
    activations: str,
) -> Array:
    """x, or its rms norm, times a packed matrix; then bias, gate and residual (see ops.linear)."""
    m, k = x.shape
    n = codes.shape[0]
    rows = x
    if norm is not None:
        squares = np.square(x, dtype=np.float64).mean(axis=1, keepdims=True)
        rows = (x / np.sqrt(squares + eps) * norm).astype(np.float32)
    if activations == "int8":
        rows = rounded_rows(rows)
    product = np.empty((m, n), rows.dtype)
    at_once = max(1, AT_ONCE // max(k, 1))
    for start in range(0, n, at_once):
        chosen = slice(start, start + at_once)
        product[:, chosen] = rows @ _unpack_rows(codes, scales, kind, k, group, chosen).T
    if bias is not None:
        product = product + bias
    if gate is not None:
        half = n // 2
        act = silu if gate == "silu" else lambda values: gelu(values, "tanh")
        product = act(product[:, :half]) * product[:, half:]
    return product if residual is None else product + residual
