"""Instances and adapters: what there is to compute on."""

from __future__ import annotations

import os
import sys
from typing import Any

from .binding import AdapterInfo
from .device import FORKED, Device, _alive
from .errors import DeviceNotFoundError
from .library import Library

# Asked for where the adapter lists them. CooperativeMatrix stands nowhere here on purpose: 29.0.1.1
# lists it and then refuses to create a device with it.
WANTED_FEATURES = (
    "timestamp-query",
    "subgroup",
    "subgroup-barrier",
    "shader-f16",
    "float32-atomic",
)


class Instance:
    """A wgpu instance over Vulkan, Metal and D3D12."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self._process = os.getpid()
        # Whether this process was forked from one that had opened devices already.
        self.forked = any(device.abandoned for device in _alive)
        c, process = library.c, self._process

        def release(handle: Any) -> None:
            # At the end of the process the library may be gone already.
            if os.getpid() == process and not sys.is_finalizing():
                c.wgpuInstanceRelease(handle)

        # Not by a destructor of this class: the collector may come to that before it comes to a
        # device, which needs the instance until it is closed.
        self.handle = library.ffi.gc(library.binding.create_instance(), release)

    def adapters(self) -> list[Adapter]:
        """Every adapter, in the driver's order; [] when there is none."""
        handles = self.library.binding.adapters(self.handle)
        return [Adapter(self, handle) for handle in handles]

    def report(self) -> dict[str, int]:
        """How many native objects of each kind this instance keeps alive."""
        ffi = self.library.ffi
        report = ffi.new("WGPUGlobalReport *")
        self.library.c.wgpuGenerateReport(self.handle, report)
        counts: dict[str, int] = {}
        fields = dict(ffi.typeof("WGPUGlobalReport").fields)
        hubs = [name for name in fields if name in ("hub", "vulkan", "metal", "dx12")]
        for hub in hubs:
            for name, _ in ffi.typeof("WGPUHubReport").fields:
                registry = getattr(getattr(report, hub), name)
                counts[name] = counts.get(name, 0) + int(registry.numAllocated)
        return counts

    @property
    def owned(self) -> bool:
        """Whether this process made it, so that its handles may be released here."""
        return self._process == os.getpid()


class Adapter:
    """A GPU, or a software one, as one driver offers it."""

    def __init__(self, instance: Instance, handle: Any) -> None:
        self.instance = instance
        self._handle = handle
        binding = instance.library.binding
        self.info: AdapterInfo = binding.adapter_info(handle)
        self.limits: dict[str, int] = binding.adapter_limits(handle)
        self.features: set[str] = binding.adapter_features(handle)

    def open(self) -> Device:
        """A device with every feature of WANTED_FEATURES that works, and the adapter's limits."""
        binding = self.instance.library.binding
        errors: list[tuple[int, str]] = []
        handle = self.instance.library.ffi.new_handle(errors)
        wanted = [name for name in WANTED_FEATURES if name in self.features]
        reason = ""
        # A driver may list a feature and still refuse it: drop them from the least needed on.
        for count in range(len(wanted), -1, -1):
            device, reason = binding.request_device(
                self._handle, wanted[:count], self.limits, handle
            )
            if device is not None:
                return Device(self, device, errors, handle)
        if self.instance.forked:
            reason = f"{FORKED} ({reason.strip()})"
        raise DeviceNotFoundError(f"{self.info.name} refused to open a device: {reason}")

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None and self.instance.owned:
            handle, self._handle = self._handle, None
            self.instance.library.c.wgpuAdapterRelease(handle)
