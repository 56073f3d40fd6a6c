"""Products of NumPy arrays, on the CPU or on an accelerator where one is set and it is worth it.

tensai.use_accelerator(tensai.open())
c = tensai.matmul(a, b)  # NumPy arrays in and out, wherever it is computed
"""

from __future__ import annotations

import logging
import math
import numbers
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import DeviceLostError
from .thresholds import saved_threshold

if TYPE_CHECKING:
    from .device import Device

Array = np.ndarray[Any, Any]

logger = logging.getLogger("tensai")

DEFAULT_ACCELERATOR_THRESHOLD = 4e8  # multiply-accumulates, where nothing was measured

SIZE_LIMITS = ("maxStorageBufferBindingSize", "maxBufferSize")
F32, F16 = np.dtype(np.float32), np.dtype(np.float16)


class _Troubles:
    """What became of a device's products, whoever asked for them."""

    def __init__(self) -> None:
        self.gone = False
        self._warned = False
        self._lock = threading.Lock()

    def happened(self, device: Device, error: Exception) -> None:
        """Take note of a failure; the first one of a device is worth a warning."""
        with self._lock:
            first, self._warned = not self._warned, True
            self.gone = self.gone or isinstance(error, DeviceLostError)
        log = logger.warning if first else logger.debug
        what = str(error) or type(error).__name__
        log("tensai.matmul runs on the CPU instead of %s: %s", device.name, what)


@dataclass(frozen=True)
class _Accelerator:
    device: Device
    threshold: float
    troubles: _Troubles


_troubles: weakref.WeakKeyDictionary[Device, _Troubles] = weakref.WeakKeyDictionary()
_troubles_lock = threading.Lock()

_everywhere: _Accelerator | None = None
_here: ContextVar[_Accelerator | None] = ContextVar("tensai_accelerator")


def matmul(a: Any, b: Any) -> Any:
    """numpy.matmul(a, b): its broadcasting, shapes, dtypes and errors.

    (..., m, k) @ (..., k, n) -> (..., m, n); batch axes broadcast, and a 1-D operand is a row or
    a column, as in NumPy. The product is NumPy's unless an accelerator is set (use_accelerator,
    accelerated), the result is float32 or float16, and the work comes to at least the
    accelerator's threshold in multiply-accumulates, batch * m * n * k. float64, integers, complex
    and objects always stay with NumPy: acceleration changes the time, never the answer.

    On the accelerator sums are float32, as in NumPy, in another order: within 1e-6 * sqrt(k) of
    the exact answer, relative to its largest element. NaN and infinities come out as NumPy's, but
    without its warnings about them, and where sums leave float32's range on the way, the order
    decides. If the device fails, the product runs on the CPU, with one
    warning for each device.
    """
    accelerator = _here.get(_everywhere)
    if accelerator is not None:
        dtype = _worth(accelerator, a, b)
        if dtype is not None:
            product = _accelerated(accelerator, a, b, dtype)
            if product is not None:
                return product if product.ndim else product[()]
    return np.matmul(a, b)


def use_accelerator(device: Device | None, threshold: float | None = None) -> None:
    """Have every thread's tensai.matmul use a device from now on; None goes back to the CPU.

    `threshold` is how many multiply-accumulates a product must have to go there: 0 sends every
    one, infinity none. Left out, it is what `tensai sweep --save` found for this device on this
    machine, else DEFAULT_ACCELERATOR_THRESHOLD. A software adapter, such as lavapipe, loses to
    NumPy at every size. Raises TypeError for what is no device or no number, and ValueError for a
    threshold below 0.
    """
    global _everywhere
    _everywhere = _checked(device, threshold)


@contextmanager
def accelerated(device: Device | None, threshold: float | None = None) -> Iterator[None]:
    """`with tensai.accelerated(dev): ...` does as use_accelerator, in this block and thread only.

    What held before holds again at its end. Threads started inside, unless they are given this
    one's context, use what use_accelerator says.
    """
    token = _here.set(_checked(device, threshold))
    try:
        yield
    finally:
        _here.reset(token)


def _checked(device: Any, threshold: Any) -> _Accelerator | None:
    from .device import Device  # a program that only multiplies on the CPU needs none of it

    if threshold is not None:
        if isinstance(threshold, bool) or not isinstance(threshold, numbers.Real):
            raise TypeError(
                "threshold is a number of multiply-accumulates, or None for the one measured "
                f"here, not {threshold!r}"
            )
        try:
            threshold = float(threshold)
        except OverflowError:
            threshold = math.inf  # no product is as large either
        if not threshold >= 0:
            raise ValueError(
                f"threshold is a number of multiply-accumulates from 0 up, not {threshold!r}"
            )
    if device is None:
        return None
    if not isinstance(device, Device):
        raise TypeError(f"an accelerator is what tensai.open() gives, or None, not {device!r}")
    if threshold is None:
        threshold = saved_threshold(device)
    if threshold is None:
        threshold = DEFAULT_ACCELERATOR_THRESHOLD
    with _troubles_lock:
        troubles = _troubles.setdefault(device, _Troubles())
    return _Accelerator(device, threshold, troubles)


def _worth(accelerator: _Accelerator, a: Any, b: Any) -> np.dtype[Any] | None:
    """The result's dtype if a product should go to the accelerator, else None.

    What NumPy would refuse does not go there: then NumPy says what is wrong with it.
    """
    device = accelerator.device
    if type(a) not in (np.ndarray, np.memmap) or type(b) not in (np.ndarray, np.memmap):
        return None  # other classes may have a product of their own
    dtype = _result_dtype(a.dtype, b.dtype)
    if dtype is None or not a.ndim or not b.ndim:
        return None
    m, k = (1, *a.shape)[-2:]
    k_b, n = (*b.shape, 1)[:2] if b.ndim == 1 else b.shape[-2:]
    try:
        batch = math.prod(np.broadcast_shapes(a.shape[:-2], b.shape[:-2]))
    except ValueError:
        return None
    work = batch * m * n * k
    if k != k_b or not work or work < accelerator.threshold:
        return None
    if accelerator.troubles.gone or device.program is not None:
        return None  # a program being recorded would take the product in
    largest = 4 * max(a.size, b.size, batch * m * n)  # float16 is computed as float32
    limits = device.limits
    if any(largest > limits.get(name, largest) for name in SIZE_LIMITS):
        return None
    return dtype


def _result_dtype(a: np.dtype[Any], b: np.dtype[Any]) -> np.dtype[Any] | None:
    """NumPy's dtype for a product, where a device computes it as exactly, else None.

    Integers that NumPy joins with a float to float32 or float16 have no more bits than it has.
    """
    if a.kind not in "biuf" or b.kind not in "biuf":
        return None
    dtype = np.promote_types(a, b)
    return dtype if dtype in (F32, F16) else None


def _accelerated(
    accelerator: _Accelerator, a: Array, b: Array, dtype: np.dtype[Any]
) -> Array | None:
    """The product from the device, or None, with a warning, if it fails."""
    device = accelerator.device
    x, y = (array if array.dtype.kind == "f" else array.astype(dtype) for array in (a, b))
    try:
        product = device.matmul(x, y)
        if product.dtype != dtype:
            raise TypeError(f"a product came back as {product.dtype} instead of {dtype}")
        return product
    except Exception as error:
        # Any at all: another thread may have closed the device meanwhile, and where the operands
        # are at fault, NumPy raises what it raises for them.
        accelerator.troubles.happened(device, error)
        return None
