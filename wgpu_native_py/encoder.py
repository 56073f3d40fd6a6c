"""Recording work: a command encoder with one compute pass kept open as long as it can be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .errors import ValidationError
from .signals import uninterrupted

if TYPE_CHECKING:
    from .buffer import Buffer
    from .device import Device
    from .pipeline import Dispatch
    from .replay import Replay


class CommandEncoder:
    """Dispatches and copies in order, submitted once.

    Dispatches that follow each other share a pass: passes cost more than dispatches, and wgpu
    orders the dispatches of one pass by itself. Callers hold the device's lock.
    """

    def __init__(self, device: Device) -> None:
        c = device.library.c
        device.usable()
        self.device = device
        self.count = 0  # of dispatches and copies recorded
        self._null = device.library.ffi.NULL
        self._handle = c.wgpuDeviceCreateCommandEncoder(device.handle, self._null)
        self._pass: Any = None
        self._pipeline: Any = None
        self._set_pipeline = c.wgpuComputePassEncoderSetPipeline
        self._set_group = c.wgpuComputePassEncoderSetBindGroup
        self._dispatch = c.wgpuComputePassEncoderDispatchWorkgroups

    def dispatch(self, dispatch: Dispatch, buffers: Sequence[Buffer]) -> None:
        """Record a dispatch over buffers, given in the order of their binding numbers."""
        compute = self._pass
        if compute is None:
            compute = self._begin_pass(self._null)
        pipeline = dispatch.pipeline
        if pipeline is not self._pipeline:
            self._pipeline = None  # an exception may come between
            self._set_pipeline(compute, pipeline.handle)
            self._pipeline = pipeline
        # A buffer that goes takes its groups along, so that ids tell buffers apart (buffer.py).
        key = tuple(map(id, buffers))
        group = dispatch.groups.get(key) or dispatch.keep_group(key, buffers)
        self._set_group(compute, 0, group, 0, self._null)
        x, y, z = dispatch.workgroups
        self._dispatch(compute, x, y, z)
        self.count += 1

    def replay(self, replay: Replay) -> None:
        """Record dispatches that were laid out before."""
        compute = self._pass
        if compute is None:
            compute = self._begin_pass(self._null)
        null, current = self._null, self._pipeline
        self._pipeline = None  # an exception may come between
        set_pipeline, set_group, dispatch = self._set_pipeline, self._set_group, self._dispatch
        for pipeline, handle, group, x, y, z in replay.calls:
            if pipeline is not current:
                set_pipeline(compute, handle)
                current = pipeline
            set_group(compute, 0, group, 0, null)
            dispatch(compute, x, y, z)
        self._pipeline = current
        self.count += len(replay.calls)

    def copy(self, source: Buffer, target: Buffer, size: int, start: int = 0, to: int = 0) -> None:
        """Record a copy of `size` bytes of `source` from `start` on into `target` from `to` on.

        All three are multiples of 4, and size is at least 4.
        """
        fits = start + size <= source.size and to + size <= target.size
        if size <= 0 or size % 4 or start % 4 or to % 4 or not fits:
            raise ValidationError(
                f"cannot copy {size} bytes at {start} of {source.size} to {to} of {target.size}"
            )
        self._end_pass()
        self.device.library.c.wgpuCommandEncoderCopyBufferToBuffer(
            self._handle, source.handle, start, target.handle, to, size
        )
        self.count += 1

    def clear(self, buffer: Buffer) -> None:
        """Record filling a buffer with zeros."""
        self._end_pass()
        self.device.library.c.wgpuCommandEncoderClearBuffer(
            self._handle, buffer.handle, 0, buffer.size
        )
        self.count += 1

    def begin_timed(self, queries: QuerySet) -> None:
        """Open a pass that writes timestamps at its start and end."""
        self._end_pass()
        binding, ffi = self.device.library.binding, self.device.library.ffi
        writes = binding.timestamp_writes(queries.handle, 0, 1)
        descriptor = ffi.new("WGPUComputePassDescriptor *")
        descriptor.timestampWrites = writes
        self._begin_pass(descriptor)

    def resolve(self, queries: QuerySet) -> None:
        """Record writing the timestamps into the query set's buffer."""
        self._end_pass()
        c = self.device.library.c
        c.wgpuCommandEncoderResolveQuerySet(
            self._handle, queries.handle, 0, queries.count, queries.buffer.handle, 0
        )
        self.count += 1

    def submit(self) -> None:
        """Finish and submit; if anything recorded was refused, raise and submit nothing."""
        self.device.settle()
        with uninterrupted():
            self._end_pass()
            self._submit()

    def submit_aside(self) -> None:
        """As submit(), in a thread of its own: the library takes longer to finish an encoder than
        Python takes to record the next one. Errors are raised by the next call that waits for it.
        """
        self.device.settle()
        with uninterrupted():
            self._end_pass()
            self.device.aside(self._submit)

    def _submit(self) -> None:
        device = self.device
        handle, self._handle = self._handle, None
        if handle is None:  # the collector was here first
            return
        try:
            # So that a device that was lost since is found out here and not by the submit.
            device.library.binding.poll(device, wait=False)
            # v29 keeps a device alive for what is finished and not submitted, so: before that.
            device.check("work that was recorded")
            commands = device.library.c.wgpuCommandEncoderFinish(handle, self._null)
        finally:
            device.library.c.wgpuCommandEncoderRelease(handle)
        if device.errors or device.lost or device.library.binding.kept:
            device.library.c.wgpuCommandBufferRelease(commands)
            device.check("work that was recorded")
        device.queue.submit(commands)

    def _begin_pass(self, descriptor: Any) -> Any:
        with uninterrupted():
            c = self.device.library.c
            self._pass = c.wgpuCommandEncoderBeginComputePass(self._handle, descriptor)
            self._pipeline = None
        return self._pass

    def _end_pass(self) -> None:
        if self._pass is not None:
            with uninterrupted():
                c = self.device.library.c
                c.wgpuComputePassEncoderEnd(self._pass)
                # v22 wants the pass released before the submit.
                c.wgpuComputePassEncoderRelease(self._pass)
                self._pass = None

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None and not self.device.abandoned:
            self._end_pass()
            handle, self._handle = self._handle, None
            self.device.library.c.wgpuCommandEncoderRelease(handle)


class QuerySet:
    """Two timestamps, where the device has the feature "timestamp-query"."""

    def __init__(self, device: Device) -> None:
        if "timestamp-query" not in device.features:
            raise ValidationError(f"{device.adapter.info.name} has no timestamp queries")
        self.device = device
        self.count = 2
        self.handle = device.library.binding.query_set(device.handle, self.count)
        device.check("while a query set was created")
        self.buffer = device.create_buffer(8 * self.count, "query")

    def __del__(self) -> None:
        if hasattr(self, "handle") and not self.device.abandoned:
            handle, self.handle = self.handle, None
            self.device.library.c.wgpuQuerySetRelease(handle)
