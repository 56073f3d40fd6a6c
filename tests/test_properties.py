"""Random shapes, dtypes and layouts: whatever NumPy answers, in tensai's dtypes.

Arrays have up to five axes of lengths that matter (0, 1, primes), are read forwards, backwards or
with steps, in C or Fortran order, of either byte order.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from compare import Array, same, wide
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tensai

f16, f32, i32, u32 = np.float16, np.float32, np.int32, np.uint32
KINDS = (f32, f16, i32, u32, np.bool_)

lengths = st.sampled_from([0, 1, 1, 2, 3, 4, 5, 7, 13])
shapes = st.lists(lengths, max_size=5).map(tuple).filter(lambda shape: math.prod(shape) <= 5000)
filled_shapes = shapes.filter(math.prod)
kinds = st.sampled_from(KINDS)


def some(count: int) -> Any:
    """Examples for a property: few, since every new kernel is compiled and checked."""
    return settings(
        max_examples=count,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )


def elements(shape: tuple[int, ...], kind: Any, seed: int) -> Array:
    rng = np.random.default_rng(seed)
    if kind is np.bool_:
        return rng.integers(0, 2, shape) > 0
    low = 0 if kind is u32 else -8
    whole = rng.integers(low, 9, shape)
    return (whole / 4).astype(kind) if kind in (f32, f16) else whole.astype(kind)


@st.composite
def arrays(draw: Any, kind: Any = None, shape: Any = None) -> Array:
    """An array of one of tensai's dtypes, laid out in any way."""
    shape = draw(shapes) if shape is None else shape
    kind = draw(kinds) if kind is None else kind
    seed = draw(st.integers(0, 1000))
    steps = [draw(st.sampled_from([1, 1, -1, 2, -3])) for _ in shape]
    larger = tuple(length * abs(step) for length, step in zip(shape, steps, strict=True))
    array = elements(larger, kind, seed)
    layout = draw(st.sampled_from(["C", "F", "big-endian"]))
    if layout == "F":
        array = np.asfortranarray(array)
    elif layout == "big-endian" and kind is not np.bool_:
        array = array.astype(np.dtype(kind).newbyteorder(">"))
    return array[tuple(slice(None, None, step) for step in steps)]


def native(array: Array) -> Array:
    return array.astype(array.dtype.newbyteorder("="))


@st.composite
def broadcasting(draw: Any, count: int) -> list[tuple[int, ...]]:
    """Shapes that broadcast together."""
    whole = draw(shapes)
    made = []
    for _ in range(count):
        own = [1 if draw(st.booleans()) and draw(st.booleans()) else n for n in whole]
        made.append(tuple(own[draw(st.integers(0, len(own))) if draw(st.booleans()) else 0 :]))
    return made


@some(60)
@given(x=arrays())
def test_round_trip(dev: tensai.Device, x: Array) -> None:
    t = dev.upload(x)
    same(t, native(x))
    same(t.copy(), native(x))
    same(t + t if x.dtype.kind != "b" else t | t, native(x) + native(x))
    out = np.zeros(x.shape, native(x).dtype)
    same(t.download(out=out), native(x))


OPERATORS = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "floor_divide": np.floor_divide,
    "remainder": np.remainder,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "less": np.less,
    "equal": np.equal,
}


@some(60)
@given(data=st.data(), name=st.sampled_from(list(OPERATORS)))
def test_operators(dev: tensai.Device, data: Any, name: str) -> None:
    shape_a, shape_b = data.draw(broadcasting(2))
    a, b = data.draw(arrays(shape=shape_a)), data.draw(arrays(shape=shape_b))
    if {native(a).dtype, native(b).dtype} == {np.dtype(i32), np.dtype(u32)}:
        b = b.astype(i32)
        a = a.astype(i32)
    ours = getattr(dev.upload(a), name)
    try:
        with np.errstate(all="ignore"):
            expected = OPERATORS[name](native(a), native(b))
    except TypeError:
        with pytest.raises(tensai.DTypeError):
            ours(dev.upload(b))
        return
    tolerance = 1e-3 if expected.dtype == f16 and name == "divide" else 3e-7
    same(ours(dev.upload(b)), expected, tolerance, each=True, what=(name, shape_a, shape_b))


@some(40)
@given(data=st.data())
def test_where(dev: tensai.Device, data: Any) -> None:
    condition, shape_a, shape_b = data.draw(broadcasting(3))
    kind = data.draw(kinds)
    c = data.draw(arrays(np.bool_, condition))
    a, b = data.draw(arrays(kind, shape_a)), data.draw(arrays(kind, shape_b))
    same(dev.where(dev.upload(c), dev.upload(a), b), np.where(c, native(a), native(b)))


