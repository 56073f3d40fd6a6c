"""Rows by index, and the way back."""

from __future__ import annotations

import numpy as np

from .. import reference, rules
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
        table = rng.integers(0, 1000, (37, 24)).astype(dtype)
        for kind in (i32, u32):
            indices = rng.integers(0, 37, (2, 16)).astype(kind)
            indices[1, 3] = 37
            indices[0, 1] = 36
            made.append(Probe((table, indices)))
    return made


AT_MOST = 1 << 28  # comparisons of an index with a row


def _added(job: Job) -> None:
    """A workgroup a row of the table: added in the order of the indices, always the same."""
    indices, grad = job.inputs
    rows, dim = job.outputs[0].shape
    parts = -(-dim // 256)
    values = {"INDEX": WGSL[indices.dtype]}
    params = pack(indices.size, dim, rows, parts)
    operands = [indices, grad, job.outputs[0]]
    job.step("embed_grad", values, operands, params, rows * parts, 2 * indices.size)


def _added_atomically(job: Job) -> None:
    indices, grad = job.inputs
    out = job.outputs[0]
    rows, dim = out.shape
    values = {"INDEX": WGSL[indices.dtype]}
    job.step("zero", {}, [out], pack(out.size), -(-out.size // 256))
    params = pack(grad.size, dim, rows)
    job.step("embed_grad_atomic", values, [indices, grad, out], params, -(-grad.size // 256))


def _embed_grad_probes() -> list[Probe]:
    rng = np.random.default_rng(14)
    made = []
    for kind in (i32, u32):
        grad = rng.integers(-9, 10, (16, 32, 24)).astype(np.float32)
        indices = rng.integers(0, 37, (16, 32)).astype(kind)
        indices[2, 3] = 37
        indices[-1, -1] = 36
        indices[5:9] = 11
        made.append(Probe((indices, grad), {"rows": 37}))
    grad = rng.integers(-9, 10, (40, 300)).astype(np.float32)
    indices = np.where(rng.integers(0, 2, 40) > 0, 3, -1).astype(np.int32)
    made.append(Probe((indices, grad), {"rows": 5}))
    # Columns, and elements of the result, up to the last lanes of a workgroup.
    for dim, rows in ((512, 3), (28, 73)):
        grad = rng.integers(-9, 10, (7, dim)).astype(np.float32)
        made.append(Probe((rng.integers(0, rows, 7).astype(np.int32), grad), {"rows": rows}))
    grad = rng.integers(-9, 10, (257, 4)).astype(np.float32)
    made.append(Probe((np.arange(257, dtype=np.int32) % 8, grad), {"rows": 8}))
    return made


@operation(
    kernels=[
        Kernel(
            "embed_grad",
            _added,
            worth=lambda job: job.inputs[0].size * job.outputs[0].shape[0] <= AT_MOST,
        ),
        Kernel("embed_grad_atomic", _added_atomically),
    ],
    reference=reference.embed_grad,
    probes=_embed_grad_probes,
    method=False,
)
def embed_grad(indices: Spec, grad: Spec, rows: int) -> Result:
    """Rows of grad (*indices.shape, dim) added up by index: (rows, dim), float32.

    An index out of range adds nothing.
    """
    rules.floats_only("embed_grad", grad.dtype)
    if indices.dtype not in (i32, u32):
        raise DTypeError(f"[embed_grad] expected integer indices, but got {indices.dtype}")
    if not grad.shape or grad.shape[:-1] != indices.shape:
        raise ShapeError(
            f"[embed_grad] expected grad of shape (*{indices.shape}, dim), but got {grad.shape}"
        )
    if rules.integer("embed_grad", "rows", rows) < 0:
        raise ShapeError(f"[embed_grad] expected rows from 0 up, but got {rows}")
    return Result((Spec((rows, grad.shape[-1]), f32),), (indices.dtype, f32))


@operation(
    kernels=[Kernel("embed", _plan)],
    reference=reference.embed,
    probes=_probes,
    method=False,
    gradients={
        "table": lambda grad, indices, table_shape: embed_grad(indices, grad, table_shape[0])
    },
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
