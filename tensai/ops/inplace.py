"""Operations that change a tensor where it lies, and return it."""

from __future__ import annotations

import numpy as np

from .. import rules
from ..dtypes import WGSL, f32, i32, u32, widened
from ..errors import DTypeError, ShapeError
from ..operation import Job, Kernel, Probe, Result, Spec, composition, operation, pack
from ..tensor import Tensor
from .strided import LANES, MAX_AXES, merge_axes

EXPRESSIONS = {"add": "a + b", "multiply": "a * b"}
FUNCTIONS = {"add": np.add, "multiply": np.multiply}


def _update(job: Job) -> None:
    x, other = job.inputs
    lengths, steps = merge_axes(x.shape, [rules.broadcast_strides(other.shape, x.shape)])
    padded = [tuple(row) + (0,) * (MAX_AXES - len(row)) for row in (lengths, *steps)]
    values = {"T": WGSL[x.dtype], "EXPRESSION": EXPRESSIONS[job.arguments["function"]]}
    params = pack(x.size, len(lengths), 0, 0, *padded)
    job.step("update", values, [x, other], params, -(-x.size // LANES), len(lengths))


def _update_probes() -> list[Probe]:
    rng = np.random.default_rng(31)
    made = []
    for dtype in (f32, i32, u32):
        x = rng.integers(0, 9, (2, 2, 3, 2, 2, 16)).astype(dtype)
        for shape in (x.shape, (2, 1, 3, 1, 2, 1), ()):
            other = rng.integers(0, 9, shape).astype(dtype)
            made += [Probe((x, other), {"function": name}) for name in EXPRESSIONS]
    return made


@operation(
    kernels=[Kernel("update_", _update)],
    reference=lambda x, other, function: FUNCTIONS[function](x, other),
    probes=_update_probes,
    name="update_",
    method=False,
    writes=("x",),
)
def update(x: Spec, other: Spec, function: str) -> Result:
    """x = function(x, other) in place, with x's shape and dtype; other broadcasts to it."""
    name = {"add": "add_", "multiply": "scale_"}[function]
    if rules.broadcast(name, x.shape, other.shape) != x.shape:
        raise ShapeError(
            f"[{name}] expected something that broadcasts to {x.shape}, but got {other.shape}"
        )
    working = widened(x.dtype)
    if working.kind == "b":
        raise DTypeError(f"[{name}] expected numbers, but got {x.dtype}")
    if other.dtype.kind == "f" and working.kind != "f":
        raise DTypeError(f"[{name}] {other.dtype} cannot go into a tensor of {x.dtype}")
    return Result((), (working, working))


@composition
def add_(x: Tensor, other: Tensor | float) -> Tensor:
    """x += other in place, keeping x's dtype; other broadcasts to x's shape. Returns x.

    Memory that x shares with the tensor it was reshaped from changes as well. Raises ShapeError
    when other does not broadcast to x, DTypeError for floats into integers and for bool.
    """
    return update(x, other, "add")


@composition
def scale_(x: Tensor, s: Tensor | float) -> Tensor:
    """x *= s in place, keeping x's dtype; s broadcasts to x's shape. Returns x.

    Raises as add_ does.
    """
    return update(x, s, "multiply")
