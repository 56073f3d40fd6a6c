"""Functions of single numbers that NumPy lacks, or defines differently at the edges."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

# float32's smallest normal number: devices may take what is less for 0.
TINY = float(np.finfo(np.float32).tiny)

# Rational approximations of erf and erfc, double precision: Cephes (S. L. Moshier), ndtr.c.
_T = (
    9.60497373987051638749,
    9.00260197203842689217e1,
    2.23200534594684319226e3,
    7.00332514112805075473e3,
    5.55923013010394962768e4,
)
_U = (
    1.0,
    3.35617141647503099647e1,
    5.21357949780152679795e2,
    4.59432382970980127987e3,
    2.26290000613890934246e4,
    4.92673942608635921086e4,
)
_P = (
    2.46196981473530512524e-10,
    5.64189564831068821977e-1,
    7.46321056442269912687,
    4.86371970985681366614e1,
    1.96520832956077098242e2,
    5.26445194995477358631e2,
    9.34528527171957607540e2,
    1.02755188689515710272e3,
    5.57535335369399327526e2,
)
_Q = (
    1.0,
    1.32281951154744992508e1,
    8.67072140885989742329e1,
    3.54937778887819891062e2,
    9.75708501743205489753e2,
    1.82390916687909736289e3,
    2.24633760818710981792e3,
    1.65666309194161350182e3,
    5.57535340817727675546e2,
)


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x))."""
    return 1 / (1 + np.exp(-x))


def silu(x: Array) -> Array:
    """x sigmoid(x), and 0 at minus infinity."""
    return np.where(x < -104, 0, x * sigmoid(x))


def erf(x: Array) -> Array:
    """The error function, to double precision within 1e-14."""
    wide = np.asarray(x, dtype=np.float64)
    size = np.abs(wide)
    result = np.asarray(np.copysign(1.0, wide))  # for what lies beyond 6
    middle = size < 1
    inner = wide[middle]
    z = inner * inner
    result[middle] = inner * np.polyval(_T, z) / np.polyval(_U, z)
    tail = (size >= 1) & (size < 6)
    outer = size[tail]
    rest = np.exp(-outer * outer) * np.polyval(_P, outer) / np.polyval(_Q, outer)
    result[tail] = np.copysign(1 - rest, wide[tail])
    return np.where(np.isnan(wide), wide, result)


def gelu(x: Array, approximate: str = "none") -> Array:
    """x/2 (1 + erf(x / sqrt 2)), or the tanh form; 0 at minus infinity."""
    wide = np.asarray(x, dtype=np.float64)
    if approximate == "tanh":
        inner = np.sqrt(2 / np.pi) * (wide + 0.044715 * wide**3)
        gate = sigmoid(2 * inner)
    else:
        gate = 0.5 * (1 + erf(wide / np.sqrt(2.0)))
    return np.where(wide < -14, 0, wide * gate)


def slope(name: str, x: Array) -> Array:
    """The derivative of an activation at x, in float64; of a float32 x, 0 below float32's range."""
    exact = _slope(name, np.asarray(x, dtype=np.float64))
    return np.where(np.abs(exact) < TINY, 0, exact) if x.dtype == np.float32 else exact


def _slope(name: str, wide: Array) -> Array:
    if name == "relu":
        return np.where(np.isnan(wide), wide, wide > 0)
    if name == "tanh":
        return 1 / np.square(np.cosh(np.clip(wide, -300, 300)))
    if name == "sigmoid":
        return sigmoid(wide) * sigmoid(-wide)
    bounded = np.clip(wide, -700, 700)
    if name == "silu":
        return sigmoid(wide) + bounded * sigmoid(bounded) * sigmoid(-bounded)
    bounded = np.clip(wide, -40, 40)
    if name == "gelu":
        density = np.exp(-0.5 * np.square(bounded)) / np.sqrt(2 * np.pi)
        return 0.5 * (1 + erf(bounded / np.sqrt(2.0))) + bounded * density
    inner = np.sqrt(2 / np.pi) * (bounded + 0.044715 * bounded**3)
    steepness = 2 * np.sqrt(2 / np.pi) * (1 + 3 * 0.044715 * np.square(bounded))
    gate = sigmoid(2 * inner)
    return gate + bounded * gate * sigmoid(-2 * inner) * steepness


def power(a: Array, b: Array) -> Array:
    """a ** b; integers to a negative power as the device computes them."""
    if a.dtype.kind == "f":
        if b.size == 1 and b.item() == 0.5:  # NumPy takes the square root, of -inf and -0 too
            return np.where(a == -np.inf, np.inf, np.sqrt(a) + 0.0).astype(a.dtype)
        return np.power(a, b)
    positive = np.power(a, np.maximum(b, 0))
    if a.dtype.kind == "u":
        return positive
    parity = np.where(b % 2 != 0, -1, 1)
    below = np.where(a == 1, 1, np.where(a == -1, parity, 0))
    return np.where(b < 0, below, positive)


def astype(x: Array, dtype: Any) -> Array:
    """Conversion as tensai defines it: floats to integers saturate, and NaN becomes 0."""
    wanted = np.dtype(dtype)
    if x.dtype.kind == "f" and wanted.kind in "iu":
        limits = np.iinfo(wanted)
        wide = np.nan_to_num(x.astype(np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf)
        return np.clip(np.trunc(wide), limits.min, limits.max).astype(wanted)
    return x.astype(wanted)
