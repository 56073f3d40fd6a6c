"""wgpu-native from Python: compute only, through cffi, for the v22 and v29 C APIs alike.

    library = wgpu_native_py.load()
    adapter = Instance(library).adapters()[0]
    device = adapter.open()

Importing this package loads no library.
"""

from .binding import AdapterInfo
from .buffer import Buffer
from .device import LARGE, Device, Queue, processors
from .encoder import CommandEncoder, QuerySet
from .errors import (
    DeviceLostError,
    DeviceNotFoundError,
    FetchError,
    KernelError,
    LibraryMismatchError,
    LibraryNotFoundError,
    LimitExceededError,
    OutOfDeviceMemoryError,
    ValidationError,
    WgpuError,
)
from .instance import Adapter, Instance
from .library import Library, load
from .pipeline import ComputePipeline, Dispatch
from .replay import Replay
from .signals import uninterrupted

__all__ = [
    "LARGE",
    "Adapter",
    "AdapterInfo",
    "Buffer",
    "CommandEncoder",
    "ComputePipeline",
    "Device",
    "DeviceLostError",
    "DeviceNotFoundError",
    "Dispatch",
    "FetchError",
    "Instance",
    "KernelError",
    "Library",
    "LibraryMismatchError",
    "LibraryNotFoundError",
    "LimitExceededError",
    "OutOfDeviceMemoryError",
    "QuerySet",
    "Queue",
    "Replay",
    "ValidationError",
    "WgpuError",
    "load",
    "processors",
    "uninterrupted",
]
