"""Quantized weights: matrices that stay packed on a device (layouts: tensai/formats.py).

`device.upload_q8(w)`, `upload_q4(w)` and `upload_gguf(raw, (n, k), kind)` give a QuantizedTensor,
which multiplies like a matrix of its shape (k, n): `x @ q`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import DTypeError, ShapeError
from .formats import file_format, pack_q4, pack_q8, relaid
from .operation import FUNCTIONS  # tensai.ops imports this module
from .rules import integer
from .tensor import Tensor

if TYPE_CHECKING:
    from .device import Device

Array = np.ndarray[Any, Any]

LARGEST = {"q8": 127, "q4": 7}  # codes lie between this and its negative
AT_ONCE = 1 << 22  # elements quantized at a time


@dataclass(frozen=True, eq=False)
class Quantized:
    """A matrix quantized on the host, as upload_q8 and upload_q4 take it.

    `codes` are int8 (k, n), `scales` float32 (ceil(k / group), n): element (i, j) is
    codes[i, j] * scales[i // group, j].
    """

    kind: str
    codes: Array
    scales: Array
    group: int

    @property
    def shape(self) -> tuple[int, int]:
        """(k, n)"""
        k, n = self.codes.shape
        return k, n

    def dequantize(self) -> Array:
        """The matrix that it stands for, float32 (k, n)."""
        return self.codes * np.repeat(self.scales, self.group, axis=0)[: self.codes.shape[0]]


def quantize_q8(w: Any, group: int | None = None) -> Quantized:
    """Quantize a matrix (k, n) to int8, symmetric, on the host.

    A scale for each column, or for each `group` rows of a column: max|w| / 127 in float32. A code
    is w / scale rounded to nearest, half away from zero; 0 where the scale is. Raises ShapeError
    for other than 2 axes, DTypeError for what is no real number, ValueError for NaN and infinity.
    """
    return _quantize("q8", w, group)


def quantize_q4(w: Any, group: int | None = 64) -> Quantized:
    """Quantize a matrix (k, n) to int4, symmetric, on the host.

    As quantize_q8, with scales max|w| / 7 and codes from -7 to 7.
    """
    return _quantize("q4", w, group)


def _quantize(kind: str, w: Any, group: int | None) -> Quantized:
    name = f"quantize_{kind}"
    array = w.download() if isinstance(w, Tensor) else np.asarray(w)
    if array.dtype.kind not in "fiu":
        raise DTypeError(f"[{name}] expected real numbers, but got {array.dtype}")
    if array.ndim != 2:
        raise ShapeError(f"[{name}] expected a matrix (k, n), but got shape {array.shape}")
    k, n = array.shape
    if group is not None and integer(name, "group", group) < 1:
        raise ShapeError(f"[{name}] expected a group of at least 1 row, but got {group}")
    rows = max(k, 1) if group is None else min(int(group), max(k, 1))
    codes = np.zeros((k, n), np.int8)
    scales = np.zeros((-(-k // rows), n), np.float32)
    # Some columns at a time, since this works in float64.
    for start in range(0, n if k else 0, max(1, AT_ONCE // max(k, 1))):
        columns = slice(start, start + max(1, AT_ONCE // k))
        part = array[:, columns].astype(np.float64)
        with np.errstate(over="ignore"):
            largest = np.maximum.reduceat(np.abs(part), np.arange(0, k, rows), axis=0)
            scale = (largest.astype(np.float32) / np.float32(LARGEST[kind])).astype(np.float32)
        if not np.isfinite(scale).all():
            raise ValueError(f"[{name}] expected finite numbers, but got NaN or infinity")
        scales[:, columns] = scale
        divisors = np.repeat(np.where(scale == 0, np.inf, scale), rows, axis=0)[:k]
        part /= divisors
        part += np.copysign(0.5, part)
        codes[:, columns] = np.clip(np.trunc(part, out=part), -LARGEST[kind], LARGEST[kind])
    return Quantized(kind, codes, scales, rows)


class QuantizedTensor:
    """A packed matrix of shape (k, n) on a device: `x @ q` is (..., k) -> (..., n).

    `kind` says how it is packed; `codes` and `scales` (None where a kind has none) are tensors of
    32-bit words by output row (tensai/formats.py). `group` is how many elements of a row share a
    scale (q8 and q4, otherwise 0).
    """

    __slots__ = ("codes", "device", "group", "kind", "scales", "shape")

    # NumPy must hand `array @ q` on instead of looping over it.
    __array_ufunc__ = None

    def __init__(
        self,
        kind: str,
        shape: tuple[int, int],
        codes: Tensor,
        scales: Tensor | None,
        group: int = 0,
    ) -> None:
        self.kind = kind
        self.shape = shape
        self.device: Device = codes.device
        self.codes = codes
        self.scales = scales
        self.group = group

    def __repr__(self) -> str:
        return f"<{self.kind} matrix {self.shape} on {self.device.name}>"

    @property
    def nbytes(self) -> int:
        """Bytes on the device: for a file's matrix those of the file, in whole words.

        (And where its rows are no multiple of 32 elements, their padding.)
        """
        return self.codes.nbytes + (0 if self.scales is None else self.scales.nbytes)

    def dequantize(self) -> Tensor:
        """The matrix as float32 (k, n)."""
        unpack = FUNCTIONS["packed_dequantize"]
        made: Tensor = unpack(self.codes, self.scales, self.kind, self.shape[0], self.group)
        return made

    def rows(self, indices: Tensor) -> Tensor:
        """Output rows (columns of the matrix) as float32, (*indices.shape, k): device.embed."""
        embed = FUNCTIONS["packed_embed"]
        made: Tensor = embed(self.codes, indices, self.scales, self.kind, self.shape[0], self.group)
        return made

    def __rmatmul__(self, other: Any) -> Tensor:
        if not isinstance(other, Tensor):
            other = self.device.upload(other)
        product: Tensor = FUNCTIONS["linear"](other, self)
        return product

    def _refused(self, *given: Any, **options: Any) -> Any:
        raise DTypeError(
            f"a packed matrix ({self.kind}) only multiplies from the right: x @ q; for anything "
            "else unpack it with q.dequantize()"
        )

    # An operation that meets one among its operands makes an array of it first.
    __array__ = _refused
    __matmul__ = __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _refused
    __truediv__ = __rtruediv__ = __neg__ = __getitem__ = __len__ = _refused

    def __copy__(self) -> QuantizedTensor:
        scales = None if self.scales is None else self.scales.copy()
        return QuantizedTensor(self.kind, self.shape, self.codes.copy(), scales, self.group)

    def __deepcopy__(self, memo: dict[int, Any]) -> QuantizedTensor:
        return self.__copy__()

    def __reduce__(self) -> Any:
        raise TypeError(
            "a packed matrix lives on a device; pickle its dequantize().download() instead"
        )

    def free(self) -> None:
        """Give the memory back now; any later use raises TensorFreedError."""
        self.codes.free()
        if self.scales is not None:
            self.scales.free()

    def __enter__(self) -> QuantizedTensor:
        return self

    def __exit__(self, *exception: object) -> None:
        self.free()


def upload_quantized(device: Device, kind: str, w: Any, group: int | None) -> QuantizedTensor:
    """A matrix (k, n), or what quantize_q8 or quantize_q4 made of one, packed on a device."""
    if not isinstance(w, Quantized):
        w = _quantize(kind, w, group)
    elif w.kind != kind:
        raise DTypeError(f"[upload_{kind}] expected a {kind} matrix, but got {w.kind}")
    words = (pack_q8 if kind == "q8" else pack_q4)(w.codes)
    scales = np.ascontiguousarray(w.scales.T).view(np.uint32)
    return QuantizedTensor(kind, w.shape, device.upload(words), device.upload(scales), w.group)


def upload_packed(device: Device, raw: Any, shape: Any, kind: str) -> QuantizedTensor:
    """A file's matrix of (n, k) elements, relaid for a device but never unpacked."""
    try:
        n, k = (integer("upload_gguf", "a length", length) for length in shape)
    except (TypeError, ValueError) as error:
        if isinstance(error, ShapeError):
            raise
        raise ShapeError(f"[upload_gguf] expected a shape (n, k), but got {shape!r}") from None
    if min(n, k) < 0:
        raise ShapeError(f"[upload_gguf] expected a shape (n, k), but got {shape!r}")
    codes, scales = relaid(raw, n, k, kind)
    return QuantizedTensor(
        file_format(kind).kind,
        (k, n),
        device.upload(codes),
        None if scales is None else device.upload(scales),
    )
