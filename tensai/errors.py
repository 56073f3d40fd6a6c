"""What tensai raises. Errors that the GPU library gives keep their class from the floor below."""

from __future__ import annotations

from wgpu_native_py.errors import (
    DeviceLostError,
    DeviceNotFoundError,
    FetchError,
    KernelError,
    LibraryMismatchError,
    LibraryNotFoundError,
    LimitExceededError,
    OutOfDeviceMemoryError,
    ValidationError,
)
from wgpu_native_py.errors import WgpuError as TensaiError


class ShapeError(TensaiError, ValueError):
    """Shapes do not fit an operation."""


class DTypeError(TensaiError, TypeError):
    """A dtype does not fit an operation, or tensai has no such dtype."""


class TensorFreedError(TensaiError, RuntimeError):
    """A tensor was used after its free()."""


class DeviceMismatchError(TensaiError, ValueError):
    """Tensors of different devices met in one operation."""


class ModelError(TensaiError, ValueError):
    """A model's files are missing, damaged, or of a kind that tensai does not run."""


class GradientError(TensaiError, RuntimeError):
    """A backward pass cannot be made."""


class NaNError(TensaiError, FloatingPointError):
    """An operation made NaN of numbers, while tensai.debug.nan_check() watched."""


__all__ = [
    "DTypeError",
    "DeviceLostError",
    "DeviceMismatchError",
    "DeviceNotFoundError",
    "FetchError",
    "GradientError",
    "KernelError",
    "LibraryMismatchError",
    "LibraryNotFoundError",
    "LimitExceededError",
    "ModelError",
    "NaNError",
    "OutOfDeviceMemoryError",
    "ShapeError",
    "TensaiError",
    "TensorFreedError",
    "ValidationError",
]
