"""Scaled dot-product attention."""

from __future__ import annotations

import itertools
import math

import numpy as np

from .. import reference, rules
from ..dtypes import bool_, f32, narrowed_to
from ..errors import DTypeError, ShapeError
from ..operation import Job, Kernel, Probe, Result, Spec, operation, pack

WIDEST = 256
# For heads up to each size: queries and positions that a workgroup holds at a time. All of it
# fits 16 KiB, the least that any device has, but for the widest heads.
BLOCKS = {32: (16, 32), 64: (16, 32), 128: (8, 16), WIDEST: (4, 8)}


def _plan(job: Job) -> None:
    facts, arguments = job.facts, job.arguments
    dim = facts["dim"]
    largest = next(size for size in BLOCKS if dim <= size)
    queries, positions = BLOCKS[largest]
    masked = len(job.inputs) > 3
    values = {
        "BQ": queries,
        "BK": positions,
        "DIM": largest,
        "BQ_VECTORS": queries * largest // 4,
        "BK_VECTORS": positions * largest // 4,
        "BQ_BK": queries * positions,
        "MASK": masked,
        "MASK_BOOL": masked and job.inputs[3].dtype == bool_,
        "MASK_WORD": "u32" if masked and job.inputs[3].dtype == bool_ else "f32",
        "OUT_BINDING": len(job.inputs),
    }
    mask_strides = (0, 0, 0, 0)
    if masked:
        target = (facts["batch"], facts["heads"], facts["queries"], facts["kv_rows"])
        shape = job.inputs[3].shape
        mask_strides = rules.broadcast_strides(shape, target)  # type: ignore[assignment]
    params = pack(
        facts["queries"],
        facts["kv_rows"],
        facts["kv_valid"],
        facts["heads"],
        facts["kv_heads"],
        dim,
        int(bool(arguments["causal"])),
        facts["window"],
        float(facts["scale"]),
        *mask_strides,
        facts["batch"],
    )
    blocks = -(-facts["queries"] // queries)
    groups = blocks * facts["heads"] * facts["batch"]
    # Of each tile: two loads, the scores, the weights twice, and the sums over v.
    vectors = -(-dim // 4)
    loads = 2 * (-(-positions * vectors // 64) + 1)
    scores = (-(-queries * positions // 64) + 1) * (vectors + 1)
    sums = (-(-queries * vectors // 64) + 1) * (positions + 1)
    tiles = -(-facts["kv_valid"] // positions) + 1
    loops = tiles * (1 + loads + scores + 2 * positions + sums)
    job.step("attention", values, [*job.inputs, *job.outputs], params, groups, loops)


def _probes() -> list[Probe]:
    rng = np.random.default_rng(19)
    made = []
    for dim, mask in itertools.product((21, 60, 102, 199), ("none", "bool", "add")):
        q = rng.normal(0, 1, (2, 19, 4 * dim)).astype(np.float32)
        k, v = rng.normal(0, 1, (2, 2, 45, 2 * dim)).astype(np.float32)
        v[:, 41:] = np.nan  # beyond kv_length
        options = {"heads": 4, "kv_heads": 2, "kv_length": 41}
        if mask == "none":
            made.append(Probe((q, k, v), {**options, "causal": True, "window": 9}, 5e-6))
            made.append(Probe((q, k, v), {**options, "scale": 0.05}, 5e-6))
            continue
        seen = rng.integers(0, 3, (2, 1, 19, 45)) > 0
        seen[1, 0, 4] = False  # a query that sees nothing
        added = np.where(seen, rng.normal(0, 1, seen.shape), -np.inf).astype(np.float32)
        made.append(Probe((q, k, v, seen if mask == "bool" else added), options, 5e-6))
    return made


@operation(kernels=[Kernel("attention", _plan)], reference=reference.attention, probes=_probes)
def attention(
    q: Spec,
    k: Spec,
    v: Spec,
    heads: int = 1,
    kv_heads: int | None = None,
    causal: bool = False,
    scale: float | None = None,
    kv_length: int | None = None,
    window: int | None = None,
    mask: Spec | None = None,
) -> Result:
    """softmax(scale q k^T + mask) v for each head (Vaswani et al., 2017), never storing scores.

    q is (batch, queries, heads * dim), k and v are (batch, rows, kv_heads * dim), all float32 or
    float16; batch may be left out. The result has q's shape. kv_heads (default heads) must divide
    heads: each serves heads / kv_heads of them. scale defaults to 1 / sqrt(dim). Only the first
    kv_length rows of k and v count; those beyond, NaN included, never reach the result. With
    causal, query i sees positions up to i + (kv_length - queries); with window, only the last
    `window` of them. mask, bool (True may attend) or float32 (added to the scores), broadcasts to
    (batch, heads, queries, rows). A query that sees nothing gives zeros.
    """
    rules.floats_only("attention", q.dtype, k.dtype, v.dtype)
    if len(q.shape) not in (2, 3) or len(k.shape) != len(q.shape) or k.shape != v.shape:
        raise ShapeError(
            "[attention] expected q (batch, queries, heads * dim) and k, v (batch, rows, "
            f"kv_heads * dim), but got {q.shape}, {k.shape}, {v.shape}"
        )
    batch = q.shape[0] if len(q.shape) == 3 else 1
    if len(q.shape) == 3 and k.shape[0] != batch:
        raise ShapeError(f"[attention] expected one batch, but got {q.shape} and {k.shape}")
    heads = rules.integer("attention", "heads", heads)
    kv_heads = heads if kv_heads is None else rules.integer("attention", "kv_heads", kv_heads)
    if heads < 1 or kv_heads < 1 or heads % kv_heads:
        raise ShapeError(
            f"[attention] expected kv_heads to divide heads, but got {kv_heads} and {heads}"
        )
    if q.shape[-1] % heads or k.shape[-1] % kv_heads:
        raise ShapeError(
            f"[attention] expected {heads} and {kv_heads} heads to divide the last axes of "
            f"{q.shape} and {k.shape}"
        )
    dim = q.shape[-1] // heads
    if k.shape[-1] // kv_heads != dim:
        raise ShapeError(
            f"[attention] expected heads of one size, but q has {dim} and k "
            f"{k.shape[-1] // kv_heads}"
        )
    if dim > WIDEST:
        raise ShapeError(f"[attention] expected heads of at most {WIDEST}, but got {dim}")
    queries, rows = q.shape[-2], k.shape[-2]
    valid = rows if kv_length is None else rules.integer("attention", "kv_length", kv_length)
    if not 0 <= valid <= rows:
        raise ShapeError(f"[attention] expected kv_length from 0 to {rows}, but got {valid}")
    if window is not None and rules.integer("attention", "window", window) < 1:
        raise ShapeError(f"[attention] expected a window of at least 1, but got {window}")
    facts = {
        "batch": batch,
        "queries": queries,
        "kv_rows": rows,
        "kv_valid": valid,
        "heads": heads,
        "kv_heads": kv_heads,
        "dim": dim,
        "window": min(window or 0, queries + rows),  # a wider one hides nothing either
        "scale": 1 / math.sqrt(max(dim, 1)) if scale is None else scale,
    }
    cast: tuple[np.dtype, ...] = (f32, f32, f32)
    if mask is not None:
        if mask.dtype not in (bool_, f32):
            raise DTypeError(f"[attention] expected a mask of bool or float32, not {mask.dtype}")
        target = (batch, heads, queries, rows)
        if rules.broadcast("attention mask", mask.shape, target) != target:
            raise ShapeError(
                f"[attention] expected a mask that broadcasts to {target}, but got {mask.shape}"
            )
        cast = (*cast, mask.dtype)
    return Result((Spec(q.shape, f32),), cast, narrowed_to(q.dtype), facts)
