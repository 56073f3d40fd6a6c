"""What attention and its gradient ask of shapes, dtypes and numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import rules
from ..dtypes import DType, bool_, f32, i32, u32
from ..errors import DTypeError, ShapeError
from ..operation import Spec
from ..tensor import Tensor
from .attending_plans import WIDEST


def sizes(
    operation: str,
    q: Spec,
    k: Spec,
    v: Spec,
    kv_length: Spec,
    mask: Spec | None,
    heads: int,
    kv_heads: int | None,
    scale: float | None,
    window: int | None,
    softcap: float | None,
) -> tuple[dict[str, Any], tuple[DType, ...]]:
    """The facts that plans look at, and the dtypes of q, k, v, the length and the mask.

    Raises ShapeError or DTypeError, in the name of `operation`, for what does not fit.
    """
    rules.floats_only(operation, q.dtype, k.dtype, v.dtype)
    if len(q.shape) not in (2, 3) or len(k.shape) != len(q.shape) or k.shape != v.shape:
        raise ShapeError(
            f"[{operation}] expected q (batch, queries, heads * dim) and k, v (batch, rows, "
            f"kv_heads * dim), but got {q.shape}, {k.shape}, {v.shape}"
        )
    batch = q.shape[0] if len(q.shape) == 3 else 1
    if len(q.shape) == 3 and k.shape[0] != batch:
        raise ShapeError(f"[{operation}] expected one batch, but got {q.shape} and {k.shape}")
    heads = rules.integer(operation, "heads", heads)
    kv_heads = heads if kv_heads is None else rules.integer(operation, "kv_heads", kv_heads)
    if heads < 1 or kv_heads < 1 or heads % kv_heads:
        raise ShapeError(
            f"[{operation}] expected kv_heads to divide heads, but got {kv_heads} and {heads}"
        )
    if q.shape[-1] % heads or k.shape[-1] % kv_heads:
        raise ShapeError(
            f"[{operation}] expected {heads} and {kv_heads} heads to divide the last axes of "
            f"{q.shape} and {k.shape}"
        )
    dim = q.shape[-1] // heads
    if k.shape[-1] // kv_heads != dim:
        raise ShapeError(
            f"[{operation}] expected heads of one size, but q has {dim} and k "
            f"{k.shape[-1] // kv_heads}"
        )
    if dim > WIDEST:
        raise ShapeError(f"[{operation}] expected heads of at most {WIDEST}, but got {dim}")
    queries, rows = q.shape[-2], k.shape[-2]
    if kv_length.size != 1:
        raise ShapeError(
            f"[{operation}] expected a kv_length of one element, but got {kv_length.shape}"
        )
    if kv_length.dtype not in (i32, u32):
        raise DTypeError(
            f"[{operation}] expected a kv_length of int32 or uint32, not {kv_length.dtype}"
        )
    if window is not None and rules.integer(operation, "window", window) < 1:
        raise ShapeError(f"[{operation}] expected a window of at least 1, but got {window}")
    if softcap is not None and not 0 < softcap < math.inf:
        raise ShapeError(f"[{operation}] expected a softcap above 0, but got {softcap}")
    cast: tuple[DType, ...] = (f32, f32, f32, kv_length.dtype)
    if mask is not None:
        if mask.dtype not in (bool_, f32):
            raise DTypeError(f"[{operation}] expected a mask of bool or float32, not {mask.dtype}")
        target = (batch, heads, queries, rows)
        if rules.broadcast(f"{operation} mask", mask.shape, target) != target:
            raise ShapeError(
                f"[{operation}] expected a mask that broadcasts to {target}, but got {mask.shape}"
            )
        cast = (*cast, mask.dtype)
    facts = {
        "batch": batch,
        "queries": queries,
        "kv_rows": rows,
        "heads": heads,
        "kv_heads": kv_heads,
        "dim": dim,
        "window": min(window or 0, queries + rows),  # a wider one hides nothing either
        "scale": 1 / math.sqrt(max(dim, 1)) if scale is None else scale,
    }
    return facts, cast


def length_tensor(
    operation: str, q: Tensor, k: Tensor, v: Tensor, kv_length: int | Tensor | None
) -> Tensor:
    """kv_length as a tensor, so that one plan serves every length."""
    like = next((given for given in (q, k, v) if isinstance(given, Tensor)), None)
    if like is None:
        raise DTypeError(f"[{operation}] expected tensors, but got {type(q).__name__}")
    if isinstance(kv_length, Tensor):
        return kv_length
    shape = k.shape if isinstance(k, Tensor) else np.shape(k)
    rows = shape[-2] if len(shape) > 1 else 0
    valid = rows if kv_length is None else rules.integer(operation, "kv_length", kv_length)
    if not 0 <= valid <= rows:
        raise ShapeError(f"[{operation}] expected kv_length from 0 to {rows}, but got {valid}")
    return like.device.constant(valid, i32)
