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
from ..dtypes import f32, narrowed_to, widened
from ..errors import ShapeError
from ..operation import Job, Kernel, Probe, Result, Spec, composition, operation, pack
from ..tensor import Tensor
from .strided import MAX_AXES, evenly, merge_axes, walk


def _plan(job: Job) -> None:
    strides, offset, shape = (job.arguments[name] for name in ("strides", "offset", "shape"))
    lengths, (steps,) = merge_axes(shape, [strides])
    if lengths and steps == [1] and not offset:
        evenly(job, "a")  # four elements at a time
    else:
        walk(job, "a", job.inputs, [strides], offset)


def _probes() -> list[Probe]:
    rng = np.random.default_rng(11)
    x = rng.normal(0, 1, 3072).astype(np.float32)
    samples = [x, (x * 100).astype(np.int32), (x * x * 9).astype(np.uint32), x > 0]
    ways = [
        {"shape": (8, 32, 12), "strides": (12, 96, 1), "offset": 0},
        {"shape": (20, 50), "strides": (-50, 2), "offset": 2900},
        {"shape": (4, 5, 4, 2, 3), "strides": (400, 1, 7, 0, 100), "offset": 5},
        {"shape": (2, 1535), "strides": (1535, 1), "offset": 0},
    ]
    return [Probe((sample,), way) for sample in samples for way in ways]


def _inside(
    name: str, shape: Sequence[int], strides: Sequence[int], offset: int, size: int
) -> None:
    """ShapeError if a walk by strides leaves a tensor of `size` elements."""
    ends = [step * (length - 1) for length, step in zip(shape, strides, strict=True)]
    first = offset + sum(end for end in ends if end < 0)
    last = offset + sum(end for end in ends if end > 0)
    if math.prod(shape) and not 0 <= first <= last < size:
        raise ShapeError(
            f"[{name}] elements {first} to {last} were asked for of a tensor of {size}"
        )


def _strided_put(job: Job) -> None:
    part, out = job.inputs[0], job.outputs[0]
    axes = []
    base, start = job.arguments["offset"], 0
    own = rules.strides(part.shape)
    for length, stride, step in zip(part.shape, job.arguments["strides"], own, strict=True):
        if length > 1:
            if stride < 0:  # walked from its other end
                base += (length - 1) * stride
                start += (length - 1) * step
                stride, step = -stride, -step
            axes.append((stride, length, step))
    axes.sort(reverse=True)
    columns = [[row[place] for row in axes] + [0] * (8 - len(axes)) for place in (1, 0, 2)]
    params = pack(out.size, len(axes), base, start, *columns)
    job.step("strided_put", {}, [part, out], params, -(-out.size // 256))


def _strided_put_probes() -> list[Probe]:
    part = np.random.default_rng(12).normal(0, 1, (10, 5, 9)).astype(np.float32)
    ways = [
        {"shape": (9, 10, 5), "strides": (5, 1, 50), "offset": 0},
        {"shape": (2048,), "strides": (-120, 21, 2), "offset": 1500},
    ]
    axes = part.reshape(-1)[:96].reshape(2, 3, 2, 2, 4)
    apart = Probe((axes,), {"shape": (96,), "strides": (1, 32, 2, 16, 4), "offset": 0})
    return [*(Probe((part,), way) for way in ways), apart]


@operation(
    kernels=[
        Kernel(
            "strided_put",
            _strided_put,
            fits=lambda job: sum(length > 1 for length in job.inputs[0].shape) <= MAX_AXES,
        )
    ],
    reference=reference.strided_put,
    probes=_strided_put_probes,
    method=False,
)
def strided_put(
    part: Spec, shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0
) -> Result:
    """Zeros of `shape`, in which strided_copy by the same strides and offset finds `part` again.

    float32. ShapeError if two elements of part would meet or one would lie outside.
    """
    _inside("strided_put", part.shape, strides, offset, math.prod(shape))
    walked = zip(strides, part.shape, strict=True)
    reach = 0
    for step, length in sorted((abs(step), length) for step, length in walked if length > 1):
        if step <= reach:
            raise ShapeError(f"[strided_put] strides {strides} meet elements twice")
        reach += step * (length - 1)
    return Result((Spec(shape, f32),), (f32,))


def _strided_copy_grad(
    grad: Tensor, x_shape: tuple[int, ...], strides: tuple[int, ...], offset: int
) -> Tensor:
    repeated = tuple(axis for axis, step in enumerate(strides) if step == 0)
    part = grad.sum(repeated, keepdims=True) if repeated else grad
    return strided_put(part, x_shape, strides, offset)


@operation(
    kernels=[Kernel("strided_copy", _plan)],
    reference=reference.strided_copy,
    probes=_probes,
    method=False,
    gradients={"x": _strided_copy_grad},
)
def strided_copy(
    x: Spec, shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0
) -> Result:
    """A tensor of `shape` whose element at an index is x's at offset + index . strides, counted in
    elements of x as one row. ShapeError if that leaves x."""
    _inside("strided_copy", shape, strides, offset, x.size)
    through = widened(x.dtype)
    return Result((Spec(shape, through),), (through,), narrowed_to(x.dtype))


@composition
def reshape(x: Tensor, *shape: Any) -> Tensor:
    """The same elements under another shape; one length may be -1. Shares memory with x."""
    wanted = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
    return x.seen_as(Spec(rules.reshape(x.shape, wanted), x.dtype))


@composition
def permute(x: Tensor, *axes: Any) -> Tensor:
    """The axes in another order, as numpy.transpose; without axes, reversed.

    A copy, unless only axes of length 1 move: then it shares memory with x, as reshape does.
    """
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
    """NumPy's basic indexing (integers, slices, ..., None), always as a copy."""
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
