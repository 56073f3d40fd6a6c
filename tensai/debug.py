"""Finding out where numbers go wrong."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from . import operation, ops
from .errors import NaNError
from .tensor import Tensor


class _Mine(threading.local):
    looking = False


_mine = _Mine()


@contextmanager
def nan_check() -> Iterator[None]:
    """Raise NaNError at the first operation inside that makes NaN of tensors without any.

    Checks every operation's result, in every thread, forward and backward: slow, for debugging.
    Recorded steps run as they are meanwhile; a program's own replay() is not looked into.
    """
    watchers = operation.watchers
    watchers.append(_look)
    try:
        yield
    finally:
        watchers.remove(_look)


def _look(done: operation.Operation, inputs: Sequence[Tensor], made: Any) -> None:
    outputs = made if isinstance(made, tuple) else (made,)
    if _mine.looking:
        return
    _mine.looking = True  # at an operation, and not at those that it takes to look
    try:
        spoiled = [output for output in outputs if _has_nan(output)]
        # What was changed in place is its own input, and cannot be blamed for the NaN that it has.
        clean = not any(
            _has_nan(tensor)
            for tensor in inputs
            if all(tensor.storage is not output.storage for output in outputs)
        )
    finally:
        _mine.looking = False
    if spoiled and clean:
        shapes = ", ".join(str(tensor.shape) for tensor in inputs)
        raise NaNError(
            f"{done.name} made NaN, of tensors of shape {shapes} without any; the result has shape "
            f"{spoiled[0].shape}"
        )


def _has_nan(tensor: Tensor) -> bool:
    if tensor.dtype.kind != "f" or not tensor.size:
        return False
    return math.isnan(ops.max(tensor).item())  # a maximum is NaN where there is one
