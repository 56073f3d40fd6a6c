"""Losses with their gradients in one pass."""

from __future__ import annotations

import numpy as np

from .. import reference, rules
from ..dtypes import WGSL, f32, i32, u32
from ..errors import DTypeError, ShapeError
from ..operation import Job, Kernel, Probe, Result, Spec, operation, pack
from ..tensor import Tensor
from .normalize_grad import row_loops


def _plan(job: Job) -> None:
    logits, labels = job.inputs
    rows, length = logits.shape
    values = {"INDEX": WGSL[labels.dtype]}
    operands = [logits, labels, *job.outputs]
    job.step("cross_entropy", values, operands, pack(rows, length), rows, row_loops(length))


def _probes() -> list[Probe]:
    rng = np.random.default_rng(21)
    made = []
    for kind in (i32, u32):
        logits = rng.normal(0, 3, (6, 1037)).astype(np.float32)
        logits[3] += 1e4
        labels = np.array([0, 1036, 5, 300, 1037, 600]).astype(kind)
        made.append(Probe((logits, labels), {}, 2e-6))
        # One of a row is so large that without it all others would be infinite.
        peaks = rng.normal(0, 3, (300, 257)).astype(np.float32)
        peaks[np.arange(300), rng.permutation(300) % 257] += 300
        places = rng.integers(0, 257, 300).astype(kind)
        made.append(Probe((peaks, places), {}, 2e-6))
        made.append(Probe((logits[:3, :512], labels[:3] % 512), {}, 3e-7))
    return made


def _grad(grad: tuple[Tensor | None, ...], out: tuple[Tensor, ...]) -> Tensor:
    by_loss, by_slope = grad
    if by_slope is not None or by_loss is None:
        raise NotImplementedError("cross_entropy_rows has no second derivative")
    return out[1] * by_loss.reshape(-1, 1)


@operation(
    kernels=[Kernel("cross_entropy_rows", _plan)],
    reference=reference.cross_entropy,
    probes=_probes,
    method=False,
    gradients={"logits": _grad},
)
def cross_entropy_rows(logits: Spec, labels: Spec) -> Result:
    """-log(softmax(logits)[label]) of each row, and its gradient for the logits.

    logits (rows, classes), labels (rows,) int32 or uint32; gives (rows,) and (rows, classes),
    float32. A label out of range gives NaN.
    """
    rules.floats_only("cross_entropy", logits.dtype)
    if labels.dtype not in (i32, u32):
        raise DTypeError(f"[cross_entropy] expected integer labels, but got {labels.dtype}")
    if len(logits.shape) != 2 or labels.shape != logits.shape[:1]:
        raise ShapeError(
            "[cross_entropy] expected logits (..., classes) and labels (...), but got "
            f"{logits.shape} and {labels.shape}"
        )
    if logits.shape[1] == 0:
        raise ShapeError("[cross_entropy] expected at least one class")
    outputs = (Spec(labels.shape, f32), Spec(logits.shape, f32))
    return Result(outputs, (f32, labels.dtype))
