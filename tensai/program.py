"""Recorded work that runs again: `with device.record() as program: ...`, `program.replay()`."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import wgpu_native_py as wgpu

from .memory import Storage

if TYPE_CHECKING:
    from .device import Device
    from .gpu import GpuDevice

LONGEST = 256  # dispatches that are submitted at a time
ENOUGH = 48  # to be worth a submission at a replay's end

recording: list[Program] = []  # those whose blocks are open, on any device


def recorded_here() -> list[Program]:
    """The programs that this thread records, on any device."""
    me = threading.get_ident()
    return [program for program in tuple(recording) if program.thread == me]  # others add theirs


def once(why: str) -> None:
    """Note that what happens now is no part of the programs that this thread records."""
    for program in recorded_here():
        program.fixed(why)


def elsewhere(device: Device) -> None:
    """Note that a device works while this thread records on others."""
    for program in recorded_here():
        if program.device is not device:
            program.fixed("another device worked while it was recorded")


class Program:
    """The operations of a `record()` block, in order, with the memory they work on."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self._steps: list[Callable[[], None]] = []
        self._ready = False
        self.fixed_by: str | None = None
        self.checks: list[tuple[Any, Callable[[Any], Any]]] = []  # of what memory is filled with
        self.thread = threading.get_ident()
        self.began = 0  # the number of the tape's next node
        self._assumed: dict[Any, tuple[Callable[[], Any], Any]] = {}
        # Parameters whose gradients it sets, and whether there must be none before.
        self.graded: dict[Any, bool] = {}
        self.ungraded: set[Any] = set()  # parameters that were seen to have no gradient before
        self._written: dict[int, weakref.ref[Any]] = {}

    def __len__(self) -> int:
        """Steps of a replay: dispatches, copies, and what the host computes."""
        return len(self._steps)

    def call(self, step: Callable[[], None]) -> None:
        """Add work that the host does."""
        self._steps.append(step)

    def wrote(self, storages: Iterable[Any]) -> None:
        """Note memory that a replay writes."""
        for storage in storages:
            self._written[id(storage)] = weakref.ref(storage)

    def writes(self, storage: Any) -> bool:
        """Whether a replay writes this memory."""
        known = self._written.get(id(storage))
        return known is not None and known() is storage

    def fixed(self, why: str) -> None:
        """Note that something happened once while this was recorded and is no part of a replay."""
        self.fixed_by = self.fixed_by or why

    def assume(self, key: Any, look: Callable[[], Any]) -> None:
        """Note what a replay takes for granted: that look() gives what it gives now."""
        if key not in self._assumed:
            self._assumed[key] = (look, look())

    def holds(self) -> bool:
        """Whether what a replay takes for granted is still so."""
        return all(look() == value for look, value in self._assumed.values())

    def finish(self) -> None:
        """The block has ended."""
        # Most of what it made on the way is gone, and nobody asks for its version.
        self._written = {place: one for place, one in self._written.items() if one() is not None}
        self._ready = True

    def replay(self) -> None:
        """Run the recorded work again, on the same memory; returns before it is done.

        Raises DeviceLostError once the device is closed, RuntimeError inside the block itself.
        """
        device = self.device
        device.usable()
        if not self._ready:
            raise RuntimeError("the program is still being recorded; replay it after its block")
        with device.lock:
            if device.program is not None:
                device.program.call(self._run)
                known = (one() for one in self._written.values())
                device.program.wrote(storage for storage in known if storage is not None)
            self._run()

    def _run(self) -> None:
        for known in self._written.values():
            storage = known()
            if storage is not None:
                storage.version += 1
        for step in self._steps:
            step()


class GpuProgram(Program):
    """A program of dispatches and copies, and of whatever an operation left to the host.

    Memory that is taken while it is recorded belongs to the program: within it, it is used again
    as it becomes free, and nobody else gets it before the program goes.
    """

    device: GpuDevice

    def __init__(self, device: GpuDevice) -> None:
        super().__init__(device)
        self._replay: wgpu.Replay | None = None  # the dispatches at the end
        self._dispatches = self._runs = 0  # runs of dispatches are a step each
        self._held: dict[int, Storage] = {}
        self._reserve = device.pool.reserve()

    def __len__(self) -> int:
        return super().__len__() - self._runs + self._dispatches

    def dispatch(
        self, dispatch: wgpu.Dispatch, storages: Sequence[Storage], *extra: wgpu.Buffer
    ) -> None:
        """Add a dispatch over the buffers of tensors, followed by `extra` ones."""
        if self._replay is None:
            self._replay = wgpu.Replay(self.device.native)
            self._steps.append(self._replayed(self._replay))
            self._runs += 1
        buffers = [self._hold(storage).buffer for storage in storages]
        self._replay.add(dispatch, [*buffers, *extra])
        self._dispatches += 1
        if len(self._replay) >= LONGEST:
            self._replay = None

    def copy(self, source: Storage, target: Storage, size: int) -> None:
        """Add a copy of `size` bytes."""
        device = self.device
        first, second = self._hold(source).buffer, self._hold(target).buffer
        self.call(lambda: device.encoder().copy(first, second, size))
        self.wrote([target])

    def call(self, step: Callable[[], None]) -> None:
        self._replay = None
        super().call(step)

    def pin(self, storage: Storage) -> None:
        """Keep memory that the host filled once from being used again within the program."""
        self._held[id(storage)] = storage

    def finish(self) -> None:
        self.device.pool.close_reserve(self._reserve)
        super().finish()

    def _hold(self, storage: Storage) -> Storage:
        if storage.buffer not in self._reserve:
            self._held[id(storage)] = storage
        return storage

    def _replayed(self, replay: wgpu.Replay) -> Callable[[], None]:
        device = self.device

        def step() -> None:
            device.encoder().replay(replay)
            device.replayed(LONGEST)

        return step

    def _run(self) -> None:
        super()._run()
        self.device.replayed(ENOUGH)
