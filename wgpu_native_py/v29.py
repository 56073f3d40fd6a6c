"""wgpu-native 29: sized strings, callback infos with a mode, subgroups, trusted modules."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .binding import Answer, Binding, Handle

if TYPE_CHECKING:
    from .device import Device

# A wait looks again at once for this long, then sleeps a part of the time that it took so far. In
# software the sleeps are longer, since each look takes time from what computes.
SPIN, SHORTEST = 2e-4, 5e-5  # seconds
PACE, LONGEST = 1 / 64, 1e-3
SOFTWARE_PACE, SOFTWARE_LONGEST = 1 / 8, 5e-3
# Finding out whether the device is lost costs more, and becomes rarer as well.
LOOK, MOST = 0.01, 0.1  # seconds


class BindingV29(Binding):
    """The C API of wgpu-native 29."""

    api = "v29"
    features = {
        "timestamp-query": "WGPUFeatureName_TimestampQuery",
        "shader-f16": "WGPUFeatureName_ShaderF16",
        "subgroup": "WGPUNativeFeature_Subgroup",
        "subgroup-barrier": "WGPUNativeFeature_SubgroupBarrier",
        "float32-atomic": "WGPUNativeFeature_ShaderFloat32Atomic",
    }
    language = frozenset({"packed-dot"})

    def __init__(self, ffi: Any, c: Any) -> None:
        super().__init__(ffi, c)
        self._on_device = self.callback("WGPURequestDeviceCallback", self._device_requested)
        self._on_mapped = self.callback("WGPUBufferMapCallback", self._mapped)
        self._on_done = self.callback("WGPUQueueWorkDoneCallback", self._work_done)
        self._on_scope = self.callback("WGPUPopErrorScopeCallback", self._scope_popped)

    def callback(self, ctype: str, function: Any) -> Any:
        renamed = {"WGPUErrorCallback": "WGPUUncapturedErrorCallback"}
        return super().callback(renamed.get(ctype, ctype), function)

    def string(self, text: str | None) -> tuple[Any, Any]:
        view = self.ffi.new("WGPUStringView *")
        if text is None:
            return view[0], view
        data = text.encode()
        buffer = self.ffi.new("char[]", data)
        view.data = buffer
        view.length = len(data)
        return view[0], (view, buffer)

    def text(self, value: Any) -> str:
        if not value.data:
            return ""
        return bytes(self.ffi.buffer(value.data, value.length)).decode(errors="replace")

    def _on_error(self, _device: Any, kind: int, message: Any, userdata: Any, _unused: Any) -> None:
        self.record_error(kind, message, userdata)

    def _on_lost(self, _device: Any, reason: int, message: Any, userdata: Any, _: Any) -> None:
        quiet = (
            self.c.WGPUDeviceLostReason_Destroyed,
            self.c.WGPUDeviceLostReason_CallbackCancelled,
        )
        if reason not in quiet:
            self.record_error(self.c.WGPUErrorType_Unknown, message, userdata)

    def instance_flags(self) -> int:
        # Translation layers such as dozen (WSL2) are honest about not being conformant; their
        # results are what counts here, and every kernel is checked on the device anyway.
        return int(self.c.WGPUInstanceFlag_AllowUnderlyingNoncompliantAdapter)

    def _limits_of(self, get: Any, owner: Handle) -> dict[str, int]:
        limits = self.ffi.new("WGPULimits *")
        get(owner, limits)
        return self.read_limits(limits)

    def request_device(
        self, adapter: Handle, features: Sequence[str], limits: dict[str, int], errors: Any
    ) -> tuple[Handle, str]:
        ffi, c = self.ffi, self.c
        required = ffi.new("WGPULimits *")
        self.fill_limits(required, limits)
        wanted = self.feature_array(features)
        descriptor = ffi.new("WGPUDeviceDescriptor *")
        descriptor.requiredFeatureCount = len(features)
        descriptor.requiredFeatures = wanted
        descriptor.requiredLimits = required
        descriptor.deviceLostCallbackInfo.mode = c.WGPUCallbackMode_AllowSpontaneous
        descriptor.deviceLostCallbackInfo.callback = self.on_lost
        descriptor.deviceLostCallbackInfo.userdata1 = errors
        descriptor.uncapturedErrorCallbackInfo.callback = self.on_error
        descriptor.uncapturedErrorCallbackInfo.userdata1 = errors
        answer: list[Any] = []
        handle = ffi.new_handle(answer)
        info = ffi.new("WGPURequestDeviceCallbackInfo *")
        info.mode = c.WGPUCallbackMode_AllowSpontaneous
        info.callback = self._on_device
        info.userdata1 = handle
        c.wgpuAdapterRequestDevice(adapter, descriptor, info[0])
        self.raise_kept()
        status, device, message = answer[0]
        if status != c.WGPURequestDeviceStatus_Success:
            return None, message
        return device, ""

    def _device_requested(
        self, status: int, device: Handle, message: Any, userdata: Any, _unused: Any
    ) -> None:
        self.ffi.from_handle(userdata).append((status, device, self.text(message)))

    def shader_module(self, device: Handle, code: str, label: str, checked: bool) -> Handle:
        ffi, c = self.ffi, self.c
        source = ffi.new("WGPUShaderSourceWGSL *")
        source.chain.sType = c.WGPUSType_ShaderSourceWGSL
        source.code, keep_code = self.string(code)
        descriptor = ffi.new("WGPUShaderModuleDescriptor *")
        descriptor.nextInChain = ffi.addressof(source, "chain")
        descriptor.label, keep_label = self.string(label)
        if checked:
            module = c.wgpuDeviceCreateShaderModule(device, descriptor)
        else:
            module = c.wgpuDeviceCreateShaderModuleTrusted(
                device, descriptor, c.WGPUShaderRuntimeChecks_None
            )
        del keep_code, keep_label
        return module

    def timestamp_writes(self, queries: Handle, begin: int, end: int) -> Any:
        writes = self.ffi.new("WGPUPassTimestampWrites *")
        writes.querySet = queries
        writes.beginningOfPassWriteIndex = begin
        writes.endOfPassWriteIndex = end
        return writes

    def timestamp_period(self, queue: Handle) -> float:
        return float(self.c.wgpuQueueGetTimestampPeriod(queue))

    def map_async(self, buffer: Handle, mode: int, size: int, userdata: Any) -> None:
        info = self.ffi.new("WGPUBufferMapCallbackInfo *")
        info.mode = self.c.WGPUCallbackMode_AllowSpontaneous
        info.callback = self._on_mapped
        info.userdata1 = userdata
        self.c.wgpuBufferMapAsync(buffer, mode, 0, size, info[0])

    def _mapped(self, status: int, message: Any, userdata: Any, _unused: Any) -> None:
        done = status == self.c.WGPUMapAsyncStatus_Success
        self.answer(userdata, "" if done else self.text(message) or f"status {int(status)}")

    def poll(self, device: Device, wait: bool) -> None:
        if not wait:
            self.c.wgpuInstanceProcessEvents(device.adapter.instance.handle)
            self.raise_kept()
            return
        info = self.ffi.new("WGPUQueueWorkDoneCallbackInfo *")
        info.mode = self.c.WGPUCallbackMode_AllowSpontaneous
        info.callback = self._on_done
        answer = self.ask()
        info.userdata1 = answer.handle
        self.c.wgpuQueueOnSubmittedWorkDone(device.queue.handle, info[0])
        self.wait_for(device, answer)

    def _work_done(self, status: int, _message: Any, userdata: Any, _unused: Any) -> None:
        self.answer(userdata, "")

    def wait_for(self, device: Device, answer: Answer) -> None:
        # wgpuDevicePoll would wait by itself, but ends the process where the device is lost.
        events, instance = self.c.wgpuInstanceProcessEvents, device.adapter.instance.handle
        start = time.perf_counter()
        look = LOOK
        pace, longest = PACE, LONGEST
        if device.adapter.info.type == "software":
            pace, longest = SOFTWARE_PACE, SOFTWARE_LONGEST
        events(instance)
        while answer.reason() is None and not self.kept:
            waited = time.perf_counter() - start
            if waited > look:
                look += min(look, MOST)
                self.notice_loss(device)
                if device.errors:
                    break
            if waited > SPIN:
                time.sleep(min(max(waited * pace, SHORTEST), longest))
            events(instance)
        self.raise_kept()

    def notice_loss(self, device: Device) -> None:
        # Processing events finds out without a word; then nothing more can be created.
        self.c.wgpuInstanceProcessEvents(device.adapter.instance.handle)
        layout = self.bind_group_layout(device.handle, [])
        self.c.wgpuBindGroupLayoutRelease(layout)

    def pop_error_scope(self, device: Handle) -> tuple[int, str]:
        answer: list[tuple[int, str]] = []
        handle = self.ffi.new_handle(answer)
        info = self.ffi.new("WGPUPopErrorScopeCallbackInfo *")
        info.mode = self.c.WGPUCallbackMode_AllowSpontaneous
        info.callback = self._on_scope
        info.userdata1 = handle
        self.c.wgpuDevicePopErrorScope(device, info[0])
        if not answer or answer[0][0] == self.c.WGPUErrorType_NoError:
            return 0, ""
        return answer[0]

    def _scope_popped(
        self, _status: int, kind: int, message: Any, userdata: Any, _unused: Any
    ) -> None:
        self.ffi.from_handle(userdata).append((int(kind), self.text(message)))
