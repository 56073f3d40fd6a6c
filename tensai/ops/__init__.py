"""Every operation as a function of tensors: `tensai.ops.NAME(tensor, ...)`.

Most are methods of Tensor as well. An operation is described in one place: a rule with its
docstring, kernels, a NumPy reference and probes (see tensai/operation.py).
"""

from __future__ import annotations

from typing import Any

from ..operation import FUNCTIONS
from . import (  # noqa: F401  each registers its operations
    activations,
    attending,
    attending_grad,
    conversion,
    elementwise,
    gather,
    inplace,
    joining,
    losses,
    movement,
    normalize,
    optimizing,
    packed,
    positions,
    products,
    reduction,
    sampling,
)

globals().update(FUNCTIONS)


def __getattr__(name: str) -> Any:
    raise AttributeError(f"tensai.ops has no operation {name!r}")


def __dir__() -> list[str]:
    return sorted(FUNCTIONS)
