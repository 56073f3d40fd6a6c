"""Packed matrices: which kinds there are, and how each lies in a file and on a device.

A packed matrix is kept by output row: n rows of k elements, for a product with k inputs and n
outputs. On a device it is one or two arrays of 32-bit words, `codes` (n, words a row) and
`scales`. Rows of kinds without blocks are padded with zeros to whole 32 elements.

    kind       codes                                              scales
    F32        an element a word                                  none
    F16, BF16  two elements a word                                none
    q8, Q8_0   four int8 a word                                   see below
    q4, Q4_0   32 elements in 4 words: word w has elements        see below
               4w..4w+3 in its low nibbles and 16+4w..16+4w+3 in
               its high ones, each a code plus 8
    Q4_1       as Q4_0, codes from 0                              d and minus the minimum in
                                                                  float16, a word for each 32
    Q4_K       256 elements in 32 words                           4 words for each 256 elements: d
    Q5_K       256 elements in 40 words: qs, then qh              and dmin in float16, 12 bytes
    Q6_K       256 elements in 52 words: ql, qh, 16 int8 scales   float16, two a word, each 256

The scales of q8 and q4 are float32, one for each `group` elements of a row; those of Q8_0 and
Q4_0 float16, two a word, one for each 32. Kinds in capitals are those of GGUF files
(https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h); within a block their bytes keep
the file's order, only the parts of a block are moved apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .errors import DTypeError, ShapeError

Array = np.ndarray[Any, Any]
Span = tuple[int, int]

UNIT = 32  # elements that rows of kinds without blocks are padded to


@dataclass(frozen=True)
class Format:
    """One kind of packed matrix.

    `block` elements take `codes` bytes of codes and, where they are stored per block, `scales`
    bytes of scales on a device. `code_parts` and `scale_part` say where these bytes lie in a
    file's block; kinds without them are not found in files. `quads` is how many times four
    elements a kernel unpacks at once.
    """

    kind: str
    block: int
    codes: int
    scales: int = 0
    code_parts: tuple[Span, ...] = ()
    scale_part: Span = (0, 0)
    quads: int = 8

    @property
    def block_bytes(self) -> int:
        """Bytes of a block in a file."""
        return self.codes + self.scales

    @property
    def integers(self) -> bool:
        """Whether elements are small integers with scales."""
        return self.quads == 8

    @property
    def grouped(self) -> bool:
        """Whether scales are float32, one for each `group` elements (q8 and q4)."""
        return self.kind in ("q8", "q4")

    def padded(self, k: int) -> int:
        """Elements of a stored row for k elements."""
        return k + -k % max(self.block, UNIT)

    def row_words(self, k: int) -> int:
        """Words of codes in a row of k elements."""
        return self.padded(k) // self.block * self.codes // 4

    def row_scales(self, k: int, group: int) -> int:
        """Scales, or sets of them, in a row of k elements."""
        if self.grouped:
            return -(-k // group)
        return k // self.block if self.scales else 0


FORMATS = {
    made.kind: made
    for made in (
        Format("q8", 1, 1),
        Format("q4", 32, 16),
        Format("Q8_0", 32, 32, 2, ((2, 34),), (0, 2)),
        Format("Q4_0", 32, 16, 2, ((2, 18),), (0, 2)),
        Format("Q4_1", 32, 16, 4, ((4, 20),), (0, 4)),
        Format("Q4_K", 256, 128, 16, ((16, 144),), (0, 16)),
        Format("Q5_K", 256, 160, 16, ((48, 176), (16, 48)), (0, 16)),
        Format("Q6_K", 256, 208, 2, ((0, 208),), (208, 210)),
        Format("F16", 1, 2, code_parts=((0, 2),), quads=2),
        Format("BF16", 1, 2, code_parts=((0, 2),), quads=2),
        Format("F32", 1, 4, code_parts=((0, 4),), quads=1),
    )
}


def file_format(kind: str) -> Format:
    """The format of a file's kind, in any case; DTypeError for one that tensai does not read."""
    found = FORMATS.get(kind.upper()) if isinstance(kind, str) else None
    if found is None:
        kinds = ", ".join(kind for kind, made in FORMATS.items() if made.code_parts)
        raise DTypeError(f"[upload_gguf] there is no kind {kind!r}; tensai reads {kinds}")
    return found


