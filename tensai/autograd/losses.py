"""Losses: one number for how far predictions are from what they should be."""

from __future__ import annotations

from typing import Any

from .. import ops
from ..dtypes import f32
from ..errors import DTypeError, ShapeError
from ..indices import checked
from ..tensor import Tensor


def mse_loss(prediction: Tensor, target: Any) -> Tensor:
    """The mean of (prediction - target)^2, 0-d; target is a tensor or array of the same shape.

    Integers and bools are taken as float32.
    """
    _tensor("mse_loss", "prediction", prediction)
    target = prediction.device.operand(target, prediction)
    if target.shape != prediction.shape:
        raise ShapeError(
            f"[mse_loss] expected a target of shape {prediction.shape}, but got {target.shape}"
        )
    first, second = (
        one if one.dtype.kind == "f" else one.astype(f32) for one in (prediction, target)
    )
    loss: Tensor = (first - second).square().mean()
    return loss


def cross_entropy(logits: Tensor, labels: Any) -> Tensor:
    """The mean of -log(softmax(logits)[label]), 0-d.

    logits (..., classes), labels integers (...). Labels from the host are checked and raise
    IndexError when out of range; those that are a tensor already make the loss NaN there.
    """
    _tensor("cross_entropy", "logits", logits)
    if not logits.ndim:
        raise ShapeError("[cross_entropy] expected logits (..., classes), but got a 0-d tensor")
    classes = logits.shape[-1]
    labels = checked(logits.device, "cross_entropy", labels, classes, f"{classes} classes", "label")
    if labels.shape != logits.shape[:-1]:
        raise ShapeError(
            f"[cross_entropy] expected labels of shape {logits.shape[:-1]}, but got {labels.shape}"
        )
    losses, _ = ops.cross_entropy_rows(
        logits.reshape(labels.size, classes), labels.reshape(labels.size)
    )
    loss: Tensor = losses.mean()
    return loss


def _tensor(name: str, what: str, value: Any) -> None:
    if not isinstance(value, Tensor):
        raise DTypeError(
            f"[{name}] expected {what} as a tensor (device.upload(array)), not a "
            f"{type(value).__name__}"
        )
