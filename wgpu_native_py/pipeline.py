"""Compute pipelines, and dispatches prepared for recording.

A WGSL source says `var<params> name: Struct;` and never knows how its parameters arrive: in a
uniform buffer after the last binding, which is a C call less than v29's immediates take.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .errors import KernelError, LimitExceededError

if TYPE_CHECKING:
    from .buffer import Buffer
    from .device import Device

DEEPEST = 200  # brackets within brackets: the parser recurses, and a few thousand end the process
GROUPS_KEPT = 8  # bind groups of one dispatch: a loop alternates between a few buffers

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_VARIABLE = re.compile(
    r"((?:@\w+\s*\([^)]*\)\s*)+)var\s*<\s*(storage|uniform)\s*(?:,\s*(read_write|read)\s*)?>"
)
_ATTRIBUTE = re.compile(r"@(group|binding)\s*\(\s*(\d+)\s*[ui]?\s*,?\s*\)")
_BRACKET = re.compile(r"[()\[\]{}]")
_WORKGROUP = re.compile(r"var\s*<\s*workgroup\s*>\s*\w+\s*:\s*([^;]+);")
_CONSTANT = re.compile(r"const\s+(\w+)\s*(?::\s*\w+\s*)?=\s*(0x[0-9a-fA-F]+|\d+)[ui]?\s*;")
_ARRAY = re.compile(r"array\s*<\s*(.+),\s*(\w+)\s*,?\s*>")
_VECTOR = re.compile(r"vec([234])(?:\s*<\s*(?:f32|i32|u32)\s*>|[fiu])")
_SCALARS = ("f32", "i32", "u32", "bool", "atomic<u32>", "atomic<i32>")
_PARAMS = re.compile(r"var\s*<\s*params\s*>")


def place_params(wgsl: str, declaration: str) -> str:
    """A source with its `var<params>` declared as, say, "@group(0) @binding(3) var<uniform>"."""
    return _PARAMS.sub(declaration, wgsl)


def bindings(wgsl: str) -> list[tuple[int, str]]:
    """The (binding number, "read" | "read_write" | "uniform") of each variable in group 0."""
    found = []
    for attributes, space, access in _VARIABLE.findall(_COMMENT.sub(" ", wgsl)):
        numbers = {name: int(number) for name, number in _ATTRIBUTE.findall(attributes)}
        if numbers.keys() != {"group", "binding"} or numbers["group"] != 0:
            raise KernelError(
                f"a kernel's buffers are declared as @group(0) @binding(number), not "
                f"{attributes.strip()!r}"
            )
        kind = "uniform" if space == "uniform" else access or "read"
        found.append((numbers["binding"], kind))
    found.sort()
    if len({number for number, _ in found}) < len(found):
        raise KernelError(f"two variables of the kernel share a binding: {found}")
    return found


def nesting(wgsl: str) -> int:
    """How deep a source's brackets are nested."""
    depth = deepest = 0
    for bracket in _BRACKET.findall(wgsl):
        depth += 1 if bracket in "([{" else -1
        deepest = max(deepest, depth)
    return deepest


def workgroup_bytes(wgsl: str) -> int:
    """The workgroup memory that a source declares, as far as it is plain to see.

    Variables of scalars, vectors and arrays of them with literal or constant lengths count; a
    structure does not.
    """
    code = _COMMENT.sub(" ", wgsl)
    constants = {name: int(value, 0) for name, value in _CONSTANT.findall(code)}
    total = 0
    for declared in _WORKGROUP.findall(code):
        count = 1
        element = declared.strip()
        while array := _ARRAY.fullmatch(element):
            element, length = array[1].strip(), array[2].rstrip("ui")
            known = constants.get(array[2])
            count *= known if known is not None else int(length, 0) if length[:1].isdigit() else 0
        vector = _VECTOR.fullmatch(element)
        words = {"2": 2, "3": 4, "4": 4}[vector[1]] if vector else int(element in _SCALARS)
        total += 4 * words * count
    return total


