"""Attention, on the GPU by each of its kernels and on the NumPy device.

Compared with PyTorch on the CPU in float64: its scaled_dot_product_attention, or, where scores are
capped, which that function does not do, the same formula in its elementary operations.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from compare import Array, numbers, same
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tensai
from tensai import dtypes
from tensai.operation import Job, Kernel, Spec
from tensai.ops import attending
from tensai.ops.attending_tiles import Tiles
from tensai.tensor import Tensor

f16, f32, i32, u32 = np.float16, np.float32, np.int32, np.uint32

# The tiles that need the most workgroup memory, with all the same for a lane, for narrower heads;
# and as on a GPU, unrolled.
TWIN = Tiles(width=64, rows=128, positions=64, across=8, down=16, slice=4, v_rows=8)
ALL = [
    *attending.attend.kernels,
    Kernel("twin of 128x128", partial(TWIN.plan, unroll=True), fits=TWIN.fits),
]
KERNELS = [kernel.name for kernel in ALL]


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
    softcap: float | None = None,
) -> Array:
    """PyTorch's, with what a query sees as one mask; zeros for a query that sees nothing."""
    kv_heads = kv_heads or heads
    queries, rows = q.shape[-2], k.shape[-2]
    valid = rows if kv_length is None else min(max(kv_length, 0), rows)
    dim = q.shape[-1] // heads

    def split(x: Array, count: int) -> torch.Tensor:
        parts = torch.tensor(x.astype(np.float64)).reshape(-1, x.shape[-2], count, dim)
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
    keys, values = keys[:, :, :valid], values[:, :, :valid]
    full = torch.tensor(np.broadcast_to(added, (*queries_of.shape[:-1], valid)))
    if softcap is None:
        result = torch.nn.functional.scaled_dot_product_attention(
            queries_of, keys, values, attn_mask=full, scale=scale
        )
    else:
        factor = 1 / math.sqrt(dim) if scale is None else scale
        scores = queries_of @ keys.transpose(-1, -2) * factor
        result = torch.softmax(softcap * torch.tanh(scores / softcap) + full, dim=-1) @ values
    nothing = torch.isneginf(full).all(dim=-1, keepdim=True)
    result = result.masked_fill(nothing, 0.0)
    return result.transpose(1, 2).reshape(q.shape).numpy()


def tolerance(q: Array, k: Array, options: dict[str, Any]) -> float:
    """Of a sum over a head for each score and one over the rows of v.

    An error of four roundings in a score changes its weight, e^score, by as much as it is large.
    """
    dim = q.shape[-1] // options.get("heads", 1)
    largest = np.abs(q).max() * np.abs(np.nan_to_num(k)).max() * dim
    largest *= abs(options.get("scale") or 0)
    return 1e-6 * (k.shape[-2] + dim) ** 0.5 + 4 * 2.0**-24 * largest


def on_device(dev: tensai.Device, options: dict[str, Any]) -> dict[str, Any]:
    return {
        name: dev.upload(value) if isinstance(value, np.ndarray) else value
        for name, value in options.items()
    }


def check_attention(
    dev: tensai.Device, q: Array, k: Array, v: Array, mask: Array | None = None, **options: Any
) -> None:
    expected = attention(q, k, v, mask=mask, **options)
    given = on_device(dev, {**options, "mask": mask})
    got = dev.upload(q).attention(dev.upload(k), dev.upload(v), **given)
    same(got, expected, tolerance(q, k, options), what=(q.shape, k.shape, options))


def qkv(
    batch: tuple[int, ...], queries: int, rows: int, heads: int, dim: int, kv_heads: int = 0
) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(queries * rows + dim)
    wide_kv = (kv_heads or heads) * dim
    shapes = (*batch, queries, heads * dim), (*batch, rows, wide_kv), (*batch, rows, wide_kv)
    q, k, v = (rng.normal(0, 1, shape).astype(f32) for shape in shapes)
    return q, k, v


# One kernel after the other ---------------------------------------------------------------------


