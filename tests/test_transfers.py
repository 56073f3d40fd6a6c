"""Large copies to and from a device: piece by piece, from several threads."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tensai
import wgpu_native_py as wgpu
from wgpu_native_py import transfer

Array = np.ndarray[Any, Any]


@pytest.fixture(scope="module")
def device() -> Iterator[wgpu.Device]:
    opened = wgpu.Instance(wgpu.load()).adapters()[0].open()
    yield opened
    opened.close()


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, device: wgpu.Device) -> Iterator[transfer.Transfers]:
    """Transfers in pieces of 64 bytes, four of them at a time."""
    monkeypatch.setattr(transfer, "PIECE", 64)
    monkeypatch.setattr(transfer, "SLOTS", 4)
    monkeypatch.setattr(transfer, "SPAN", 640)
    transfers = transfer.Transfers(device)
    yield transfers
    transfers.close()


@pytest.mark.parametrize("size", [1, 63, 64, 65, 256, 640, 641, 1407])
def test_every_byte_arrives_in_its_place(
    device: wgpu.Device, small: transfer.Transfers, size: int
) -> None:
    data = np.random.default_rng(size).integers(0, 256, size).astype(np.uint8)
    buffer = device.create_buffer(size + -size % 4)
    back = np.full(size + 1, 7, np.uint8)
    for _ in range(2):  # the second time through memory that is used already
        small.write(buffer, memoryview(data))
        back[:-1] = 0
        small.read(buffer, memoryview(back)[:size])
        assert (back[:-1] == data).all()
        assert back[-1] == 7
        data = data[::-1].copy()


def test_the_padding_of_the_last_word_is_zero(
    device: wgpu.Device, small: transfer.Transfers
) -> None:
    buffer = device.create_buffer(132)
    small.write(buffer, memoryview(np.full(132, 9, np.uint8)))
    small.write(buffer, memoryview(np.full(129, 5, np.uint8)))
    back = np.empty(132, np.uint8)
    small.read(buffer, memoryview(back))
    assert back[128:].tolist() == [5, 0, 0, 0]


@pytest.mark.parametrize("usage", ["write", "read"])
def test_a_failure_on_the_way_leaves_the_device_usable(
    device: wgpu.Device,
    small: transfer.Transfers,
    monkeypatch: pytest.MonkeyPatch,
    usage: str,
) -> None:
    data = np.arange(1024, dtype=np.uint8)
    buffer = device.create_buffer(1024)
    small.write(buffer, memoryview(data))
    calls = []

    def fails(*arguments: int) -> None:
        calls.append(arguments)
        if len(calls) == 6:
            raise MemoryError("a copy that went wrong")
        original(*arguments)

    original = ctypes.memmove
    back = np.zeros(1024, np.uint8)
    with monkeypatch.context() as patch:
        patch.setattr(transfer.ctypes, "memmove", fails)
        with pytest.raises(MemoryError, match="went wrong"):
            getattr(small, usage)(buffer, memoryview(back))
    small.write(buffer, memoryview(data))
    small.read(buffer, memoryview(back))
    assert (back == data).all()


def test_a_read_only_view_is_not_written(device: wgpu.Device, small: transfer.Transfers) -> None:
    with pytest.raises(BufferError):
        small.read(device.create_buffer(256), memoryview(bytes(256)))


def test_large_tensors_come_and_go_in_order() -> None:
    # More than all slots hold, with a tail that is no whole piece; f16 with an odd count.
    size = transfer.PIECE * (transfer.SLOTS + 1) // 4 + 1001
    x = np.random.default_rng(0).integers(-1000, 1000, size).astype(np.int32)
    with tensai.open() as dev:
        tensor = dev.upload(x)
        later = tensor + 1  # recorded, not submitted
        again = dev.upload(-x)
        assert (later.download() == x + 1).all()
        out = np.empty_like(x)
        assert again.download(out=out) is out
        assert (out == -x).all()
        halves = x[: wgpu.LARGE // 2 + 3].astype(np.float16)
        assert (dev.upload(halves).download() == halves).all()
