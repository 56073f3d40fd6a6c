"""What a transformer's step does beside products: norms, rotary positions, caches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from compare import numbers, same
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

import tensai
from tensai.ops.positions import append, frequencies, turn

SCALINGS: list[dict[str, Any] | None] = [
    None,
    {"rope_type": "linear", "factor": 4.0},
    {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 256,
    },
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512},
]


def turned(x: Any, positions: Any, heads: int, radians: Any, style: str, scale: float) -> Any:
    """Rotary positions in float64: x (rows, heads * dim)."""
    rows, dim = len(x), x.shape[1] // heads
    split = x.reshape(rows, heads, dim).astype(np.float64)
    angles = np.asarray(positions, np.float64)[:, None] * radians
    cosine, sine = np.cos(angles)[:, None] * scale, np.sin(angles)[:, None] * scale
    half = len(radians)
    if style == "neox":
        a, b = split[..., :half], split[..., half : 2 * half]
        made = [a * cosine - b * sine, a * sine + b * cosine, split[..., 2 * half :]]
        return np.concatenate(made, axis=-1).reshape(x.shape)
    a, b = split[..., 0 : 2 * half : 2], split[..., 1 : 2 * half : 2]
    made = np.stack([a * cosine - b * sine, a * sine + b * cosine], axis=-1)
    return np.concatenate(
        [made.reshape(rows, heads, 2 * half), split[..., 2 * half :]], axis=-1
    ).reshape(x.shape)


@settings(max_examples=25, deadline=None)
@given(
    rows=st.integers(0, 5),
    length=st.integers(1, 600),
    half=st.booleans(),
    residual=st.booleans(),
)
def test_rms_norm(dev: tensai.Device, rows: int, length: int, half: bool, residual: bool) -> None:
    x = numbers((rows, length), np.float16 if half else np.float32)
    w = numbers(length, seed=2)
    other = numbers((rows, length), seed=3) if residual else None
    # torch, float64
    expected = torch.nn.functional.rms_norm(
        torch.from_numpy(x).double(), (length,), torch.from_numpy(w).double(), 1e-5
    ).numpy()
    if other is not None:
        expected = expected + other
    given = None if other is None else dev.upload(other)
    y = dev.upload(x).rms_norm(dev.upload(w), 1e-5, given)
    same(y, expected.astype(x.dtype), 1e-3 if half else 1e-6)


@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("style", ["neox", "gptj"])
def test_rope(dev: tensai.Device, style: str, scaling: Any) -> None:
    x = numbers((6, 3 * 64))
    config = LlamaConfig(
        hidden_size=192,
        num_attention_heads=3,
        max_position_embeddings=2048,
        rope_theta=5e3,
        rope_scaling=scaling,
    )
    if scaling is None:
        radians, scale = frequencies(64, 5e3)[0], 1.0
    else:
        kind = scaling["rope_type"]
        found, scale = ROPE_INIT_FUNCTIONS[kind](config, torch.device("cpu"))
        radians = found.numpy().astype(np.float64)
    t = dev.upload(x)
    assert t.rope_(7, theta=5e3, heads=3, style=style, scaling=scaling) is t
    # transformers' frequencies, of float32
    same(t, turned(x, np.arange(7, 13), 3, radians, style, scale).astype(np.float32), 3e-6)


@pytest.mark.parametrize("value", [0, -1.0, float("nan"), float("inf"), 10**400, "x"])
def test_rope_of_wrong_numbers(dev: tensai.Device, value: Any) -> None:
    x, qkv = dev.ones((2, 8)), dev.ones((2, 24))
    cache = dev.zeros((4, 8))
    with pytest.raises(ValueError, match="finite number above 0 for theta, but got"):
        x.rope_(0, theta=value)
    with pytest.raises(ValueError, match="finite number above 0 for theta, but got"):
        tensai.ops.append_kv_(cache, cache.copy(), qkv, 0, theta=value)
    for scaling in SCALINGS[1:]:
        assert scaling is not None
        for key in set(scaling) - {"rope_type", "rope_theta"}:  # transformers adds one
            with pytest.raises(ValueError, match=f"above 0 for scaling's {key}, but got"):
                x.rope_(0, scaling={**scaling, key: value})
    with pytest.raises(ValueError, match="finite factors above 0"):
        x.rope_(0, scaling={"rope_type": "factors", "factors": [1.0, 2.0, value, 1.0]})
    with pytest.raises(ValueError, match="theta above 1"):
        x.rope_(0, theta=1.0, scaling=SCALINGS[3])
    assert (x.download() == 1).all()


@pytest.mark.parametrize("style", ["neox", "gptj"])
def test_rope_far_out(dev: tensai.Device, style: str) -> None:
    x = numbers((5, 2 * 40))
    positions = np.array([0, 1, 99_999, 1_048_575, 2_000_000_011])
    radians = frequencies(32, 1e4)[0]
    t = dev.upload(x).rope_(positions, heads=2, style=style, dims=32)
    same(t, turned(x, positions, 2, radians, style, 1.0).astype(np.float32), 1e-6)


def test_rope_over_batches_and_halves(dev: tensai.Device) -> None:
    x = numbers((2, 3, 4, 16), np.float16)
    at = dev.upload(np.array([5], np.int32))
    t = dev.upload(x).rope_(at, heads=2)
    for batch in np.ndindex(2, 3):
        expected = turned(x[batch], np.arange(5, 9), 2, frequencies(8, 1e4)[0], "neox", 1.0)
        same(t[batch[0], batch[1]], expected.astype(np.float16), 1e-3)


@pytest.mark.parametrize("style", ["neox", "gptj"])
@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("dim", [8, 80, 256])
def test_append_kv(dev: tensai.Device, dim: int, norm: bool, style: str) -> None:
    heads, kv_heads, rows, capacity = 6, 2, 5, 11
    qkv = numbers((rows, (heads + 2 * kv_heads) * dim))
    norms = np.abs(numbers((2, dim), seed=2))
    k, v = numbers((capacity, kv_heads * dim), seed=3), numbers((capacity, kv_heads * dim), seed=4)
    k_cache, v_cache = dev.upload(k), dev.upload(v)
    q = tensai.ops.append_kv_(
        k_cache,
        v_cache,
        dev.upload(qkv),
        4,
        heads,
        kv_heads,
        theta=500.0,
        style=style,
        norms=dev.upload(norms) if norm else None,
        eps=1e-5,
    )
    parts = np.split(qkv, [heads * dim, (heads + kv_heads) * dim], axis=1)
    radians = frequencies(dim, 500.0)[0]
    expected = []
    for part, count, weight in ((parts[0], heads, norms[0]), (parts[1], kv_heads, norms[1])):
        wide = part.reshape(rows, count, dim).astype(np.float64)
        if norm:
            wide = wide / np.sqrt((wide**2).mean(-1, keepdims=True) + 1e-5) * weight
        flat = wide.reshape(rows, -1)
        expected.append(turned(flat, np.arange(4, 9), count, radians, style, 1.0))
    same(q, expected[0].astype(np.float32), 3e-6)
    k[4:9], v[4:9] = expected[1], parts[2]
    same(k_cache, k, 3e-6)
    same(v_cache, v)


def test_no_rows_are_appended(dev: tensai.Device) -> None:
    k, v = dev.ones((4, 4)), dev.ones((4, 4))
    q = tensai.ops.append_kv_(k, v, dev.zeros((0, 16)), 1, heads=4, kv_heads=2)
    assert q.shape == (0, 8)
    assert k.tolist() == v.tolist() == [[1] * 4] * 4


def test_places_on_the_device(dev: tensai.Device) -> None:
    cache = dev.zeros((6, 2, 3))
    at = dev.upload(np.array([0], np.int32))
    source = dev.upload(numbers((2, 2, 3)))
    with dev.record() as program:
        cache.copy_rows_(source, at)
        at.add_(2)
    for _ in range(3):  # the last one finds no room
        source.add_(1)
        program.replay()
    expected = np.concatenate([numbers((2, 2, 3)) + i for i in range(3)])
    same(cache, expected, 1e-6)
    assert at.tolist() == [8]
    half = dev.zeros((5, 3), np.float16).copy_rows_(dev.ones((2, 3), np.float16), 3)
    assert half.download().sum(axis=1).tolist() == [0, 0, 0, 3, 3]
    rows = dev.upload(np.arange(6, dtype=np.int32))
    assert rows.copy_rows_(rows[:2], 4).tolist() == [0, 1, 2, 3, 0, 1]
    assert rows.copy_rows_(rows[:0], 6).tolist() == [0, 1, 2, 3, 0, 1]


@pytest.mark.parametrize("shape", [(4,), (4, 3), (4, 2, 1), (5, 2), (3, 2)])
def test_tables_of_frequencies_that_do_not_fit(dev: tensai.Device, shape: tuple[int, ...]) -> None:
    # For heads of 8 elements, that is 4 pairs; rope_ turns as many pairs as there are frequencies.
    table, at = dev.zeros(shape, np.uint32), dev.zeros(1, np.int32)
    cache = dev.ones((4, 8))
    if shape != (5, 2):  # append_kv_ turns as many as it is told
        with pytest.raises(tensai.ShapeError, match="frequencies"):
            append(cache, cache.copy(), dev.ones((2, 24)), at, table, pairs=4)
    if shape != (3, 2):
        with pytest.raises(tensai.ShapeError, match="frequencies"):
            turn(dev.ones((2, 16)), at, table, 2, True, 1.0)


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda d: d.ones((2, 6)).rope_(0, heads=4), tensai.ShapeError, r"\[rope_\].*4 heads"),
        (lambda d: d.ones((2, 6)).rope_(0, heads=2), tensai.ShapeError, r"\[rope_\].*even"),
        (lambda d: d.ones((2, 6)).rope_([0, 1, 2]), tensai.ShapeError, r"\[rope_\].*2"),
        (lambda d: d.ones((2, 6)).rope_(-1), IndexError, r"\[rope_\].*-1"),
        (lambda d: d.ones((2, 6)).rope_(0.5), tensai.DTypeError, r"\[rope_\]"),
        (lambda d: d.ones((2, 6)).rope_(0, style="x"), ValueError, r"neox.*'x'"),
        (lambda d: d.ones((2, 6)).rope_(0, scaling={"type": "x"}), ValueError, "linear.*'x'"),
        (lambda d: d.ones((2, 6)).rope_(0, scaling={"type": "yarn"}), ValueError, "factor"),
        (lambda d: d.ones((2, 6), np.int32).rope_(0), tensai.DTypeError, r"\[rope_\]"),
        (lambda d: d.ones((2, 6)).copy_rows_(d.ones((1, 5)), 0), tensai.ShapeError, "copy_rows_"),
        (lambda d: d.ones((2, 6)).copy_rows_(d.ones((2, 6)), 1), IndexError, "2 rows at 1"),
        (lambda d: d.ones((2, 6)).copy_rows_(d.ones((1, 6), bool), 1), tensai.DTypeError, "bool"),
        (lambda d: d.ones((2, 6)).rms_norm(d.ones(5)), tensai.ShapeError, r"\(6,\).*\(5,\)"),
        (
            lambda d: tensai.ops.append_kv_(d.ones((4, 8)), d.ones((4, 8)), d.ones((2, 24)), 3),
            IndexError,
            "2 rows at 3",
        ),
        (
            lambda d: tensai.ops.append_kv_(d.ones((4, 8)), d.ones((4, 9)), d.ones((1, 24)), 0),
            tensai.ShapeError,
            r"\(4, 9\)",
        ),
    ],
)
def test_bad_input(
    dev: tensai.Device, still_works: None, make: Any, error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match):
        make(dev)
