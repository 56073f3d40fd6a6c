"""What goes wrong at or below the compute floor; `tensai.errors` builds on these classes."""

__all__ = [
    "DeviceLostError",
    "DeviceNotFoundError",
    "FetchError",
    "KernelError",
    "LibraryMismatchError",
    "LibraryNotFoundError",
    "LimitExceededError",
    "OutOfDeviceMemoryError",
    "ValidationError",
    "WgpuError",
]


class WgpuError(Exception):
    """Base of every error raised by wgpu_native_py."""


class LibraryNotFoundError(WgpuError):
    """No wgpu-native library at the path given, or at any place searched."""


class LibraryMismatchError(WgpuError):
    """The library found is of another C API generation than the one asked for."""


class DeviceNotFoundError(WgpuError):
    """No adapter fits the request, or the adapter refused to give a device."""


class DeviceLostError(WgpuError, RuntimeError):
    """The device went away: a driver reset, a time-out, or a fork of the process."""


class OutOfDeviceMemoryError(WgpuError, MemoryError):
    """The device has no room for an allocation."""


class LimitExceededError(WgpuError, ValueError):
    """A request is beyond one of the device's limits."""


class KernelError(WgpuError, RuntimeError):
    """A shader did not compile, or its pipeline was refused."""


class ValidationError(WgpuError, RuntimeError):
    """The library refused a call as invalid."""


class FetchError(WgpuError):
    """A download, or the unpacking of one, did not succeed; nothing partial is left behind."""
