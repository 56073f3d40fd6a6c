"""Products of packed matrices with activations rounded to int8, against float64 NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from compare import same

import tensai
from tensai import reference
from tensai.formats import FORMATS
from tensai.ops.packed_probes import random_matrix, steady_rows
from tensai.quantized import QuantizedTensor
from tensai.reference.packed import rounded_rows

KINDS = [kind for kind, made in FORMATS.items() if made.integers]


def matrix(
    device: tensai.Device, kind: str, k: int, n: int, group: int = 32
) -> tuple[QuantizedTensor, Any]:
    """A matrix of random codes on a device, and its elements (k, n)."""
    made = FORMATS[kind]
    group = group if made.grouped else k
    codes, scales = random_matrix(kind, n, k, group, k + n)
    scales = None if scales is None else device.upload(scales)
    packed = QuantizedTensor(kind, (k, n), device.upload(codes), scales, group)
    return packed, packed.dequantize().download().astype(np.float64)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("m", [1, 7, 9, 75])
def test_products(dev: tensai.Device, kind: str, m: int) -> None:
    k = 768 if FORMATS[kind].block == 256 else 224
    w, elements = matrix(dev, kind, k, 83)
    rng = np.random.default_rng(m)
    x, _ = steady_rows(rng, m, k)
    y = dev.upload(x).matmul(w, activations="int8")
    same(y, (rounded_rows(x).astype(np.float64) @ elements).astype(np.float32), 1e-5)
    x = rng.normal(size=(m, k)).astype(np.float32)
    exact = x.astype(np.float64) @ elements
    y = dev.upload(x).matmul(w, activations="int8").download()
    assert 0 < np.linalg.norm(y - exact) < 0.01 * np.linalg.norm(exact)
    same(dev.upload(x) @ w, exact.astype(np.float32), 1e-6 * k**0.5)


@pytest.mark.parametrize("m", [1, 30])
@pytest.mark.parametrize("gate", [None, "silu", "gelu_tanh"])
def test_what_stands_around(dev: tensai.Device, m: int, gate: str | None) -> None:
    k, n = 96, 58
    columns = n if gate is None else n // 2
    w, _ = matrix(dev, "Q8_0", k, n)
    rng = np.random.default_rng(3)
    residual, bias = rng.normal(size=(m, columns)), rng.normal(size=n)
    x, norm = steady_rows(rng, m, k, np.ones(k))
    given = [np.asarray(a, np.float32) for a in (x, norm, bias, residual)]
    y = tensai.ops.linear(
        dev.upload(given[0]),
        w,
        dev.upload(given[2]),
        norm=dev.upload(given[1]),
        eps=1e-5,
        residual=dev.upload(given[3]),
        gate=gate,
        activations="int8",
    )
    words = [w.codes.download(), w.scales.download()]
    expected = reference.packed_matmul(
        given[0], *words, given[1], given[2], given[3], "Q8_0", k, 1e-5, gate, "int8"
    )
    same(y, expected.astype(np.float32), 3e-5)


@pytest.mark.parametrize(("k", "n"), [(32, 1), (33, 5), (1, 3), (5000, 4), (64, 129)])
@pytest.mark.parametrize("kind", ["q8", "q4"])
@pytest.mark.parametrize("m", [1, 12])
def test_odd_sizes(dev: tensai.Device, kind: str, k: int, n: int, m: int) -> None:
    for group in (k, 16, 7):
        w, elements = matrix(dev, kind, k, n, group)
        x, _ = steady_rows(np.random.default_rng(m), m, k)
        y = dev.upload(x).matmul(w, activations="int8")
        rounded = x if group == 7 and k > 7 else rounded_rows(x)
        same(y, (rounded.astype(np.float64) @ elements).astype(np.float32), 1e-5, what=group)


@pytest.mark.parametrize("kind", ["q8", "Q8_0", "Q4_0", "Q6_K"])
@pytest.mark.parametrize(("m", "n"), [(1, 34_001), (3, 12_345), (8, 4301)])
def test_more_columns_than_a_device_takes_at_once(
    gpu: tensai.Device, kind: str, m: int, n: int
) -> None:
    k = FORMATS[kind].block
    w, elements = matrix(gpu, kind, k, n)
    x, _ = steady_rows(np.random.default_rng(m), m, k)
    y = gpu.upload(x).matmul(w, activations="int8")
    same(y, (rounded_rows(x).astype(np.float64) @ elements).astype(np.float32), 1e-5)


@pytest.mark.parametrize("m", [1, 12])
def test_rows_that_are_wider_than_a_workgroup_holds(gpu: tensai.Device, m: int) -> None:
    w, elements = matrix(gpu, "Q4_0", 17_408, 3)
    x, _ = steady_rows(np.random.default_rng(m), m, 17_408)
    y = gpu.upload(x).matmul(w, activations="int8")
    same(y, (rounded_rows(x).astype(np.float64) @ elements).astype(np.float32), 1e-5)


@pytest.mark.parametrize("m", [1, 12])
def test_what_is_no_number_stays_none(dev: tensai.Device, m: int) -> None:
    w, _ = matrix(dev, "Q4_0", 128, 20)
    x = np.ones((m, 128), np.float32)
    x[0, 77] = np.nan
    assert np.isnan(dev.upload(x).matmul(w, activations="int8").download()[0]).all()
    x[0] = 0
    y = dev.upload(x).matmul(w, activations="int8").download()
    assert (y[0] == 0).all()
    assert np.isfinite(y).all()
