"""The plan that computes with NumPy: all of the host device, and a GPU's fallback."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .device import Device, cast_inputs, finished
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

    def run(self, inputs: Sequence[Tensor]) -> Any:
        device, result = self.device, self.result
        device.usable()
        arrays = [device.view(tensor) for tensor in cast_inputs(inputs, result)]
        outputs = self.operation.compute(self.arguments, result, arrays)
        storages = [device.store(output) for output in outputs]
        return finished(device, storages, result.outputs, result.finish)
