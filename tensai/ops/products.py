"""Matrix products."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from .. import reference, rules
from ..dtypes import WGSL, DType, bool_, f16, f32, i32, promote, u32
from ..errors import DTypeError, ShapeError
from ..operation import (
    FUNCTIONS,
    Job,
    Kernel,
    Probe,
    Result,
    Spec,
    composition,
    operation,
    pack,
)
from ..quantized import QuantizedTensor
from ..tensor import Tensor
from . import skinny
from .reduction import sum_rows
from .strided import MAX_AXES, merge_axes
from .tiles import Pace, Tile

# By the names of their kernels. Which of them a product takes follows from their paces, measured
# on one H200 where `tensai tune` has measured none.
TILES = {
    "matmul_128x256": Tile(128, 256, 16, 16, 8, 1, True, Pace(3.12e-6, 2.54e-8)),
    "matmul_64x128": Tile(64, 128, 16, 8, 8, 1, False, Pace(9.98e-7, 6.42e-9)),
    "matmul_64x128_sliced": Tile(64, 128, 16, 8, 8, 2, False, Pace(8.84e-7, 7.13e-9)),
    "matmul_32x64_sliced": Tile(32, 64, 32, 8, 4, 4, False, Pace(6.23e-7, 4.25e-9)),
    "matmul_32x32": Tile(32, 32, 32, 4, 4, 1, False, Pace(5.93e-7, 2.62e-9)),
}
SMALLEST = "matmul_32x32"
SPLIT = ("matmul_64x128_sliced", "matmul_32x64_sliced")  # tiles that also take a part of k each
LEAST_STEPS = 4  # along k, of a part
PARTS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
# About what joining parts takes on the same H200, in seconds: a dispatch, and each element of a
# part. Not measured by themselves: the products that were measured are chosen right with them.
JOIN, JOIN_ELEMENT = 5e-6, 4e-12
DIRECT = Tile(32, 64, 0, 8, 8)


def _plan(tile: Tile, job: Job, parts: int = 1) -> None:
    """The product by tiles; of `parts` of k, which a second dispatch adds up."""
    a, b = job.inputs
    out = job.outputs[0]
    facts = job.facts
    m, n, k = facts["m"], facts["n"], facts["k"]
    transpose_a, transpose_b = job.arguments["transpose_a"], job.arguments["transpose_b"]
    element = WGSL[a.dtype]
    vector_a = (m if transpose_a else k) % 4 == 0
    vector_b = (k if transpose_b else n) % 4 == 0
    values = {
        **tile.values(),
        **tile.body(transpose_b, element),
        **tile.loads(transpose_a, transpose_b, vector_a, vector_b, element),
        "T": element,
        "VECTOR_A": vector_a,
        "VECTOR_B": vector_b,
        "VECTOR_OUT": n % 4 == 0,
        "A_ELEMENT": f"vec4<{element}>" if vector_a else element,
        "B_ELEMENT": f"vec4<{element}>" if vector_b else element,
        "OUT_ELEMENT": f"vec4<{element}>" if n % 4 == 0 else element,
    }
    steps = -(-k // tile.bk)
    depth = -(-steps // parts) * tile.bk
    parts = -(-k // depth)  # so that none is empty
    target = out if parts == 1 else job.temporary(parts * out.size, out.dtype)
    loops = depth // tile.bk + MAX_AXES + tile.slices + 2  # a loop that ends counts as well
    job.step("matmul", values, [a, b, target], *_params(job, tile, depth, parts), loops)
    if parts > 1:
        sum_rows(job, target, out)


def _params(job: Job, tile: Tile, depth: int = 0, parts: int = 1) -> tuple[bytes, int]:
    """The parameters of matmul_params.wgsl and the number of workgroups."""
    facts = job.facts
    m, n, k, batch = facts["m"], facts["n"], facts["k"], facts["batch"]
    strides = [
        tuple(step * matrix for step in rules.broadcast_strides(shape, batch))
        for shape, matrix in ((facts["batch_a"], m * k), (facts["batch_b"], k * n))
    ]
    lengths, steps = merge_axes(batch, strides)
    rows = [tuple(row) + (0,) * (MAX_AXES - len(row)) for row in (lengths, *steps)]
    batches = math.prod(batch)
    tiles_m, tiles_n = -(-m // tile.bm), -(-n // tile.bn)
    params = pack(m, n, k, tiles_m, tiles_n, batches, len(lengths), depth, *rows)
    return params, parts * batches * tiles_m * tiles_n


def _direct(job: Job) -> None:
    """The kernel without workgroup memory; `DIRECT` says what a thread computes."""
    rows, vectors = DIRECT.tm, DIRECT.tn // 4
    names = list(itertools.product(range(rows), range(vectors)))
    declare = [f"    var sum_{row}_{v} = vec4<f32>();" for row, v in names]
    declare += [
        f"    let row_{row} = offsets.x + min(row + {row}u, params.m - 1u) * width_a;"
        for row in range(rows)
    ]
    declare += [
        f"    let column_{v} = min(column / 4u + {v}u, width_b - 1u);" for v in range(vectors)
    ]
    multiply = [f"        let a_{row} = a[row_{row} + k];" for row in range(rows)]
    for part in range(4):
        multiply.append(f"        let line_{part} = offsets.y + (k * 4u + {part}u) * width_b;")
        for v in range(vectors):
            multiply.append(f"        let b_{part}_{v} = b[line_{part} + column_{v}];")
        for row, v in names:
            left = f"vec4<f32>(a_{row}.{'xyzw'[part]})"
            multiply.append(f"        sum_{row}_{v} = fma({left}, b_{part}_{v}, sum_{row}_{v});")
    store = [
        f"    if (row + {row}u < params.m && column + {4 * v}u < params.n) "
        f"{{ out[base + (row + {row}u) * width_b + column / 4u + {v}u] = sum_{row}_{v}; }}"
        for row, v in names
    ]
    values = {
        "BM": DIRECT.bm,
        "BN": DIRECT.bn,
        "TM": DIRECT.tm,
        "TN": DIRECT.tn,
        "LANES": DIRECT.lanes,
        "THREADS_N": DIRECT.bn // DIRECT.tn,
        "DECLARE": "\n".join(declare),
        "MULTIPLY": "\n".join(multiply),
        "STORE": "\n".join(store),
    }
    job.step(
        "matmul_direct", values, [*job.inputs, *job.outputs], *_params(job, DIRECT), job.facts["k"]
    )


def _fits_direct(job: Job) -> bool:
    plain = not (job.arguments["transpose_a"] or job.arguments["transpose_b"])
    aligned = job.facts["k"] % 4 == 0 and job.facts["n"] % 4 == 0
    return plain and aligned and job.inputs[0].dtype == f32


def _fits(job: Job, name: str) -> bool:
    """Whether a tile's kernel can be used; integers, which are rare, have the smallest only."""
    limits, tile = job.device.limits, TILES[name]
    return (
        (name == SMALLEST or job.inputs[0].dtype == f32)
        and limits["maxComputeInvocationsPerWorkgroup"] >= tile.lanes
        and limits["maxComputeWorkgroupStorageSize"] >= tile.memory
    )


