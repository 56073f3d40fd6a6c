"""The pool of device memory behind tensors."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from .errors import LimitExceededError, OutOfDeviceMemoryError, TensorFreedError

T = TypeVar("T")
SMALLEST = 256
KEEP = 1 << 30  # bytes of free buffers that a pool holds on to


@functools.lru_cache(maxsize=4096)
def size_class(nbytes: int) -> int:
    """The buffer size used for `nbytes`: at most an eighth larger, so that buffers fit again."""
    if nbytes <= SMALLEST:
        return SMALLEST
    step = max(1 << (nbytes - 1).bit_length() - 4, SMALLEST)
    return nbytes + -nbytes % step


class Storage:
    """Memory on a GPU device. Goes back to the pool when the last tensor lets go of it."""

    __slots__ = ("__weakref__", "buffer", "known", "pool", "version")

    def __init__(self, pool: Pool, buffer: Any) -> None:
        self.pool = pool
        self.buffer = buffer
        self.version = 0  # how often it was written in place
        self.known: Any = None  # the array that it was filled with, inside a recorded step

    def __getattr__(self, name: str) -> Any:
        # The collector finalizes the members of a cycle in any order: another's destructor may
        # still hold a tensor of this memory, which may be another's by now.
        raise TensorFreedError("this tensor was freed by the garbage collector, in a cycle")

    def __del__(self) -> None:
        try:
            buffer = self.buffer
        except TensorFreedError:  # its making was interrupted
            return
        del self.buffer
        pool = self.pool
        pool.returned.append((buffer, pool.turn if pool.recording else 0))


class Reserve:
    """Buffers that belong to one recorded program for as long as it lives."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self.members: set[int] = set()  # ids; the pool holds the buffers
        self.free: dict[int, list[Any]] = {}  # while the program is recorded

    def __contains__(self, buffer: Any) -> bool:
        return id(buffer) in self.members

    def __del__(self) -> None:
        self._pool.let_go(self.members)


class Pool:
    """Free buffers by size, and the account of all bytes. The device's lock guards it.

    A buffer may come back while recorded work that reads it is not submitted yet. Later recorded
    work may write it all the same, since the queue keeps the order; the host may not, since a
    host write overtakes recorded work. `turn` counts submissions so that both can be told apart,
    and `recording` says whether anything is recorded at all.
    """

    def __init__(self, device: Any, relieve: Any) -> None:
        self._device = device  # wgpu_native_py.Device
        self._relieve = relieve  # submits pending work and waits, so that memory can go
        self._free: dict[int, list[tuple[Any, int]]] = {}
        # The collector may finalize a tensor's storage and its buffer together: a buffer that is
        # lent stays alive here, so that it can come back.
        self._lent: dict[int, Any] = {}
        # Destructors run on any thread and at any time: they only append here.
        self.returned: deque[tuple[Any, int]] = deque()
        self._let_go: deque[tuple[set[int], int]] = deque()
        self._reserved: dict[int, Any] = {}  # buffers that belong to programs
        self.recording_into: Reserve | None = None
        self.turn = 1
        self.recording = False
        self.keep = KEEP
        self.in_use = 0
        self.pooled = 0
        self.peak = 0
        limits = device.limits
        self.largest = min(limits["maxStorageBufferBindingSize"], limits["maxBufferSize"])

    def take(self, nbytes: int, *, unread: bool = False) -> Storage:
        """Memory for `nbytes`; `unread=True` for memory that no unsubmitted work touches."""
        if self.returned or self._let_go:
            self.collect()
        size = size_class(nbytes)
        if size > self.largest:
            if nbytes > self.largest:
                raise LimitExceededError(
                    f"a tensor of {nbytes:,} bytes was asked for, but "
                    f"{self._device.adapter.info.name} binds at most {self.largest:,}; split it "
                    "along an axis"
                )
            size = nbytes + -nbytes % 16
            if size > self.largest:
                size = nbytes + -nbytes % 4
        reserve = self.recording_into
        if reserve is not None and not unread and reserve.free.get(size):
            buffer = reserve.free[size].pop()
            self._lent[id(buffer)] = buffer
            return Storage(self, buffer)
        buffers = self._free.get(size)
        buffer = None
        if buffers:
            if not unread:
                buffer = buffers.pop()[0]
            else:
                for index, (candidate, turn) in enumerate(buffers):
                    if turn < self.turn:
                        buffer = candidate
                        del buffers[index]
                        break
        if buffer is None:
            buffer = self.with_room(size, lambda: self._device.create_buffer(size))
        else:
            self.pooled -= size
        self._lent[id(buffer)] = buffer
        if reserve is not None:
            reserve.members.add(id(buffer))
            self._reserved[id(buffer)] = buffer
        self.in_use += size
        if self.in_use > self.peak:
            self.peak = self.in_use
        return Storage(self, buffer)

    def with_room(self, nbytes: int, work: Callable[[], T]) -> T:
        """What `work()` gives, which takes memory; once more without the pool if there is none."""
        try:
            return work()
        except OutOfDeviceMemoryError:
            # Freed tensors may still hold memory through the pool and through work in flight.
            self._relieve()
            self.trim()
        try:
            return work()
        except OutOfDeviceMemoryError:
            raise OutOfDeviceMemoryError(
                f"{self._device.adapter.info.name} is out of memory: {nbytes:,} bytes were asked "
                f"for while tensors hold {self.in_use:,}. Free tensors, or work in smaller pieces."
            ) from None

    def collect(self) -> None:
        """Sort the buffers that came back into the free ones."""
        returned, lent, reserved = self.returned, self._lent, self._reserved
        while returned:
            buffer, turn = returned.popleft()
            del lent[id(buffer)]
            if id(buffer) not in reserved:
                self._keep(buffer, turn)
            elif self.recording_into is not None and buffer in self.recording_into:
                self.recording_into.free.setdefault(buffer.size, []).append(buffer)
        while self._let_go:
            members, turn = self._let_go.popleft()
            for member in members:
                buffer = self._reserved.pop(member)
                if member not in self._lent:
                    self._keep(buffer, turn)

    def _keep(self, buffer: Any, turn: int) -> None:
        size = buffer.size
        self.in_use -= size
        # Large ones that lie about must not keep out the small ones that are wanted all the time.
        while self.pooled + size > self.keep and self._free and (largest := max(self._free)) > size:
            spare = self._free[largest]
            if spare:
                spare.pop()
                self.pooled -= largest
            if not spare:
                del self._free[largest]
        if self.pooled + size <= self.keep:
            self.pooled += size
            free = self._free.get(size)
            if free is None:
                free = self._free[size] = []
            free.append((buffer, turn))

    def reserve(self) -> Reserve:
        """From now on, what is taken belongs to the reserve that is returned."""
        self.collect()
        self.recording_into = Reserve(self)
        return self.recording_into

    def close_reserve(self, reserve: Reserve) -> None:
        """What is taken from now on belongs to nobody again."""
        self.collect()
        reserve.free.clear()
        self.recording_into = None

    def let_go(self, members: set[int]) -> None:
        """Take a reserve's buffers back. Called from destructors."""
        self._let_go.append((members, self.turn if self.recording else 0))

    def trim(self) -> None:
        """Release every free buffer."""
        self.collect()
        self._free.clear()
        self.pooled = 0
