"""The plan that runs on a GPU: an operation's dispatches, and the memory that they take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import wgpu_native_py as wgpu

from . import ops
from .device import cast_inputs, finished, give_back, needs_cast
from .dtypes import device_bytes
from .operation import Result, Spec
from .tensor import Tensor

if TYPE_CHECKING:
    from .gpu import GpuDevice

SUBMIT_AFTER = 64  # dispatches: the card works on a piece while the next one is recorded


class GpuPlan:
    """Dispatches for one operation at one combination of shapes."""

    __slots__ = (
        "cast",
        "device",
        "finish",
        "outputs",
        "plain",
        "result",
        "sizes",
        "steps",
        "written",
    )

    def __init__(
        self,
        device: GpuDevice,
        steps: list[tuple[wgpu.Dispatch, tuple[int, ...]]],
        specs: Sequence[Spec],
        result: Result,
        scratch: list[int],
        written: tuple[int, ...],
    ) -> None:
        self.device = device
        self.result = result
        self.outputs = result.outputs
        sizes = [device_bytes(spec.size, spec.dtype) for spec in result.outputs]
        self.sizes = sizes + scratch  # of what is taken for a run
        # A step's slots are None where it takes all there is, in order.
        everything = tuple(range(len(specs) + len(self.sizes)))
        self.steps = [
            (dispatch, None if slots == everything else slots) for dispatch, slots in steps
        ]
        self.written = written
        self.cast = needs_cast(specs, result)
        self.finish = result.finish
        self.plain = len(sizes) == 1 and self.finish is None and not written

    def run(self, inputs: Sequence[Tensor]) -> Any:
        # This runs for every operation: it is written for few Python calls.
        device = self.device
        tensors = cast_inputs(inputs, self.result) if self.cast else inputs
        if self.written:
            tensors = self._apart(tensors)
        storages = [tensor._storage or tensor.storage for tensor in tensors]
        count = len(storages)
        # Before the lock is taken: a thread that held it may be lost in a fork.
        device.usable()
        with device.lock:
            take = device.take if device._apart else device.pool.take
            for nbytes in self.sizes:
                storages.append(take(nbytes))
            steps = self.steps
            if steps:
                buffers = [storage.buffer for storage in storages]
                encoder = device._encoder or device.encoder()
                for dispatch, slots in steps:
                    encoder.dispatch(
                        dispatch, buffers if slots is None else [buffers[slot] for slot in slots]
                    )
                program = device.program
                if program is not None:
                    for dispatch, slots in steps:
                        program.dispatch(
                            dispatch,
                            storages if slots is None else [storages[slot] for slot in slots],
                        )
                    program.wrote(storages[count : count + len(self.outputs)])
                    program.wrote(storages[place] for place in self.written)
                if encoder.count >= SUBMIT_AFTER and not device._held:
                    device.submit()
        if self.plain:
            return Tensor(device, storages[count], self.outputs[0])
        made = storages[count : count + len(self.outputs)]
        if not self.written:
            return finished(device, made, self.outputs, self.finish)
        if self.cast:
            give_back(inputs, tensors, self.written)
        written = [inputs[place] for place in self.written]
        return finished(device, made, self.outputs, self.finish, written)

    def _apart(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The tensors, with a copy in place of each one that shares memory with one written."""
        targets = [tensors[place].storage for place in self.written]
        if len({id(storage) for storage in targets}) < len(targets):
            raise ValueError("an operation was to write two tensors that share their memory")
        return [
            ops.copy(tensor)
            if place not in self.written and any(tensor.storage is other for other in targets)
            else tensor
            for place, tensor in enumerate(tensors)
        ]
