"""What both generations of the C API share, and the list of what each must say for itself."""

from __future__ import annotations

import atexit
import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .device import Device

Handle = Any  # a cffi handle or pointer; opaque outside this package


@dataclass(frozen=True)
class AdapterInfo:
    """What an adapter says of itself."""

    name: str
    vendor: str
    driver: str
    backend: str  # "Vulkan", "Metal", "D3D12" or "OpenGL"
    type: str  # "discrete", "integrated", "software" or "unknown"
    vendor_id: int
    device_id: int


class Answer:
    """What a callback will answer."""

    def __init__(self) -> None:
        self.handle: Any = None  # what the callback is given to find this by
        self.failure: str | None = None

    def reason(self) -> str | None:
        """None while it is not known, "" once it is done, or why it is not."""
        return self.failure


class Binding(ABC):
    """One generation's C API behind one set of Python methods.

    A method stands here when both generations do it alike; v22.py and v29.py hold the rest.
    Nothing in here checks for errors: that is device.py's business, in one place.
    """

    api: str
    # The names that requests for features use, and the C constants they stand for.
    features: dict[str, str]
    # What kernels of every device may use, beyond what both generations have: "packed-dot" is
    # WGSL's dot4I8Packed.
    language: frozenset[str] = frozenset()

    def __init__(self, ffi: Any, c: Any) -> None:
        self.ffi = ffi
        self.c = c
        self._callbacks: list[Any] = []  # C keeps only the address
        self.kept: list[BaseException] = []  # raised inside callbacks
        # Callbacks may come long after a wait was given up, or its buffer released.
        self._asked: set[Answer] = set()
        self.on_error = self.callback("WGPUErrorCallback", self._on_error)
        self.on_lost = self.callback("WGPUDeviceLostCallback", self._on_lost)

    # Strings and callbacks -----------------------------------------------------------------

    def callback(self, ctype: str, function: Any) -> Any:
        """A C callback that lives as long as the binding.

        What it raises, Ctrl-C most of all, can't pass through C: it is kept for raise_kept().
        """
        callback = self.ffi.callback(
            ctype, function, onerror=lambda _kind, raised, _trace: self.kept.append(raised)
        )
        self._callbacks.append(callback)
        return callback

    @abstractmethod
    def string(self, text: str | None) -> tuple[Any, Any]:
        """(what a descriptor's string field takes, what must stay alive meanwhile)."""

    @abstractmethod
    def text(self, value: Any) -> str:
        """A C string as Python text."""

    @abstractmethod
    def _on_error(self, *arguments: Any) -> None: ...

    @abstractmethod
    def _on_lost(self, *arguments: Any) -> None: ...

    def raise_kept(self) -> None:
        """Raise what a callback raised; its own work may then be undone."""
        if self.kept:
            raised = self.kept[0]
            self.kept.clear()
            raise raised

    def record_error(self, kind: int, message: Any, userdata: Any) -> None:
        # Called on the calling thread with the library's lock held: it may only append.
        self.ffi.from_handle(userdata).append((int(kind), self.text(message)))

    def route_log(self, logger: logging.Logger) -> None:
        """Send the library's warnings and errors to `logger`.

        As debug messages: what is wrong for a caller is raised as an exception, with the same text.
        """

        def on_log(_level: int, message: Any, _userdata: Any) -> None:
            logger.debug("%s", self.text(message))

        self.c.wgpuSetLogCallback(self.callback("WGPULogCallback", on_log), self.ffi.NULL)
        self.c.wgpuSetLogLevel(self.c.WGPULogLevel_Warn)
        # A driver thread that logs while the interpreter goes down would call into nothing.
        atexit.register(self.c.wgpuSetLogLevel, self.c.WGPULogLevel_Off)

    # Instances and adapters ----------------------------------------------------------------

    def create_instance(self) -> Handle:
        """An instance over Vulkan, Metal and D3D12.

        OpenGL is left out: it shows the same software adapter twice and has no compute worth it.
        """
        ffi, c = self.ffi, self.c
        extras = ffi.new("WGPUInstanceExtras *")
        extras.chain.sType = c.WGPUSType_InstanceExtras
        extras.backends = self.primary_backends()
        extras.flags = self.instance_flags()
        descriptor = ffi.new("WGPUInstanceDescriptor *")
        descriptor.nextInChain = ffi.addressof(extras, "chain")
        return c.wgpuCreateInstance(descriptor)

    def primary_backends(self) -> int:
        c = self.c
        return int(
            c.WGPUInstanceBackend_Vulkan | c.WGPUInstanceBackend_Metal | c.WGPUInstanceBackend_DX12
        )

    @abstractmethod
    def instance_flags(self) -> int: ...

    def adapters(self, instance: Handle) -> list[Handle]:
        options = self.ffi.new("WGPUInstanceEnumerateAdapterOptions *")
        options.backends = self.primary_backends()
        count = self.c.wgpuInstanceEnumerateAdapters(instance, options, self.ffi.NULL)
        if count == 0:
            return []
        handles = self.ffi.new("WGPUAdapter[]", count)
        count = self.c.wgpuInstanceEnumerateAdapters(instance, options, handles)
        return list(handles[0:count])

    def adapter_info(self, adapter: Handle) -> AdapterInfo:
        ffi, c = self.ffi, self.c
        raw = ffi.new("WGPUAdapterInfo *")
        c.wgpuAdapterGetInfo(adapter, raw)
        backends = {
            c.WGPUBackendType_Vulkan: "Vulkan",
            c.WGPUBackendType_Metal: "Metal",
            c.WGPUBackendType_D3D12: "D3D12",
        }
        types = {
            c.WGPUAdapterType_DiscreteGPU: "discrete",
            c.WGPUAdapterType_IntegratedGPU: "integrated",
            c.WGPUAdapterType_CPU: "software",
        }
        info = AdapterInfo(
            name=self.text(raw.device),
            vendor=self.text(raw.vendor),
            driver=self.text(raw.description),
            backend=backends.get(raw.backendType, "OpenGL"),
            type=types.get(raw.adapterType, "unknown"),
            vendor_id=int(raw.vendorID),
            device_id=int(raw.deviceID),
        )
        c.wgpuAdapterInfoFreeMembers(raw[0])
        return info

    def adapter_limits(self, adapter: Handle) -> dict[str, int]:
        return self._limits_of(self.c.wgpuAdapterGetLimits, adapter)

    def device_limits(self, device: Handle) -> dict[str, int]:
        return self._limits_of(self.c.wgpuDeviceGetLimits, device)

    @abstractmethod
    def _limits_of(self, get: Any, owner: Handle) -> dict[str, int]: ...

    def adapter_features(self, adapter: Handle) -> set[str]:
        return self._features_of(self.c.wgpuAdapterHasFeature, adapter)

    def device_features(self, device: Handle) -> set[str]:
        # An unknown feature number is ignored silently, so what was granted is asked for again.
        return self._features_of(self.c.wgpuDeviceHasFeature, device) | self.language

    def _features_of(self, has: Any, owner: Handle) -> set[str]:
        return {
            name
            for name, constant in self.features.items()
            if has(owner, self.feature(constant)) & 0xFF
        }

    def feature(self, constant: str) -> Any:
        return self.ffi.cast("WGPUFeatureName", int(getattr(self.c, constant)))

    def feature_array(self, names: Sequence[str]) -> Any:
        return self.ffi.new(
            "WGPUFeatureName[]", [int(getattr(self.c, self.features[name])) for name in names]
        )

    @abstractmethod
    def request_device(
        self, adapter: Handle, features: Sequence[str], limits: dict[str, int], errors: Any
    ) -> tuple[Handle, str]:
        """(device, "") or (None, why not). `errors` is the ffi handle of the error list."""

    def fill_limits(self, target: Any, limits: dict[str, int]) -> None:
        # Where an adapter has no limit it reports the largest integer. To ask for that means to ask
        # for the default, 256 MiB a buffer; one less means what the adapter has.
        for name, field in self.ffi.typeof("WGPULimits").fields:
            if name in limits:
                largest = 2 ** (8 * self.ffi.sizeof(field.type)) - 1
                setattr(target, name, min(limits[name], largest - 1))

    def read_limits(self, source: Any) -> dict[str, int]:
        fields = self.ffi.typeof("WGPULimits").fields
        return {name: int(getattr(source, name)) for name, _ in fields if name != "nextInChain"}

    # Shaders and pipelines -----------------------------------------------------------------

    @abstractmethod
    def shader_module(self, device: Handle, code: str, label: str, checked: bool) -> Handle: ...

    def bind_group_layout(self, device: Handle, kinds: Sequence[tuple[int, str]]) -> Handle:
        """A layout of (binding number, "read" | "read_write" | "uniform")."""
        ffi, c = self.ffi, self.c
        types = {
            "read": c.WGPUBufferBindingType_ReadOnlyStorage,
            "read_write": c.WGPUBufferBindingType_Storage,
            "uniform": c.WGPUBufferBindingType_Uniform,
        }
        entries = ffi.new("WGPUBindGroupLayoutEntry[]", max(len(kinds), 1))
        for entry, (binding, kind) in zip(entries, kinds, strict=False):
            entry.binding = binding
            entry.visibility = c.WGPUShaderStage_Compute
            entry.buffer.type = types[kind]
        descriptor = ffi.new("WGPUBindGroupLayoutDescriptor *")
        descriptor.entryCount = len(kinds)
        descriptor.entries = entries
        return c.wgpuDeviceCreateBindGroupLayout(device, descriptor)

    def pipeline_layout(self, device: Handle, group: Handle) -> Handle:
        ffi = self.ffi
        groups = ffi.new("WGPUBindGroupLayout[]", [group])
        descriptor = ffi.new("WGPUPipelineLayoutDescriptor *")
        descriptor.bindGroupLayoutCount = 1
        descriptor.bindGroupLayouts = groups
        return self.c.wgpuDeviceCreatePipelineLayout(device, descriptor)

    def compute_pipeline(
        self, device: Handle, layout: Handle, module: Handle, entry: str, label: str
    ) -> Handle:
        descriptor = self.ffi.new("WGPUComputePipelineDescriptor *")
        descriptor.label, keep_label = self.string(label)
        descriptor.layout = layout
        descriptor.compute.module = module
        descriptor.compute.entryPoint, keep_entry = self.string(entry)
        pipeline = self.c.wgpuDeviceCreateComputePipeline(device, descriptor)
        del keep_label, keep_entry
        return pipeline

    # Queries, mapping, scopes --------------------------------------------------------------

    def query_set(self, device: Handle, count: int) -> Handle:
        descriptor = self.ffi.new("WGPUQuerySetDescriptor *")
        descriptor.type = self.c.WGPUQueryType_Timestamp
        descriptor.count = count
        return self.c.wgpuDeviceCreateQuerySet(device, descriptor)

    @abstractmethod
    def timestamp_writes(self, queries: Handle, begin: int, end: int) -> Any: ...

    @abstractmethod
    def timestamp_period(self, queue: Handle) -> float:
        """Nanoseconds a tick."""

    def map_read(self, device: Device, buffer: Handle, size: int) -> str:
        """Map a buffer for reading and wait for it; "" or why it failed."""
        answer = self.start_map(buffer, False, size)
        self.wait_for(device, answer)
        reason = answer.reason()
        return "no answer from the device" if reason is None else reason

    def start_map(self, buffer: Handle, write: bool, size: int) -> Answer:
        """Begin to map the start of a buffer; some later poll() brings the answer."""
        answer = self.ask()
        mode = self.c.WGPUMapMode_Write if write else self.c.WGPUMapMode_Read
        self.map_async(buffer, mode, size, answer.handle)
        return answer

    @abstractmethod
    def map_async(self, buffer: Handle, mode: int, size: int, userdata: Any) -> None: ...

    def ask(self) -> Answer:
        answer = Answer()
        answer.handle = self.ffi.new_handle(answer)
        self._asked.add(answer)
        return answer

    def answer(self, userdata: Any, failure: str) -> None:
        answer: Answer = self.ffi.from_handle(userdata)
        answer.failure, answer.handle = failure, None
        self._asked.discard(answer)

    @abstractmethod
    def pop_error_scope(self, device: Handle) -> tuple[int, str]:
        """(error type, message) of the innermost scope; type 0 when it caught nothing."""

    @abstractmethod
    def wait_for(self, device: Device, answer: Answer) -> None:
        """Process finished work until there is an answer, or the device is lost."""

    @abstractmethod
    def poll(self, device: Device, wait: bool) -> None:
        """Process finished work; with `wait`, until there is none left or the device is lost."""

    @abstractmethod
    def notice_loss(self, device: Device) -> None:
        """Have it among the device's errors if it is lost, where that can be found out."""
