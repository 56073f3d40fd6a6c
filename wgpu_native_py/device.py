"""A device and its queue: creation of objects, and the one place where errors are collected.

wgpu-native answers a submit with any error pending by aborting the process. So every call that
can fail is followed by a look at the device's error list, and work is submitted only when the
list is empty.
"""

from __future__ import annotations

import functools
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from .errors import (
    DeviceLostError,
    LimitExceededError,
    OutOfDeviceMemoryError,
    ValidationError,
    WgpuError,
)

if TYPE_CHECKING:
    from .buffer import Buffer
    from .instance import Adapter
    from .pipeline import ComputePipeline
    from .transfer import Transfers

LARGE = 4 << 20  # bytes from which threads and mapped buffers of our own are worth it


def processors() -> int:
    """How many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


# Bytes of small writes, each reckoned to take WRITE_COST more, that wait for the next submit.
WRITES_WAITING = 4 << 20
WRITE_COST = 4 << 10

FORKED = (
    "a GPU device does not survive a fork; start the process with multiprocessing's spawn instead"
)

_alive: weakref.WeakSet[Device] = weakref.WeakSet()


class Device:
    """An open device. Thread-safe through `lock`, which callers hold while they record."""

    def __init__(
        self, adapter: Adapter, handle: Any, errors: list[tuple[int, str]], errors_handle: Any
    ) -> None:
        library = adapter.instance.library
        self.adapter = adapter
        self.library = library
        self.handle = handle
        self.lock = threading.RLock()
        self.lost = ""  # why, once the device is lost
        self.abandoned = False  # in a child after fork: its handles must not be touched
        self.errors = errors
        self._errors_handle = errors_handle  # the callbacks' userdata must outlive the device
        self._worker: ThreadPoolExecutor | None = None
        self._pending: Future[None] | None = None  # what the worker is at
        self._submitter = 0  # the worker's thread
        self.features = library.binding.device_features(handle)
        self.limits = library.binding.device_limits(handle)
        self.queue = Queue(self)
        _alive.add(self)

    # Errors --------------------------------------------------------------------------------

    def aside(self, work: Callable[[], None]) -> None:
        """Let a thread of its own submit something; settle() waits for it."""
        if self._worker is None:
            self._worker = ThreadPoolExecutor(1, "wgpu-submit")
        self._pending = self._worker.submit(self._apart, work)

    def _apart(self, work: Callable[[], None]) -> None:
        self._submitter = threading.get_ident()
        work()
        self.poll()

    def settle(self) -> None:
        """Wait for what a thread of its own submits, and raise what went wrong there.

        Everything that depends on the queue's order or looks at the errors comes here first.
        """
        pending = self._pending
        if pending is None or self.abandoned or threading.get_ident() == self._submitter:
            return
        try:
            pending.result()
        finally:
            if pending.done():  # a Ctrl-C may have ended the wait
                self._pending = None

    def check(self, doing: str, otherwise: type[WgpuError] = ValidationError) -> None:
        """Raise the errors collected since the last look, as one exception of the right type."""
        self.settle()
        self.library.binding.raise_kept()
        if self.errors or self.lost:
            raise self.take_error(doing, otherwise)

    def take_error(self, doing: str, otherwise: type[WgpuError]) -> WgpuError:
        text = "\n".join(message.strip() for _, message in self.errors)
        self.errors.clear()
        # Out of memory comes as a validation error, and a lost device as one too: only the text
        # tells. v29 also reports a device as lost after a failed allocation, so memory goes first.
        if "Not enough memory left" in text or "OutOfMemory" in text or "Out of memory" in text:
            return OutOfDeviceMemoryError(f"{self.adapter.info.name} is out of memory {doing}")
        if self.lost or "is lost" in text or "Device lost" in text or "DeviceLost" in text:
            self.lost = self.lost or (
                f"its driver gave up on it ({text.splitlines()[-1].strip()}). Its tensors are "
                "gone; tensai.open() gives a new device. A kernel that runs for over two seconds "
                "can make a driver do this"
            )
            return DeviceLostError(f"{self.adapter.info.name} is lost: {self.lost}.")
        return otherwise(f"{self.adapter.info.name} refused {doing}: {text}")

    def usable(self) -> None:
        """Raise DeviceLostError unless this device can still be used."""
        if self.lost:
            raise DeviceLostError(f"{self.adapter.info.name} is lost: {self.lost}.")
        if self.handle is None:
            raise DeviceLostError(f"{self.adapter.info.name} was closed")

    @contextmanager
    def error_scope(self, kind: str = "validation") -> Iterator[list[str]]:
        """Collect the errors of one kind ("validation", "out-of-memory", "internal") in a list."""
        c = self.library.c
        filters = {
            "validation": c.WGPUErrorFilter_Validation,
            "out-of-memory": c.WGPUErrorFilter_OutOfMemory,
            "internal": c.WGPUErrorFilter_Internal,
        }
        if kind not in filters:
            raise ValueError(f"an error scope is one of {sorted(filters)}, not {kind!r}")
        caught: list[str] = []
        with self.lock:
            self.settle()
            c.wgpuDevicePushErrorScope(self.handle, filters[kind])
            try:
                yield caught
            finally:
                _, message = self.library.binding.pop_error_scope(self.handle)
                if message:
                    caught.append(message)

    # Objects -------------------------------------------------------------------------------

    def create_buffer(self, size: int, usage: str = "storage") -> Buffer:
        """A buffer of `size` bytes, a multiple of 4. Usage: "storage", "uniform" or "read"."""
        from .buffer import Buffer

        self.usable()
        most = self.limits["maxBufferSize"]
        if size > most:
            raise LimitExceededError(
                f"a buffer of {size:,} bytes was asked for; {self.adapter.info.name} allows "
                f"{most:,}. Split the data."
            )
        return Buffer(self, size, usage)

    def create_pipeline(
        self,
        wgsl: str,
        *,
        params_size: int = 0,
        entry: str = "main",
        label: str = "kernel",
        checked: bool = True,
    ) -> ComputePipeline:
        """Compile WGSL into a pipeline; KernelError with the compiler's message if it is wrong.

        A source that declares `var<params> name: Struct;` gets `params_size` bytes at each
        dispatch. `checked=False` leaves out the library's own bounds and loop checks where the
        generation can do so: for sources that are known never to leave their buffers.
        """
        from .pipeline import ComputePipeline

        self.usable()
        return ComputePipeline(self, wgsl, params_size, entry, label, checked)

    @functools.cached_property
    def transfers(self) -> Transfers:
        """Large copies from and to host memory."""
        from .transfer import Transfers

        return Transfers(self)

    def poll(self, wait: bool = False) -> None:
        """Let finished work be freed; with `wait`, once nothing is in flight."""
        self.usable()
        self.settle()
        self.library.binding.poll(self, wait)

    def close(self) -> None:
        """Release the device. Objects made on it stay valid in memory but can't be used."""
        if self.handle is None:
            return
        if not self.abandoned:
            if self._worker is not None:
                self._worker.shutdown()
            if "transfers" in self.__dict__:
                self.transfers.close()
        if not self.lost:
            self.library.binding.notice_loss(self)
            if self.errors:
                self.take_error("while it was closed", ValidationError)
            elif not self.lost:
                # v22 keeps a device alive for data that was written and waits for a submit.
                self.queue.flush()
        handle, self.handle = self.handle, None
        if not self.abandoned:
            self.queue.release()
        if not self.lost:
            # Destroy would pull memory from under work in flight; released, it goes when done. The
            # release of a lost one ends the process, so that is never done.
            self.library.c.wgpuDeviceRelease(handle)

    def __del__(self) -> None:
        if hasattr(self, "queue"):
            self.close()


