"""Dispatches laid out once, to be recorded again and again at the least cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .buffer import Buffer
    from .device import Device
    from .pipeline import Dispatch


class Replay:
    """A list of dispatches with bind groups of their own, for CommandEncoder.replay()."""

    def __init__(self, device: Device) -> None:
        self.device = device
        # Of each: pipeline, its handle, bind group, workgroups.
        self.calls: list[tuple[Any, Any, Any, int, int, int]] = []
        self._kept: list[tuple[Dispatch, list[Buffer]]] = []

    def __len__(self) -> int:
        return len(self.calls)

    def add(self, dispatch: Dispatch, buffers: Sequence[Buffer]) -> None:
        """Append a dispatch over buffers, given in the order of their binding numbers."""
        pipeline = dispatch.pipeline
        group = dispatch.create_group(buffers)
        self._kept.append((dispatch, list(buffers)))
        self.calls.append((pipeline, pipeline.handle, group, *dispatch.workgroups))

    def __del__(self) -> None:
        if not self.device.abandoned:
            release = self.device.library.c.wgpuBindGroupRelease
            calls = self.calls
            del self.calls  # a destructor that is later must not replay nothing unnoticed
            for call in calls:
                release(call[2])
