"""The gradient of scaled dot-product attention."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import reference, rules
from ..dtypes import f32
from ..errors import ShapeError
from ..operation import Kernel, Probe, Result, Spec, composition, operation
from ..tensor import Tensor
from .attending_grad_plans import fits, plan
from .attending_rules import length_tensor, sizes


def _probes() -> list[Probe]:
    rng = np.random.default_rng(23)
    made = []

    def add(queries: int, rows: int, dim: int, mask: str = "", **options: Any) -> None:
        """Two batches of four heads, two of k and v; the last rows of those do not count, or all
        do where the mask is of numbers."""
        valid = rows if mask == "added" else rows - 4
        q, grad = rng.normal(0, 1, (2, 2, queries, 4 * dim)).astype(np.float32)
        k, v = rng.normal(0, 1, (2, 2, rows, 2 * dim)).astype(np.float32)
        k[:, valid:] = np.nan
        v[:, valid:] = np.nan
        grad[1, queries // 2, 0] = np.nan  # which not every row of k and v meets
        length = np.array(valid, np.int32)
        if mask:
            length = np.array(valid, np.uint32) if mask == "bool" else np.array(2**31 - 1, np.int32)
        inputs = [q, k, v, grad, length]
        if mask:
            seen = rng.integers(0, 3, (2, 1, queries, rows)) > 0
            seen[1, 0, queries // 2] = False  # a query that sees nothing
            added = np.where(seen, rng.normal(0, 1, seen.shape), -np.inf).astype(np.float32)
            inputs.append(seen if mask == "bool" else added)
        made.append(Probe(tuple(inputs), {"heads": 4, "kv_heads": 2, **options}, 1e-5))

    for dim in (21, 102, 199):
        add(70, 75, dim, causal=True, window=40)
    for dim in (60, 100, 200):
        add(40, 150, dim, causal=True, window=80)
    add(70, 75, 20, "bool", softcap=2.0)
    add(70, 75, 21, "added", scale=0.05)
    return made


@operation(
    kernels=[Kernel("attention_grad", plan, fits=fits)],
    reference=reference.attention_grad,
    probes=_probes,
    name="attention_grad",
    method=False,
)
def attend_grad(
    q: Spec,
    k: Spec,
    v: Spec,
    grad: Spec,
    kv_length: Spec,
    mask: Spec | None = None,
    heads: int = 1,
    kv_heads: int | None = None,
    causal: bool = False,
    scale: float | None = None,
    window: int | None = None,
    softcap: float | None = None,
) -> Result:
    """The gradient of attention over as many rows as the one element of kv_length says."""
    facts, cast = sizes(
        "attention_grad", q, k, v, kv_length, mask, heads, kv_heads, scale, window, softcap
    )
    rules.floats_only("attention_grad", grad.dtype)
    if grad.shape != q.shape:
        raise ShapeError(
            f"[attention_grad] expected grad of q's shape {q.shape}, but got {grad.shape}"
        )
    outputs = tuple(Spec(like.shape, f32) for like in (q, k, v))
    return Result(outputs, (*cast[:3], f32, *cast[3:]), None, facts)


@composition
def attention_grad(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    grad: Tensor,
    heads: int = 1,
    kv_heads: int | None = None,
    causal: bool = False,
    scale: float | None = None,
    kv_length: int | Tensor | None = None,
    window: int | None = None,
    mask: Tensor | None = None,
    softcap: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients (dq, dk, dv) of q.attention(k, v, ...), for `grad`, its result's.

    grad has q's shape, (batch, queries, heads * dim); the other arguments are those of attention.
    dq, dk and dv have the shapes and dtypes of q, k and v. With s = scale q k^T, capped to
    S = softcap tanh(s / softcap) and masked, and P = softmax(S), for each head (Dao,
    "FlashAttention-2", 2023, section 2.3):

        dP = grad v^T                               dq = dS k scale
        dS = P (dP - rowsum(P dP)) dS/ds            dk = dS^T q scale
        dS/ds = 1 - (S / softcap)^2, or 1           dv = P^T grad

    dk and dv are summed over the heads that share a head of k and v. Scores are computed again and
    never stored: beside its results it needs 16 bytes for each batch, head and query. Rows of k
    and v beyond kv_length get 0, a query that sees nothing gets 0 and adds nothing, and what a
    query does not see, NaN included, never reaches its gradient.

    Raises ShapeError for shapes and numbers that do not fit, DTypeError for other dtypes.
    """
    length = length_tensor("attention_grad", q, k, v, kv_length)
    q, k, v = (length.device.operand(given, length) for given in (q, k, v))
    found = attend_grad(
        q, k, v, grad, length, mask, heads, kv_heads, causal, scale, window, softcap
    )
    dq, dk, dv = (
        one if one.dtype == like.dtype else one.astype(like.dtype)
        for one, like in zip(found, (q, k, v), strict=True)
    )
    return dq, dk, dv
