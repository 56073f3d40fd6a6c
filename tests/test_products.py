"""Matrix products, on the GPU and on the NumPy device, compared with numpy.matmul in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from compare import Array, numbers, same, wide

import tensai

f16, f32, i32, u32 = np.float16, np.float32, np.int32, np.uint32


def check_product(got: Any, expected: Array, length: int, what: Any = "") -> None:
    """Within 1e-6 sqrt(length), relative to the largest element."""
    same(got, expected, 1e-6 * max(length, 1) ** 0.5, what=what)


SHAPES = [
    ((3,), (3,)),
    ((4,), (4, 5)),
    ((5, 4), (4,)),
    ((2, 3, 4), (4,)),
    ((4,), (2, 4, 3)),
    ((1, 1), (1, 1)),
    ((33, 65), (65, 17)),
    ((129, 31), (31, 257)),
    ((2, 3, 4), (4, 5)),
    ((3, 4), (2, 4, 5)),
    ((2, 1, 3, 4), (5, 4, 6)),
    ((1, 3, 4, 2), (5, 1, 2, 4)),
    ((2, 1, 2, 1, 3, 4), (1, 3, 1, 2, 4, 3)),
    ((70, 5, 4), (70, 4, 7)),
    ((1, 20_000), (20_000, 3)),
    ((3, 20_001), (20_001, 1)),
    ((512, 256), (256, 384)),
    ((1100, 36), (36, 1030)),
    ((64, 130, 17), (64, 17, 132)),
    ((0, 3), (3, 4)),
    ((3, 0), (0, 4)),
    ((3, 4), (4, 0)),
    ((2, 0, 3), (2, 3, 4)),
    ((0,), (0,)),
    ((0, 2, 3), (3, 4)),
]


@pytest.mark.parametrize(("shape_a", "shape_b"), SHAPES)
def test_matmul(dev: tensai.Device, shape_a: Any, shape_b: Any) -> None:
    a, b = numbers(shape_a), numbers(shape_b, seed=2)
    expected = np.matmul(wide(a), wide(b))
    check_product(dev.upload(a) @ dev.upload(b), expected, shape_a[-1])
    check_product(dev.upload(a).matmul(dev.upload(b)), expected, shape_a[-1])
    check_product(dev.matmul(a, b), expected, shape_a[-1])


@pytest.mark.parametrize(
    ("batch_a", "batch_b", "m", "n", "k"),
    [
        ((), (), 1, 1, 1),
        ((), (), 67, 45, 130),
        ((), (), 68, 44, 36),
        ((), (), 3, 129, 2),
        ((4,), (), 5, 6, 7),
        ((), (3,), 8, 9, 10),
        ((2, 1), (1, 3), 33, 34, 35),
        ((), (), 1050, 1028, 20),
        ((), (), 4, 5, 0),
        ((0,), (), 4, 5, 6),
    ],
)
def test_matmul_transposed(
    dev: tensai.Device, batch_a: Any, batch_b: Any, m: int, n: int, k: int
) -> None:
    a, b = numbers((*batch_a, m, k)), numbers((*batch_b, k, n), seed=2)
    expected = np.matmul(wide(a), wide(b))
    b_turned = np.ascontiguousarray(np.swapaxes(b, -1, -2))
    check_product(dev.upload(a).matmul_t(dev.upload(b_turned)), expected, k)
    a_turned = np.ascontiguousarray(np.swapaxes(a, -1, -2))
    check_product(dev.upload(a_turned).matmul_tn(dev.upload(b)), expected, k)


def test_matmul_of_dtypes(dev: tensai.Device) -> None:
    for kind_a in (f32, f16, i32, u32, np.bool_):
        for kind_b in (f32, f16, i32, u32, np.bool_):
            a, b = numbers((5, 70), kind_a), numbers((70, 6), kind_b, 2)
            what = (kind_a.__name__, kind_b.__name__)
            if {kind_a, kind_b} == {i32, u32}:
                with pytest.raises(tensai.DTypeError):
                    dev.upload(a) @ dev.upload(b)
                continue
            expected = np.matmul(a, b)
            if f16 in (kind_a, kind_b) and expected.dtype == f16:
                # Accumulated in float32 and rounded once.
                expected = np.matmul(wide(a), wide(b)).astype(f16)
                same(dev.upload(a) @ dev.upload(b), expected, 1e-3, what=what)
            else:
                check_product(dev.upload(a) @ dev.upload(b), expected, 70, what)


def test_matmul_of_integers_is_exact(dev: tensai.Device) -> None:
    rng = np.random.default_rng(5)
    for kind in (i32, u32):
        limits = np.iinfo(kind)
        a = rng.integers(limits.min, limits.max, (37, 66), kind, endpoint=True)
        b = rng.integers(limits.min, limits.max, (66, 41), kind, endpoint=True)
        same(dev.upload(a) @ dev.upload(b), np.matmul(a, b))
    ones = dev.upload(np.ones((3, 30_000), f32))
    same(ones.matmul_t(ones), np.full((3, 3), 30_000, f32))


def test_matmul_of_special_values(dev: tensai.Device) -> None:
    # NaN and infinity stay in their row and column, also at the ragged edges of a tile.
    for m, n, k in ((5, 6, 7), (64, 64, 64), (130, 131, 66)):
        a, b = numbers((m, k)), numbers((k, n), seed=2)
        a[m - 1, k - 1], a[0, 0], b[k - 1, n - 1] = np.nan, np.inf, -np.inf
        with np.errstate(all="ignore"):
            expected = np.matmul(wide(a), wide(b))
        check_product(dev.upload(a) @ dev.upload(b), expected, k)


def test_many_products(dev: tensai.Device) -> None:
    # More of them than a device takes workgroups in one dimension.
    a, b = numbers((65_537, 1, 2)), numbers((65_537, 2, 1), seed=2)
    check_product(dev.upload(a) @ dev.upload(b), np.matmul(wide(a), wide(b)), 2)