class Forced:
    """A call of attention by a chosen kernel, or by the one that would be chosen."""

    def __init__(
        self, dev: Any, q: Array, k: Array, v: Array, length: Array, mask: Any, **options: Any
    ) -> None:
        self.dev = dev
        self.operation = attending.attend
        given = [q, k, v, length] if mask is None else [q, k, v, length, mask]
        self.tensors = [dev.upload(array) for array in given]
        specs = [tensor.spec for tensor in self.tensors]
        named = dict(zip(self.operation.tensors, specs, strict=False))
        bound = self.operation.signature.bind(**named, **options)
        bound.apply_defaults()
        self.arguments = dict(bound.arguments)
        self.result, _ = self.operation.job(self.arguments)

    def by(self, name: str) -> Tensor | None:
        """The result of the kernel, or None where it is not made for this."""
        kernel = next(kernel for kernel in ALL if kernel.name == name)
        job = self.dev.checks._job(self.operation, kernel, self.arguments)
        if job is None:
            return None
        assert self.dev.checks._reason(self.operation, kernel, job) == ""
        return self.run(job)

    def run(self, job: Job) -> Tensor:
        specs = [tensor.spec for tensor in self.tensors]
        return self.dev.compile(job, specs, self.result).run(self.tensors)


sizes = st.sampled_from([1, 2, 3, 7, 8, 9, 40, 63, 64, 65, 130])


