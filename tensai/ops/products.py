"""Matrix products."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
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
from .strided import MAX_AXES, merge_axes


@dataclass(frozen=True)
class Tile:
    """A workgroup's tile of a product, its step along k, and a thread's rows and columns."""

    bm: int
    bn: int
    bk: int
    tm: int
    tn: int

    @property
    def lanes(self) -> int:
        return (self.bm // self.tm) * (self.bn // self.tn)

    @property
    def memory(self) -> int:
        """Bytes of workgroup memory, both tiles padded."""
        return 16 * self.bk * (self.bm // 4 + self.bn // 4 + 2)

    def values(self) -> dict[str, Any]:
        """The template values of matmul.wgsl that follow from the tile alone."""
        stride_a, stride_b = self.bm // 4 + 1, self.bn // 4
        return {
            "BM": self.bm,
            "BN": self.bn,
            "BK": self.bk,
            "TM": self.tm,
            "TN": self.tn,
            "BM_4": self.bm // 4,
            "BN_4": self.bn // 4,
            "A_STRIDE": stride_a,
            "A_VECTORS": stride_a * self.bk,
            "A_LOADS": self.bm * self.bk // 4,
            "B_VECTORS": (stride_b + 1) * self.bk,
            "LANES": self.lanes,
            "THREADS_N": self.bn // self.tn,
        }

    def loads(self, transpose_a: bool, transpose_b: bool) -> dict[str, str]:
        """The unrolled lines that read a thread's share of the next tiles into named variables,
        `next_TILE_NUMBER`, while the last ones are computed with, and that put it down."""
        made: dict[str, list[str]] = {"PLACES": [], "LOAD_FIRST": [], "LOAD_NEXT": [], "KEEP": []}
        stride_b = self.bn // 4 + (1 if transpose_b else 0)
        for name, along_k, across, stride, offset, first, edge in (
            ("a", not transpose_a, self.bm, self.bm // 4 + 1, "x", "first_row", "m"),
            ("b", transpose_b, self.bn, stride_b, "y", "first_column", "n"),
        ):
            # Vectors that lie side by side in memory: along k, where they are turned on the way.
            width = (self.bk if along_k else across) // 4
            made["PLACES"].append(f"    let line_{name} = lane / {width}u;")
            made["PLACES"].append(f"    let place_{name} = lane % {width}u * 4u;")
            for number in range(across * self.bk // 4 // self.lanes):
                own = f"next_{name}_{number}"
                line = f"line_{name} + {number * self.lanes // width}u"
                for key, start, k in (
                    ("LOAD_FIRST", "    var ", "0u"),
                    ("LOAD_NEXT", "        ", "following"),
                ):
                    outer = f"{first} + {line}, params.{edge}"
                    inner = f"{k} + place_{name}, params.k"
                    if not along_k:
                        outer = f"{k} + {line}, params.k"
                        inner = f"{first} + place_{name}, params.{edge}"
                    made[key].append(
                        f"{start}{own} = load_{name}(offsets.{offset}, {outer}, {inner});"
                    )
                if not along_k:
                    made["KEEP"].append(
                        f"        tile_{name}[({line}) * {stride}u + place_{name} / 4u] = {own};"
                    )
                    continue
                for part, letter in enumerate("xyzw"):
                    made["KEEP"].append(
                        f"        tile_{name}[(place_{name} + {part}u) * {stride}u + ({line}) / 4u]"
                        f"[({line}) & 3u] = {own}.{letter};"
                    )
        return {key: "\n".join(lines) for key, lines in made.items()}

    def body(self, transpose_b: bool, element: str) -> dict[str, str]:
        """The unrolled lines over named accumulators, `sum_ROW_VECTOR`."""
        stride_a, stride_b = self.bm // 4 + 1, self.bn // 4 + (1 if transpose_b else 0)
        row_vectors, column_vectors = self.tm // 4, self.tn // 4
        # A thread's vectors lie a whole tile's part apart, so that lanes read neighbours.
        rows_apart = self.bm // 4 // row_vectors
        columns_apart = self.bn // 4 // column_vectors
        names = [(row, vector) for row in range(self.tm) for vector in range(column_vectors)]
        declare = [f"    var sum_{row}_{vector} = vec4<{element}>();" for row, vector in names]
        multiply = [
            f"            let a_{i} = tile_a[k * {stride_a}u + thread_row + {i * rows_apart}u];"
            for i in range(row_vectors)
        ]
        multiply += [
            f"            let b_{i} = "
            f"tile_b[k * {stride_b}u + thread_column + {i * columns_apart}u];"
            for i in range(column_vectors)
        ]
        for row, vector in names:
            left = f"vec4<{element}>(a_{row // 4}.{'xyzw'[row % 4]})"
            total = f"sum_{row}_{vector}"
            product = (
                f"fma({left}, b_{vector}, {total})"
                if element == "f32"
                else f"{total} + {left} * b_{vector}"
            )
            multiply.append(f"            {total} = {product};")
        store = ["    let base_out = batch * params.m * params.n;"]
        store += [
            f"    store(base_out, first_row + (thread_row + {row // 4 * rows_apart}u) * 4u + "
            f"{row % 4}u, first_column + (thread_column + {vector * columns_apart}u) * 4u, "
            f"sum_{row}_{vector});"
            for row, vector in names
        ]
        return {
            "DECLARE": "\n".join(declare),
            "MULTIPLY": "\n".join(multiply),
            "STORE": "\n".join(store),
        }


LARGE = Tile(bm=128, bn=128, bk=16, tm=16, tn=8)
MEDIUM = Tile(bm=128, bn=64, bk=16, tm=8, tn=8)
SMALL = Tile(bm=32, bn=32, bk=32, tm=4, tn=4)
DIRECT = Tile(bm=32, bn=64, bk=0, tm=8, tn=8)


def _plan(tile: Tile, job: Job) -> None:
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
        **tile.loads(transpose_a, transpose_b),
        "T": element,
        "VECTOR_A": vector_a,
        "VECTOR_B": vector_b,
        "VECTOR_OUT": n % 4 == 0,
        "A_ELEMENT": f"vec4<{element}>" if vector_a else element,
        "B_ELEMENT": f"vec4<{element}>" if vector_b else element,
        "OUT_ELEMENT": f"vec4<{element}>" if n % 4 == 0 else element,
    }
    loops = -(-k // tile.bk) * (3 + tile.bk) + MAX_AXES  # a loop that ends counts as well
    job.step("matmul", values, [a, b, out], *_params(job, tile), loops)


def _params(job: Job, tile: Tile) -> tuple[bytes, int]:
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
    params = pack(m, n, k, tiles_m, tiles_n, batches, len(lengths), 0, *rows)
    return params, batches * tiles_m * tiles_n


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


def _kernel(name: str, tile: Tile, enough: int) -> Kernel:
    """The kernel of one tile, worth using where a product has `enough` of them, mostly full.

    With fewer, smaller tiles keep more of a GPU busy; in software one tile keeps a core busy.
    Integers, which are rare here, have the small tile only.
    """

    def fits(job: Job) -> bool:
        limits = job.device.limits
        return (
            (tile is SMALL or job.inputs[0].dtype == f32)
            and limits["maxComputeInvocationsPerWorkgroup"] >= tile.lanes
            and limits["maxComputeWorkgroupStorageSize"] >= tile.memory
        )

    def worth(job: Job) -> bool:
        m, n = job.facts["m"], job.facts["n"]
        tiles = -(-m // tile.bm) * -(-n // tile.bn) * math.prod(job.facts["batch"])
        full = min(m / tile.bm, n / tile.bn) >= 0.75
        return full and tiles >= (1 if job.device.info.software else enough)

    return Kernel(name, lambda job: _plan(tile, job), fits=fits, worth=worth)


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
    for dtype in (f32, i32, u32):
        # Batches over axes that don't merge.
        a, b = integers(dtype, 2, 1, 2, 1, 3, 9, 6), integers(dtype, 2, 1, 3, 1, 6, 10)
        made.append(Probe((a, b), {"transpose_a": False, "transpose_b": False}))
    return made


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
        Kernel(
            "matmul_direct",
            _direct,
            fits=_fits_direct,
            worth=lambda job: bool(job.device.info.software),
        ),
        _kernel("matmul_large", LARGE, 256),
        _kernel("matmul_medium", MEDIUM, 128),
        _kernel("matmul_small", SMALL, 0),
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
