"""The gradient operations called for themselves, against PyTorch in float64; and bad input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from compare import numbers
from hypothesis import given, settings
from hypothesis import strategies as st

import tensai
from tensai.errors import DTypeError, ShapeError

pytestmark = pytest.mark.usefixtures("still_works")
F = torch.nn.functional

ACTIVATIONS: dict[str, Callable[..., Any]] = {
    "relu": torch.relu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
}


def leaf(array: np.ndarray[Any, Any]) -> Any:
    return torch.tensor(array, dtype=torch.float64, requires_grad=True)


def close(got: Any, expected: Any, tolerance: float = 1e-5) -> None:
    array = got.download() if isinstance(got, tensai.Tensor) else got
    assert array.shape == tuple(expected.shape)
    scale = max(float(abs(expected).max()), 1e-30) if expected.size else 1
    assert np.abs(array - expected).max(initial=0) <= tolerance * scale


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(dev: tensai.Device, name: str) -> None:
    x = np.concatenate([numbers((500,)) * 4, np.float32([0, -0.0, 30, -30, 1e4, -1e4, 88, -88])])
    grad = numbers(x.shape, seed=1)
    p = leaf(x)
    made = ACTIVATIONS[name](p)
    made.backward(torch.tensor(grad, dtype=torch.float64))
    t = dev.upload(x)
    close(t.activate(name), made.detach().numpy())
    close(t.activate_grad(name, dev.upload(grad)), p.grad.numpy())
    infinite = dev.upload(np.float32([np.inf, -np.inf, np.nan]))
    slopes = infinite.activate_grad(name, dev.ones(3)).download()
    assert np.isfinite(slopes[:2]).all()
    assert np.isnan(slopes[2])


@pytest.mark.parametrize("name", ["gelu", "gelu_tanh"])
def test_slopes_far_out_are_exact(dev: tensai.Device, name: str) -> None:
    x = dev.upload(np.float32([20, np.inf, -20, -np.inf]))
    assert x.activate_grad(name, dev.ones(4)).tolist() == [1, 1, 0, 0]
    endless = x.activate_grad(name, dev.full((4,), np.inf)).download()
    np.testing.assert_equal(endless, [np.inf, np.inf, np.nan, np.nan])


@settings(deadline=None, max_examples=25)
@given(rows=st.integers(0, 70), length=st.integers(1, 600), seed=st.integers(0, 99))
def test_rows_of_any_length(gpu: tensai.Device, rows: int, length: int, seed: int) -> None:
    x, grad = numbers((rows, length), seed=seed), numbers((rows, length), seed=seed + 1)
    weight, bias = numbers((2, length), seed=seed + 2)
    up = torch.tensor(grad, dtype=torch.float64)
    t, g, w = gpu.upload(x), gpu.upload(grad), gpu.upload(weight)

    p = leaf(x)
    y = torch.softmax(p, 1)
    y.backward(up)
    close(gpu.upload(y.detach().numpy()).softmax_grad(g), p.grad.numpy(), 1e-4)

    # Relative to the largest term: differences of terms can leave nothing.
    slopes = np.abs(grad * weight).max(initial=0)
    p, pw, pb = leaf(x), leaf(weight), leaf(bias)
    F.layer_norm(p, (length,), pw, pb, 1e-3).backward(up)
    spread = np.sqrt(x.var(axis=1, dtype=np.float64) + 1e-3).min(initial=np.inf)
    term = max(slopes / spread, np.abs(grad).max(initial=0), 1e-30)
    for got, expected in zip(t.layer_norm_grad(g, w, 1e-3), (p, pw, pb), strict=True):
        worst = np.abs(got.download() - expected.grad.numpy()).max(initial=0)
        assert worst <= 5e-6 * max(rows, 4) ** 0.5 * term
    close(t.layer_norm_xhat(1e-3), F.layer_norm(leaf(x), (length,), eps=1e-3).detach().numpy())

    p, pw = leaf(x), leaf(weight)
    F.rms_norm(p, (length,), pw, 1e-3).backward(up)
    spread = np.sqrt(np.square(x, dtype=np.float64).mean(axis=1) + 1e-3).min(initial=np.inf)
    term = max(slopes / spread, np.abs(grad).max(initial=0), 1e-30)
    for got, expected in zip(t.rms_norm_grad(g, w, 1e-3), (p, pw), strict=True):
        worst = np.abs(got.download() - expected.grad.numpy()).max(initial=0)
        assert worst <= 5e-6 * max(rows, 4) ** 0.5 * term


@pytest.mark.parametrize("rows", [1, 37, 300_000])
def test_embed_grad(dev: tensai.Device, rows: int) -> None:
    """Exact for small integers: repeats add up. A large table is added to by compare-and-swap."""
    indices = np.random.default_rng(2).integers(0, rows, (40, 30)).astype(np.int32)
    indices[:20] = rows // 2
    grad = np.random.default_rng(3).integers(-9, 10, (40, 30, 5)).astype(np.float32)
    expected = np.zeros((rows, 5), np.float32)
    np.add.at(expected, indices.reshape(-1), grad.reshape(-1, 5))
    assert np.array_equal(dev.embed_grad(indices, grad, rows).download(), expected)
    made = dev.embed_grad(dev.upload(indices), dev.upload(grad), rows)
    assert np.array_equal(made.download(), expected)


def test_embed_grad_is_the_same_every_time(dev: tensai.Device) -> None:
    indices = dev.upload(np.random.default_rng(4).integers(0, 50, 5000).astype(np.int32))
    grad = dev.upload(numbers((5000, 8)))
    first = dev.embed_grad(indices, grad, 50).download()
    for _ in range(3):
        assert np.array_equal(dev.embed_grad(indices, grad, 50).download(), first)


def test_bad_input(dev: tensai.Device) -> None:
    x, row, other = dev.ones((4, 3)), dev.ones(3), dev.ones((4, 2))
    whole = dev.zeros((4, 3), np.int32)
    wrong: list[tuple[type[Exception], Callable[[], Any]]] = [
        (ShapeError, lambda: x.softmax_grad(other)),
        (ShapeError, lambda: x.softmax_grad(x, axis=2)),
        (DTypeError, lambda: x.softmax_grad(whole)),
        (ShapeError, lambda: x.layer_norm_grad(other, row)),
        (ShapeError, lambda: x.layer_norm_grad(x, dev.ones(4))),
        (ShapeError, lambda: x.rms_norm_grad(x, dev.ones((1, 3)))),
        (DTypeError, lambda: x.layer_norm_grad(x, dev.zeros(3, np.int32))),
        (ShapeError, lambda: dev.ones(()).layer_norm_xhat()),
        (ValueError, lambda: x.activate("sine")),
        (ValueError, lambda: x.activate_grad("sine", x)),
        (ShapeError, lambda: x.activate_grad("relu", other)),
        (IndexError, lambda: dev.embed_grad([0, 3], np.ones((2, 5)), 3)),
        (IndexError, lambda: dev.embed_grad([-1], np.ones((1, 5)), 3)),
        (DTypeError, lambda: dev.embed_grad([0.5], np.ones((1, 5)), 3)),
        (ShapeError, lambda: dev.embed_grad([0, 1], np.ones((3, 5)), 3)),
        (ShapeError, lambda: dev.embed_grad([], np.ones((0, 5)), -1)),
        (ShapeError, lambda: x.adam_step_(other, x, x, 0.1, 0.9, 0.99, 1e-8, 1)),
        (DTypeError, lambda: x.adam_step_(whole, x, x, 0.1, 0.9, 0.99, 1e-8, 1)),
        (ShapeError, lambda: x.adam_step_(x, x.copy(), x.copy(), row, 0.9, 0.99, 1e-8, 1)),
    ]
    for error, call in wrong:
        with pytest.raises(error):
            call()
    assert x.download().tolist() == np.ones((4, 3)).tolist()
