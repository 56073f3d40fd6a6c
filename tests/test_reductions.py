"""Reductions and normalizations, on the GPU and on the NumPy device.

The right answers of reductions are NumPy's and those of normalizations PyTorch's, both in float64
on the CPU.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from compare import Array, numbers, same, wide

import tensai

f16, f32, i32, u32 = np.float16, np.float32, np.int32, np.uint32

REDUCTIONS = {"sum": np.sum, "mean": np.mean, "max": np.max, "min": np.min}


def sum_error(name: str, x: Array, results: int) -> tuple[float, float]:
    """What a sum of float32 may be off by (1e-6 sqrt(length) for elements of order 1), and 0 for
    what is no sum: a tolerance, and what it is relative to."""
    length = x.size / max(results, 1)
    largest = float(np.abs(wide(x)[np.isfinite(x)]).max(initial=0))
    if name == "sum":
        return 1e-6 * length**0.5, largest
    return (1e-6 * length**-0.5, largest) if name == "mean" else (0, 1)


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_over_axes(dev: tensai.Device, name: str) -> None:
    for shape in ((), (1,), (7,), (5, 3), (2, 3, 4, 5), (1, 6, 1), (33, 300)):
        x = numbers(shape)
        t = dev.upload(x)
        axes: list[Any] = [None, *range(-len(shape), len(shape))]
        for count in range(len(shape) + 1):
            axes += itertools.combinations(range(len(shape)), count)
        for axis, keepdims in itertools.product(axes, (False, True)):
            expected = REDUCTIONS[name](wide(x), axis=axis, keepdims=keepdims)
            got = getattr(t, name)(axis=axis, keepdims=keepdims)
            tolerance, scale = sum_error(name, x, np.size(expected))
            same(got, expected, tolerance, scale=scale, what=(name, shape, axis, keepdims))
    for axes in ([0, 1], (np.int64(0), np.int32(-1))):
        same(getattr(t, name)(axes), REDUCTIONS[name](wide(x)), 1e-4, scale=scale)
    assert getattr(t, name)(np.int64(0)).shape == x.shape[1:]


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_of_dtypes(dev: tensai.Device, name: str) -> None:
    for kind in (f32, f16, i32, u32, np.bool_):
        x = numbers((3, 300, 2), kind)
        for axis in (None, 1, (0, 2), -1):
            expected = REDUCTIONS[name](x, axis=axis)
            if kind == f16 or name == "mean":
                expected = REDUCTIONS[name](wide(x), axis=axis).astype(f16 if kind == f16 else f32)
            tolerance, scale = sum_error(name, x, np.size(expected))
            if kind == f16:
                tolerance, scale = 1e-3, None
            got = getattr(dev.upload(x), name)(axis)
            same(got, expected, tolerance, scale=scale, what=(kind, axis))


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_of_special_values(dev: tensai.Device, name: str) -> None:
    for at in (0, 17, 255, 256, 4095, 4096, 9999):
        for values in ([np.nan], [np.inf], [-np.inf], [np.inf, -np.inf], [-np.inf, np.nan]):
            x = numbers((10_000,))
            x[at : at + len(values)] = values[: 10_000 - at]
            with np.errstate(all="ignore"):
                expected = REDUCTIONS[name](wide(x))
            same(getattr(dev.upload(x), name)(), expected, 1e-4, what=(at, values))
    x = np.full((3, 500), -np.inf, f32)
    same(getattr(dev.upload(x), name)(-1), np.full(3, -np.inf, f32))
    x = np.full((500, 3), -1e30 if name == "max" else 1e30, f32)
    same(getattr(dev.upload(x), name)(0), REDUCTIONS[name](wide(x), axis=0), 1e-6)


def test_integer_sums_wrap_around(dev: tensai.Device) -> None:
    for kind in (i32, u32):
        x = np.full(5000, np.iinfo(kind).max - 3, kind)
        same(dev.upload(x).sum(), np.sum(x, dtype=kind))
    extremes = np.array([-(2**31), 2**31 - 1, 5], i32)
    assert dev.upload(extremes).max().item() == 2**31 - 1
    assert dev.upload(extremes).min().item() == -(2**31)
    assert dev.upload(extremes.astype(u32)).max().item() == 2**31


SIZES = [1, 2, 255, 256, 257, 1023, 1024, 1025, 4096, 4097, 65536, 65537, 100000, 100001]


@pytest.mark.parametrize("kind", [f32, i32])
@pytest.mark.parametrize("batched", [False, True])
def test_sums_are_exact(dev: tensai.Device, kind: Any, batched: bool) -> None:
    rng = np.random.default_rng(6)
    arrays = [np.ones(size, kind) for size in SIZES]
    arrays += [rng.integers(-100, 101, size).astype(kind) for size in SIZES]
    if batched:
        with dev.batch():
            sums = [dev.upload(array).sum() for array in arrays]
        got = [total.item() for total in sums]
    else:
        got = [dev.upload(array).sum().item() for array in arrays]
    assert got == [array.sum(dtype=np.int64) for array in arrays]


def test_sums_of_fractions(dev: tensai.Device) -> None:
    for size in (100_001, 1_000_003):
        x = np.random.default_rng(size).uniform(0, 1, size).astype(f32)
        assert dev.upload(x).sum().item() == pytest.approx(x.sum(dtype=np.float64), rel=1e-6)
        assert dev.upload(x).mean().item() == pytest.approx(x.mean(dtype=np.float64), rel=1e-6)
    # More than 65,536 elements: the count itself must not be cut.
    assert dev.upload(np.full(70_001, 3, f32)).mean().item() == 3
    assert dev.upload(np.full(70_001, 3, i32)).mean().item() == 3


def test_long_reductions(dev: tensai.Device) -> None:
    for shape in ((2, 70_001), (70_001, 3), (300, 500), (3, 9001, 5)):
        x = np.random.default_rng(1).integers(-9, 10, shape).astype(f32)
        for axis in range(len(shape)) if shape[0] < 70_001 else (0,):
            for name, theirs in REDUCTIONS.items():
                got = getattr(dev.upload(x), name)(axis)
                same(got, theirs(wide(x), axis=axis), 1e-6 if name == "mean" else 0)


def test_many_reductions(dev: tensai.Device) -> None:
    # One more of them than a device takes workgroups in one dimension.
    for rows in (65_535, 65_536):
        x = np.random.default_rng(1).integers(-9, 10, (rows, 3)).astype(f32)
        same(dev.upload(x).sum(1), wide(x).sum(1))
    same(dev.upload(x).argmax(1), x.argmax(1))


def test_sum_cols(dev: tensai.Device) -> None:
    for shape in ((5,), (4, 6), (2, 3, 7), (0, 3), ()):
        x = numbers(shape)
        if not shape:
            continue
        expected = wide(x).sum(axis=tuple(range(len(shape) - 1)))
        same(dev.upload(x).sum_cols(), expected, 1e-6)


def test_argmax(dev: tensai.Device) -> None:
    for kind in (f32, f16, i32, u32, np.bool_):
        for shape in ((1,), (9,), (4, 700), (3, 5, 7), (513, 2)):
            x = numbers(shape, kind, 3)  # with ties among integers: the first one counts
            for axis, keepdims in itertools.product(
                [None, *range(-len(shape), len(shape))], (False, True)
            ):
                expected = np.argmax(x, axis=axis, keepdims=keepdims)
                what = (kind, shape, axis, keepdims)
                same(dev.upload(x).argmax(axis, keepdims), expected, what=what)
    x = numbers((3, 1000))
    x[0, 700], x[0, 800], x[1] = np.nan, np.nan, -np.inf
    x[2, 999] = np.inf
    assert dev.upload(x).argmax(-1).tolist() == [700, 0, 999]
    assert dev.upload(np.zeros(70_001, f32)).argmax().item() == 0
    assert dev.upload(np.arange(70_001, dtype=f32)).argmax().item() == 70_000


@pytest.mark.parametrize("length", [3, 64, 129, 1000, 3001, 70_001])
def test_argmax_of_the_least_and_of_what_compares_oddly(dev: tensai.Device, length: int) -> None:
    place = length * 2 // 3
    negative_nan = np.array(0xFF800001, u32).view(f32)
    for fill, value in (
        (-np.inf, -np.inf),
        (-np.inf, -3e38),
        (-0.0, 0.0),
        (0.0, -0.0),
        (-1e-3, -0.0),
        (-2.0, -1.0),
        (3e38, np.inf),
        (np.inf, np.nan),
        (np.inf, negative_nan),
        (negative_nan, np.nan),
    ):
        x = np.full(length, fill, f32)
        x[[place, -1]] = value
        for rows in (x, np.stack([x, x[::-1]])):
            same(dev.upload(rows).argmax(-1), np.argmax(rows, -1), what=(fill, value))
    for kind in (i32, u32):
        x = np.full((2, length), np.iinfo(kind).min, kind)
        x[1, place] += 1
        assert dev.upload(x).argmax(1).tolist() == [0, place]
        assert dev.upload(x[0]).argmax().item() == 0


# Normalizations ---------------------------------------------------------------------------------


def double(x: Array) -> torch.Tensor:
    return torch.tensor(x.astype(np.float64))


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax(dev: tensai.Device, name: str) -> None:
    theirs = getattr(torch.nn.functional, name)
    for shape in ((1,), (5,), (4, 1), (3, 257), (2, 3, 4, 5), (6, 1000), (2, 1025, 3), (2, 9000)):
        x = numbers(shape)
        for axis in range(-len(shape), len(shape)):
            expected = theirs(double(x), dim=axis).numpy()
            same(getattr(dev.upload(x), name)(axis), expected, 1e-6, what=(shape, axis))
    same(getattr(dev.upload(x), name)(), theirs(double(x), dim=-1).numpy(), 1e-6)
    small = numbers((3, 70), f16)
    expected = theirs(double(small), dim=-1).numpy().astype(f16)
    same(getattr(dev.upload(small), name)(), expected, 1e-3)


def test_softmax_of_special_values(dev: tensai.Device) -> None:
    x = numbers((8, 300))
    x[0] += 1e4
    x[1] *= 1e4
    x[2] -= 3e38
    x[3, 5:] = -np.inf
    x[4] = -np.inf
    x[5, 290] = np.nan
    x[6, 3] = np.inf  # inf - inf
    x[7] = np.linspace(-120, 0, 300)
    expected = torch.softmax(double(x), dim=-1).numpy()
    expected[4] = 0  # masked as a whole; PyTorch gives NaN
    got = dev.upload(x).softmax()
    same(got, expected, 1e-6)
    same(got.download()[7], expected[7], 4e-6, each=True)
    logs = torch.log_softmax(double(x), dim=-1).numpy()
    logs[4] = -np.inf
    same(dev.upload(x).log_softmax(), logs, 1e-6)
    same(dev.upload(x[[0, 7]]).log_softmax(), logs[[0, 7]], 1e-6, each=True)


def test_many_softmax_rows(dev: tensai.Device) -> None:
    # One more row than a device takes workgroups in one dimension.
    for rows in (65_535, 65_536):
        x = np.zeros((rows, 2), f32)
        x[:, 0] = np.arange(rows) % 7
        got = dev.upload(x).softmax().download()
        same(got, torch.softmax(double(x), dim=-1).numpy(), 1e-6)


def test_layer_norm(dev: tensai.Device) -> None:
    for shape in ((1,), (7,), (3, 1), (5, 256), (2, 3, 257), (4, 5000)):
        x = numbers(shape) + f32(3)
        weight, bias = numbers(shape[-1:], seed=2), numbers(shape[-1:], seed=3)
        for eps in (1e-5, 1e-12, 0.5):
            got = dev.upload(x).layer_norm(dev.upload(weight), dev.upload(bias), eps=eps)
            expected = torch.nn.functional.layer_norm(
                double(x), shape[-1:], double(weight), double(bias), eps
            )
            same(got, expected.numpy(), 3e-6, what=(shape, eps))
    x, ones, zeros = numbers((3, 65), f16), np.ones(65, f16), np.zeros(65, f16)
    got = dev.upload(x).layer_norm(dev.upload(ones), dev.upload(zeros))
    expected = torch.nn.functional.layer_norm(double(x), (65,)).numpy().astype(f16)
    same(got, expected, 1e-3)


def test_layer_norm_far_from_zero(dev: tensai.Device) -> None:
    # A variance as mean(x^2) - mean(x)^2 would be lost here.
    x = (1e4 + numbers((4, 384))).astype(f32)
    weight, bias = np.ones(384, f32), np.zeros(384, f32)
    got = dev.upload(x).layer_norm(dev.upload(weight), dev.upload(bias))
    expected = torch.nn.functional.layer_norm(double(x), (384,)).numpy()
    same(got, expected, 1e-3)  # the mean of 1e4 itself has 1e-3 for a last digit
    x[1, 7] = np.nan
    expected[1] = np.nan
    same(dev.upload(x).layer_norm(dev.upload(weight), dev.upload(bias)), expected, 1e-3)


@pytest.mark.parametrize("length", [7, 384, 1001, 5000, 40_000])
def test_layer_norm_of_equal_numbers(dev: tensai.Device, length: int) -> None:
    # What rounding leaves of their mean is divided by sqrt(eps).
    weight, bias = dev.ones(length), dev.full(length, 2)
    for value in (7, 0.1, 1e4):
        got = dev.full((2, length), value).layer_norm(weight, bias)
        same(got, np.full((2, length), 2, f32), 1e-6, what=value)
