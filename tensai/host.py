"""The NumPy device: `tensai.open("cpu")`. No GPU and no library; every operation's reference."""

from __future__ import annotations

import functools
import platform
from collections.abc import Sequence
from typing import Any

import numpy as np

from .device import Array, Device, DeviceInfo
from .errors import KernelError
from .operation import OPERATIONS, Operation, Spec
from .plan import ReferencePlan
from .selfcheck import Verdict
from .tensor import Tensor


class HostStorage:
    """An array, counted in its device's memory account."""

    __slots__ = ("__weakref__", "array", "device", "known", "version")

    def __init__(self, device: HostDevice, array: Array) -> None:
        self.device = device
        self.array = array
        self.version = 0  # how often it was written in place
        self.known: Array | None = None  # what it was filled with, inside a recorded step
        device.in_use += array.nbytes
        device.peak = max(device.peak, device.in_use)

    def __del__(self) -> None:
        self.device.in_use -= self.array.nbytes


class HostDevice(Device):
    """Computes with NumPy on this machine's processor."""

    def __init__(self) -> None:
        super().__init__()
        processor = platform.processor() or platform.machine()
        self.info = DeviceInfo(
            name="NumPy on the CPU",
            vendor="",
            device=processor,
            driver=f"numpy {np.__version__}",
            backend="CPU",
            type="cpu",
            software=True,
        )
        self.limits = {}
        self.features = frozenset()
        self.library = None
        self.in_use = 0
        self.peak = 0

    def store(self, array: Array) -> HostStorage:
        return HostStorage(self, array.copy())

    def allocate(self, spec: Spec) -> HostStorage:
        return HostStorage(self, np.zeros(spec.shape, spec.dtype))

    def overwrite(self, storage: HostStorage, array: Array) -> None:
        np.copyto(storage.array.reshape(array.shape), array)
        storage.version += 1

    def assign(self, target: Tensor, source: Tensor) -> None:
        step = functools.partial(self.overwrite, target.storage, self.view(source))
        step()
        if self.program is not None:
            self.program.call(step)
            self.program.wrote([target.storage])

    def view(self, tensor: Tensor) -> Array:
        array: Array = tensor.storage.array
        return array.reshape(tensor.shape)

    def fetch(self, tensor: Tensor, out: Array | None = None) -> Array:
        self.usable()
        if out is None:
            return self.view(tensor).copy()
        np.copyto(out, self.view(tensor))
        return out

    def plan(self, operation: Operation, arguments: dict[str, Any]) -> ReferencePlan:
        result, _ = operation.job(arguments)
        return ReferencePlan(self, operation, arguments, result)

    def synchronize(self) -> None:
        self.usable()

    def memory(self) -> dict[str, int]:
        return {"in_use": self.in_use, "pooled": 0, "peak": self.peak}

    def self_check(self) -> dict[str, Verdict]:
        return {name: Verdict(name, True, ("numpy",), ()) for name in OPERATIONS}

    def run(
        self,
        wgsl: str,
        inputs: Sequence[Any] = (),
        outputs: Sequence[Any] = (),
        workgroups: int | tuple[int, ...] = 1,
        params: Any = None,
    ) -> Any:
        raise KernelError(
            "the NumPy device cannot run WGSL; open a GPU with tensai.open(), or a software one "
            "(Mesa's lavapipe) where there is none"
        )
