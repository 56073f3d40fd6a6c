"""Matrix products and attention, on the GPU and on the NumPy device.

Products are compared with numpy.matmul in float64, attention with PyTorch's
scaled_dot_product_attention in float64 on the CPU.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
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


# Attention --------------------------------------------------------------------------------------


def attention(
    q: Array,
    k: Array,
    v: Array,
    heads: int = 1,
    kv_heads: int | None = None,
    causal: bool = False,
    scale: float | None = None,
    kv_length: int | None = None,
    window: int | None = None,
    mask: Array | None = None,
) -> Array:
    """PyTorch's, with what a query sees as one mask; zeros for a query that sees nothing."""
    kv_heads = kv_heads or heads
    queries, rows = q.shape[-2], k.shape[-2]
    valid = rows if kv_length is None else kv_length

    def split(x: Array, count: int) -> torch.Tensor:
        parts = torch.tensor(x.astype(np.float64)).reshape(
            -1, x.shape[-2], count, q.shape[-1] // heads
        )
        return parts.transpose(1, 2).repeat_interleave(heads // count, dim=1)

    position, last = np.arange(valid), np.arange(queries)[:, None] + valid - queries
    seen = np.ones((queries, valid), bool)
    if causal:
        seen &= position <= last
    if window is not None:
        seen &= position > last - window
    added = np.where(seen, 0.0, -np.inf)
    if mask is not None:
        cut = mask if mask.shape[-1] == 1 else mask[..., :valid]
        added = added + (np.where(cut, 0.0, -np.inf) if mask.dtype == bool else cut)
    queries_of, keys, values = split(q, heads), split(k, kv_heads), split(v, kv_heads)
    added = np.broadcast_to(added, (*queries_of.shape[:-1], valid))
    result = torch.nn.functional.scaled_dot_product_attention(
        queries_of,
        keys[:, :, :valid],
        values[:, :, :valid],
        attn_mask=torch.tensor(added),
        scale=scale,
    )
    nothing = np.isneginf(added).all(axis=-1)
    result = result.masked_fill(torch.tensor(nothing)[..., None], 0.0)
    return result.transpose(1, 2).reshape(q.shape).numpy()


def check_attention(
    dev: tensai.Device, q: Array, k: Array, v: Array, mask: Array | None = None, **options: Any
) -> None:
    expected = attention(q, k, v, mask=mask, **options)
    if mask is not None:
        options["mask"] = dev.upload(mask)
    got = dev.upload(q).attention(dev.upload(k), dev.upload(v), **options)
    # A sum over a head for each score and one over the rows of v; and an error of four roundings
    # in a score changes its weight, e^score, by as much as the score is large.
    dim = q.shape[-1] // options.get("heads", 1)
    largest = np.abs(q).max() * np.abs(np.nan_to_num(k)).max() * dim
    largest *= abs(options.get("scale") or 0)
    tolerance = 1e-6 * (k.shape[-2] + dim) ** 0.5 + 4 * 2.0**-24 * largest
    same(got, expected, tolerance, what=(q.shape, k.shape, options))


def qkv(
    batch: tuple[int, ...], queries: int, rows: int, heads: int, dim: int, kv_heads: int = 0
) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(queries * rows + dim)
    wide_kv = (kv_heads or heads) * dim
    shapes = (*batch, queries, heads * dim), (*batch, rows, wide_kv), (*batch, rows, wide_kv)
    q, k, v = (rng.normal(0, 1, shape).astype(f32) for shape in shapes)
    return q, k, v


@pytest.mark.parametrize("dim", [1, 8, 20, 32, 33, 64, 65, 100, 128, 129, 256])
def test_attention_head_sizes(dev: tensai.Device, dim: int) -> None:
    for batch, queries, rows, heads in (((2,), 19, 37, 3), ((), 1, 1, 1), ((3,), 5, 40, 2)):
        q, k, v = qkv(batch, queries, rows, heads, dim)
        check_attention(dev, q, k, v, heads=heads)
        check_attention(dev, q, k, v, heads=heads, causal=True)


def test_attention_lengths(dev: tensai.Device) -> None:
    for queries in (1, 2, 15, 16, 17, 33):
        for rows in (1, 3, 31, 32, 33, 100):
            q, k, v = qkv((2,), queries, rows, 2, 16)
            check_attention(dev, q, k, v, heads=2)
            # With fewer rows than queries the first ones see nothing.
            check_attention(dev, q, k, v, heads=2, causal=True)


def test_attention_sharing_heads(dev: tensai.Device) -> None:
    for heads, kv_heads in ((4, 1), (4, 2), (6, 3), (3, 3)):
        q, k, v = qkv((2,), 9, 21, heads, 24, kv_heads)
        check_attention(dev, q, k, v, heads=heads, kv_heads=kv_heads, causal=True)


def test_attention_scale(dev: tensai.Device) -> None:
    q, k, v = qkv((2,), 7, 35, 2, 16)
    for scale in (0.0, 1.0, -0.3, 100.0, 1e4):
        check_attention(dev, q, k, v, heads=2, scale=scale)
    mean = v.reshape(2, 35, 32).mean(axis=1, keepdims=True, dtype=np.float64)
    got = dev.upload(q).attention(dev.upload(k), dev.upload(v), heads=2, scale=0.0)
    same(got, np.repeat(mean, 7, axis=1), 1e-6)


def test_attention_over_a_cache(dev: tensai.Device) -> None:
    # Rows beyond kv_length are what an unfilled cache holds.
    for dim, valid in ((16, 1), (16, 32), (64, 33), (100, 40), (256, 41), (16, 0)):
        q, k, v = qkv((2,), 6, 45, 2, dim)
        k[:, valid:], v[:, valid:] = np.nan, np.nan
        check_attention(dev, q, k, v, heads=2, kv_length=valid)
        check_attention(dev, q, k, v, heads=2, kv_length=valid, causal=True)
        mask = np.random.default_rng(1).integers(0, 2, (2, 1, 6, 45)) > 0
        check_attention(dev, q, k, v, mask, heads=2, kv_length=valid)
    v[:, valid:] = np.inf
    check_attention(dev, q, k, v, heads=2, kv_length=valid, causal=True)


def test_attention_window(dev: tensai.Device) -> None:
    for window in (1, 2, 16, 33, 1000, 2**31 - 1, 2**32 + 1):
        for queries, rows in ((40, 40), (3, 70), (50, 20)):
            q, k, v = qkv((), queries, rows, 2, 8)
            check_attention(dev, q, k, v, heads=2, window=window, causal=True)
            check_attention(dev, q, k, v, heads=2, window=window)
            check_attention(dev, q, k, v, heads=2, window=window, causal=True, kv_length=rows - 1)


def test_attention_masks(dev: tensai.Device) -> None:
    rng = np.random.default_rng(2)
    for dim in (16, 64, 128, 200):
        q, k, v = qkv((2,), 18, 37, 3, dim)
        for shape in ((37,), (18, 37), (18, 1), (2, 1, 1, 37), (1, 3, 18, 37), (2, 3, 18, 37)):
            seen = rng.integers(0, 3, shape) > 0
            check_attention(dev, q, k, v, seen, heads=3)
            check_attention(dev, q, k, v, seen, heads=3, causal=True, window=20)
            added = rng.normal(0, 2, shape).astype(f32)
            check_attention(dev, q, k, v, added, heads=3)
            added[~seen] = -np.inf
            check_attention(dev, q, k, v, added, heads=3, causal=True)


def test_attention_of_masked_rows(dev: tensai.Device) -> None:
    q, k, v = qkv((2,), 18, 37, 2, 16)
    seen = np.ones((2, 1, 18, 37), bool)
    seen[0, 0, 3] = seen[1, 0, 17] = False
    got = dev.upload(q).attention(dev.upload(k), dev.upload(v), heads=2, mask=dev.upload(seen))
    assert not got.download()[0, 3].any()
    check_attention(dev, q, k, v, seen, heads=2)
    check_attention(dev, q, k, v, np.where(seen, 0, -np.inf).astype(f32), heads=2)
    # Large finite numbers are added like any other: they hide a position beside others, and
    # a row of nothing else is an average.
    for large in (-1e30, -1e38, np.finfo(f32).min):
        check_attention(dev, q, k, v, np.where(seen, 0, large).astype(f32), heads=2)
    # What a mask hides stays out even where it is no number.
    seen[..., 5] = False
    k[:, 5], v[:, 5] = np.nan, np.nan
    others = np.delete(k, 5, axis=1), np.delete(v, 5, axis=1)
    expected = attention(q, *others, heads=2, mask=np.delete(seen, 5, axis=3))
    got = dev.upload(q).attention(dev.upload(k), dev.upload(v), heads=2, mask=dev.upload(seen))
    same(got, expected, 1e-5)


def test_attention_of_special_values(dev: tensai.Device) -> None:
    q, k, v = qkv((), 8, 40, 1, 16)
    check_attention(dev, q * f32(300), k * f32(300), v)
    clean = attention(q, k, v, causal=True, kv_length=24)
    # Of the 24 rows, the 20th and later ones are seen by queries from the 4th on.
    spoiled = np.where(np.arange(8)[:, None] >= 4, np.nan, clean)
    options = {"causal": True, "kv_length": 24}
    bad = k.copy()
    bad[20, 1] = np.nan
    same(dev.upload(q).attention(dev.upload(bad), dev.upload(v), **options), spoiled, 1e-5)
    bad = v.copy()
    bad[20] = np.nan
    same(dev.upload(q).attention(dev.upload(k), dev.upload(bad), **options), spoiled, 1e-5)
    bad = q.copy()
    bad[3, 2] = np.nan
    spoiled = np.where(np.arange(8)[:, None] == 3, np.nan, clean)
    same(dev.upload(bad).attention(dev.upload(k), dev.upload(v), **options), spoiled, 1e-5)


def test_attention_of_float16(dev: tensai.Device) -> None:
    q, k, v = (x.astype(f16) for x in qkv((2,), 9, 33, 2, 32))
    got = dev.upload(q).attention(dev.upload(k), dev.upload(v), heads=2, causal=True)
    same(got, attention(q, k, v, heads=2, causal=True).astype(f16), 1e-3)


def test_attention_of_nothing(dev: tensai.Device) -> None:
    for batch, queries, rows in (((2,), 0, 5), ((0,), 3, 5), ((2,), 3, 0), ((), 0, 0)):
        q, k, v = qkv(batch, queries, rows, 2, 8)
        got = dev.upload(q).attention(dev.upload(k), dev.upload(v), heads=2)
        same(got, np.zeros_like(q))


def test_many_attentions(dev: tensai.Device) -> None:
    q, k, v = qkv((33_000,), 1, 2, 2, 2)
    check_attention(dev, q, k, v, heads=2)
