"""Packed matrices: bit for bit what the gguf package unpacks, and products with them in float64."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import gguf
import numpy as np
import pytest
from compare import numbers, same
from hypothesis import given, settings
from hypothesis import strategies as st

import tensai
from tensai.formats import FORMATS
from tensai.quantized import QuantizedTensor

KINDS = [kind for kind, made in FORMATS.items() if made.code_parts]
OURS = {"q8": 127, "q4": 7}


def file_blocks(kind: str, n: int, k: int, seed: int = 0) -> tuple[Any, Any]:
    """A file's bytes of random blocks, scales from the smallest up, and their elements (n, k)."""
    made = FORMATS[kind]
    rng = np.random.default_rng(seed)
    raw = rng.integers(0, 256, (n * k // made.block, made.block_bytes), np.uint8)
    if kind in ("F32", "F16", "BF16"):
        values = (
            rng.normal(0, 1, raw.shape[0]) * 10.0 ** rng.integers(-7, 4, raw.shape[0])
        ).astype(np.float32)
        code = gguf.GGMLQuantizationType[kind]
        with np.errstate(over="ignore"):
            raw = gguf.quants.quantize(values.reshape(n, k), code).view(np.uint8)
    else:
        places = {"Q6_K": (208,), "Q4_1": (0, 2), "Q4_K": (0, 2), "Q5_K": (0, 2)}.get(kind, (0,))
        for at in places:  # denormals among them, but nothing infinite
            bits = rng.integers(0, 0x5000, len(raw)) | rng.integers(0, 2, len(raw)) << 15
            raw[:, at : at + 2] = bits.astype(np.uint16).view(np.uint8).reshape(-1, 2)
    data = np.ascontiguousarray(raw).reshape(n, -1)
    elements = gguf.quants.dequantize(
        data if kind not in ("F32", "F16") else data.view(f"<f{made.codes}"),
        gguf.GGMLQuantizationType[kind],
    )
    return data.view(np.uint8), elements.reshape(n, k).astype(np.float32)


def sizes_of(kind: str) -> list[tuple[int, int]]:
    block = FORMATS[kind].block
    widths = [block, 3 * block, 5 * block] if block > 1 else [1, 31, 70, 96]
    return [(n, k) for n, k in zip((1, 7, 66, 3), widths, strict=False)]


@pytest.mark.parametrize("kind", KINDS)
def test_elements_of_a_file(dev: tensai.Device, kind: str) -> None:
    for n, k in sizes_of(kind):
        raw, elements = file_blocks(kind, n, k, n)
        for given_raw in (raw, raw.tobytes(), memoryview(raw.tobytes())):
            q = dev.upload_gguf(given_raw, (n, k), kind)
            assert q.shape == (k, n)
            same(q.dequantize(), elements.T)
        rows = np.array([[n - 1, 0], [n // 2, n - 1]])
        same(dev.embed(q, rows), elements[rows])
        assert q.nbytes <= raw.nbytes + 3 or k % 32


@pytest.mark.parametrize("kind", KINDS)
def test_products_with_a_file(dev: tensai.Device, kind: str) -> None:
    for m in (1, 3, 8, 9, 70):
        n, k = 67, FORMATS[kind].block * 2 if FORMATS[kind].block > 1 else 75
        raw, elements = file_blocks(kind, n, k, m)
        x = numbers((m, k), seed=m)
        expected = x.astype(np.float64) @ elements.T.astype(np.float64)
        y = dev.upload(x) @ dev.upload_gguf(raw, (n, k), kind)
        scale = np.abs(x).max() * np.abs(elements).max() * k**0.5
        same(y, expected.astype(np.float32), 1e-6 * k**0.5, scale=scale, what=m)


def by_hand(w: Any, group: int, largest: int) -> tuple[Any, Any]:
    """Codes (k, n) and scales, by the definition, column after column."""
    k, n = w.shape
    codes, scales = np.zeros((k, n)), np.zeros((-(-k // group), n), np.float32)
    for g, start in enumerate(range(0, k, group)):
        part = w[start : start + group].astype(np.float64)
        scale = (np.abs(part).max(axis=0).astype(np.float32) / np.float32(largest)).astype(
            np.float64
        )
        ratio = np.divide(part, scale, out=np.zeros_like(part), where=scale != 0)
        codes[start : start + group] = np.sign(ratio) * np.floor(np.abs(ratio) + 0.5)
        scales[g] = scale
    return codes, scales


@settings(max_examples=30, deadline=None)
@given(
    kind=st.sampled_from(list(OURS)),
    k=st.integers(1, 90),
    n=st.integers(1, 12),
    m=st.integers(1, 12),
    group=st.none() | st.sampled_from([1, 7, 16, 32, 64, 100]),
)
def test_quantizing(
    dev: tensai.Device, kind: str, k: int, n: int, m: int, group: int | None
) -> None:
    w = numbers((k, n), seed=k)
    w[:, 0] = 0  # a column of zeros
    quantize = tensai.quantize_q8 if kind == "q8" else tensai.quantize_q4
    upload = dev.upload_q8 if kind == "q8" else dev.upload_q4
    made = quantize(w, group)
    codes, scales = by_hand(w, group or k, OURS[kind])
    np.testing.assert_array_equal(made.codes, codes)
    np.testing.assert_array_equal(made.scales, scales)
    elements = (codes * np.repeat(scales, group or k, axis=0)[:k]).astype(np.float32)
    np.testing.assert_array_equal(made.dequantize(), elements)
    q = upload(w, group)
    assert isinstance(q, QuantizedTensor) and q.shape == (k, n)
    same(q.dequantize(), elements)
    same(upload(made, group).dequantize(), elements)
    x = numbers((m, k), seed=m)
    expected = x.astype(np.float64) @ elements
    same(dev.upload(x) @ q, expected.astype(np.float32), 1e-6 * k**0.5, scale=16 * k**0.5)


def test_sizes(dev: tensai.Device) -> None:
    w = numbers((256, 512))
    assert dev.upload_q8(w).nbytes == 256 * 512 + 4 * 512
    assert dev.upload_q4(w).nbytes == 256 * 512 // 2 + 4 * 4 * 512
    assert dev.upload_q4(w, group=32).group == 32


def test_halves_are_rounded_away_from_zero() -> None:
    w = np.array([[127, 254], [0.5, 1], [-0.5, -1], [1.5, 3]], np.float32)
    assert tensai.quantize_q8(w).codes.T.tolist() == [[127, 1, -1, 2]] * 2


def test_leading_axes_and_nothing(dev: tensai.Device) -> None:
    w, x = numbers((40, 6)), numbers((2, 3, 5, 40), seed=2)
    q = dev.upload_q8(w)
    elements = q.dequantize().download()
    expected = x.astype(np.float64) @ elements
    same(dev.upload(x) @ q, expected.astype(np.float32), 1e-5)
    same(dev.upload(x[0, 0, 0]) @ q, expected[0, 0, 0].astype(np.float32), 1e-5)
    same(x[0, 0] @ q, expected[0, 0].astype(np.float32), 1e-5)
    same(dev.upload(x.astype(np.float16)) @ q, expected.astype(np.float16), 2e-2)
    assert (dev.zeros((0, 40)) @ q).shape == (0, 6)
    assert (dev.zeros((3, 0)) @ dev.upload_q8(np.zeros((0, 4)))).tolist() == [[0] * 4] * 3
    assert (dev.zeros((3, 5)) @ dev.upload_q4(np.zeros((5, 0)))).shape == (3, 0)
    assert dev.upload_gguf(b"", (0, 32), "Q4_0").shape == (32, 0)


def test_freed(dev: tensai.Device, still_works: None) -> None:
    with dev.upload_q8(numbers((8, 8))) as q:
        pass
    with pytest.raises(tensai.TensorFreedError):
        dev.ones((1, 8)) @ q


def test_copies(dev: tensai.Device) -> None:
    for q in (dev.upload_q4(numbers((40, 6))), dev.upload_gguf(bytes(18), (1, 32), "Q4_0")):
        elements = q.dequantize().download()
        for made in (copy.copy(q), copy.deepcopy({"q": q})["q"]):
            assert (made.kind, made.shape, made.group) == (q.kind, q.shape, q.group)
            assert made.codes is not q.codes
            same(made.dequantize(), elements)
            made.free()
        same(q.dequantize(), elements)
        with pytest.raises(TypeError, match=r"pickle its dequantize\(\)"):
            pickle.dumps(q)


@pytest.mark.parametrize(
    "use",
    [
        lambda x, q: q @ x,
        lambda x, q: q @ x.download(),
        lambda x, q: x * q,
        lambda x, q: q * x,
        lambda x, q: x + q,
        lambda x, q: x.download() + q,
        lambda x, q: q + 1,
        lambda x, q: 2 - q,
        lambda x, q: x / q,
        lambda x, q: -q,
        lambda x, q: q[0],
        lambda x, q: x == q,
        lambda x, q: x.matmul_t(q),
        lambda x, q: x.matmul_tn(q),
        lambda x, q: x.add(q),
        lambda x, q: x.maximum(q),
        lambda x, q: x.device.upload(q),
        lambda x, q: np.asarray(q),
    ],
)
def test_what_only_a_tensor_can(dev: tensai.Device, still_works: None, use: Any) -> None:
    with pytest.raises(tensai.DTypeError, match=r"packed matrix \(q8\).*x @ q.*q\.dequantize\(\)"):
        use(dev.ones((6, 6)), dev.upload_q8(np.ones((6, 6))))


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda d: d.upload_q8(np.ones(3)), tensai.ShapeError, r"\(k, n\).*\(3,\)"),
        (lambda d: d.upload_q8(np.ones((3, 3), complex)), tensai.DTypeError, "complex"),
        (lambda d: d.upload_q8(np.full((3, 3), np.nan)), ValueError, "NaN"),
        (lambda d: d.upload_q4(np.ones((3, 3)), group=0), tensai.ShapeError, "at least 1"),
        (lambda d: d.upload_q4(tensai.quantize_q8(np.ones((3, 3)))), tensai.DTypeError, "q8"),
        (lambda d: d.upload_gguf(b"x" * 18, (1, 32), "Q3_K"), tensai.DTypeError, "Q4_0.*"),
        (lambda d: d.upload_gguf(b"x" * 17, (1, 32), "Q4_0"), tensai.ShapeError, "18.*17"),
        (lambda d: d.upload_gguf(b"x" * 18, (1, 33), "Q4_0"), tensai.ShapeError, "33"),
        (lambda d: d.upload_gguf(b"x" * 18, (32,), "Q4_0"), tensai.ShapeError, r"\(n, k\)"),
        (lambda d: d.upload_gguf("text", (1, 32), "Q4_0"), tensai.DTypeError, "str"),
        (lambda d: d.ones((2, 5)) @ d.upload_q8(np.ones((6, 2))), tensai.ShapeError, "5.*6"),
        (
            lambda d: d.ones((2, 6)).matmul(d.upload_q8(np.ones((6, 2))), activations="int4"),
            ValueError,
            "int4",
        ),
        (
            lambda d: tensai.ops.linear(d.ones((2, 6)), d.upload_q8(np.ones((6, 3))), gate="silu"),
            tensai.ShapeError,
            "gate",
        ),
        (
            lambda d: tensai.ops.linear(d.ones((2, 6)), d.upload_q8(np.ones((6, 2))), gate="relu"),
            ValueError,
            "relu",
        ),
        (lambda d: d.embed(d.upload_q8(np.ones((6, 2))), [2]), IndexError, "2 is out of range"),
    ],
)
def test_bad_input(
    dev: tensai.Device, still_works: None, make: Any, error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match):
        make(dev)
