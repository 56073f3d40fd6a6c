"""A model's matrices on their way from its files to a device, packed as they are or quantized."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..device import Device
from ..errors import ModelError
from ..formats import FORMATS, pack_q4, pack_q8
from ..quantized import QuantizedTensor, quantize_q4, quantize_q8
from ..tensor import Tensor
from .files import Array
from .source import TensorSource

WEIGHTS = ("q8", "q4", "f16", "f32")
GROUP = 32  # elements to a scale: what products with int8 activations read fastest
AT_ONCE = 1 << 24  # elements that are converted at a time


class Matrices:
    """Reads matrices by name, one or several that lie one below the other, onto a device.

    `weights`: None keeps what the file has, "q8" and "q4" quantize with a scale for each 32
    elements of a row, "f16" and "f32" convert. Raises ModelError, which names the file and the
    tensor, for one that is missing, of another shape, or too large for the device.
    """

    def __init__(self, source: TensorSource, device: Device, weights: str | None) -> None:
        if weights is not None and weights not in WEIGHTS:
            raise ValueError(f"expected weights {', '.join(WEIGHTS)} or None, but got {weights!r}")
        self.source = source
        self.device = device
        self.weights = weights
        self.done = 0  # bytes of the file that were read
        self.total = sum(source.raw(name).nbytes for name in source.readable())

    def kind(self, name: str, coarse: bool = True) -> str:
        """How a matrix of the file will lie on the device; not `coarse`: q4 becomes q8."""
        if self.weights in ("q8", "q4"):
            return self.weights if coarse else "q8"
        found = {"f16": "F16", "f32": "F32", None: self.source.kind(name)}[self.weights]
        # Kinds that devices have no layout for become ones that hold the same numbers.
        return {"F64": "F32", "Q5_0": "Q8_0"}.get(found, found)

    def check(self, names: Sequence[str], shapes: Sequence[tuple[int, int]], coarse: bool) -> int:
        """The bytes that the matrices will take; ModelError if they are missing or do not fit."""
        for name, shape in zip(names, shapes, strict=True):
            self.source.check_shape(name, shape)
        kind, width = self.kind(names[0], coarse), shapes[0][1]
        made = FORMATS[kind]
        if width % made.block and made.code_parts:
            raise ModelError(
                f"{self.source.path}: tensor {names[0]!r} has rows of {width} elements, no whole "
                f"blocks of {made.block}"
            )
        rows = sum(n for n, _ in shapes)
        codes = 4 * rows * made.row_words(width)
        scales = rows * made.row_scales(width, GROUP) * (4 if made.grouped else made.scales)
        limit = self.device.limits.get("maxStorageBufferBindingSize")
        if limit is not None and max(codes, scales) > limit:
            raise ModelError(
                f"{self.source.path}: tensor {names[0]!r} takes {codes:,} bytes as {kind}, but "
                f"{self.device.name} binds at most {limit:,}; quantize it (weights='q8' or 'q4')"
            )
        return codes + scales

    def read(self, names: Sequence[str], coarse: bool = True) -> QuantizedTensor:
        """The matrices, one below the other: all have one kind and rows of one length."""
        kind = self.kind(names[0], coarse)
        shapes = [self.source.shape(name) for name in names]
        width, rows = shapes[0][1], sum(shape[0] for shape in shapes)
        self.done += sum(self.source.raw(name).nbytes for name in names)
        if kind in ("q8", "q4"):
            return self._quantized(names, kind, rows, width)
        if all(self.source.kind(name) == kind for name in names):
            parts = [self.source.raw(name) for name in names]
        elif kind == "Q8_0":
            parts = [widened_q5_0(self.source.raw(name)) for name in names]
        else:
            dtype = np.float16 if kind == "F16" else np.float32
            parts = [
                self.source.tensor(name, shape).astype(dtype).reshape(-1).view(np.uint8)
                for name, shape in zip(names, shapes, strict=True)
            ]
        raw = parts[0] if len(parts) == 1 else np.concatenate(parts)
        return self.device.upload_gguf(raw, (rows, width), kind)

    def _quantized(self, names: Sequence[str], kind: str, rows: int, width: int) -> QuantizedTensor:
        made = FORMATS[kind]
        words = np.empty((rows, made.row_words(width)), np.uint32)
        scales = np.empty((rows, made.row_scales(width, GROUP)), np.float32)
        quantize, pack = (quantize_q8, pack_q8) if kind == "q8" else (quantize_q4, pack_q4)
        at, at_once = 0, max(AT_ONCE // width, 1)
        for name in names:
            count = self.source.shape(name)[0]
            for start in range(0, count, at_once):
                part = self.source.rows(name, start, min(start + at_once, count))
                try:
                    found = quantize(part.T, GROUP)
                except ValueError as error:
                    raise ModelError(f"{self.source.path}: tensor {name!r}: {error}") from error
                words[at : at + len(part)] = pack(found.codes)
                scales[at : at + len(part)] = found.scales.T
                at += len(part)
        device = self.device
        packed = device.upload(scales.view(np.uint32))
        return QuantizedTensor(kind, (width, rows), device.upload(words), packed, GROUP)

    def vector(self, names: Sequence[str], lengths: Sequence[int], offset: float = 0.0) -> Tensor:
        """Vectors, one after the other, as float32, with `offset` added."""
        return self.device.upload(self.numbers(names, lengths) + np.float32(offset))

    def numbers(self, names: Sequence[str], lengths: Sequence[int]) -> Array:
        """Vectors, one after the other, on the host."""
        parts: list[Any] = [
            self.source.tensor(name, (length,)) for name, length in zip(names, lengths, strict=True)
        ]
        return np.concatenate(parts)


def widened_q5_0(raw: Array) -> Array:
    """Blocks of Q5_0 as blocks of Q8_0 with the same numbers.

    A block of Q5_0 is a float16 scale, the high bits of 32 codes, and their low nibbles: the first
    16 of them low, the others high; 16 is subtracted.
    """
    blocks = raw.reshape(-1, 22)
    made = np.empty((len(blocks), 34), np.uint8)
    made[:, :2] = blocks[:, :2]
    high = np.unpackbits(blocks[:, 2:6], axis=1, bitorder="little")
    made[:, 2:18] = (blocks[:, 6:] & 15) + 16 * high[:, :16] - 16
    made[:, 18:] = (blocks[:, 6:] >> 4) + 16 * high[:, 16:] - 16
    return made.reshape(-1)
