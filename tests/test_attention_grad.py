"""The gradient of attention, on the GPU and on the NumPy device.

Compared with PyTorch's automatic derivative, on the CPU in float64, of attention written out in
elementary operations; the NumPy reference also with finite differences.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from compare import Array, same
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tensai
from tensai import reference
from tensai.ops import attending_grad
from tensai.selfcheck import probe_arguments

f16, f32, i32, u32 = np.float16, np.float32, np.int32, np.uint32


def expected_grads(
    q: Array,
    k: Array,
    v: Array,
    grad: Array,
    heads: int = 1,
    kv_heads: int | None = None,
    causal: bool = False,
    scale: float | None = None,
    kv_length: int | None = None,
    window: int | None = None,
    mask: Array | None = None,
    softcap: float | None = None,
) -> tuple[tuple[Array, Array, Array], tuple[float, float, float]]:
    """PyTorch's, and for each the largest sum of the magnitudes of what is added up in it."""
    kv_heads = kv_heads or heads
    queries, rows, dim = q.shape[-2], k.shape[-2], q.shape[-1] // heads
    valid = rows if kv_length is None else min(max(kv_length, 0), rows)
    factor = 1 / math.sqrt(dim) if scale is None else scale

    def leaf(x: Array) -> torch.Tensor:
        return torch.tensor(x.astype(np.float64), requires_grad=True)

    def split(x: torch.Tensor, count: int) -> torch.Tensor:
        batch = x.shape[0] if x.ndim == 3 else 1
        parts = x.reshape(batch, x.shape[-2], count, dim).transpose(1, 2)
        return parts.repeat_interleave(heads // count, dim=1)

    given = leaf(q), leaf(k), leaf(v)
    of_q = split(given[0], heads)
    of_k, of_v = (split(x[..., :valid, :], kv_heads) for x in given[1:])
    scores = of_q @ of_k.transpose(-1, -2) * factor
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    position, last = np.arange(valid), np.arange(queries)[:, None] + valid - queries
    seen = np.ones((queries, valid), bool)
    if causal:
        seen &= position <= last
    if window is not None:
        seen &= position > last - window
    hidden = torch.tensor(~seen)
    if mask is not None:
        cut = torch.tensor(mask if mask.shape[-1] == 1 else mask[..., :valid])
        if mask.dtype == bool:
            hidden = hidden | ~cut
        else:
            hidden = hidden | torch.isneginf(cut)
            scores = scores + torch.nan_to_num(cut.double(), neginf=0.0)
    hidden = hidden.expand(scores.shape)
    nothing = hidden.all(dim=-1, keepdim=True)
    scores = scores.masked_fill(hidden & ~nothing, -math.inf)
    weights = torch.softmax(scores, dim=-1) * ~nothing
    of_grad = split(torch.tensor(grad.astype(np.float64)), heads)
    (weights @ of_v).backward(of_grad.contiguous())
    found = tuple(np.zeros(x.shape) if x.grad is None else x.grad.numpy() for x in given)

    # Of the products alone: what is subtracted in dS may leave much less.
    with torch.no_grad():
        of_weights = (of_grad @ of_v.transpose(-1, -2)).abs()
        steep = weights * (of_weights + (weights * of_weights).sum(dim=-1, keepdim=True))
        shared = (len(of_q), kv_heads, heads // kv_heads, valid, dim)
        sums = (
            steep @ of_k.abs() * abs(factor),
            (steep.transpose(-1, -2) @ of_q.abs()).reshape(shared).sum(dim=2) * abs(factor),
            (weights.transpose(-1, -2) @ of_grad.abs()).reshape(shared).sum(dim=2),
        )
        largest = tuple(float(x.max()) if x.numel() else 0.0 for x in sums)
    return found, largest  # type: ignore[return-value]


def narrow(array: Array) -> Array:
    return array.astype(f32)


def tolerance(q: Array, k: Array, options: dict[str, Any]) -> float:
    """1e-6 sqrt(K) for K terms: a head for each score and each weight's gradient, and their sum.

    An error of four roundings in a score changes its weight, e^score, by as much as it is large.
    """
    heads = options.get("heads", 1)
    dim, group = q.shape[-1] // heads, heads // (options.get("kv_heads") or heads)
    scale = options.get("scale")
    factor = 1 / math.sqrt(dim) if scale is None else abs(scale)
    largest = np.abs(np.nan_to_num(q)).max() * np.abs(np.nan_to_num(k)).max() * dim * factor
    return 1e-6 * (2 * dim + k.shape[-2] + group * q.shape[-2]) ** 0.5 + 4 * 2.0**-24 * largest


def check(
    dev: tensai.Device,
    arrays: tuple[Array, Array, Array, Array],
    mask: Array | None = None,
    **options: Any,
) -> None:
    """Against PyTorch, where kv_length may be given as an array to be uploaded."""
    q, k, v, grad = arrays
    length = options.get("kv_length")
    plain = int(length.reshape(())) if isinstance(length, np.ndarray) else length
    expected, largest = expected_grads(q, k, v, grad, mask=mask, **{**options, "kv_length": plain})
    given = {
        name: dev.upload(value) if isinstance(value, np.ndarray) else value
        for name, value in {**options, "mask": mask}.items()
    }
    got = dev.upload(q).attention_grad(*(dev.upload(x) for x in (k, v, grad)), **given)
    allowed = tolerance(q, k, options)
    for name, one, other, scale in zip(("dq", "dk", "dv"), got, expected, largest, strict=True):
        what = (dev.name, name, q.shape, k.shape, options, None if mask is None else mask.shape)
        same(one, narrow(other), allowed, scale=scale, what=what)


def inputs(
    batch: tuple[int, ...], queries: int, rows: int, heads: int, dim: int, kv_heads: int = 0
) -> tuple[Array, Array, Array, Array]:
    rng = np.random.default_rng(queries * rows + dim)
    of_q, of_k = (*batch, queries, heads * dim), (*batch, rows, (kv_heads or heads) * dim)
    q, k, v, grad = (narrow(rng.normal(0, 1, shape)) for shape in (of_q, of_k, of_k, of_q))
    return q, k, v, grad


def masks(shape: tuple[int, ...], kind: str) -> Array:
    rng = np.random.default_rng(3)
    seen = rng.integers(0, 3, shape) > 0
    return seen if kind == "bool" else narrow(np.where(seen, rng.normal(0, 2, shape), -np.inf))


# Every option -----------------------------------------------------------------------------------

OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "causal": {"causal": True},
    "a scale": {"scale": 0.3},
    "a scale of 0": {"scale": 0.0},
    "a negative scale": {"scale": -0.3},
    "a length": {"kv_length": 41},
    "a length of 0": {"kv_length": 0},
    "a length, causal": {"kv_length": 41, "causal": True},
    "a length below the queries": {"kv_length": 3, "causal": True},
    "a window": {"window": 5},
    "a window of 1": {"window": 1, "causal": True},
    "a wide window": {"window": 10_000, "causal": True},
    "a softcap": {"softcap": 0.7},
    "a wide softcap": {"softcap": 50.0, "causal": True},
    "everything": {"causal": True, "window": 17, "softcap": 2.0, "scale": 0.2, "kv_length": 50},
}


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("name", OPTIONS)
def test_options(dev: tensai.Device, name: str, kv_heads: int) -> None:
    arrays = inputs((2,), 35, 71, 4, 8, kv_heads)
    options = {**OPTIONS[name], "heads": 4, "kv_heads": kv_heads}
    check(dev, arrays, **options)
    if "kv_length" in options:
        arrays[1][:, options["kv_length"] :] = np.nan
        arrays[2][:, options["kv_length"] :] = np.nan
        got = dev.upload(arrays[0]).attention_grad(*map(dev.upload, arrays[1:]), **options)
        for gradient in got[1:]:
            assert not gradient.download()[:, options["kv_length"] :].any()
        check(dev, arrays, **options)


@pytest.mark.parametrize("kind", ["bool", "added"])
@pytest.mark.parametrize("shape", [(71,), (35, 1), (4, 1, 71), (2, 1, 35, 71), (2, 4, 35, 71)])
def test_masks(dev: tensai.Device, shape: tuple[int, ...], kind: str) -> None:
    arrays = inputs((2,), 35, 71, 4, 8, 2)
    options = {"heads": 4, "kv_heads": 2, "kv_length": 60}
    check(dev, arrays, masks(shape, kind), causal=True, **options)
    check(dev, arrays, masks(shape, kind), softcap=1.5, window=30, **options)


@pytest.mark.parametrize("dim", [1, 3, 4, 20, 63, 64, 65, 100, 128, 130, 252, 256])
def test_head_sizes(dev: tensai.Device, dim: int) -> None:
    check(dev, inputs((), 33, 65, 2, dim), heads=2, causal=True)
    check(dev, inputs((2,), 3, 40, 2, dim, 1), heads=2, kv_heads=1)
    check(dev, inputs((1,), 1, 1, 1, dim))


sizes = st.sampled_from([1, 2, 7, 31, 32, 33, 63, 64, 65, 100])


@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_combinations(gpu: tensai.Device, data: Any) -> None:
    queries, rows = data.draw(sizes), data.draw(sizes | st.sampled_from([130, 200]))
    dim = data.draw(st.sampled_from([1, 3, 4, 8, 20, 33, 68, 132]))
    kv_heads, group = data.draw(st.sampled_from([(1, 1), (2, 1), (1, 3), (2, 2)]))
    batch = data.draw(st.sampled_from([(), (1,), (2,)]))
    arrays = inputs(batch, queries, rows, kv_heads * group, dim, kv_heads)
    length = data.draw(st.sampled_from([rows, rows - 1, rows // 2, 0, -3, rows + 5]))
    for array in arrays[1:3]:
        array[..., max(length, 0) :, :] = np.nan
    mask = None
    kind = data.draw(st.sampled_from(["none", "none", "bool", "added"]))
    if kind != "none":
        wanted = [(rows,), (1, queries, rows), (kv_heads * group, queries, 1)]
        mask = masks(data.draw(st.sampled_from(wanted)), kind)
    check(
        gpu,
        arrays,
        mask,
        heads=kv_heads * group,
        kv_heads=kv_heads,
        causal=data.draw(st.booleans()),
        scale=data.draw(st.sampled_from([None, 0.3, 0.0])),
        kv_length=np.array(length, data.draw(st.sampled_from([i32, u32])) if length >= 0 else i32),
        window=data.draw(st.sampled_from([None, None, 1, 5, 70, 1000])),
        softcap=data.draw(st.sampled_from([None, 0.5, 30.0])),
    )


# The formula ------------------------------------------------------------------------------------


def test_reference_against_finite_differences() -> None:
    rng = np.random.default_rng(8)
    q, grad = rng.normal(0, 1, (2, 2, 3, 4))
    k, v = rng.normal(0, 1, (2, 2, 5, 2))
    mask = rng.normal(0, 1, (3, 5))
    mask[1, 2] = -np.inf
    rest = (np.array(4), mask, 2, 1, True, 0.7, 3, 1.5)
    got = reference.attention_grad(q, k, v, grad, *rest)
    for array, gradient in zip((q, k, v), got, strict=True):
        for at in np.ndindex(array.shape):
            kept, totals = array[at], []
            for step in (1e-5, -1e-5):
                array[at] = kept + step
                totals.append((reference.attention(q, k, v, *rest) * grad).sum())
            array[at] = kept
            assert abs((totals[0] - totals[1]) / 2e-5 - gradient[at]) < 1e-8, at


# What nobody sees -------------------------------------------------------------------------------


def test_queries_that_see_nothing(dev: tensai.Device) -> None:
    """They get zeros and add nothing, not even where they or their gradients hold NaN."""
    q, k, v, grad = inputs((2,), 40, 70, 2, 12)
    seen = np.ones((2, 1, 40, 70), bool)
    seen[0, :, 7], seen[1, :, 30:] = False, False
    options = {"heads": 2, "softcap": 3.0}
    check(dev, (q, k, v, grad), seen, **options)
    clean, scales = expected_grads(q, k, v, grad, mask=seen, **options)
    q[0, 7], grad[1, 33] = np.nan, np.inf
    given = map(dev.upload, (k, v, grad))
    got = dev.upload(q).attention_grad(*given, mask=dev.upload(seen), **options)
    for one, other, scale in zip(got, clean, scales, strict=True):
        same(one, narrow(other), 2e-5, scale=scale)
    assert not got[0].download()[0, 7].any() and not got[0].download()[1, 30:].any()


def test_values_that_are_no_numbers(dev: tensai.Device) -> None:
    q, k, v, grad = inputs((2,), 40, 150, 2, 16)
    options = {"heads": 2, "causal": True, "window": 100, "kv_length": 140}
    clean, scales = expected_grads(q, k, v, grad, **options)

    def run(*arrays: Array) -> list[Array]:
        got = dev.upload(arrays[0]).attention_grad(*map(dev.upload, arrays[1:]), **options)
        return [gradient.download() for gradient in got]

    # Before every window and beyond the length.
    for value in (np.nan, np.inf, -np.inf):
        bad_k, bad_v = k.copy(), v.copy()
        for bad in (bad_k, bad_v):
            bad[:, :1], bad[:, 140:] = value, value
        for one, other, scale in zip(run(q, bad_k, bad_v, grad), clean, scales, strict=True):
            same(one, narrow(other), 2e-5, scale=scale)
    # A row of v that the queries from the 30th on see, in one batch and head.
    bad = v.copy()
    bad[1, 130, 16] = np.nan
    dq, dk, dv = run(q, k, bad, grad)
    expected = narrow(clean[0])
    expected[1, 30:, 16:] = np.nan
    same(dq, expected, 2e-5, scale=scales[0])
    spoiled = np.isnan(dk).all(axis=-1), np.isnan(dk[1, :, 16:]).all(axis=-1)
    assert not np.isnan(dk[0]).any() and not np.isnan(dk[1, :, :16]).any()
    assert spoiled[1][31:140].all() and not spoiled[1][:31].any() and not spoiled[1][140:].any()
    same(dv, narrow(clean[2]), 2e-5, scale=scales[2])
    # The gradient of one query, in one element, which sees positions from 6 up to 105.
    bad = grad.copy()
    bad[0, 5, 3] = np.nan
    dq, dk, dv = run(q, k, v, bad)
    expected = narrow(clean[0])
    expected[0, 5, :16] = np.nan
    same(dq, expected, 2e-5, scale=scales[0])
    expected = narrow(clean[2])
    expected[0, 6:106, 3] = np.nan
    same(dv, expected, 2e-5, scale=scales[2])
    expected = narrow(clean[1])
    expected[0, 6:106, :16] = np.nan
    same(dk, expected, 2e-5, scale=scales[1])


def test_large_scores(dev: tensai.Device) -> None:
    q, k, v, grad = inputs((), 20, 50, 2, 16)
    for softcap in (None, 50.0):
        check(dev, (q * f32(10), k * f32(10), v, grad), heads=2, causal=True, softcap=softcap)


# Lengths on the device, dtypes, bad input, memory -----------------------------------------------


def test_length_in_a_tensor(dev: tensai.Device) -> None:
    arrays = inputs((2,), 5, 70, 2, 8)
    for value, kind in ((0, i32), (33, u32), (70, i32), (-1, i32), (2**32 - 1, u32)):
        for shape in ((), (1, 1)):
            check(dev, arrays, heads=2, causal=True, kv_length=np.full(shape, value, kind))


def test_one_plan_for_all_lengths(gpu: tensai.Device) -> None:
    q, k, v, grad = map(gpu.upload, inputs((), 4, 30, 4, 8, 2))
    q.attention_grad(k, v, grad, heads=4, kv_heads=2, kv_length=1)
    count = len(gpu.plans)
    for length in (2, 29, None):
        q.attention_grad(k, v, grad, heads=4, kv_heads=2, kv_length=length)
    assert len(gpu.plans) == count


def test_dtypes(dev: tensai.Device) -> None:
    """Computed in float32; each gradient has the dtype of its tensor."""
    arrays = tuple(x.astype(f16) for x in inputs((), 9, 20, 2, 8))
    wide, scales = expected_grads(*arrays, heads=2)
    for kinds in ((f16, f16, f16, f16), (f16, f32, f16, f32)):
        given = [dev.upload(x.astype(kind)) for x, kind in zip(arrays, kinds, strict=True)]
        got = given[0].attention_grad(*given[1:], heads=2)
        for one, other, kind, scale in zip(got, wide, kinds[:3], scales, strict=True):
            same(one, other.astype(kind), 1e-3 if kind == f16 else 1e-5, scale=scale)


def test_nothing_to_compute(dev: tensai.Device) -> None:
    for batch, queries, rows in (((0,), 3, 4), ((), 0, 4), ((), 3, 0)):
        q, k, v, grad = (dev.upload(x) for x in inputs(batch, queries, rows, 2, 4))
        got = q.attention_grad(k, v, grad, heads=2)
        for one, like in zip(got, (q, k, v), strict=True):
            assert one.shape == like.shape and not one.download().any()


def test_bad_input(dev: tensai.Device, still_works: None) -> None:
    t = dev.ones((5, 8))
    for grad in (dev.ones((5, 4)), dev.ones((1, 5, 8)), dev.ones((4, 8))):
        with pytest.raises(tensai.ShapeError, match=r"\[attention_grad\] .* grad of q's shape"):
            t.attention_grad(t, t, grad)
    with pytest.raises(tensai.DTypeError, match="attention_grad"):
        t.attention_grad(t, t, dev.ones((5, 8), i32))
    with pytest.raises(tensai.ShapeError, match=r"\[attention_grad\] .* q \(batch"):
        t.attention_grad(t, dev.ones((4, 8)), t)
    wrong = {"heads": 3, "kv_heads": 2, "window": 0, "softcap": 0.0, "kv_length": 6}
    for name, value in wrong.items():
        with pytest.raises(tensai.ShapeError, match=r"^\[attention_grad\]"):
            t.attention_grad(t, t, t, **{name: value})
    with pytest.raises(tensai.DTypeError, match="kv_length"):
        t.attention_grad(t, t, t, kv_length=dev.ones(()))
    with pytest.raises(tensai.DTypeError, match="mask"):
        t.attention_grad(t, t, t, mask=dev.ones((5, 5), i32))
    with pytest.raises(tensai.ShapeError, match="mask"):
        t.attention_grad(t, t, t, mask=dev.ones((5, 4)))
    with pytest.raises(tensai.DTypeError, match="expected tensors"):
        tensai.ops.attention_grad(*[np.ones((2, 2))] * 4)


def test_every_source_has_a_probe(gpu: Any) -> None:
    """Of every width of heads, in vectors of four and by single elements."""
    operation = attending_grad.attend_grad
    (kernel,) = operation.kernels

    def sources(arguments: dict[str, Any]) -> set[str]:
        return {step.source for step in gpu.checks._job(operation, kernel, arguments).steps}

    probed = set().union(
        *(sources(probe_arguments(operation, probe)) for probe in operation.probes())
    )
    for dim in (1, 4, 63, 64, 65, 68, 127, 128, 129, 132, 255, 256):
        q = tensai.operation.Spec((3, 40, 2 * dim), np.dtype(f32))
        length = tensai.operation.Spec((), np.dtype(i32))
        bound = operation.signature.bind(q, q, q, q, length, heads=2)
        bound.apply_defaults()
        assert sources(dict(bound.arguments)) <= probed


def test_memory(gpu: tensai.Device) -> None:
    """Beside its inputs and results it needs 16 bytes a query, batch and head: scores stay out."""
    batch, heads, length, dim = 4, 8, 512, 4
    with tensai.open() as dev:
        q, k, v, grad = map(dev.upload, inputs((batch,), length, length, heads, dim))
        small = [x[:, :8] for x in (q, k, v, grad)]
        small[0].attention_grad(*small[1:], heads=heads)  # the self-check has its own tensors
        dev.synchronize()
        before = dev.memory()["in_use"]
        got = q.attention_grad(k, v, grad, heads=heads, causal=True)
        dev.synchronize()
        scores = 4 * batch * heads * length * length
        assert dev.memory()["peak"] - before < scores / 8
        del got