@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_every_kernel(gpu: Any, data: Any) -> None:
    queries, rows = data.draw(sizes), data.draw(sizes | st.sampled_from([257, 400]))
    dim = data.draw(st.sampled_from([1, 3, 4, 8, 20, 32, 33, 64, 68, 96, 128, 132, 250, 256]))
    kv_heads, group = data.draw(st.sampled_from([(1, 1), (2, 1), (1, 3), (2, 2), (1, 5)]))
    heads = kv_heads * group
    batch = data.draw(st.sampled_from([(), (1,), (2,)]))
    q, k, v = qkv(batch, queries, rows, heads, dim, kv_heads)
    length = data.draw(st.sampled_from([rows, rows, rows - 1, rows // 2, 0, -3, rows + 5]))
    valid = min(max(length, 0), rows)
    k[..., valid:, :], v[..., valid:, :] = np.nan, np.nan
    kind = data.draw(st.sampled_from([i32, u32])) if length >= 0 else i32
    mask = None
    how = data.draw(st.sampled_from(["none", "none", "bool", "added"]))
    if how != "none":
        rng = np.random.default_rng(3)
        most = data.draw(st.sampled_from([(rows,), (1, queries, rows), (heads, queries, 1)]))
        mask = rng.integers(0, 3, most) > 0
        if how == "added":
            mask = np.where(mask, rng.normal(0, 2, most), -np.inf).astype(f32)
    options = {
        "heads": heads,
        "kv_heads": kv_heads,
        "causal": data.draw(st.booleans()),
        "scale": data.draw(st.sampled_from([None, 0.3, 0.0])),
        "window": data.draw(st.sampled_from([None, None, 1, 5, 70, 1000])),
        "softcap": data.draw(st.sampled_from([None, 0.5, 30.0])),
    }
    expected = attention(q, k, v, mask=mask, kv_length=length, **options)
    call = Forced(gpu, q, k, v, np.array([length], kind), mask, **options)
    names = data.draw(st.permutations(KERNELS))
    for name in names:
        got = call.by(name)
        if got is not None:
            same(got, expected, tolerance(q, k, options), what=(name, q.shape, k.shape, options))
    assert call.by("attention") is not None  # which fits everywhere


@pytest.mark.parametrize(
    ("queries", "rows", "heads", "kv_heads", "dim", "kernels"),
    [
        (1, 5000, 8, 8, 64, ["attention_split", "attention_combine"]),
        (1, 50, 8, 2, 128, ["attention_split"]),
        (8, 300, 4, 1, 256, ["attention_split", "attention_combine"]),
        (64, 64, 2, 2, 64, ["attention_tiles"]),
        (200, 100, 2, 1, 128, ["attention_tiles"]),
        (100, 200, 1, 1, 204, ["attention_tiles"]),
        (64, 64, 2, 2, 63, ["attention"]),
        (1, 300, 2, 2, 30, ["attention"]),
    ],
)
def test_which_kernels_are_chosen(
    gpu: Any, queries: int, rows: int, heads: int, kv_heads: int, dim: int, kernels: list[str]
) -> None:
    q, k, v = qkv((), queries, rows, heads, dim, kv_heads)
    options = {"heads": heads, "kv_heads": kv_heads, "causal": True}
    length = np.array(rows, i32)
    for mask in (None, np.ones((queries, rows), bool), np.zeros((queries, rows), f32)):
        call = Forced(gpu, q, k, v, length, mask, **options)
        job = gpu.checks.choose(call.operation, call.arguments)
        assert [step.label for step in job.steps] == [f"attention/{name}" for name in kernels]
    expected = attention(q, k, v, **options)
    same(call.run(job), expected, tolerance(q, k, options))


def dim_for(gpu: Any, name: str) -> int:
    """A head's elements that the kernel takes; skips where the device lacks the memory for it."""
    for tiles in attending.TILES:
        if name == f"attention_tiles_{tiles.width}x{tiles.rows}":
            if tiles.memory > gpu.limits["maxComputeWorkgroupStorageSize"]:
                pytest.skip(f"{name} needs {tiles.memory} bytes of workgroup memory")
            return {64: 16, 128: 100}.get(tiles.width, 132)
    return 16


@pytest.mark.parametrize("name", KERNELS)
def test_values_that_are_no_numbers(gpu: Any, name: str) -> None:
    dim = dim_for(gpu, name)
    q, k, v = qkv((2,), 8, 150, 2, dim)
    options = {"heads": 2, "causal": True, "window": 100}
    length = np.array(140, i32)
    clean = attention(q, k, v, kv_length=140, **options)
    shape = (2, 8, 2, dim)

    def check(expected: Array, q: Array, k: Array, v: Array) -> None:
        got = Forced(gpu, q, k, v, length, None, **options).by(name)
        assert got is not None
        same(got, expected.reshape(clean.shape), 2e-5, what=name)

    # Seen by nobody: before the window and beyond the length.
    for value in (np.nan, np.inf, -np.inf):
        bad_k, bad_v = k.copy(), v.copy()
        for bad in (bad_k, bad_v):
            bad[:, :33], bad[:, 140:] = value, value
        check(clean, q, bad_k, bad_v)
    # Seen by the queries from the 4th on, in one batch and head; of v, in one element.
    bad = v.copy()
    bad[1, 136, dim] = np.nan
    expected = clean.reshape(shape).copy()
    expected[1, 4:, 1, 0] = np.nan
    check(expected, q, k, bad)
    bad[1, 136, dim] = np.inf
    expected[1, 4:, 1, 0] = np.inf
    check(expected, q, k, bad)
    bad = k.copy()
    bad[0, 136, 1] = np.nan
    expected = clean.reshape(shape).copy()
    expected[0, 4:, 0] = np.nan
    check(expected, q, bad, v)
    # A query's own.
    bad = q.copy()
    bad[1, 3, 2] = np.nan
    expected = clean.reshape(shape).copy()
    expected[1, 3, 0] = np.nan
    check(expected, bad, k, v)


def chosen(gpu: Any, shape: tuple[int, ...], heads: int) -> str:
    """The name of the kernel for q, k and v of a shape."""
    call = attending.attend
    given = [Spec(shape, dtypes.f32)] * 3 + [Spec((), dtypes.i32)]
    bound = call.signature.bind(*given, heads=heads, causal=True)
    bound.apply_defaults()
    for kernel in call.kernels:
        job = gpu.checks._job(call, kernel, dict(bound.arguments))
        if job is not None and kernel.worth(job):
            return kernel.name
    return ""


@pytest.mark.parametrize(
    ("queries", "heads", "batch", "dim", "rows"),
    [
        (512, 32, 1, 128, 32),
        (1024, 32, 1, 128, 128),
        (2048, 32, 1, 128, 128),
        (512, 32, 2, 100, 128),
        (2048, 8, 1, 128, 32),
        (4096, 8, 1, 128, 128),
        (8192, 2, 1, 128, 32),
        (129, 32, 8, 128, 32),  # half of the large tiles would lie beyond the queries
        (128, 32, 8, 128, 128),
        (9, 32, 64, 128, 32),
        (2048, 16, 1, 64, 64),
        (512, 16, 1, 64, 32),
        (512, 16, 2, 20, 64),
        (129, 32, 8, 64, 32),
        (2048, 32, 1, 200, 32),
    ],
)
def test_which_tiles_are_chosen(
    gpu: Any, monkeypatch: Any, queries: int, heads: int, batch: int, dim: int, rows: int
) -> None:
    shape = (batch, queries, heads * dim)
    monkeypatch.setattr(gpu, "info", replace(gpu.info, software=False))
    for memory, expected in ((48, rows), (32, rows if rows < 128 else 32)):
        monkeypatch.setitem(gpu.limits, "maxComputeWorkgroupStorageSize", memory * 1024)
        assert chosen(gpu, shape, heads).endswith(f"x{expected}")


@pytest.mark.parametrize(
    ("queries", "dim", "rows"),
    [(64, 64, 64), (60, 20, 64), (56, 64, 32), (9, 64, 32), (128, 128, 128), (64, 128, 32)],
)
def test_which_tiles_are_chosen_in_software(
    gpu: Any, monkeypatch: Any, queries: int, dim: int, rows: int
) -> None:
    # Few workgroups keep every core busy.
    monkeypatch.setattr(gpu, "info", replace(gpu.info, software=True))
    monkeypatch.setitem(gpu.limits, "maxComputeWorkgroupStorageSize", 48 * 1024)
    assert chosen(gpu, (1, queries, dim), 1).endswith(f"x{rows}")


@pytest.mark.parametrize("name", KERNELS)
def test_large_scores(gpu: Any, name: str) -> None:
    dim = dim_for(gpu, name)
    q, k, v = qkv((), 8, 150, 2, dim)
    length = np.array(150, i32)
    # Between these, rounding alone decides among scores that nearly tie.
    for factor, softcap in ((10, None), (1e4, None), (1e4, 50.0)):
        large_q, large_k = (q * factor).astype(f32), (k * factor).astype(f32)
        options = {"heads": 2, "causal": True, "softcap": softcap}
        got = Forced(gpu, large_q, large_k, v, length, None, **options).by(name)
        assert got is not None
        expected = attention(large_q, large_k, v, **options)
        same(got, expected, 1e-4, what=(name, factor, softcap))


# A length on the device -------------------------------------------------------------------------


def test_length_in_a_tensor(dev: tensai.Device) -> None:
    for dim, queries in ((16, 1), (16, 3), (30, 5), (64, 20)):
        q, k, v = qkv((2,), queries, 70, 2, dim)
        k[:, 50:], v[:, 50:] = np.nan, np.nan
        for value, kind in ((0, i32), (1, u32), (33, i32), (50, u32), (-1, i32), (-(2**31), i32)):
            expected = attention(q, k, v, heads=2, causal=True, kv_length=value)
            for shape in ((), (1,), (1, 1)):
                length = dev.upload(np.full(shape, value, kind))
                got = dev.upload(q).attention(
                    dev.upload(k), dev.upload(v), heads=2, causal=True, kv_length=length
                )
                same(got, expected, 1e-5, what=(dim, queries, value, shape))
        k[:, 50:], v[:, 50:] = 1, 1
        for value, kind in ((71, i32), (2**31 - 1, i32), (2**32 - 1, u32)):
            length = dev.upload(np.array(value, kind))
            options = {"heads": 2, "window": 9}
            got = dev.upload(q).attention(dev.upload(k), dev.upload(v), kv_length=length, **options)
            same(got, attention(q, k, v, **options), 1e-5, what=(dim, queries, value))


def test_bad_lengths(dev: tensai.Device, still_works: None) -> None:
    t = dev.ones((5, 8))
    for array in (np.zeros(2, i32), np.zeros((0,), i32), np.zeros((2, 1), u32)):
        with pytest.raises(tensai.ShapeError, match="one element"):
            t.attention(t, t, kv_length=dev.upload(array))
    for kind in (f32, f16, np.bool_):
        with pytest.raises(tensai.DTypeError, match="kv_length"):
            t.attention(t, t, kv_length=dev.ones((), kind))
    for value in (6, -1):
        with pytest.raises(tensai.ShapeError, match="from 0 to 5"):
            t.attention(t, t, kv_length=value)
    with pytest.raises(tensai.DTypeError, match="expected tensors"):
        tensai.ops.attention(np.ones((2, 2)), np.ones((2, 2)), np.ones((2, 2)))


def test_bad_softcaps(dev: tensai.Device, still_works: None) -> None:
    t = dev.ones((5, 8))
    for value in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(tensai.ShapeError, match="softcap"):
            t.attention(t, t, softcap=value)


def test_one_plan_for_all_lengths(gpu: tensai.Device) -> None:
    q, k, v = (gpu.upload(array) for array in qkv((), 1, 300, 4, 32, 2))

    def step(length: Any) -> None:
        q.attention(k, v, heads=4, kv_heads=2, causal=True, kv_length=length)

    step(1)
    count = len(gpu.plans)
    for length in (2, 3, 100, 299, 300, None):
        step(length)
    assert len(gpu.plans) == count


def test_decoding_step_by_step(dev: tensai.Device) -> None:
    """A recorded step over a cache, with the length counted on the device, against PyTorch."""
    rows, heads, kv_heads, dim = 40, 6, 2, 32
    _, k, v = qkv((), 1, rows, heads, dim, kv_heads)
    queries = np.random.default_rng(3).normal(0, 1, (rows, heads * dim)).astype(f32)
    everything = attention(queries, k, v, heads=heads, kv_heads=kv_heads, causal=True)
    keys, values = dev.upload(k), dev.upload(v)
    q, length = dev.zeros((1, heads * dim)), dev.upload(np.array([0], i32))
    options = {"heads": heads, "kv_heads": kv_heads, "causal": True}
    with dev.record() as program:
        length.add_(1)
        y = q.attention(keys, values, kv_length=length, **options)
    for at in range(rows):
        if at:  # the block itself was the first step, of a query of zeros
            q.scale_(0.0)
            q.add_(dev.upload(queries[at : at + 1]))
            program.replay()
            same(y, everything[at : at + 1], 1e-5, what=at)
            eager = q.attention(keys, values, kv_length=at + 1, **options)
            same(eager, y.download())


# Softcap ----------------------------------------------------------------------------------------


def test_attention_softcap(dev: tensai.Device) -> None:
    for queries, dim in ((1, 24), (5, 30), (70, 64)):
        q, k, v = qkv((2,), queries, 90, 4, dim, 2)
        options = {"heads": 4, "kv_heads": 2}
        for softcap in (1e-3, 1.0, 50, 1e9):
            check_attention(dev, q * f32(9), k, v, softcap=softcap, causal=True, **options)
        # Before the mask: what it adds is not capped.
        added = np.random.default_rng(5).normal(0, 30, (queries, 90)).astype(f32)
        check_attention(dev, q * f32(9), k, v, added, softcap=2.0, **options)
        seen = added > 0
        seen[0] = False
        check_attention(dev, q * f32(9), k, v, seen, softcap=2.0, window=40, **options)


# Sizes ------------------------------------------------------------------------------------------


def check_sample(
    got: Tensor, q: Array, k: Array, v: Array, heads: int, kv_heads: int, rows: Any
) -> None:
    """Some queries of the first and last batch and head, causal, in float64 NumPy."""
    dim = q.shape[-1] // heads
    result = got.download()
    for batch, head in ((0, 0), (len(q) - 1, heads - 1)):
        own = slice(head * dim, (head + 1) * dim)
        shared = head // (heads // kv_heads)
        theirs = slice(shared * dim, (shared + 1) * dim)
        for row in rows:
            seen = row + 1 + k.shape[1] - q.shape[1]
            scores = k[batch, :seen, theirs].astype(np.float64) @ q[batch, row, own] / dim**0.5
            weights = np.exp(scores - scores.max())
            expected = weights / weights.sum() @ v[batch, :seen, theirs]
            same(result[batch, row, own], expected.astype(f32), 1e-6 * (seen + dim) ** 0.5)


@pytest.mark.slow
def test_a_long_batch(gpu: tensai.Device) -> None:
    # Its scores would be 256 MiB, twice what a software adapter binds.
    q, k, v = qkv((8,), 1024, 1024, 8, 64)
    got = gpu.upload(q).attention(gpu.upload(k), gpu.upload(v), heads=8, causal=True)
    check_sample(got, q, k, v, 8, 8, (0, 1, 63, 64, 500, 1022, 1023))


def test_a_long_cache(gpu: tensai.Device) -> None:
    q, k, v = qkv((1,), 1, 4096, 32, 64, 8)
    got = gpu.upload(q).attention(gpu.upload(k), gpu.upload(v), heads=32, kv_heads=8, causal=True)
    check_sample(got, q, k, v, 32, 8, (0,))


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


@pytest.mark.parametrize("queries", [1, 5, 70])
@pytest.mark.parametrize("rows", [3, 300])
def test_what_weighs_nothing_is_hidden(dev: tensai.Device, queries: int, rows: int) -> None:
    q, k, v = np.ones((queries, 16), f32), np.ones((rows, 16), f32), numbers((rows, 16))
    far, lowest = rows - 2, rows - 1
    k[far], k[lowest] = -100, -np.inf  # scores of -400 and -inf beside 4
    v[far:] = np.nan
    got = dev.upload(q).attention(dev.upload(k), dev.upload(v))
    same(got, np.broadcast_to(v[:far].astype(np.float64).mean(axis=0), (queries, 16)), 1e-5)


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
