"""Large copies between host memory and a device, in pieces through mapped buffers.

One thread copies memory at a fraction of what a bus carries, and a fresh array costs a page fault
every few KiB. So several threads copy pieces while the device moves others.
"""

from __future__ import annotations

import ctypes
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any, NamedTuple

from .device import processors
from .encoder import CommandEncoder
from .errors import ValidationError
from .signals import uninterrupted

if TYPE_CHECKING:
    from .buffer import Buffer
    from .device import Device

PIECE = 4 << 20
SLOTS = 16  # pieces on their way at a time
THREADS = min(8, processors())
SPAN = 256 << 20  # bytes between which signals are let through
PATIENCE = 5.0  # seconds of looking whether a piece has arrived, before waiting for everything


class Span(NamedTuple):
    """`size` bytes from `first` on, of a buffer and of the host's memory at `address`."""

    buffer: Buffer
    address: int
    first: int
    size: int


class Slot:
    """A buffer of PIECE bytes that the host maps, and the state of its mapping."""

    def __init__(self, device: Device, usage: str) -> None:
        self.device = device
        self.write = usage == "write"
        self.buffer = device.create_buffer(PIECE, usage)
        self._mapping: Any = None
        if self.write:
            self.map()

    def map(self) -> None:
        """Ask for the memory, once the work submitted so far is done with it."""
        self._mapping = self.device.library.binding.start_map(self.buffer.handle, self.write, PIECE)

    def address(self) -> int:
        """Where the memory is, after waiting for it."""
        device = self.device
        binding, c, ffi = device.library.binding, device.library.c, device.library.ffi
        end = time.perf_counter() + PATIENCE
        device.poll()
        while (reason := self._mapping.reason()) is None:
            if time.perf_counter() > end:
                device.poll(wait=True)
                reason = self._mapping.reason() or "no answer from the device"
                break
            time.sleep(20e-6)
            device.poll()
        binding.raise_kept()
        device.check("while data was moved")
        if reason:
            raise ValidationError(f"{device.adapter.info.name} could not map a buffer: {reason}")
        take = c.wgpuBufferGetMappedRange if self.write else c.wgpuBufferGetConstMappedRange
        return int(ffi.cast("uintptr_t", take(self.buffer.handle, 0, PIECE)))

    def unmap(self) -> None:
        self.device.library.c.wgpuBufferUnmap(self.buffer.handle)


class Transfers:
    """A device's large copies. Callers hold the device's lock."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._rings: dict[str, list[Slot]] = {}
        self._threads = ThreadPoolExecutor(THREADS, "wgpu-copy")

    def write(self, buffer: Buffer, view: memoryview) -> None:
        """Copy a view's bytes to the start of a buffer, before any work that is submitted later."""
        self._spans("write", buffer, view, self._write)

    def read(self, buffer: Buffer, view: memoryview) -> None:
        """Fill a view from the start of a buffer, after all work that was submitted."""
        self._spans("read", buffer, view, self._read)

    def close(self) -> None:
        self._rings.clear()
        self._threads.shutdown()

    def _spans(
        self, usage: str, buffer: Buffer, view: memoryview, move: Callable[..., None]
    ) -> None:
        ffi = self._device.library.ffi
        self._device.settle()
        with ffi.from_buffer(view, require_writable=usage == "read") as pointer:
            address = int(ffi.cast("uintptr_t", pointer))
            for start in range(0, view.nbytes, SPAN):
                with uninterrupted():
                    # Slots are given up when something fails: who knows which are mapped.
                    slots = self._rings.pop(usage, [])
                    span = Span(buffer, address, start, min(SPAN, view.nbytes - start))
                    while len(slots) < min(SLOTS, -(-span.size // PIECE)):
                        slots.append(Slot(self._device, usage))
                    copies: list[Future[Any]] = []
                    try:
                        move(span, slots, copies)
                    finally:
                        wait(copies)  # no thread may write where nothing is mapped any more
                    self._rings[usage] = slots

    def _write(self, span: Span, slots: list[Slot], copies: list[Future[Any]]) -> None:
        filling: deque[tuple[Slot, int, int, Future[Any]]] = deque()

        def send() -> None:
            slot, start, nbytes, copy = filling.popleft()
            copy.result()
            slot.unmap()
            encoder = CommandEncoder(self._device)
            encoder.copy(slot.buffer, span.buffer, nbytes, to=start)
            encoder.submit()
            slot.map()

        for slot, start, nbytes in pieces(slots, span):
            # The other half of the slots is on its way to the device meanwhile.
            while filling and (len(filling) >= SLOTS // 2 or filling[0][3].done()):
                send()
            target = slot.address()
            padded = nbytes + -nbytes % 4  # only whole words can be copied
            ctypes.memset(target + nbytes, 0, padded - nbytes)
            copy = self._threads.submit(ctypes.memmove, target, span.address + start, nbytes)
            copies.append(copy)
            filling.append((slot, start, padded, copy))
        while filling:
            send()

    def _read(self, span: Span, slots: list[Slot], copies: list[Future[Any]]) -> None:
        moving: deque[tuple[Slot, int, int]] = deque()
        emptying: deque[tuple[Slot, Future[Any]]] = deque()

        def empty() -> None:
            slot, start, nbytes = moving.popleft()
            source = slot.address()
            copy = self._threads.submit(ctypes.memmove, span.address + start, source, nbytes)
            copies.append(copy)
            emptying.append((slot, copy))

        def release() -> None:
            slot, copy = emptying.popleft()
            copy.result()
            slot.unmap()

        for slot, start, nbytes in pieces(slots, span):
            if len(moving) + len(emptying) == SLOTS:
                while len(emptying) < SLOTS // 2:  # or only one thread would ever copy
                    empty()
                release()
            encoder = CommandEncoder(self._device)
            encoder.copy(span.buffer, slot.buffer, nbytes + -nbytes % 4, start)
            encoder.submit()
            slot.map()
            moving.append((slot, start, nbytes))
        while moving:
            empty()
        while emptying:
            release()


def pieces(slots: list[Slot], span: Span) -> Iterator[tuple[Slot, int, int]]:
    """(slot, start, bytes) of each piece of a span; slots take turns."""
    end = span.first + span.size
    for number, start in enumerate(range(span.first, end, PIECE)):
        yield slots[number % len(slots)], start, min(PIECE, end - start)
