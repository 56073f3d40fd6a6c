"""wgpu-native 22: C strings, callbacks with one userdata, limits in wrapper structures.

Its compute passes have no push constants, its shader modules are always checked, and it has no
subgroups and no f16 in shaders (the adapter lists the feature, but WGSL's `enable` is unknown).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .binding import Answer, Binding, Handle

if TYPE_CHECKING:
    from .device import Device


class BindingV22(Binding):
    """The C API of wgpu-native 22.1."""

    api = "v22"
    features = {"timestamp-query": "WGPUFeatureName_TimestampQuery"}

    def __init__(self, ffi: Any, c: Any) -> None:
        super().__init__(ffi, c)
        self._on_device = self.callback("WGPUAdapterRequestDeviceCallback", self._device_requested)
        self._on_mapped = self.callback("WGPUBufferMapAsyncCallback", self._mapped)

    def string(self, text: str | None) -> tuple[Any, Any]:
        if text is None:
            return self.ffi.NULL, None
        data = self.ffi.new("char[]", text.encode())
        return data, data

    def text(self, value: Any) -> str:
        return self.ffi.string(value).decode(errors="replace") if value else ""

    def _on_error(self, kind: int, message: Any, userdata: Any) -> None:
        self.record_error(kind, message, userdata)

    def _on_lost(self, reason: int, message: Any, userdata: Any) -> None:
        if reason != self.c.WGPUDeviceLostReason_Destroyed:
            self.record_error(self.c.WGPUErrorType_DeviceLost, message, userdata)

    def instance_flags(self) -> int:
        return int(self.c.WGPUInstanceFlag_Default)

    def _limits_of(self, get: Any, owner: Handle) -> dict[str, int]:
        supported = self.ffi.new("WGPUSupportedLimits *")
        get(owner, supported)
        return self.read_limits(supported.limits)

    def request_device(
        self, adapter: Handle, features: Sequence[str], limits: dict[str, int], errors: Any
    ) -> tuple[Handle, str]:
        ffi = self.ffi
        required = ffi.new("WGPURequiredLimits *")
        self.fill_limits(required.limits, limits)
        wanted = self.feature_array(features)
        descriptor = ffi.new("WGPUDeviceDescriptor *")
        descriptor.requiredFeatureCount = len(features)
        descriptor.requiredFeatures = wanted
        descriptor.requiredLimits = required
        descriptor.deviceLostCallback = self.on_lost
        descriptor.deviceLostUserdata = errors
        descriptor.uncapturedErrorCallbackInfo.callback = self.on_error
        descriptor.uncapturedErrorCallbackInfo.userdata = errors
        answer: list[Any] = []
        handle = ffi.new_handle(answer)
        self.c.wgpuAdapterRequestDevice(adapter, descriptor, self._on_device, handle)
        self.raise_kept()
        status, device, message = answer[0]
        if status != self.c.WGPURequestDeviceStatus_Success:
            return None, message
        return device, ""

    def _device_requested(self, status: int, device: Handle, message: Any, userdata: Any) -> None:
        self.ffi.from_handle(userdata).append((status, device, self.text(message)))

    def shader_module(self, device: Handle, code: str, label: str, checked: bool) -> Handle:
        ffi = self.ffi
        source = ffi.new("WGPUShaderModuleWGSLDescriptor *")
        source.chain.sType = self.c.WGPUSType_ShaderModuleWGSLDescriptor
        source.code, keep_code = self.string(code)
        descriptor = ffi.new("WGPUShaderModuleDescriptor *")
        descriptor.nextInChain = ffi.addressof(source, "chain")
        descriptor.label, keep_label = self.string(label)
        module = self.c.wgpuDeviceCreateShaderModule(device, descriptor)
        del keep_code, keep_label
        return module

    def timestamp_writes(self, queries: Handle, begin: int, end: int) -> Any:
        writes = self.ffi.new("WGPUComputePassTimestampWrites *")
        writes.querySet = queries
        writes.beginningOfPassWriteIndex = begin
        writes.endOfPassWriteIndex = end
        return writes

    def timestamp_period(self, queue: Handle) -> float:
        # This generation has no call for it; one nanosecond a tick is right on NVIDIA and lavapipe.
        return 1.0

    def map_async(self, buffer: Handle, mode: int, size: int, userdata: Any) -> None:
        self.c.wgpuBufferMapAsync(buffer, mode, 0, size, self._on_mapped, userdata)

    def _mapped(self, status: int, userdata: Any) -> None:
        done = status == self.c.WGPUBufferMapAsyncStatus_Success
        self.answer(userdata, "" if done else f"status {int(status)}")

    def poll(self, device: Device, wait: bool) -> None:
        self.c.wgpuDevicePoll(device.handle, wait, self.ffi.NULL)
        self.raise_kept()

    def wait_for(self, device: Device, answer: Answer) -> None:
        self.poll(device, wait=True)

    def notice_loss(self, device: Device) -> None:
        # Every call of this generation that would find out ends the process instead.
        pass

    def pop_error_scope(self, device: Handle) -> tuple[int, str]:
        answer: list[tuple[int, str]] = []
        handle = self.ffi.new_handle(answer)
        self.c.wgpuDevicePopErrorScope(device, self.on_error, handle)
        if not answer or answer[0][0] == self.c.WGPUErrorType_NoError:
            return 0, ""
        return answer[0]