@st.composite
def indices(draw: Any, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """A basic index for an array of this shape."""
    made: list[Any] = []
    count = draw(st.integers(0, len(shape)))
    at_the_end = draw(st.booleans())
    for length in shape[len(shape) - count :] if at_the_end else shape[:count]:
        if length and draw(st.booleans()) and draw(st.booleans()):
            made.append(draw(st.integers(-length, length - 1)))
        else:
            bound = st.none() | st.integers(-length - 2, length + 2)
            step = draw(st.none() | st.sampled_from([1, -1, 2, -2, 3, -7]))
            made.append(slice(draw(bound), draw(bound), step))
        if draw(st.integers(0, 5)) == 0:
            made.append(None)
    if at_the_end:
        made.insert(0, ...)
    return tuple(made)


@some(60)
@given(data=st.data())
def test_indexing(dev: tensai.Device, data: Any) -> None:
    x = data.draw(arrays())
    index = data.draw(indices(x.shape))
    same(dev.upload(x)[index], native(x)[index], what=(x.shape, index))


@some(60)
@given(data=st.data())
def test_reshape_and_permute(dev: tensai.Device, data: Any) -> None:
    x = data.draw(arrays())
    order = data.draw(st.permutations(range(x.ndim)))
    t = dev.upload(x)
    turned = native(x).transpose(order)
    got = t.permute(*order) if order else t.permute()
    same(got, turned)
    # Any factors of the size make a shape.
    shape, left = [], x.size
    while left > 1:
        divisors = [n for n in range(2, left + 1) if left % n == 0]
        shape.append(data.draw(st.sampled_from(divisors)))
        left //= shape[-1]
    if x.size == 0:
        shape = data.draw(st.permutations([0, *shape, 3]))
    same(got.reshape(shape), turned.reshape(shape))
    same(got.reshape(-1), turned.reshape(-1))


@some(60)
@given(data=st.data(), name=st.sampled_from(["sum", "mean", "max", "min"]))
def test_reductions(dev: tensai.Device, data: Any, name: str) -> None:
    x = data.draw(arrays(shape=data.draw(filled_shapes)))
    axes = data.draw(
        st.lists(st.sampled_from(range(x.ndim)), unique=True) if x.ndim else st.just([])
    )
    axis = data.draw(st.sampled_from([None, tuple(axes)]))
    keepdims = data.draw(st.booleans())
    kind = native(x).dtype
    floats = wide(x) if kind.kind == "f" or name == "mean" else native(x)
    expected = getattr(np, name)(floats, axis=axis, keepdims=keepdims)
    if name == "mean":
        expected = expected.astype(f16 if kind == f16 else f32)
    elif kind == f16:
        expected = expected.astype(f16)
    got = getattr(dev.upload(x), name)(axis, keepdims)
    # Quarters of small integers: only a mean is rounded.
    tolerance = (1e-3 if kind == f16 else 1e-6) if name == "mean" else 0
    same(got, expected, tolerance, scale=2.0 if tolerance else None, what=(x.shape, axis))


@some(40)
@given(data=st.data(), name=st.sampled_from(["softmax", "log_softmax"]))
def test_softmax(dev: tensai.Device, data: Any, name: str) -> None:
    x = data.draw(arrays(f32, data.draw(shapes.filter(len))))
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    shifted = wide(x) - wide(x).max(axis=axis, keepdims=True, initial=-99)
    sums = np.exp(shifted).sum(axis=axis, keepdims=True)
    with np.errstate(divide="ignore"):
        expected = np.exp(shifted) / sums if name == "softmax" else shifted - np.log(sums)
    same(getattr(dev.upload(x), name)(axis), expected, 1e-6, what=(x.shape, axis))


@some(60)
@given(data=st.data())
def test_matmul(dev: tensai.Device, data: Any) -> None:
    size = st.sampled_from([0, 1, 2, 3, 4, 5, 8, 13, 31, 33, 36])
    m, n, k = data.draw(size), data.draw(size), data.draw(size)
    batch_a, batch_b = (shape[-2:] for shape in data.draw(broadcasting(2)))
    kind = data.draw(st.sampled_from([f32, i32, u32]))
    a, b = data.draw(arrays(kind, (*batch_a, m, k))), data.draw(arrays(kind, (*batch_b, k, n)))
    expected = np.matmul(native(a), native(b))  # of quarters, so exact in float32
    same(dev.upload(a) @ dev.upload(b), expected)
    same(dev.upload(a).matmul_t(dev.upload(np.swapaxes(b, -1, -2))), expected)
    same(dev.upload(np.swapaxes(a, -1, -2)).matmul_tn(dev.upload(b)), expected)


@some(40)
@given(x=arrays(), kind=kinds)
def test_astype(dev: tensai.Device, x: Array, kind: Any) -> None:
    expected = native(x).astype(kind)
    if kind is u32 and x.dtype.kind == "f":  # which saturates at 0
        expected = np.maximum(np.trunc(native(x)), 0).astype(u32)
    same(dev.upload(x).astype(kind), expected)


@some(40)
@given(data=st.data())
def test_embed(dev: tensai.Device, data: Any) -> None:
    rows, dim = data.draw(st.sampled_from([1, 2, 5, 40])), data.draw(lengths)
    table = data.draw(arrays(data.draw(st.sampled_from([f32, f16, i32, u32])), (rows, dim)))
    shape = data.draw(shapes)
    at = np.random.default_rng(data.draw(st.integers(0, 99))).integers(0, rows, shape)
    same(dev.embed(dev.upload(table), at), native(table)[at])


@some(60)
@given(value=st.floats(width=32) | st.sampled_from([0.0, -0.0, math.inf, -math.inf, math.nan]))
def test_scalars(dev: tensai.Device, value: float) -> None:
    x = np.array([1.5, -2.0, 0.0], f32)
    t = dev.upload(x)
    with np.errstate(all="ignore"):
        same(t * value, x * f32(value), 1e-7, each=True)
        same(t - value, x - f32(value), 1e-7, each=True)
        same(value < t, f32(value) < x)
        same(t / value, x / f32(value), 3e-7, each=True)
        same(dev.full((3,), value), np.full(3, value, f32))
    assert dev.upload(value).item() == value or math.isnan(value)