def _seconds(job: Job, name: str, parts: int = 1) -> float:
    """About how long a tile's kernel takes."""
    tile, facts = TILES[name], job.facts
    assert tile.pace is not None
    pace = job.device.paces.get(name, tile.pace)
    tiles, steps = tile.counts(facts["m"], facts["n"], facts["k"])
    taken: float = pace.predict(parts * tiles * math.prod(facts["batch"]), -(-steps // parts))
    if parts == 1:
        return taken
    slower = pace.busy / tile.pace.busy
    return taken + slower * (JOIN + JOIN_ELEMENT * parts * job.outputs[0].size)


def _parts(job: Job, name: str) -> int:
    """Into how many parts k is best cut, at least two."""
    steps = -(-job.facts["k"] // TILES[name].bk)
    fitting = [parts for parts in PARTS if parts * LEAST_STEPS <= steps]
    return min(fitting, key=lambda parts: _seconds(job, name, parts))


def _whole(name: str) -> Kernel:
    """The kernel of one tile. In software any will do: the smallest, which compiles fastest."""
    return Kernel(
        name,
        lambda job: _plan(TILES[name], job),
        fits=lambda job: _fits(job, name),
        worth=lambda job: name == SMALLEST or not job.device.info.software,
        cost=lambda job: _seconds(job, name),
    )


def _split(name: str) -> Kernel:
    """The kernel of one tile whose workgroups take a part of k each, for few tiles and a long k."""
    least = PARTS[0] * LEAST_STEPS * TILES[name].bk
    return Kernel(
        name.replace("sliced", "split"),
        lambda job: _plan(TILES[name], job, _parts(job, name)),
        fits=lambda job: job.facts["k"] >= least and _fits(job, name),
        worth=lambda job: not job.device.info.software,
        cost=lambda job: _seconds(job, name, _parts(job, name)),
    )


def _probes() -> list[Probe]:
    rng = np.random.default_rng(17)

    def integers(dtype: DType, *shape: int) -> np.ndarray[Any, Any]:
        return rng.integers(0 if dtype == u32 else -4, 5, shape).astype(dtype)

    made = []
    ways = [(ta, tb) for ta in (False, True) for tb in (False, True)]
    # Over two of the largest tile, and every combination of vector and single loads.
    sizes = list(itertools.product((131, 132), (134, 136), (37, 36)))
    for dtype, (m, n, k), (ta, tb) in itertools.product((f32, i32, u32), sizes, ways):
        a = integers(dtype, 2, *((k, m) if ta else (m, k)))
        b = integers(dtype, *((n, k) if tb else (k, n)))
        made.append(Probe((a, b), {"transpose_a": ta, "transpose_b": tb}))
    # Every length of what is left of a vector.
    for dtype, (m, n, k), (ta, tb) in itertools.product(
        (f32, i32, u32), ((5, 7, 39), (7, 5, 38)), ways
    ):
        a = integers(dtype, *((k, m) if ta else (m, k)))
        b = integers(dtype, *((n, k) if tb else (k, n)))
        made.append(Probe((a, b), {"transpose_a": ta, "transpose_b": tb}))
    # Batches over axes that don't merge.
    for dtype, n, k in ((f32, 10, 6), (f32, 12, 8), (i32, 10, 6), (u32, 10, 6)):
        a, b = integers(dtype, 2, 1, 2, 1, 2, 9, k), integers(dtype, 3, 1, 3, 1, k, n)
        made.append(Probe((a, b), {"transpose_a": False, "transpose_b": False}))
    # A k that is cut into parts, the last of them shorter.
    for (m, n, k), (ta, tb) in itertools.product(((67, 135, 1103), (68, 132, 1100)), ways):
        a = integers(f32, *((k, m) if ta else (m, k)))
        b = integers(f32, 2, *((n, k) if tb else (k, n)))
        made.append(Probe((a, b), {"transpose_a": ta, "transpose_b": tb}))
    return made + skinny.probes()


def _grad_a(grad: Tensor, b: Tensor, transpose_a: bool, transpose_b: bool) -> Tensor:
    if transpose_a:
        return product(b, grad, transpose_b, True)
    return product(grad, b, False, not transpose_b)


def _grad_b(grad: Tensor, a: Tensor, transpose_a: bool, transpose_b: bool) -> Tensor:
    if transpose_b:
        return product(grad, a, True, transpose_a)
    return product(a, grad, not transpose_a, False)


@operation(
    kernels=[
        *skinny.KERNELS,
        Kernel(
            "matmul_direct",
            _direct,
            fits=_fits_direct,
            worth=lambda job: bool(job.device.info.software),
        ),
        *map(_whole, TILES),
        *map(_split, SPLIT),
    ],
    reference=reference.matmul,
    probes=_probes,
    name="matmul",
    method=False,
    gradients={"a": _grad_a, "b": _grad_b},
)
def product(a: Spec, b: Spec, transpose_a: bool = False, transpose_b: bool = False) -> Result:
    """a @ b over the last two axes, either read transposed; leading axes broadcast."""
    if len(a.shape) < 2 or len(b.shape) < 2:
        raise ShapeError(f"[matmul] expected at least 2 axes, but got {a.shape} and {b.shape}")
    m, k = a.shape[-2:][:: -1 if transpose_a else 1]
    k_b, n = b.shape[-2:][:: -1 if transpose_b else 1]
    if k != k_b:
        raise ShapeError(
            f"[matmul] expected {'the last axis' if not transpose_a else 'axis -2'} of a "
            f"{a.shape} to match {'axis -2' if not transpose_b else 'the last axis'} of b {b.shape}"
        )
    batch = rules.broadcast("matmul", a.shape[:-2], b.shape[:-2])
    common = promote(a.dtype, b.dtype)
    working = {f16: f32, bool_: i32}.get(common, common)
    facts = {
        "m": m,
        "n": n,
        "k": k,
        "batch": batch,
        "batch_a": a.shape[:-2],
        "batch_b": b.shape[:-2],
    }
    finish = common if common in (f16, bool_) else None
    return Result((Spec((*batch, m, n), working),), (working, working), finish, facts)


def _check_axes(name: str, a: Tensor, b: Tensor, least: int) -> None:
    if isinstance(b, QuantizedTensor):
        raise DTypeError(
            f"[{name}] expected a tensor, but got a packed matrix ({b.kind}); use x @ q, or "
            "q.dequantize()"
        )
    if a.ndim < least or b.ndim < least:
        raise ShapeError(
            f"[{name}] expected at least {least} axes each, but got {a.shape} and {b.shape}"
        )


@composition
def matmul(a: Tensor, b: Any, activations: str = "f32") -> Tensor:
    """a @ b with numpy.matmul's shapes: batch axes broadcast, a 1-D operand is a row or column.

    (..., m, k) @ (..., k, n) -> (..., m, n), float32 accumulating in float32; integers wrap.
    b may be a QuantizedTensor, for which `activations` can be "int8" (see ops.linear).
    Raises ShapeError when the inner lengths differ or the batch axes do not broadcast.
    """
    if isinstance(b, QuantizedTensor):
        linear = FUNCTIONS["linear"]  # which is made of products like this one
        made: Tensor = linear(a, b, activations=activations)
        return made
    if not isinstance(a, Tensor):
        a = b.device.operand(a, b)
    if not isinstance(b, Tensor):
        b = a.device.operand(b, a)
    if a.ndim >= 2 and b.ndim >= 2:
        if b.ndim == 2 and a.ndim > 2:
            # One matrix for the whole batch: one product with more rows.
            rows = a.reshape(math.prod(a.shape[:-1]), a.shape[-1])
            if a.shape[-1] == b.shape[0]:
                return product(rows, b).reshape(*a.shape[:-1], b.shape[1])
        return product(a, b)
    _check_axes("matmul", a, b, 1)
    left = a.reshape(1, -1) if a.ndim == 1 else a
    right = b.reshape(-1, 1) if b.ndim == 1 else b
    if left.shape[-1] != right.shape[-2]:
        raise ShapeError(
            f"[matmul] expected the last axis of a {a.shape} to match the first of b {b.shape}"
        )
    result = product(left, right)
    shape = list(result.shape)
    if a.ndim == 1:
        del shape[-2]
    if b.ndim == 1:
        del shape[-1]
    return result.reshape(tuple(shape))


@composition
def matmul_t(a: Tensor, b: Tensor) -> Tensor:
    """a @ b^T over the last two axes: (..., m, k) and (..., n, k) -> (..., m, n)."""
    _check_axes("matmul_t", a, b, 2)
    if b.ndim == 2 and a.ndim > 2 and a.shape[-1] == b.shape[1]:
        rows = a.reshape(math.prod(a.shape[:-1]), a.shape[-1])
        return product(rows, b, False, True).reshape(*a.shape[:-1], b.shape[0])
    return product(a, b, False, True)


@composition
def matmul_tn(a: Tensor, b: Tensor) -> Tensor:
    """a^T @ b over the last two axes: (..., k, m) and (..., k, n) -> (..., m, n)."""
    _check_axes("matmul_tn", a, b, 2)
    return product(a, b, True, False)
