"""Indexing, reshaping, permuting and gathering; tensors of no elements and of no axes.

The right answers are NumPy's, on the GPU and on the NumPy device.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from compare import narrowed, numbers, same, wide

import tensai

f16, f32, i32, u32 = np.float16, np.float32, np.int32, np.uint32
KINDS = (f32, f16, i32, u32, np.bool_)

INDICES: list[Any] = [
    0,
    -1,
    np.int64(2),
    slice(None),
    slice(1, 3),
    slice(None, None, 2),
    slice(None, None, -1),
    slice(-2, None),
    slice(5, 2, -2),
    slice(10, 20),
    slice(3, 1),
    slice(-100, 100, 3),
    ...,
    None,
    (),
    (1, 2),
    (1, 2, 3),
    (slice(1, 3), slice(None), slice(None, None, 2)),
    (slice(None, None, -1), slice(None, None, -2), slice(None, None, -3)),
    (..., 0),
    (..., None),
    (None, 0, None, ..., None, slice(2)),
    (slice(2), ..., slice(1, None)),
    (0, ..., -1),
    (slice(None), 3, slice(4, 0, -1)),
    (slice(0, 0), 1),
    (0, slice(2, 2)),
    (np.int32(1), slice(None), np.int64(-1)),
]


def test_indexing(dev: tensai.Device) -> None:
    for kind in KINDS:
        x = numbers((4, 5, 6), kind)
        t = dev.upload(x)
        for index in INDICES:
            same(t[index], x[index], what=(kind.__name__, index))
    row = numbers((300,))
    for index in (slice(7, 290, 3), slice(None, None, -1), slice(299, 0, -7), -300):
        same(dev.upload(row)[index], row[index])
    at = dev.upload(2)
    same(t[at], x[2])  # an integer tensor of one element is an index, as in NumPy


def test_indexing_copies(dev: tensai.Device) -> None:
    x = numbers((4, 5))
    t = dev.upload(x)
    part = t[1]
    t.free()
    same(part + 1, wide(x[1]) + 1, 1e-7, each=True)


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize(
    "index", [0, slice(None), slice(0, None), ..., None, (slice(0, 1), slice(None)), -1], ids=str
)
def test_indexing_copies_whatever_the_shape(dev: tensai.Device, rows: int, index: Any) -> None:
    x = numbers((rows, 4))
    t = dev.upload(x)
    t[index].scale_(5.0)
    same(t, x)


def test_only_axes_are_iterated(dev: tensai.Device) -> None:
    rows = list(dev.upload(numbers((3, 2))))
    assert len(rows) == 3
    same(rows[1], numbers((3, 2))[1])
    with pytest.raises(TypeError, match="0-d"):
        list(dev.ones(()))


@pytest.mark.parametrize(
    "index",
    [
        4,
        -5,
        (0, 5),
        (0, 0, 0),
        (..., ...),
        [0, 1],
        1.0,
        "x",
        True,
        np.array([0, 1]),
        np.ones(4) > 0,
    ],
    ids=str,
)
def test_wrong_indices(dev: tensai.Device, index: Any) -> None:
    with pytest.raises(IndexError):
        dev.zeros((4, 5))[index]


def test_tensors_are_no_indices(dev: tensai.Device) -> None:
    t = dev.zeros((4, 5))
    for index in (t > 0, dev.upload([0, 1]), dev.upload(1.0), dev.upload(True)):
        with pytest.raises(IndexError, match="embed"):
            t[index]


def test_indexing_many_axes(dev: tensai.Device) -> None:
    x = numbers((2, 3, 2, 3, 2, 3, 2, 2))
    t = dev.upload(x)
    for index in ((..., slice(None, None, -1)), (slice(1), ..., 0), (slice(None, None, -1),) * 8):
        same(t[index], x[index])
    same(t.T, x.T)
    same(t.permute(7, 0, 6, 1, 5, 2, 4, 3), x.transpose(7, 0, 6, 1, 5, 2, 4, 3))


def test_indexing_many_elements(dev: tensai.Device) -> None:
    # About as many as a device takes workgroups of 256 in one dimension.
    x = np.arange(65_535 * 256 + 1, dtype=i32)
    t = dev.upload(x)
    for part in (x[::-1], x[:0:-1], x[-2::-1]):
        start = int(part[0])
        stop = None if part[-1] == 0 else int(part[-1]) - 1
        assert np.array_equal(t[start:stop:-1].download(), part)


def test_reshape(dev: tensai.Device) -> None:
    x = numbers((4, 3, 10))
    t = dev.upload(x)
    for shape in ((120,), (2, 60), (2, -1), (-1,), (1, 4, 1, 30), (120, 1), (5, -1, 3)):
        same(t.reshape(*shape), x.reshape(shape))
        same(t.reshape(shape), x.reshape(shape))
        same(t.reshape(list(shape)), x.reshape(shape))
    same(t.reshape(np.int64(8), 15), x.reshape(8, 15))
    for wrong in ((7,), (-1, 7), (-1, -1), (-2, 60), (121,), (0, -1), (2.0, 60), np.array([2, 60])):
        with pytest.raises(tensai.ShapeError):
            t.reshape(wrong)
    one = dev.upload(5.0)
    same(one.reshape(1, 1), np.full((1, 1), 5, f32))
    same(one.reshape(-1), np.full(1, 5, f32))
    same(one.reshape(()), np.full((), 5, f32))
    same(dev.upload([5.0]).reshape(()), np.full((), 5, f32))


def test_permute(dev: tensai.Device) -> None:
    for kind in KINDS:
        for shape in ((), (7,), (3, 5), (2, 3, 4), (1, 4, 1, 3), (2, 0, 3)):
            x = numbers(shape, kind)
            t = dev.upload(x)
            same(t.T, x.T)
            same(t.permute(), x.T)
            for order in itertools.permutations(range(len(shape))):
                if order:
                    same(t.permute(*order), x.transpose(order), what=(shape, order))
                    same(t.permute(order), x.transpose(order))
                    same(t.permute([i - len(shape) for i in order]), x.transpose(order))
    x = numbers((130, 257))
    same(dev.upload(x).T, x.T)
    same(dev.upload(x).permute(np.int64(1), np.int64(-2)), x.T)
    same(dev.upload(x).T @ dev.upload(x), wide(x).T @ wide(x), 2e-5)
    for wrong in ((0,), (0, 0), (0, 2), (0, 1, 2), (0.5, 1)):
        with pytest.raises(tensai.ShapeError):
            dev.upload(x).permute(*wrong)


def test_broadcast_to(dev: tensai.Device) -> None:
    for kind in KINDS:
        x = numbers((3, 1), kind)
        for shape in ((3, 4), (2, 3, 4), (3, 1), (0, 3, 1)):
            same(dev.upload(x).broadcast_to(shape), np.broadcast_to(x, shape))
    with pytest.raises(tensai.ShapeError):
        dev.upload(x).broadcast_to((2, 4))
    with pytest.raises(tensai.ShapeError):
        dev.upload(x).broadcast_to((3,))


def test_copy(dev: tensai.Device) -> None:
    for kind in KINDS:
        for shape in ((), (0, 2), (5,), (3, 1023)):
            x = numbers(shape, kind)
            t = dev.upload(x)
            copied = t.copy()
            t.free()
            same(copied, x)


def test_embed(dev: tensai.Device) -> None:
    rng = np.random.default_rng(1)
    for kind in (f32, f16, i32, u32):
        table = numbers((11, 6), kind)
        t = dev.upload(table)
        for shape in ((), (1,), (4, 3), (0,), (2, 0, 3), (1025,)):
            indices = rng.integers(0, 11, shape)
            for index_kind in (np.int64, i32, u32, np.uint8):
                same(dev.embed(t, indices.astype(index_kind)), table[indices])
            same(dev.embed(t, dev.upload(indices)), table[indices])
        same(dev.embed(t, [3, 3, 0]), table[[3, 3, 0]])
        same(dev.embed(t, 10), table[10])
        same(dev.embed(t, []), table[:0])
    for wrong in (11, -1, [0, 11], [[-1, 0]], 2**31, 2**40):
        with pytest.raises(IndexError, match="11 rows"):
            dev.embed(t, wrong)
    with pytest.raises(tensai.DTypeError):
        dev.embed(t, [0.0])
    with pytest.raises(tensai.ShapeError):
        dev.embed(dev.zeros((3,)), [0])
    # Indices that are on the device already can't raise; they must not read beyond the table.
    got = dev.embed(dev.upload(numbers((3, 5))), dev.upload([0, 3, -1, 2**31 - 1])).download()
    assert np.isnan(got[1:]).all()
    assert not np.isnan(got[0]).any()
    same(dev.embed(dev.zeros((0, 5)), dev.upload([0])), np.full((1, 5), np.nan, f32))
    same(dev.embed(dev.zeros((4, 0)), [1, 2]), np.zeros((2, 0), f32))


# No elements, no axes ---------------------------------------------------------------------------

EMPTY = [(0,), (0, 3), (3, 0), (2, 0, 4)]


@pytest.mark.parametrize("shape", EMPTY)
def test_operations_of_no_elements(dev: tensai.Device, shape: tuple[int, ...]) -> None:
    for kind in KINDS:
        x = np.zeros(shape, kind)
        t = dev.upload(x)
        same(t, x)
        assert t.nbytes == 0
        same(t + t, x + x)
        same(t == t, x == x)
        same(dev.where(t == t, t, t), x)
        same(t.copy(), x)
        same(t.T, x.T)
        same(t[..., None], x[..., None])
        same(t[:, None], x[:, None])
        same(t.reshape(-1, 7), np.zeros((0, 7), kind))
        same(t.astype(f16), x.astype(f16))
        same(t.exp(), np.exp(x.astype(f16 if kind == f16 else f32)))
        assert t.tolist() == x.tolist()
    x = np.zeros(shape, f32)
    t = dev.upload(x)
    for name in ("gelu", "relu", "tanh", "softmax", "log_softmax", "sqrt"):
        same(getattr(t, name)(), x, what=name)
    for axis in (-1, 0):
        same(t.softmax(axis), x)
    row = dev.zeros(shape[-1:])
    same(t.layer_norm(row, row), x)
    same(t * dev.ones(shape[-1:]), x)
    same(dev.where(True, t, 1.0), x)
    same(t + 1, x)


@pytest.mark.parametrize("shape", EMPTY)
@pytest.mark.filterwarnings("ignore:Mean of empty slice")
def test_reductions_of_no_elements(dev: tensai.Device, shape: tuple[int, ...]) -> None:
    for kind in KINDS:
        x = np.zeros(shape, kind)
        t = dev.upload(x)
        for axis in (None, *range(len(shape))):
            same(t.sum(axis), np.sum(x, axis=axis), what=(kind, axis))
            with np.errstate(all="ignore"):
                expected = np.mean(x, axis=axis)
            same(t.mean(axis), expected.astype(f16 if kind == f16 else f32), what=(kind, axis))
            reduced = x.size == 0 if axis is None else shape[axis] == 0
            for name in ("max", "min", "argmax"):
                if reduced:
                    with pytest.raises(tensai.ShapeError):
                        getattr(t, name)(axis)
                else:
                    expected = getattr(np, name)(x, axis=axis)
                    same(getattr(t, name)(axis), expected.astype(narrowed(expected.dtype)))


def test_no_axes(dev: tensai.Device) -> None:
    x = np.array(2.5, f32)
    t = dev.upload(2.5)
    same(t, x)
    assert (t.shape, t.ndim, t.size) == ((), 0, 1)
    for got in (
        t.sum(),
        t.mean(),
        t.max(),
        t.min(),
        t.T,
        t[...],
        t[()],
        t.copy(),
        t.relu(),
        abs(t),
    ):
        same(got, x)
    same(t.sum(keepdims=True), x)
    same(t[None], x[None])
    same(t.argmax(), np.array(0, i32))
    same(t + t, x + x)
    same(t * dev.upload([1.0, 2.0]), x * np.array([1, 2], f32))
    same(t > 2, np.array(True))
    same(dev.where(t > 2, t, 0), x)
    same(t.astype(i32), np.array(2, i32))
    same(dev.upload(np.float16(0.1)), np.array(0.1, f16))
    same(dev.full((), 4.0), np.array(4, f32))
    assert t.tolist() == 2.5
    for wrong in (t.softmax, t.log_softmax, lambda: t.sum(0), lambda: t @ t, lambda: t.argmax(0)):
        with pytest.raises(tensai.ShapeError):
            wrong()
    with pytest.raises(IndexError):
        t[0]
