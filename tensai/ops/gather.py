"""Rows by index."""

from __future__ import annotations

import numpy as np

from .. import reference
from ..dtypes import WGSL, f32, i32, narrowed_to, u32, widened
from ..errors import DTypeError, ShapeError
from ..operation import Job, Kernel, Probe, Result, Spec, operation, pack


def _plan(job: Job) -> None:
    table, indices = job.inputs
    out = job.outputs[0]
    rows, dim = table.shape
    values = {
        "T": WGSL[table.dtype],
        "INDEX": WGSL[indices.dtype],
        "FLOAT": table.dtype == f32,
    }
    params = pack(out.size, dim, rows)
    job.step("embed", values, [table, indices, out], params, -(-out.size // 256))


def _probes() -> list[Probe]:
    rng = np.random.default_rng(13)
    made = []
    for dtype in (f32, i32, u32):
        table = rng.integers(0, 1000, (37, 29)).astype(dtype)
        for kind in (i32, u32):
            indices = rng.integers(0, 37, (6, 5)).astype(kind)
            indices[2, 3] = 37
            indices[0, 1] = 36
            made.append(Probe((table, indices)))
    return made


@operation(
    kernels=[Kernel("embed", _plan)], reference=reference.embed, probes=_probes, method=False
)
def embed(table: Spec, indices: Spec) -> Result:
    """Rows of a table (rows, dim) at int32 or uint32 indices: (*indices.shape, dim).

    A row of NaN (of 0 for integers) where an index is out of range.
    """
    if len(table.shape) != 2:
        raise ShapeError(f"[embed] expected a table of 2 axes, but got shape {table.shape}")
    if indices.dtype not in (i32, u32):
        raise DTypeError(f"[embed] expected integer indices, but got {indices.dtype}")
    through = widened(table.dtype)
    if through not in WGSL or through.kind == "b":
        raise DTypeError(f"[embed] expected a table of numbers, but got {table.dtype}")
    shape = (*indices.shape, table.shape[1])
    finish = narrowed_to(table.dtype)
    return Result((Spec(shape, through),), (through, indices.dtype), finish)
