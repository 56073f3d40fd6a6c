"""Comparing what a device computed with the right answer."""

from __future__ import annotations

from typing import Any

import numpy as np

import tensai

Array = np.ndarray[Any, Any]

NARROW = {"float64": "float32", "int64": "int32", "uint64": "uint32", "int8": "int32"}
SMALLEST_NORMAL = 1.1754944e-38  # devices may take smaller numbers for 0


def narrowed(dtype: Any) -> np.dtype[Any]:
    """NumPy's dtype as tensai has it: 64 bits become 32, as does NumPy's int8 of bools."""
    return np.dtype(NARROW.get(np.dtype(dtype).name, dtype))


def same(
    got: Any,
    expected: Any,
    tolerance: float = 0.0,
    *,
    each: bool = False,
    scale: float | None = None,
    floor: float = SMALLEST_NORMAL,
    what: Any = "",
) -> None:
    """Assert shape, dtype (NumPy's, narrowed) and elements, NaN and infinities included.

    `tolerance` is relative to `scale`, by default the largest finite element, or with `each` to
    every element's own size, where `floor` may be lost in any case; 0 asks for the very same
    numbers.
    """
    if isinstance(got, tensai.Tensor):
        downloaded = got.download()
        assert (downloaded.shape, downloaded.dtype) == (got.shape, got.dtype), what
        got = downloaded
    expected = np.asarray(expected)
    assert got.shape == expected.shape, f"{what}: shape {got.shape}, not {expected.shape}"
    dtype = narrowed(expected.dtype)
    assert got.dtype == dtype, f"{what}: dtype {got.dtype}, not {dtype}"
    with np.errstate(all="ignore"):
        right = expected.astype(dtype)  # what overflows float32 is infinite
        a, b = got.astype(np.float64), right.astype(np.float64)
        exact = expected.astype(np.float64)
        finite = np.isfinite(b)
        largest = np.abs(b[finite]).max(initial=0.0) if scale is None else scale
        allowed = tolerance * np.abs(exact) + floor if each else tolerance * largest
        near = finite & np.isfinite(a) & (np.abs(a - exact) <= allowed) & (tolerance > 0)
    agree = near | (a == b) | (np.isnan(a) & np.isnan(b))
    if not agree.all():
        at = tuple(int(i) for i in np.argwhere(~agree)[0])
        raise AssertionError(
            f"{what}: {int((~agree).sum())} of {agree.size} elements differ, the first at {at}: "
            f"{got[at]!r}, not {right[at]!r}"
        )


def numbers(shape: Any, dtype: Any = np.float32, seed: int = 1) -> Array:
    """Fractions of both signs, or small integers."""
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind == "f":
        return (rng.uniform(-4, 4, shape)).astype(dtype)
    if dtype == np.bool_:
        return rng.integers(0, 2, shape).astype(dtype)
    return rng.integers(0 if np.dtype(dtype).kind == "u" else -9, 10, shape).astype(dtype)


def wide(array: Array) -> Array:
    """float64 of floats."""
    return array.astype(np.float64) if array.dtype.kind == "f" else array
