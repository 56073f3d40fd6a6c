"""concat, take and one_hot, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from compare import numbers, same
from hypothesis import given, settings
from hypothesis import strategies as st

import tensai

DTYPES = [np.float32, np.float16, np.int32, np.uint32, np.bool_]


@settings(max_examples=40, deadline=None)
@given(data=st.data(), shape=st.lists(st.integers(0, 4), min_size=1, max_size=4))
def test_concat(dev: tensai.Device, data: st.DataObject, shape: list[int]) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    dtype = data.draw(st.sampled_from(DTYPES))
    arrays = []
    for seed in range(data.draw(st.integers(1, 9))):
        own = list(shape)
        own[axis] = data.draw(st.integers(0, 4))
        arrays.append(numbers(own, dtype, seed))
    same(dev.concat([dev.upload(a) for a in arrays], axis), np.concatenate(arrays, axis))


def test_concat_promotes_and_uploads(dev: tensai.Device) -> None:
    parts = [np.arange(3, dtype=np.int32), np.float32([0.5]), np.float16([2])]
    same(dev.concat([dev.upload(parts[0]), parts[1], parts[2]]), np.float32([0, 1, 2, 0.5, 2]))


@settings(max_examples=40, deadline=None)
@given(data=st.data(), shape=st.lists(st.integers(1, 4), min_size=1, max_size=4))
def test_take(dev: tensai.Device, data: st.DataObject, shape: list[int]) -> None:
    x = numbers(shape, data.draw(st.sampled_from(DTYPES)))
    axis = data.draw(st.none() | st.integers(-len(shape), len(shape) - 1))
    length = x.size if axis is None else x.shape[axis]
    picked = data.draw(st.lists(st.integers(-length, length - 1), max_size=6))
    indices = np.array(picked, np.int64).reshape(data.draw(st.sampled_from([(-1,), (1, -1)])))
    same(dev.upload(x).take(indices, axis), np.take(x, indices, axis))


def test_take_with_indices_of_the_device(dev: tensai.Device) -> None:
    x = numbers((3, 5))
    indices = dev.upload(np.array([4, 5, -1, 0], np.int32))
    same(dev.upload(x).take(indices, 1)[:, ::3], x[:, [4, 0]])
    assert np.isnan(dev.upload(x).take(indices, 1).download()[:, 1:3]).all()


def test_one_hot(dev: tensai.Device) -> None:
    x = np.array([[0, 3], [2, 7], [-1, 1]], np.int32)
    expected = (x[..., None] == np.arange(4)).astype(np.float32)
    same(dev.upload(x).one_hot(4), expected)
    assert dev.upload(x).one_hot(0).shape == (3, 2, 0)


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda d: d.concat([]), tensai.ShapeError, "at least one"),
        (lambda d: d.concat([d.ones(2), d.ones((2, 1))]), tensai.ShapeError, r"\(2,\).*\(2, 1\)"),
        (lambda d: d.concat([d.ones((2, 2)), d.ones((2, 3))]), tensai.ShapeError, r"\(2, 3\)"),
        (lambda d: d.concat([d.ones(2)], 1), tensai.ShapeError, "axis"),
        (lambda d: d.ones(3).take([3]), IndexError, "3 is out of range"),
        (lambda d: d.ones(3).take([0.5]), tensai.DTypeError, "integer"),
        (lambda d: d.ones(3).one_hot(3), tensai.DTypeError, "integers"),
    ],
)
def test_bad_input(
    dev: tensai.Device, still_works: None, make: Any, error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match):
        make(dev)
