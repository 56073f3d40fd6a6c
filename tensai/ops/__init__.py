"""Every operation as a function of tensors: `tensai.ops.NAME(tensor, ...)`.

Most are methods of Tensor as well. An operation is described in one place: a rule with its
docstring, kernels, a NumPy reference and probes (see tensai/operation.py).
"""

from __future__ import annotations

from typing import Any

from ..operation import OPERATIONS
from . import attention as _attention
from . import conversion as _conversion
from . import elementwise as _elementwise
from . import gather as _gather
from . import matmul as _matmul
from . import movement as _movement
from . import normalize as _normalize
from . import reduction as _reduction

FUNCTIONS: dict[str, Any] = {
    **OPERATIONS,
    **_reduction.REDUCTIONS,
    "sum_cols": _reduction.sum_cols,
    "matmul": _matmul.matmul,
    "matmul_t": _matmul.matmul_t,
    "matmul_tn": _matmul.matmul_tn,
    "reshape": _movement.reshape,
    "permute": _movement.permute,
    "broadcast_to": _movement.broadcast_to,
    "copy": _movement.copy,
}
# The modules above must not hide the operations of the same name.
globals().update(FUNCTIONS)
del _attention, _conversion, _elementwise, _gather, _normalize


def __getattr__(name: str) -> Any:
    raise AttributeError(f"tensai.ops has no operation {name!r}")


def __dir__() -> list[str]:
    return sorted(FUNCTIONS)
