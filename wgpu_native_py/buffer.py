"""Buffers on a device, and reading them back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .errors import ValidationError
from .signals import uninterrupted

if TYPE_CHECKING:
    from .device import Device


class Buffer:
    """Device memory of a fixed size, released when the last reference goes."""

    __slots__ = ("_release", "device", "groups", "handle", "size")

    def __init__(self, device: Device, size: int, usage: str) -> None:
        if size <= 0 or size % 4:
            raise ValidationError(f"a buffer's size is a positive multiple of 4, not {size}")
        ffi, c = device.library.ffi, device.library.c
        flags = {
            "storage": c.WGPUBufferUsage_Storage
            | c.WGPUBufferUsage_CopySrc
            | c.WGPUBufferUsage_CopyDst,
            "uniform": c.WGPUBufferUsage_Uniform | c.WGPUBufferUsage_CopyDst,
            "write": c.WGPUBufferUsage_MapWrite | c.WGPUBufferUsage_CopySrc,
            "read": c.WGPUBufferUsage_MapRead | c.WGPUBufferUsage_CopyDst,
            "query": c.WGPUBufferUsage_QueryResolve | c.WGPUBufferUsage_CopySrc,
        }
        descriptor = ffi.new("WGPUBufferDescriptor *")
        descriptor.usage = flags[usage]
        descriptor.size = size
        self.device = device
        self.size = size
        self.handle: Any = None
        # Bind groups that hold this buffer: the dict each is kept in, by its id and their key.
        self.groups: dict[tuple[int, Any], dict[Any, Any]] = {}
        with device.lock:
            device.check("before a buffer was created")
            handle = c.wgpuDeviceCreateBuffer(device.handle, descriptor)
            if device.errors:  # the handle is then an invalid object, never NULL
                c.wgpuBufferRelease(handle)
                device.check(f"while a buffer of {size:,} bytes was created")
        self.handle = handle
        self._release = c.wgpuBufferRelease

    def read_into(self, target: Any, size: int) -> None:
        """Wait for the queue and copy the first `size` bytes of a "read" buffer into `target`."""
        device = self.device
        device.settle()
        library = device.library
        padded = size + -size % 4
        with uninterrupted():
            reason = library.binding.map_read(device, self.handle, padded)
            device.check("while results were read back")
            if reason:
                raise ValidationError(
                    f"{device.adapter.info.name} could not map a buffer: {reason}"
                )
            try:
                pointer = library.c.wgpuBufferGetConstMappedRange(self.handle, 0, padded)
                library.ffi.memmove(target, pointer, size)
            finally:
                library.c.wgpuBufferUnmap(self.handle)

    def __del__(self) -> None:
        if getattr(self, "handle", None) is None or self.device.abandoned:
            return
        # A kept bind group would keep the memory.
        for (_, key), kept in self.groups.items():
            group = kept.pop(key, None)
            if group is not None:
                self.device.library.c.wgpuBindGroupRelease(group)
        handle, self.handle = self.handle, None  # a destructor that is later may still use this
        self._release(handle)
