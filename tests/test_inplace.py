"""Operations that change a tensor where it lies, against NumPy's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from compare import numbers, same
from hypothesis import given, settings
from hypothesis import strategies as st

import tensai

SHAPES = st.lists(st.integers(0, 5), max_size=4).map(tuple)


@settings(max_examples=40, deadline=None)
@given(data=st.data(), shape=SHAPES, dtype=st.sampled_from([np.float32, np.float16, np.int32]))
def test_add_and_scale(dev: tensai.Device, data: st.DataObject, shape: Any, dtype: Any) -> None:
    narrower = tuple(data.draw(st.sampled_from([1, length])) for length in shape)
    other_shape = narrower[data.draw(st.integers(0, len(shape))) :]
    a, b = numbers(shape, dtype), numbers(other_shape, dtype, seed=2)
    x, other = dev.upload(a), dev.upload(b)
    assert x.add_(other) is x
    expected = (a.astype(np.float64) + b.astype(np.float64)).astype(dtype)
    tolerance = 1e-3 if dtype == np.float16 else 1e-6
    same(x, expected, tolerance)
    x = dev.upload(a)
    assert x.scale_(other) is x
    same(x, (a.astype(np.float64) * b.astype(np.float64)).astype(dtype), tolerance)


def test_numbers_and_arrays(dev: tensai.Device) -> None:
    x = dev.upload(np.arange(6, dtype=np.float32).reshape(2, 3))
    x.add_(1).scale_(2).add_(np.array([1, 2, 3])).scale_(0.5)
    same(x, np.array([[1.5, 3, 4.5], [4.5, 6, 7.5]], np.float32))
    n = dev.upload(np.array([5], np.int32)).add_(2).scale_(-3)
    assert n.tolist() == [-21]
    assert n.dtype == np.int32


def test_memory_that_is_shared(dev: tensai.Device) -> None:
    a = numbers((3, 4))
    x = dev.upload(a)
    view, copied = x.reshape(12), x.copy()
    x.add_(x)
    x.add_(x.reshape(1, 3, 4)[0])
    same(view, a.reshape(-1) * 4, 1e-6)  # as views in NumPy
    same(copied, a)


def test_an_operation_sees_what_came_before(dev: tensai.Device) -> None:
    x = dev.zeros(1000)
    results = []
    for _ in range(100):
        x.add_(1)
        results.append(x * 2)
    assert [float(r.max()) for r in results] == [2.0 * (i + 1) for i in range(100)]


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda d: d.zeros(3).add_(d.zeros(4)), tensai.ShapeError, r"\[add_\].*\(3,\).*\(4,\)"),
        (lambda d: d.zeros(3).add_(d.zeros((2, 3))), tensai.ShapeError, r"\[add_\]"),
        (lambda d: d.zeros(3, np.int32).scale_(0.5), tensai.DTypeError, r"\[scale_\].*float32"),
        (lambda d: d.zeros(3, bool).add_(True), tensai.DTypeError, r"\[add_\].*bool"),
    ],
)
def test_bad_input(
    dev: tensai.Device, still_works: None, make: Any, error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match):
        make(dev)
