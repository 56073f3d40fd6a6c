"""Planning elementwise kernels: same-shape operands four at a time, all else through strides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import rules
from ..dtypes import WGSL, bool_
from ..errors import ShapeError
from ..operation import Job, Kernel, Operand, pack

MAX_AXES = 8  # that a strided kernel walks over, after axes that lie together are merged
LANES = 256


def merge_axes(
    shape: Sequence[int], strides: Sequence[Sequence[int]]
) -> tuple[list[int], list[list[int]]]:
    """Drop axes of length 1 and merge neighbours that every operand walks through evenly.

    Returned from the innermost axis out.
    """
    lengths: list[int] = []
    steps: list[list[int]] = [[] for _ in strides]
    for axis in range(len(shape) - 1, -1, -1):
        if shape[axis] == 1:
            continue
        even = lengths and all(
            own[axis] == merged[-1] * lengths[-1]
            for own, merged in zip(strides, steps, strict=True)
        )
        if even:
            lengths[-1] *= shape[axis]
        else:
            lengths.append(shape[axis])
            for own, merged in zip(strides, steps, strict=True):
                merged.append(own[axis])
    if len(lengths) > MAX_AXES:
        raise ShapeError(
            f"a layout with {len(lengths)} separate axes was asked for; at most {MAX_AXES} work"
        )
    return lengths, steps


def values(job: Job, expression: str, dtypes: Sequence[Any]) -> dict[str, Any]:
    """The template values of an elementwise kernel."""
    logical = ["bool" if dtype == bool_ else WGSL[dtype] for dtype in dtypes]
    words = [WGSL[dtype] for dtype in dtypes]
    padded = words + [""] * (3 - len(words))
    out = job.outputs[0].dtype

    def arguments(part: str) -> str:
        return ", ".join(
            f"{kind}(v{name}{part})" for kind, name in zip(logical, "abc", strict=False)
        )

    return {
        "PARAMETERS": ", ".join(
            f"{name}: {kind}" for kind, name in zip(logical, "abc", strict=False)
        ),
        "A_WORD": padded[0],
        "B_WORD": padded[1],
        "C_WORD": padded[2],
        "B": len(dtypes) > 1,
        "C": len(dtypes) > 2,
        "OUT": "bool" if out == bool_ else WGSL[out],
        "OUT_WORD": WGSL[out],
        "OUT_BINDING": len(dtypes),
        "EXPRESSION": expression,
        "WHOLE": arguments(""),
        **{part.upper(): arguments(f".{part}") for part in "xyzw"},
    }


def walk(
    job: Job,
    expression: str,
    operands: Sequence[Operand],
    strides: Sequence[Sequence[int]],
    offset: int = 0,
) -> None:
    """A strided step over the output's shape."""
    out = job.outputs[0]
    lengths, steps = merge_axes(out.shape, strides)
    padded = [tuple(row) + (0,) * (MAX_AXES - len(row)) for row in (lengths, *steps)]
    job.step(
        "strided",
        values(job, expression, [operand.dtype for operand in operands]),
        [*operands, out],
        pack(out.size, len(lengths), offset, 0, *padded),
        -(-out.size // LANES),
    )


def evenly(job: Job, expression: str) -> None:
    """A step over operands of the output's layout, or of one element; four elements at a time."""
    out = job.outputs[0]
    vectors = -(-out.size // 4)
    steps = [int(operand.size != 1) for operand in job.inputs]
    job.step(
        "elementwise",
        values(job, expression, [operand.dtype for operand in job.inputs]),
        [*job.inputs, out],
        pack(vectors, *steps, *[0] * (3 - len(steps))),
        -(-vectors // LANES),
    )


def elementwise(
    name: str,
    expression: str | Callable[[Job], str],
    fits: Callable[[Job], bool] = lambda job: True,
) -> Kernel:
    """A kernel that evaluates one WGSL expression of a, b and c for each element."""

    def plan(job: Job) -> None:
        text = expression if isinstance(expression, str) else expression(job)
        out = job.outputs[0]
        even = all(operand.size in (1, out.size) for operand in job.inputs)
        if not even:
            strides = [rules.broadcast_strides(operand.shape, out.shape) for operand in job.inputs]
            walk(job, text, job.inputs, strides)
            return
        evenly(job, text)

    return Kernel(name, plan, fits=fits)
