"""Indices and labels, checked where the host knows them."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from . import rules
from .tensor import Tensor


def checked(
    device: Any,
    name: str,
    values: Any,
    length: int,
    of: str,
    what: str = "index",
    least: int = 0,
) -> Tensor:
    """Integers as a tensor, from `least` to below `length`; negative ones count from the end.

    Those from the host raise as rules.host_indices does, also at each replay where a recorded
    step was given them; those that are a tensor already are taken as they are.
    """
    check = functools.partial(
        rules.host_indices, name, length=length, of=of, what=what, least=least
    )
    if not isinstance(values, Tensor):
        array = check(values)
        if least < 0 and array.dtype.kind == "i":
            wide = array.astype(np.int64)  # length need not fit into int8
            array = np.where(wide < 0, wide + length, wide)
        made: Tensor = device.upload(array)
        return made
    storage = values.storage
    if storage.known is None or storage.version:
        return values
    check(storage.known)
    if device.program is not None:
        device.program.checks.append((storage, check))
    if least < 0 and values.dtype.kind == "i":
        values = device.where(values < 0, values + length, values)
    return values