def relaid(raw: Any, n: int, k: int, kind: str) -> tuple[Array, Array | None]:
    """The codes and scales, as a device has them, of a file's matrix of n rows of k elements.

    `raw` holds the file's bytes: bytes, an array, a memoryview or a memory map. Raises ShapeError
    when they are not as many as the matrix has, or k is not whole blocks.
    """
    made = file_format(kind)
    if k % made.block:
        raise ShapeError(
            f"[upload_gguf] expected rows of whole blocks of {made.block} elements for "
            f"{made.kind}, but got {k} elements"
        )
    data = _bytes(raw)
    blocks = n * k // made.block
    if data.size != blocks * made.block_bytes:
        raise ShapeError(
            f"[upload_gguf] expected {blocks * made.block_bytes:,} bytes for {made.kind} of "
            f"({n}, {k}), but got {data.size:,}"
        )
    if not made.scales:
        return padded_rows(data.reshape(n, k * made.codes), made.row_words(k)), None
    # Slices of a file's blocks are assigned to their places: nothing is held a third time.
    data = data.reshape(blocks, made.block_bytes)
    codes = np.empty((blocks, made.codes), np.uint8)
    at = 0
    for start, end in made.code_parts:
        codes[:, at : at + end - start] = data[:, start:end]
        at += end - start
    scales = np.zeros(-(-blocks * made.scales // 4) * 4, np.uint8)
    stored = scales[: blocks * made.scales].reshape(blocks, made.scales)
    stored[:] = data[:, slice(*made.scale_part)]
    return codes.view(np.uint32).reshape(n, made.row_words(k)), scales.view(np.uint32)


def _bytes(raw: Any) -> Array:
    """The bytes of anything that has some, without a copy where they lie in a row."""
    if isinstance(raw, np.ndarray):
        return np.ascontiguousarray(raw).reshape(-1).view(np.uint8)
    try:
        return np.frombuffer(raw, np.uint8)
    except (TypeError, ValueError, BufferError) as error:
        raise DTypeError(
            f"[upload_gguf] expected bytes, an array or a memory map, not {type(raw).__name__}"
        ) from error


def padded_rows(rows: Array, words: int) -> Array:
    """Rows of bytes as rows of `words` words, with zeros after them."""
    if rows.shape[1] < 4 * words:
        wide = np.zeros((rows.shape[0], 4 * words), np.uint8)
        wide[:, : rows.shape[1]] = rows
        rows = wide
    elif rows.ctypes.data % 4:  # a part of a file may begin anywhere
        rows = rows.copy()
    return rows.view(np.uint32)


def pack_q8(codes: Array) -> Array:
    """int8 codes (k, n) as words."""
    k, n = codes.shape
    made = FORMATS["q8"]
    rows = np.zeros((n, made.padded(k)), np.int8)
    rows[:, :k] = codes.T
    return rows.view(np.uint32)


def pack_q4(codes: Array) -> Array:
    """Codes from -8 to 7, an int8 each (k, n), as words."""
    k, n = codes.shape
    made = FORMATS["q4"]
    words = np.empty((n, made.row_words(k)), np.uint32)
    at_once = max(1, (1 << 22) // max(k, 1))
    for start in range(0, n, at_once):
        part = codes[:, start : start + at_once].T
        nibbles = np.full((part.shape[0], made.padded(k)), 8, np.uint8)
        nibbles[:, :k] = part.view(np.uint8) + np.uint8(8)
        halves = nibbles.reshape(part.shape[0], -1, 2, 16)
        packed = halves[:, :, 0] | halves[:, :, 1] << 4
        words[start : start + at_once] = packed.reshape(part.shape[0], -1).view(np.uint32)
    return words
