"""The dtypes of tensors: float32, float16, int32, uint32, bool; and how others become one of them.

On a device, float16 is packed two to a word and bool takes a word; kernels compute in f32, i32
and u32 only, so operations widen float16 before and narrow it after (operation.py).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from . import reference
from .errors import DTypeError

DType = np.dtype[Any]

f32: DType = np.dtype(np.float32)
f16: DType = np.dtype(np.float16)
i32: DType = np.dtype(np.int32)
u32: DType = np.dtype(np.uint32)
bool_: DType = np.dtype(np.bool_)

DTYPES = (f32, f16, i32, u32, bool_)
WGSL = {f32: "f32", i32: "i32", u32: "u32", bool_: "u32"}
ITEMSIZE = {f32: 4, f16: 2, i32: 4, u32: 4, bool_: 4}  # bytes on the device

_NARROWED = {
    np.dtype(np.float64): f32,
    np.dtype(np.int64): i32,
    np.dtype(np.uint64): u32,
    np.dtype(np.int16): i32,
    np.dtype(np.int8): i32,
    np.dtype(np.uint16): u32,
    np.dtype(np.uint8): u32,
}


def widened(dtype: DType) -> DType:
    """What kernels compute a dtype in: float32 for float16, else the dtype itself."""
    return f32 if dtype == f16 else dtype


def narrowed_to(dtype: DType) -> DType | None:
    """What a widened result is converted back to: float16, else nothing."""
    return f16 if dtype == f16 else None


def device_bytes(size: int, dtype: DType) -> int:
    """Bytes that `size` elements take on a device, in whole words."""
    nbytes = size * ITEMSIZE[dtype]
    return nbytes + -nbytes % 4


def as_dtype(dtype: Any) -> DType:
    """One of DTYPES, from anything numpy.dtype takes; DTypeError for what a tensor can't hold."""
    if dtype is float or dtype is int:  # Python's own: the widths that tensors have
        return f32 if dtype is float else i32
    try:
        asked = np.dtype(dtype).newbyteorder("=")
    except TypeError as error:
        raise DTypeError(
            f"{dtype!r} is not a dtype; use float32, float16, int32, uint32 or bool"
        ) from error
    if asked in DTYPES:
        return asked
    raise DTypeError(
        f"tensors are float32, float16, int32, uint32 or bool, not {asked}; convert the data first"
    )


def host_array(data: Any, dtype: Any = None) -> np.ndarray[Any, Any]:
    """`data` as a C-contiguous array of one of DTYPES, converted without losing a value silently.

    float64 becomes float32; integers of other widths become int32 or uint32, and a value that does
    not fit raises OverflowError. Floats become integers toward zero, saturating. Complex, object,
    string and date arrays raise DTypeError.
    """
    try:
        array = np.asarray(data)
    except ValueError as error:  # rows of different lengths
        raise DTypeError(f"the data does not form an array: {error}") from error
    wanted = None if dtype is None else as_dtype(dtype)
    native = array.dtype.newbyteorder("=")
    if native not in DTYPES and native not in _NARROWED:
        raise DTypeError(
            f"an array of {array.dtype} cannot become a tensor; tensors are float32, float16, "
            "int32, uint32 or bool"
        )
    if wanted is None:
        wanted = native if native in DTYPES else _NARROWED[native]
    integers = native.kind in "iu" and wanted.kind in "iu"
    if integers and array.size and not np.can_cast(native, wanted):
        limits = np.iinfo(wanted)
        low, high = int(array.min()), int(array.max())
        if low < limits.min or high > limits.max:
            raise OverflowError(
                f"{low if low < limits.min else high} does not fit {wanted} "
                f"({limits.min} to {limits.max}); cast the array, or use float32"
            )
    if native.kind == "f" and wanted.kind in "iu":
        array = reference.astype(array, wanted)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.ascontiguousarray(array, dtype=wanted).reshape(array.shape)


def promote(*dtypes: DType) -> DType:
    """The dtype that an operation on these gives: NumPy's rule, with 64-bit results narrowed.

    Integers with floats give float32; int32 with uint32 has no common 32-bit dtype and raises.
    """
    common = dtypes[0]
    for dtype in dtypes[1:]:
        if common == dtype:
            continue
        if {common, dtype} == {i32, u32}:
            raise DTypeError(
                "int32 and uint32 have no common 32-bit dtype; convert one with astype()"
            )
        joined = np.result_type(common, dtype)
        common = joined if joined in DTYPES else f32
    return common
