"""Tensors put together, and picked apart by indices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import reference, rules
from ..dtypes import bool_, f32, i32, promote, u32, widened
from ..errors import DeviceMismatchError, DTypeError, ShapeError
from ..indices import checked
from ..operation import Job, Kernel, Probe, Result, Spec, composition, operation, pack
from ..tensor import Tensor
from .gather import embed


def _put(job: Job) -> None:
    x, part = job.inputs
    axis, start = job.arguments["axis"], job.arguments["start"]
    inner = math.prod(x.shape[axis + 1 :])
    params = pack(part.size, part.shape[axis] * inner, x.shape[axis] * inner, start * inner)
    job.step("put", {}, [x, part], params, -(-part.size // 256))


def _put_probes() -> list[Probe]:
    rng = np.random.default_rng(59)
    made = []
    for dtype in (f32, i32, u32, bool_):
        x = rng.integers(0, 9, (5, 32, 8)).astype(dtype)
        for axis, start, length in ((0, 2, 3), (1, 11, 19), (2, 7, 1)):
            shape = list(x.shape)
            shape[axis] = length
            part = rng.integers(0, 9, shape).astype(dtype)
            made.append(Probe((x, part), {"axis": axis, "start": start}))
    return made


def _put_grad(grad: Tensor, part_shape: tuple[int, ...], axis: int, start: int) -> Tensor:
    place = (slice(None),) * axis + (slice(start, start + part_shape[axis]),)
    return grad[place]


def _put_grad_x(grad: Tensor, part_shape: tuple[int, ...], axis: int, start: int) -> Tensor:
    hidden = grad.device.zeros(part_shape)
    return put(grad.copy(), hidden, axis, start)


@operation(
    kernels=[Kernel("put", _put)],
    reference=reference.put,
    probes=_put_probes,
    name="put_",
    method=False,
    writes=("x",),
    gradients={"part": _put_grad, "x": _put_grad_x},
)
def put(x: Spec, part: Spec, axis: int, start: int) -> Result:
    """x with `part` from place `start` of an axis on; ShapeError unless it fits there."""
    beside = [*x.shape[: max(axis, 0)], *part.shape[axis : axis + 1], *x.shape[axis + 1 :]]
    if beside != list(part.shape) or not 0 <= start <= x.shape[axis] - part.shape[axis]:
        raise ShapeError(
            f"[put_] a part of {part.shape} does not fit {x.shape} from {start} of axis {axis} on"
        )
    working = widened(x.dtype)
    return Result((), (working, working))


def concat(device: Any, tensors: Sequence[Any], axis: int = 0) -> Tensor:
    """numpy.concatenate of tensors of a device."""
    parts = [part if isinstance(part, Tensor) else device.upload(part) for part in tensors]
    if not parts:
        raise ShapeError("[concat] expected at least one tensor")
    for part in parts:
        if part.device is not device:
            raise DeviceMismatchError(
                f"[concat] expected tensors of {device.name}, but got one of {part.device.name}"
            )
    first = parts[0]
    axis = rules.axis_index("concat", axis, first.ndim)
    for part in parts:
        agree = part.ndim == first.ndim and all(
            mine == its or place == axis
            for place, (mine, its) in enumerate(zip(first.shape, part.shape, strict=True))
        )
        if not agree:
            raise ShapeError(
                f"[concat] expected shapes that agree but for axis {axis}, but got {first.shape} "
                f"and {part.shape}"
            )
    common = promote(*(part.dtype for part in parts))
    through = widened(common)
    shape = list(first.shape)
    shape[axis] = sum(part.shape[axis] for part in parts)
    made = device.empty(shape, through)
    start = 0
    for part in parts:
        if part.size or type(part) is not Tensor:  # an empty one too may have a part in gradients
            made = put(made, part if part.dtype == through else part.astype(through), axis, start)
        start += part.shape[axis]
    return made if common == through else made.astype(common)


@composition
def take(x: Tensor, indices: Any, axis: int | None = None) -> Tensor:
    """numpy.take: elements of x at integer `indices` along an axis, or of x as one row.

    The shape is x's with the axis replaced by that of indices. Indices from the host count from the
    end where they are negative, and raise IndexError when out of range; those that are a tensor
    already give NaN (0 for integers and bool) there.
    """
    if axis is None:
        x, axis = x.reshape(x.size), 0
    axis = rules.axis_index("take", axis, x.ndim)
    length = x.shape[axis]
    indices = checked(x.device, "take", indices, length, f"length {length}", least=-length)
    order = (axis, *(other for other in range(x.ndim) if other != axis))
    front = x.permute(order) if axis else x
    rest = front.shape[1:]
    table = front.reshape(length, math.prod(rest))
    table = table.astype(i32) if x.dtype == bool_ else table
    rows = embed(table, indices).reshape(*indices.shape, *rest)
    rows = rows.astype(bool_) if x.dtype == bool_ else rows
    if not axis:
        return rows
    count = indices.ndim
    back = (*range(count, count + axis), *range(count), *range(count + axis, rows.ndim))
    made: Tensor = rows.permute(back)
    return made


@composition
def one_hot(x: Tensor, depth: int) -> Tensor:
    """1.0 at each integer's place and 0.0 elsewhere: (...) -> (..., depth), float32.

    An integer outside 0 to depth - 1 gives a row of zeros.
    """
    if x.dtype.kind not in "iu":
        raise DTypeError(f"[one_hot] expected integers, but got {x.dtype}")
    if rules.integer("one_hot", "depth", depth) < 0:
        raise ShapeError(f"[one_hot] expected a depth from 0 up, but got {depth}")
    places = x.device.upload(np.arange(depth, dtype=np.int32), x.dtype)
    made: Tensor = (x[..., None] == places).astype(f32)
    return made
