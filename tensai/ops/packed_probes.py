"""Probes of the operations on packed matrices: matrices of random words, of every kind."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..formats import FORMATS
from ..operation import Probe

Array = np.ndarray[Any, Any]

GROUPS = {"q8": (0, 16, 7), "q4": (0, 16, 7)}  # 0: one for a row; 7: no multiple of 16


def random_matrix(kind: str, n: int, k: int, group: int, seed: int) -> tuple[Array, Array | None]:
    """Words of a matrix whose elements are of order 1, denormals of float16 among them."""
    made = FORMATS[kind]
    rng = np.random.default_rng(seed)
    words = rng.integers(0, 1 << 32, (n, made.row_words(k)), np.uint32)
    halves = words.view(np.uint16)
    if kind == "F16":
        halves[:] = _halves(rng, halves.shape)
    elif not made.integers:
        floats = rng.normal(0, 1, (n, made.padded(k))).astype(np.float32)
        bits = floats.view(np.uint32)
        words = bits if kind == "F32" else np.ascontiguousarray(bits >> 16).astype(np.uint16)
        words = words.view(np.uint32)
    sets = n * made.row_scales(k, group)
    if made.grouped:
        return words, rng.uniform(0.5, 2, sets).astype(np.float32).view(np.uint32)
    if not made.scales:
        return words, None
    stored = rng.integers(0, 256, (sets, made.scales), np.uint8)
    places = 2 if made.scales > 2 else 1
    stored[:, : 2 * places] = _halves(rng, (sets, places)).view(np.uint8)
    packed = np.zeros(-(-stored.size // 4) * 4, np.uint8)
    packed[: stored.size] = stored.reshape(-1)
    return words, packed.view(np.uint32)


def _halves(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """The bits of float16 numbers of both signs, from the smallest denormals to some tens."""
    return (rng.integers(0, 0x5000, shape) | rng.integers(0, 2, shape) << 15).astype(np.uint16)


def steady_rows(
    rng: np.random.Generator, m: int, k: int, norm: Array | None = None
) -> tuple[Array, Array | None]:
    """Rows of x that every device rounds alike, whatever the norm: the elements of x * norm lie
    midway between codes and their neighbours' limits. The norm becomes powers of two."""
    x = rng.integers(-126, 126, (m, k)).astype(np.float32) + 0.25
    x[:, ::32] = 127
    if norm is not None:
        norm = np.float32(2) ** rng.integers(-1, 2, k).astype(np.float32)
        x /= norm
    return x / 64, norm


def _matrices() -> list[tuple[str, int]]:
    return [(kind, group) for kind in FORMATS for group in GROUPS.get(kind, (0,))]


def unpack_probes() -> list[Probe]:
    """Every kind, over more than a workgroup of threads."""
    made = []
    for kind, group in _matrices():
        k = 512 if FORMATS[kind].block == 256 else 96
        codes, scales = random_matrix(kind, 37, k, group or k, 3)
        made.append(Probe((codes, scales), {"kind": kind, "k": k, "group": group or k}))
    return made


def embed_probes() -> list[Probe]:
    """Every kind and dtype of indices, some out of range."""
    made = []
    for kind, group in _matrices():
        k = 512 if FORMATS[kind].block == 256 else 96
        codes, scales = random_matrix(kind, 23, k, group or k, 4)
        for dtype in (np.int32, np.uint32):
            indices = np.array([[0, 22, 5], [23, 7, 7]], dtype)
            probe = (codes, indices, scales)
            made.append(Probe(probe, {"kind": kind, "k": k, "group": group or k}))
    return made


def matmul_probes() -> list[Probe]:
    """Every kind with as many rows as each kernel takes, and the steps around the product."""
    rng = np.random.default_rng(5)
    made = []

    def probe(kind: str, m: int, n: int, k: int, group: int, **options: Any) -> None:
        codes, scales = random_matrix(kind, n, k, group or k, m)
        x = rng.normal(0, 1, (m, k)).astype(np.float32)
        norm = rng.normal(1, 0.5, k).astype(np.float32) if options.pop("norm", False) else None
        if options.get("activations") == "int8":
            x, norm = steady_rows(rng, m, k, norm)
        bias = rng.normal(0, 1, n).astype(np.float32) if options.pop("bias", False) else None
        columns = n // 2 if options.get("gate") else n
        residual = None
        if options.pop("residual", False):
            residual = rng.normal(0, 1, (m, columns)).astype(np.float32)
        arguments = {"kind": kind, "group": group or k, **options}
        # As far apart as two orders of a long float32 sum may be; a gate multiplies two of them.
        tolerance = 1e-5 if k < 1000 or options.get("activations") else 5e-5
        made.append(Probe((x, codes, scales, norm, bias, residual), arguments, tolerance))

    for kind, group in _matrices():
        k = 512 if FORMATS[kind].block == 256 else 96
        if FORMATS[kind].integers and group != 7:
            around = {"norm": True, "bias": True, "residual": True, "activations": "int8"}
            probe(kind, 2, 67, k, group, **around)
            probe(kind, 1, 38, 4608, group, norm=True, gate="silu", activations="int8")
            probe(kind, 70, 131, k, group, **around)
            # More pairs of sums than the workgroups of a row take at once, in subgroups of 8.
            probe(kind, 8, 4300, k // 3 if k == 96 else k, group, activations="int8")
            probe(kind, 1, 7, k, group, activations="int8")
        probe(kind, 1, 7, k, group)
        # Longer than a workgroup takes at once.
        probe(kind, 1, 38, 4608, group, norm=True, bias=True)
        probe(kind, 5, 6, 4608, group, norm=True, bias=True, gate="silu", residual=True)
        probe(kind, 99, 131, k, group, bias=True, residual=True)
    probe("q8", 3, 10, 70, 0, norm=True, gate="gelu_tanh")  # rows that are padded
    return made
