"""The plan that computes with NumPy: all of the host device, and a GPU's fallback."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from .device import Device, cast_inputs, finished, give_back
from .operation import Operation, Result
from .tensor import Tensor


class ReferencePlan:
    """Runs an operation's reference on the host and stores the results on the device."""

    def __init__(
        self, device: Device, operation: Operation, arguments: dict[str, Any], result: Result
    ) -> None:
        self.device = device
        self.operation = operation
        self.arguments = arguments
        self.result = result
        self.written = operation.written(arguments)

    def run(self, inputs: Sequence[Tensor]) -> Any:
        device, result = self.device, self.result
        device.usable()
        tensors = cast_inputs(inputs, result)
        with device.lock:  # another thread's recording must not take this in
            outputs = self._compute(tensors)
            count = len(result.outputs)
            storages = [device.store(output) for output in outputs[:count]]
            targets = [tensors[place].storage for place in self.written]
            for storage, output in zip(targets, outputs[count:], strict=True):
                device.overwrite(storage, output)
            if device.program is not None:
                kept = [Tensor(device, tensor.storage, tensor.spec) for tensor in tensors]
                device.program.call(functools.partial(self._again, kept, [*storages, *targets]))
                device.program.wrote([*storages, *targets])
        give_back(inputs, tensors, self.written)
        written = [inputs[place] for place in self.written]
        return finished(device, storages, result.outputs, result.finish, written)

    def _compute(self, tensors: Sequence[Tensor]) -> tuple[Any, ...]:
        arrays = [self.device.view(tensor) for tensor in tensors]
        return self.operation.compute(self.arguments, self.result, arrays)

    def _again(self, tensors: Sequence[Tensor], storages: Sequence[Any]) -> None:
        for storage, output in zip(storages, self._compute(tensors), strict=True):
            self.device.overwrite(storage, output)
