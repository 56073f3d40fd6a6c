"""Shape rules that several operations share. Each raises ShapeError or DTypeError."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np

from .errors import DTypeError, ShapeError


def broadcast(name: str, *shapes: tuple[int, ...]) -> tuple[int, ...]:
    """NumPy's broadcast of shapes."""
    rank = max(len(shape) for shape in shapes)
    result = []
    for axis in range(-rank, 0):
        lengths = {shape[axis] for shape in shapes if len(shape) >= -axis} - {1}
        if len(lengths) > 1:
            listed = " and ".join(str(shape) for shape in shapes)
            raise ShapeError(f"[{name}] expected shapes that broadcast, but got {listed}")
        result.append(lengths.pop() if lengths else 1)
    return tuple(result)


def strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides, in elements."""
    result = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        result[axis] = result[axis + 1] * shape[axis + 1]
    return tuple(result)


def broadcast_strides(shape: tuple[int, ...], target: tuple[int, ...]) -> tuple[int, ...]:
    """Strides that read a contiguous array of `shape` as if it had shape `target`."""
    own = strides(shape)
    missing = len(target) - len(shape)
    return (0,) * missing + tuple(
        0 if length == 1 else stride for length, stride in zip(shape, own, strict=True)
    )


def integer(name: str, what: str, value: Any) -> int:
    """A Python int from one or from a NumPy integer; ShapeError for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise ShapeError(f"[{name}] expected an integer for {what}, but got {value!r}")
    return int(value)


def number(name: str, what: str, value: Any) -> float:
    """A Python float from a number; DTypeError for anything else."""
    if not isinstance(value, numbers.Real):
        raise DTypeError(f"[{name}] expected a number for {what}, but got {value!r}")
    return float(value)


def host_indices(
    name: str, values: Any, length: int, of: str, what: str = "index", least: int = 0
) -> np.ndarray[Any, Any]:
    """Integers from `least` to below `length`, from anything numpy.asarray takes.

    DTypeError for others, IndexError out of range; `what` they are and what they count, `of`, are
    for the message.
    """
    array = np.asarray(values)
    array = array.astype(np.int32) if array.size == 0 else array
    if array.dtype.kind not in "iu":
        kinds = "integer indices" if what == "index" else f"integer {what}s"
        raise DTypeError(f"[{name}] expected {kinds}, but got {array.dtype}")
    if array.size and (array.min() < least or array.max() >= length):
        worst = array.max() if array.max() >= length else array.min()
        raise IndexError(f"[{name}] {what} {worst} is out of range for {of}")
    return array


def axis_index(name: str, axis: int, rank: int) -> int:
    """A non-negative axis, from one counted from either end."""
    axis = integer(name, "an axis", axis)
    if rank == 0:
        raise ShapeError(f"[{name}] expected at least one axis, but got a 0-d tensor")
    if not -rank <= axis < rank:
        raise ShapeError(
            f"[{name}] expected an axis from {-rank} to {rank - 1} for {rank} axes, but got {axis}"
        )
    return axis % rank


def axes_tuple(name: str, axis: int | Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """Sorted non-negative axes; every axis for None."""
    if axis is None:
        return tuple(range(rank))
    given = axis if isinstance(axis, (tuple, list)) else (axis,)
    found = sorted(axis_index(name, item, rank) for item in given)
    if len(set(found)) < len(found):
        raise ShapeError(f"[{name}] expected each axis once, but got {axis}")
    return tuple(found)


def reshape(shape: tuple[int, ...], wanted: Sequence[int]) -> tuple[int, ...]:
    """The shape that `wanted`, with at most one -1, means for an array of `shape`."""
    size = math.prod(shape)
    lengths = [integer("reshape", "a length", length) for length in wanted]
    unknown = [axis for axis, length in enumerate(lengths) if length == -1]
    known = math.prod(length for length in lengths if length != -1)
    if len(unknown) > 1 or any(length < -1 for length in lengths):
        raise ShapeError(f"[reshape] expected lengths and at most one -1, but got {tuple(wanted)}")
    if unknown:
        if known == 0 or size % known:
            raise ShapeError(f"[reshape] a tensor of shape {shape} cannot become {tuple(wanted)}")
        lengths[unknown[0]] = size // known
    elif known != size:
        raise ShapeError(
            f"[reshape] a tensor of shape {shape} has {size} elements; {tuple(wanted)} has {known}"
        )
    return tuple(lengths)


def last_axis(name: str, shape: tuple[int, ...], **rows: tuple[int, ...]) -> None:
    """Refuse a shape without axes, and rows that are not as long as its last."""
    if not shape:
        raise ShapeError(f"[{name}] expected at least one axis, but got a 0-d tensor")
    for what, row in rows.items():
        if row != shape[-1:]:
            raise ShapeError(f"[{name}] expected {what} of shape {shape[-1:]}, but got {row}")


def floats_only(name: str, *dtypes: object) -> None:
    """Refuse integers and bools where only float32 and float16 make sense."""
    for dtype in dtypes:
        if dtype.kind != "f":  # type: ignore[attr-defined]
            raise DTypeError(
                f"[{name}] expected float32 or float16, but got {dtype}; use astype(numpy.float32)"
            )