class ComputePipeline:
    """A compiled kernel."""

    def __init__(
        self, device: Device, wgsl: str, params_size: int, entry: str, label: str, checked: bool
    ) -> None:
        binding, c = device.library.binding, device.library.c
        self.device = device
        self.label = label
        if "\0" in wgsl or nesting(wgsl) > DEEPEST:
            raise KernelError(
                f"kernel {label!r} holds a NUL character, or brackets nested more than "
                f"{DEEPEST} deep, which the library's parser does not survive"
            )
        self.params_size = params_size
        layout = bindings(wgsl)
        if params_size:
            number = layout[-1][0] + 1 if layout else 0
            wgsl = place_params(wgsl, f"@group(0) @binding({number}) var<uniform>")
            layout.append((number, "uniform"))
        self.bindings = [number for number, kind in layout]
        storage = sum(kind != "uniform" for _, kind in layout)
        if storage > device.limits["maxStorageBuffersPerShaderStage"]:
            raise LimitExceededError(
                f"kernel {label!r} binds {storage} buffers; {device.adapter.info.name} allows "
                f"{device.limits['maxStorageBuffersPerShaderStage']}"
            )
        memory = workgroup_bytes(wgsl)
        if memory > device.limits["maxComputeWorkgroupStorageSize"]:
            # The library does not report it, and what a driver then does is anything.
            raise LimitExceededError(
                f"kernel {label!r} declares {memory:,} bytes of workgroup memory; "
                f"{device.adapter.info.name} allows "
                f"{device.limits['maxComputeWorkgroupStorageSize']:,}"
            )
        with device.lock:
            device.check("before a kernel was compiled")
            module = binding.shader_module(device.handle, wgsl, label, checked)
            try:
                if device.errors:
                    device.check(f"to compile kernel {label!r}", KernelError)
                self.group_layout = binding.bind_group_layout(device.handle, layout)
                self._layout = binding.pipeline_layout(device.handle, self.group_layout)
                self.handle = binding.compute_pipeline(
                    device.handle, self._layout, module, entry, label
                )
            finally:
                c.wgpuShaderModuleRelease(module)
            if device.errors:
                device.check(f"to create the pipeline of kernel {label!r}", KernelError)

    def dispatch(
        self,
        workgroups: tuple[int, int, int],
        params: bytes = b"",
        sizes: Sequence[int] | None = None,
    ) -> Dispatch:
        """This kernel over `workgroups`, with its parameters, ready to be recorded.

        `sizes` are the bytes of each buffer that the kernel gets to see, all of them if left out.
        """
        return Dispatch(self, workgroups, params, sizes)

    def __del__(self) -> None:
        if self.device.abandoned:
            return
        c = self.device.library.c
        handle, self.handle = getattr(self, "handle", None), None
        if handle is not None:
            c.wgpuComputePipelineRelease(handle)
        if hasattr(self, "_layout"):
            c.wgpuPipelineLayoutRelease(self._layout)
        group_layout, self.group_layout = getattr(self, "group_layout", None), None
        if group_layout is not None:
            c.wgpuBindGroupLayoutRelease(group_layout)


class Dispatch:
    """A pipeline, its parameters and its workgroup counts.

    Everything that does not change between recordings is laid out in C structures once, and the
    latest bind groups are kept, so that recording costs three C calls and a look-up.
    """

    __slots__ = (
        "_descriptor",
        "_entries",
        "_slots",
        "_uniform",
        "groups",
        "pipeline",
        "workgroups",
    )

    def __init__(
        self,
        pipeline: ComputePipeline,
        workgroups: tuple[int, int, int],
        params: bytes,
        sizes: Sequence[int] | None,
    ) -> None:
        device = pipeline.device
        ffi = device.library.ffi
        most = device.limits["maxComputeWorkgroupsPerDimension"]
        if any(count > most or count < 1 for count in workgroups):
            raise LimitExceededError(
                f"kernel {pipeline.label!r} was dispatched over {workgroups} workgroups; each "
                f"count is 1 to {most:,}"
            )
        if len(params) != pipeline.params_size:
            raise KernelError(
                f"kernel {pipeline.label!r} takes {pipeline.params_size} bytes of parameters, "
                f"not {len(params)}"
            )
        self.pipeline = pipeline
        self.workgroups = workgroups
        numbers = pipeline.bindings
        self._entries = ffi.new("WGPUBindGroupEntry[]", max(len(numbers), 1))
        for entry, number in zip(self._entries, numbers, strict=False):
            entry.binding = number
            entry.size = 0xFFFF_FFFF_FFFF_FFFF  # the whole buffer
        self._descriptor = ffi.new("WGPUBindGroupDescriptor *")
        self._descriptor.entryCount = len(numbers)
        self._descriptor.entries = self._entries
        self._uniform = None  # the bind groups hold it; this keeps it alive
        buffers = len(numbers)
        if params:
            uniform = device.create_buffer(len(params) + -len(params) % 16, "uniform")
            device.queue.write(uniform, params)
            buffers -= 1
            self._uniform = uniform
        for entry, size in zip(self._entries, sizes or (), strict=False):
            entry.size = max(size, 4)  # a binding can't be empty
        self.groups: dict[tuple[int, ...], Any] = {}
        self._slots = [ffi.addressof(self._entries, index) for index in range(buffers)]

    def create_group(self, buffers: Sequence[Buffer]) -> Any:
        """A bind group that is the caller's to release, before its buffers go."""
        # Again, since the collector may have come to them before it came to who asks.
        self._descriptor.layout = self.pipeline.group_layout
        if self._uniform is not None:
            self._entries[len(self._slots)].buffer = self._uniform.handle
        for slot, buffer in zip(self._slots, buffers, strict=True):
            slot.buffer = buffer.handle
        device = self.pipeline.device
        return device.library.c.wgpuDeviceCreateBindGroup(device.handle, self._descriptor)

    def keep_group(self, key: tuple[int, ...], buffers: Sequence[Buffer]) -> Any:
        """A bind group of these buffers, in the order of their binding numbers, kept as `key`."""
        group = self.create_group(buffers)
        if len(self.groups) >= GROUPS_KEPT:
            oldest = next(iter(self.groups))
            self.pipeline.device.library.c.wgpuBindGroupRelease(self.groups.pop(oldest))
        self.groups[key] = group
        for buffer in buffers:
            if len(buffer.groups) >= 64:
                gone = [item for item, kept in buffer.groups.items() if item[1] not in kept]
                for item in gone:
                    del buffer.groups[item]
            buffer.groups[id(self.groups), key] = self.groups
        return group

    def __del__(self) -> None:
        if hasattr(self, "groups") and not self.pipeline.device.abandoned:
            release = self.pipeline.device.library.c.wgpuBindGroupRelease
            while self.groups:
                release(self.groups.popitem()[1])
