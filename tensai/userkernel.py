"""Running a user's own WGSL on a device."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import wgpu_native_py as wgpu
from wgpu_native_py.pipeline import bindings, place_params

from .dtypes import device_bytes, f32
from .errors import DeviceMismatchError, DTypeError, KernelError, LimitExceededError
from .operation import pack
from .tensor import Tensor

if TYPE_CHECKING:
    from .gpu import GpuDevice


def run(
    device: GpuDevice,
    wgsl: str,
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    workgroups: int | tuple[int, ...],
    params: Any,
) -> list[Tensor]:
    """GpuDevice.run, whose docstring says what it takes.

    The kernel is submitted on its own, so that what the device refuses is refused here and
    takes no other recorded work with it.
    """
    if not isinstance(wgsl, str):
        raise DTypeError(f"[run] expected WGSL as a string, not {type(wgsl).__name__}")
    read = [x if isinstance(x, Tensor) else device.upload(x) for x in inputs]
    written = [_output(device, output) for output in outputs]
    tensors = [*read, *written]
    for tensor in tensors:
        if tensor.device is not device:
            raise DeviceMismatchError(
                f"[run] expected tensors of {device.name}, but got one of {tensor.device.name}"
            )
    shared = {id(tensor.storage) for tensor in read} & {id(tensor.storage) for tensor in written}
    if shared:
        raise KernelError(
            "[run] a tensor is both an input and an output; list one that is read and written "
            "among the outputs only"
        )
    data = _params(params)
    if data:
        # A uniform on every device: the library then refuses params that the struct is larger than.
        wgsl = place_params(wgsl, f"@group(0) @binding({len(tensors)}) var<uniform>")
    found = bindings(wgsl)
    x, y, z = _counts(workgroups)
    buffers = [tensor.storage.buffer for tensor in tensors]
    # The memory behind a tensor may be longer than the tensor; arrayLength() must not tell.
    sizes = [device_bytes(tensor.size, tensor.dtype) for tensor in tensors]
    if data:
        buffers.append(_uniform(device, found, len(tensors), data))
        sizes.append(buffers[-1].size)
    if [number for number, _ in found] != list(range(len(buffers))):
        raise KernelError(
            f"[run] {len(read)} inputs and {len(written)} outputs take bindings 0 to "
            f"{len(buffers) - 1}, but the kernel declares {[number for number, _ in found]}"
        )
    for number in range(len(read), len(tensors)):
        if found[number][1] != "read_write":
            raise KernelError(f"[run] binding {number} is an output and must be read_write")
    with device.lock:
        pipeline = device.pipeline(wgsl, 0, "run", checked=True)
        dispatch = pipeline.dispatch((x, y, z), sizes=sizes)
        device.submit()
        encoder = wgpu.CommandEncoder(device.native)
        encoder.dispatch(dispatch, buffers)
        try:
            encoder.submit()
        except wgpu.ValidationError as error:
            raise KernelError(str(error)) from None
        if device.program is not None:
            storages = [tensor.storage for tensor in tensors]
            device.program.dispatch(dispatch, storages, *buffers[len(tensors) :])
            device.program.wrote(tensor.storage for tensor in written)
        for tensor in written:
            tensor.storage.version += 1
    return written


def _counts(workgroups: Any) -> tuple[int, int, int]:
    """Three workgroup counts from one to three."""
    try:
        given = workgroups if isinstance(workgroups, (tuple, list)) else (workgroups,)
        counts = [operator.index(count) for count in given]
    except TypeError:
        raise DTypeError(f"[run] expected integer workgroup counts, not {workgroups!r}") from None
    if not 1 <= len(counts) <= 3:
        raise LimitExceededError(f"[run] expected 1 to 3 workgroup counts, but got {workgroups}")
    x, y, z = (*counts, 1, 1)[:3]
    return x, y, z


def _output(device: GpuDevice, output: Any) -> Tensor:
    """A tensor to write: one that is given, or a new one of a shape or (shape, dtype)."""
    if isinstance(output, Tensor):
        return output
    if isinstance(output, (tuple, list)) and len(output) == 2 and not _is_length(output[1]):
        return device.empty(output[0], output[1])
    return device.empty(output, f32)


def _is_length(value: Any) -> bool:
    return isinstance(value, (int, np.integer))


def _params(params: Any) -> bytes:
    if params is None:
        return b""
    if isinstance(params, (bytes, bytearray, memoryview)):
        data = bytes(params)
    elif isinstance(params, np.ndarray):
        if params.dtype.kind in "fiu" and params.dtype.itemsize == 8:
            raise DTypeError(f"[run] WGSL has no {params.dtype}; give params of 4-byte numbers")
        data = params.tobytes()
    else:
        values = params if isinstance(params, (tuple, list)) else [params]
        for value in values:
            if not isinstance(value, (int, float, np.generic)):
                raise DTypeError(f"[run] params are bytes or numbers, not {type(value).__name__}")
        plain = [v.item() if isinstance(v, np.generic) else v for v in values]
        for value in plain:
            if isinstance(value, int) and not -(2**31) <= value < 2**32:
                raise OverflowError(f"[run] {value} among params fits neither i32 nor u32")
        data = pack(*plain)
    return data + bytes(-len(data) % 4)


def _uniform(device: GpuDevice, found: list[tuple[int, str]], number: int, data: bytes) -> Any:
    if (number, "uniform") not in found:
        raise KernelError(
            f"[run] params were given, but the kernel declares neither `var<params>` nor a "
            f"var<uniform> at binding {number}"
        )
    buffer = device.native.create_buffer(len(data) + -len(data) % 16, "uniform")
    device.native.queue.write(buffer, data)
    return buffer
