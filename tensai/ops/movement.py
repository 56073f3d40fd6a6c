"""Reshape, permute, slice, broadcast: the elements as they are, in another order.

Tensors are contiguous, so all but reshape copy; the copies are one operation, `strided_copy`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import reference, rules
from ..dtypes import narrowed_to, widened
from ..errors import ShapeError
from ..operation import Job, Kernel, Probe, Result, Spec, composition, operation
from ..tensor import Tensor
from .strided import walk


def _plan(job: Job) -> None:
    walk(job, "a", job.inputs, [job.arguments["strides"]], job.arguments["offset"])


def _probes() -> list[Probe]:
    rng = np.random.default_rng(11)
    x = rng.normal(0, 1, 3000).astype(np.float32)
    samples = [x, (x * 100).astype(np.int32), (x * x * 9).astype(np.uint32), x > 0]
    ways = [
        {"shape": (10, 20, 15), "strides": (15, 150, 1), "offset": 0},
        {"shape": (20, 50), "strides": (-50, 2), "offset": 2900},
        {"shape": (3, 5, 4, 2, 3), "strides": (0, 1, 7, 0, 100), "offset": 5},
    ]
    return [Probe((sample,), way) for sample in samples for way in ways]


@operation(
    kernels=[Kernel("strided_copy", _plan)],
    reference=reference.strided_copy,
    probes=_probes,
    method=False,
)
def strided_copy(
    x: Spec, shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0
) -> Result:
    """A tensor of `shape` whose element at an index is x's at offset + index . strides, counted in
    elements of x as one row. ShapeError if that leaves x."""
    ends = [step * (length - 1) for length, step in zip(shape, strides, strict=True)]
    first = offset + sum(end for end in ends if end < 0)
    last = offset + sum(end for end in ends if end > 0)
    if math.prod(shape) and not 0 <= first <= last < x.size:
        raise ShapeError(
            f"[strided_copy] elements {first} to {last} were asked for of a tensor of {x.size}"
        )
    through = widened(x.dtype)
    return Result((Spec(shape, through),), (through,), narrowed_to(x.dtype))


@composition
def reshape(x: Tensor, *shape: Any) -> Tensor:
    """The same elements under another shape; one length may be -1. Shares memory with x."""
    wanted = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
    return Tensor(x.device, x.storage, Spec(rules.reshape(x.shape, wanted), x.dtype))


@composition
def permute(x: Tensor, *axes: Any) -> Tensor:
    """The axes in another order, as numpy.transpose; without axes, reversed."""
    order = axes[0] if len(axes) == 1 and isinstance(axes[0], (tuple, list)) else axes
    order = tuple(order) or tuple(range(x.ndim))[::-1]
    found = tuple(rules.axis_index("permute", axis, x.ndim) for axis in order)
    if sorted(found) != list(range(x.ndim)):
        raise ShapeError(f"[permute] expected each of {x.ndim} axes once, but got {tuple(order)}")
    shape = tuple(x.shape[axis] for axis in found)
    if _same_order(x.shape, found):
        return reshape(x, shape)
    steps = rules.strides(x.shape)
    return strided_copy(x, shape, tuple(steps[axis] for axis in found), 0)


def _same_order(shape: tuple[int, ...], order: tuple[int, ...]) -> bool:
    """Whether only axes of length 1 move, so that no element does."""
    moving = [axis for axis in order if shape[axis] != 1]
    return moving == sorted(moving)


@composition
def broadcast_to(x: Tensor, shape: Sequence[int]) -> Tensor:
    """numpy.broadcast_to, as a copy."""
    wanted = tuple(shape)
    if rules.broadcast("broadcast_to", x.shape, wanted) != wanted:
        raise ShapeError(f"[broadcast_to] a tensor of shape {x.shape} cannot become {wanted}")
    return strided_copy(x, wanted, rules.broadcast_strides(x.shape, wanted), 0)


@composition
def copy(x: Tensor) -> Tensor:
    """A tensor of its own memory with the same elements."""
    return strided_copy(x, x.shape, rules.strides(x.shape), 0)


@composition
def getitem(x: Tensor, index: Any) -> Tensor:
    """NumPy's basic indexing (integers, slices, ..., None), as a copy."""
    entries = list(index) if isinstance(index, tuple) else [index]
    counted = sum(entry is not None and entry is not Ellipsis for entry in entries)
    if counted > x.ndim:
        raise IndexError(f"a tensor of {x.ndim} axes was indexed with {counted}")
    if sum(entry is Ellipsis for entry in entries) > 1:
        raise IndexError("an index can have only one ellipsis (...)")
    fill = [slice(None)] * (x.ndim - counted)
    spot = next((i for i, entry in enumerate(entries) if entry is Ellipsis), None)
    if spot is None:
        entries += fill
    else:
        entries[spot : spot + 1] = fill
    own = rules.strides(x.shape)
    axis, offset = 0, 0
    shape: list[int] = []
    strides: list[int] = []
    for entry in entries:
        if entry is None:
            shape.append(1)
            strides.append(0)
            continue
        length = x.shape[axis]
        if isinstance(entry, slice):
            start, stop, step = entry.indices(length)
            count = len(range(start, stop, step))
            shape.append(count)
            strides.append(own[axis] * step)
            offset += start * own[axis] if count else 0
        else:
            offset += _position(entry, length, axis) * own[axis]
        axis += 1
    if math.prod(shape) == x.size and offset == 0 and all(step >= 0 for step in strides):
        return reshape(x, tuple(shape)) if entries else copy(x)
    return strided_copy(x, tuple(shape), tuple(strides), offset)


def _position(entry: Any, length: int, axis: int) -> int:
    try:
        if isinstance(entry, (bool, np.bool_)):
            raise TypeError
        position = operator.index(entry)
    except (TypeError, ShapeError):  # ShapeError: a tensor of several elements
        raise IndexError(
            f"a tensor is indexed with integers, slices, ... and None, not {type(entry).__name__}; "
            "use device.embed() for rows by index and where() for masks"
        ) from None
    if not -length <= position < length:
        raise IndexError(f"index {position} is out of range for axis {axis} of length {length}")
    return position % length
