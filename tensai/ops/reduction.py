"""Reductions over axes: sum, mean, max, min, argmax."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from .. import reference, rules
from ..dtypes import WGSL, DType, bool_, f16, f32, i32, narrowed_to, u32
from ..errors import ShapeError
from ..operation import (
    Job,
    Kernel,
    Operand,
    Operation,
    Probe,
    Result,
    Spec,
    composition,
    operation,
    pack,
)
from ..tensor import Tensor
from . import teams
from .movement import broadcast_to, permute, reshape
from .reduction_probes import argmax_probes, exact_probes, extreme_probes

LANES = 256
CHUNK = 8 * LANES  # units that a team has at least, where a second pass joins the parts
PARTS = 4096  # that keep a GPU busy
COLUMN_THREADS = 16_384  # that a reduction over an outer axis keeps busy by cutting it up
AxisArgument = int | tuple[int, ...] | None

SUM = {"float32": ("a + b", "0.0"), "int32": ("a + b", "0"), "uint32": ("a + b", "0u")}
MAX = {
    "float32": ("max_nan(a, b)", "-infinity()"),
    "int32": ("max(a, b)", "i32(0x80000000u)"),
    "uint32": ("max(a, b)", "0u"),
}
MIN = {
    "float32": ("min_nan(a, b)", "infinity()"),
    "int32": ("min(a, b)", "0x7fffffff"),
    "uint32": ("min(a, b)", "0xffffffffu"),
}


def _reduce(
    job: Job, forms: dict[str, tuple[str, str]], *, mean: bool = False, subgroup: bool = False
) -> None:
    view = job.facts["outer"], job.facts["length"], job.facts["inner"]
    _steps(job, forms, job.inputs[0], job.outputs[0], view, mean=mean, subgroup=subgroup)


def sum_rows(job: Job, source: Operand, target: Operand) -> None:
    """Steps that sum float32 rows into one of `target`'s length."""
    _steps(job, SUM, source, target, (1, source.size // target.size, target.size))


def _steps(
    job: Job,
    forms: dict[str, tuple[str, str]],
    source: Operand,
    target: Operand,
    view: tuple[int, int, int],
    *,
    mean: bool = False,
    subgroup: bool = False,
) -> None:
    """Steps over (outer, length, inner): one, or two when the axis is cut into chunks."""
    outer, length, inner = view
    count = length if mean else 0
    if inner == 1:
        chunks, chunk = _chunks(outer, length)
        if chunks > 1:
            parts = job.temporary(outer * chunks, source.dtype)
            _rows(job, forms, source, parts, (outer, length, chunks, chunk), 0, subgroup)
            source, length, chunk = parts, chunks, chunks
        _rows(job, forms, source, target, (outer, length, 1, length), count, subgroup)
        return
    chunks = min(-(-length // 32), max(1, COLUMN_THREADS // (outer * inner)))
    if chunks > 1:
        parts = job.temporary(outer * chunks * inner, source.dtype)
        _columns(job, forms, source, parts, view, chunks, 0)
        source, length = parts, -(-length // -(-length // chunks))
    _columns(job, forms, source, target, (outer, length, inner), 1, count)


def _units(rows: int, length: int) -> tuple[int, bool]:
    """Units in a row, and whether they are vectors; a row on its own may end within one."""
    if rows == 1:
        return -(-length // 4), True
    return teams.row_units(length)


def _chunks(rows: int, length: int) -> tuple[int, int]:
    """Into how many chunks to cut each row, and the units in each but the last."""
    units, _ = _units(rows, length)
    chunk = -(-units // max(1, min(-(-units // CHUNK), PARTS // rows)))
    return -(-units // chunk), chunk


def _row_values(rows: int, length: int, chunk: int, subgroup: bool, word: str) -> dict[str, Any]:
    """The template values of the kernels that walk over rows in chunks."""
    units, vector = _units(rows, length)
    alone = rows == 1 or chunk < units
    team = teams.WALKING[-1] if alone else teams.walking(units)
    return teams.team_values(team, vector, subgroup, word)


def _rows(
    job: Job,
    forms: dict[str, tuple[str, str]],
    source: Operand,
    target: Operand,
    view: tuple[int, int, int, int],
    divisor: int,
    subgroup: bool,
) -> None:
    """A pass over (rows, length) with each row in so many chunks of so many units."""
    rows, length, chunks, chunk = view
    combine, identity = forms[source.dtype.name]
    values = {
        **_row_values(rows, length, chunk, subgroup, WGSL[source.dtype]),
        "T": WGSL[source.dtype],
        "COMBINE": combine,
        "IDENTITY": identity,
        "FLOAT": source.dtype == f32,
    }
    outputs = rows * chunks
    params = pack(outputs, length, _units(rows, length)[0], chunks, chunk, float(divisor))
    groups = -(-outputs // values["ROWS"])
    loops = -(-chunk // values["TEAM"]) + values["TEAM"]
    job.step("reduce_rows", values, [source, target], params, groups, loops)


def _columns(
    job: Job,
    forms: dict[str, tuple[str, str]],
    source: Operand,
    target: Operand,
    view: tuple[int, int, int],
    chunks: int,
    divisor: int,
) -> None:
    outer, length, inner = view
    chunk = -(-length // chunks)
    chunks = -(-length // chunk)  # so that none is empty
    values = {
        "T": WGSL[source.dtype],
        "COMBINE": forms[source.dtype.name][0],
        "MEAN": divisor > 0,
        "LANES": LANES,
    }
    outputs = outer * chunks * inner
    params = pack(outputs, length, inner, chunks, chunk, float(divisor))
    job.step("reduce", values, [source, target], params, -(-outputs // LANES), chunk)


def _view(shape: Sequence[int], axes: Sequence[int]) -> tuple[int, int, int]:
    """(outer, length, inner) for adjacent axes."""
    if not axes:
        return math.prod(shape), 1, 1
    first, last = axes[0], axes[-1]
    return (
        math.prod(shape[:first]),
        math.prod(shape[first : last + 1]),
        math.prod(shape[last + 1 :]),
    )


def _rule(
    name: str, x: Spec, axis: AxisArgument, keepdims: bool, dtype: DType, finish: DType | None
) -> Result:
    axes = rules.axes_tuple(name, axis, len(x.shape))
    shape = tuple(
        1 if number in axes else length
        for number, length in enumerate(x.shape)
        if keepdims or number not in axes
    )
    outer, length, inner = _view(x.shape, axes)
    facts = {"outer": outer, "length": length, "inner": inner}
    return Result((Spec(shape, dtype),), (dtype,), finish, facts)


def _accumulator(dtype: DType) -> DType:
    return {f16: f32, bool_: i32}.get(dtype, dtype)


def _not_empty(name: str, x: Spec, axis: AxisArgument) -> None:
    axes = rules.axes_tuple(name, axis, len(x.shape))
    if any(x.shape[number] == 0 for number in axes):
        raise ShapeError(f"[{name}] expected elements to reduce, but got shape {x.shape}")


def _expanded(reduced: Tensor, shape: tuple[int, ...], axis: AxisArgument) -> Tensor:
    """A reduction's result with the axes that it lost back, of length 1."""
    axes = rules.axes_tuple("reduction", axis, len(shape))
    return reshape(reduced, [1 if place in axes else n for place, n in enumerate(shape)])


def _sum_grad(grad: Tensor, x_shape: tuple[int, ...], axis: AxisArgument) -> Tensor:
    return broadcast_to(_expanded(grad, x_shape, axis), x_shape)


def _mean_grad(grad: Tensor, x_shape: tuple[int, ...], axis: AxisArgument) -> Tensor:
    share = max(grad.size, 1) / max(math.prod(x_shape), 1)
    return _sum_grad(grad * share, x_shape, axis)


def _extreme_grad(grad: Tensor, x: Tensor, out: Tensor, axis: AxisArgument) -> Tensor:
    """Shared evenly among the elements that are equally large."""
    chosen = (x == _expanded(out, x.shape, axis)).astype(f32)
    shares = chosen.sum(axis, keepdims=True)
    return chosen * (_expanded(grad, x.shape, axis) / shares)


def _kernels(name: str, forms: dict[str, tuple[str, str]], mean: bool = False) -> list[Kernel]:
    return [
        Kernel(
            f"{name}_subgroup",
            lambda job: _reduce(job, forms, mean=mean, subgroup=True),
            frozenset({"subgroup"}),
            lambda job: job.facts["inner"] == 1,
        ),
        Kernel(f"{name}_tree", lambda job: _reduce(job, forms, mean=mean)),
    ]


@operation(
    kernels=_kernels("sum", SUM),
    reference=reference.total,
    probes=exact_probes((f32, i32, u32)),
    name="sum",
    method=False,
    gradients={"x": _sum_grad},
)
def sum_adjacent(x: Spec, axis: AxisArgument = None, keepdims: bool = False) -> Result:
    """Sum over adjacent axes, or over all for None.

    float32 accumulates in float32 over a tree; int32 and uint32 wrap around; bool is counted.
    """
    dtype = _accumulator(x.dtype)
    return _rule("sum", x, axis, keepdims, dtype, narrowed_to(x.dtype))


@operation(
    kernels=_kernels("mean", SUM, mean=True),
    reference=reference.mean,
    probes=lambda: [Probe(probe.inputs, probe.arguments, 1e-6) for probe in exact_probes((f32,))()],
    name="mean",
    method=False,
    gradients={"x": _mean_grad},
)
def mean_adjacent(x: Spec, axis: AxisArgument = None, keepdims: bool = False) -> Result:
    """Mean over adjacent axes, or over all for None, in float32 also for integers."""
    return _rule("mean", x, axis, keepdims, f32, narrowed_to(x.dtype))


@operation(
    kernels=_kernels("max", MAX),
    reference=reference.maximum,
    probes=extreme_probes,
    name="max",
    method=False,
    gradients={"x": _extreme_grad},
)
def max_adjacent(x: Spec, axis: AxisArgument = None, keepdims: bool = False) -> Result:
    """Largest element over adjacent axes, or over all for None; NaN if there is one."""
    _not_empty("max", x, axis)
    return _rule("max", x, axis, keepdims, _accumulator(x.dtype), _restore(x.dtype))


@operation(
    kernels=_kernels("min", MIN),
    reference=reference.minimum,
    probes=extreme_probes,
    name="min",
    method=False,
    gradients={"x": _extreme_grad},
)
def min_adjacent(x: Spec, axis: AxisArgument = None, keepdims: bool = False) -> Result:
    """Smallest element over adjacent axes, or over all for None; NaN if there is one."""
    _not_empty("min", x, axis)
    return _rule("min", x, axis, keepdims, _accumulator(x.dtype), _restore(x.dtype))


def _restore(dtype: DType) -> DType | None:
    return dtype if dtype in (f16, bool_) else None


def _argmax_columns(job: Job) -> None:
    source, target = job.inputs[0], job.outputs[0]
    outer, length, inner = job.facts["outer"], job.facts["length"], job.facts["inner"]
    values = {"T": WGSL[source.dtype], "FLOAT": source.dtype == f32}
    outputs = outer * inner
    params = pack(outputs, length, inner)
    job.step("argmax", values, [source, target], params, outputs, -(-length // LANES) + 16)


def argmax_rows(job: Job, view: tuple[int, int], subgroup: bool, marking: bool = False) -> None:
    """Steps for the place of the largest in (rows, length); `marking`: -1 where one is NaN."""
    source, target = job.inputs[0], job.outputs[0]
    rows, length = view
    units, vector = _units(rows, length)
    chunks, chunk = _chunks(rows, length)
    values = {
        **_row_values(rows, length, chunk, subgroup, WGSL[source.dtype]),
        "FLOAT": source.dtype == f32,
        "SIGNED": source.dtype == i32,
        "KEYS": "vec4<u32>" if vector else "u32",
        "SIGNED_KEYS": "vec4<i32>" if vector else "i32",
        "SHARED": "vec2<u32>",
        "PARTS": False,
        "MARKING": marking,
        "LAST": chunks == 1,
        "OUT": "i32" if chunks == 1 else "vec2<u32>",
    }
    out = target if chunks == 1 else job.temporary(rows * chunks * 2, u32)
    params = pack(rows * chunks, length, units, chunks, chunk)
    loops = -(-chunk // values["TEAM"]) + values["TEAM"]
    job.step(
        "argmax_rows", values, [source, out], params, -(-rows * chunks // values["ROWS"]), loops
    )
    if chunks > 1:
        values |= {
            **teams.team_values(teams.WALKING[-1], False, subgroup),
            "SHARED": "vec2<u32>",
            "UNIT": "vec2<u32>",
            "PARTS": True,
            "LAST": True,
            "OUT": "i32",
        }
        params = pack(rows, chunks, chunks, 1, chunks)
        job.step("argmax_rows", values, [out, target], params, rows, chunks // LANES + 1 + LANES)


@operation(
    kernels=[
        Kernel(
            "argmax_subgroup",
            lambda job: argmax_rows(job, (job.facts["outer"], job.facts["length"]), True),
            frozenset({"subgroup"}),
            lambda job: job.facts["inner"] == 1,
        ),
        Kernel(
            "argmax_tree",
            lambda job: argmax_rows(job, (job.facts["outer"], job.facts["length"]), False),
            fits=lambda job: job.facts["inner"] == 1,
        ),
        Kernel("argmax_columns", _argmax_columns),
    ],
    reference=reference.argmax,
    probes=argmax_probes,
)
def argmax(x: Spec, axis: int | None = None, keepdims: bool = False) -> Result:
    """Index (int32) of the first largest element along one axis, or of all in a row for None.

    The first NaN counts as the largest.
    """
    if axis is not None:
        axis = rules.axis_index("argmax", axis, len(x.shape))
    _not_empty("argmax", x, axis)
    dtype = _accumulator(x.dtype)
    result = _rule("argmax", x, axis, keepdims, dtype, None)
    return Result((Spec(result.outputs[0].shape, i32),), (dtype,), None, result.facts)


def _front(over_adjacent: Operation) -> Callable[..., Tensor]:
    """The function for any axes, over the operation for adjacent ones."""
    name = over_adjacent.name

    def reduce(x: Tensor, axis: Any = None, keepdims: bool = False) -> Tensor:
        axis = tuple(axis) if isinstance(axis, list) else axis
        axes = rules.axes_tuple(name, axis, x.ndim) if isinstance(axis, tuple) else ()
        if not axes or axes[-1] - axes[0] + 1 == len(axes):
            return over_adjacent(x, axis, keepdims)
        # Bring the axes together at the end first.
        kept = [number for number in range(x.ndim) if number not in axes]
        result = over_adjacent(permute(x, *kept, *axes), tuple(range(len(kept), x.ndim)))
        if keepdims:
            return reshape(result, [1 if i in axes else n for i, n in enumerate(x.shape)])
        return result

    reduce.__name__ = reduce.__qualname__ = name
    reduce.__doc__ = (over_adjacent.__doc__ or "").replace("adjacent axes", "one or more axes")
    return composition(reduce)


for _operation in (sum_adjacent, mean_adjacent, max_adjacent, min_adjacent):
    _front(_operation)


@composition
def sum_cols(x: Tensor) -> Tensor:
    """Sum over every axis but the last: the gradient of a broadcast row."""
    return x.sum(axis=tuple(range(x.ndim - 1)))