class Queue:
    """The device's one queue."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.handle = device.library.c.wgpuDeviceGetQueue(device.handle)
        self._submit = device.library.c.wgpuQueueSubmit
        self._write = device.library.c.wgpuQueueWriteBuffer
        self._one = device.library.ffi.new("WGPUCommandBuffer[1]")
        self._waiting = 0  # bytes in staging buffers

    def submit(self, commands: Any) -> None:
        """Submit one command buffer and release it. The caller has looked at the errors."""
        self._one[0] = commands
        self._waiting = 0
        self._submit(self.handle, 1, self._one)
        self.device.library.c.wgpuCommandBufferRelease(commands)
        self.device.check("while submitting work")

    def write(self, buffer: Buffer, data: Any) -> None:
        """Copy bytes into the start of a buffer, before any work that is submitted later.

        `data` is anything with a contiguous buffer interface.
        """
        self.device.settle()
        ffi = self.device.library.ffi
        view = memoryview(data).cast("B")
        size = view.nbytes
        if size > LARGE:
            self.device.transfers.write(buffer, view)
        elif size:
            if size % 4:  # only whole words can be written
                view = memoryview(bytes(view) + bytes(-size % 4))
            self._write(self.handle, buffer.handle, 0, ffi.from_buffer(view), view.nbytes)
            if self.device.errors:
                self.device.check("while data was uploaded")
            # The library stages what is written in memory of its own, until something is submitted.
            self._waiting += size + WRITE_COST
            if self._waiting > WRITES_WAITING:
                self._flush_writes()

    def _flush_writes(self) -> None:
        self.device.library.binding.notice_loss(self.device)
        self.device.check("while data was uploaded")
        self.flush()
        self.device.poll()

    def flush(self) -> None:
        """Submit nothing, which starts the writes. The caller has looked at the errors."""
        self._waiting = 0
        self._submit(self.handle, 0, self.device.library.ffi.NULL)

    def timestamp_period(self) -> float:
        """Nanoseconds for one tick of a timestamp query."""
        return self.device.library.binding.timestamp_period(self.handle)

    def release(self) -> None:
        handle, self.handle = self.handle, None
        self.device.library.c.wgpuQueueRelease(handle)


def _abandon_devices() -> None:
    # A device inherited through fork hangs at its first wait: the driver's threads are gone.
    for device in list(_alive):
        device.abandoned = True
        device.lost = f"it was opened before this process was forked: {FORKED}"


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_devices)
