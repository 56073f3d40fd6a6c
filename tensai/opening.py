"""Finding a device: `tensai.open()` and `tensai.adapters()`."""

from __future__ import annotations

import logging
import os
from typing import Any

import wgpu_native_py as wgpu
from wgpu_native_py import LibraryNotFoundError
from wgpu_native_py.find import fetch_command

from .device import Device, DeviceInfo
from .errors import DeviceNotFoundError
from .gpu import GpuDevice, device_info
from .host import HostDevice

logger = logging.getLogger("tensai")

_RANK = {"discrete": 0, "integrated": 1, "unknown": 2, "software": 3}
_instances: dict[Any, wgpu.Instance] = {}
_warned_software: set[str] = set()


def open(
    device: str | None = None,
    *,
    adapter: int | str | None = None,
    power: str | None = None,
    fallback: str | None = None,
    api: str | None = None,
    library: str | os.PathLike[str] | None = None,
) -> Device:
    """Open a device: the best adapter (discrete, then integrated, then software).

    `device="cpu"` is the NumPy device, which needs no GPU and no library. `adapter` is an index in
    tensai.adapters() or part of a name; `power` ("low" or "high") prefers an integrated or a
    discrete GPU; `fallback="cpu"` gives the NumPy device where there is no GPU. `api` ("v22" or
    "v29") and `library` (a file) choose the wgpu-native library. TENSAI_ADAPTER, TENSAI_POWER,
    TENSAI_WGPU_API and TENSAI_WGPU_LIB do the same where an argument is left out.

    Raises DeviceNotFoundError, LibraryNotFoundError or LibraryMismatchError.
    """
    if device == "cpu":
        return HostDevice()
    if device is not None:
        raise ValueError(f'open() takes "cpu" or nothing as device, not {device!r}')
    if fallback not in (None, "cpu"):
        raise ValueError(f'fallback is "cpu" or None, not {fallback!r}')
    try:
        chosen, _ = choose(adapter=adapter, power=power, api=api, library=library)
    except (DeviceNotFoundError, LibraryNotFoundError) as error:
        if fallback is None:
            raise
        logger.warning("no GPU, so NumPy computes on the CPU: %s", error)
        return HostDevice()
    if chosen.info.type == "software" and chosen.info.name not in _warned_software:
        _warned_software.add(chosen.info.name)
        logger.warning("no GPU was found: %s computes in software", chosen.info.name)
    asked = os.environ.get("TENSAI_SHADER_CHECKS") or "0"
    if asked not in ("0", "1"):
        raise ValueError(f"TENSAI_SHADER_CHECKS is {asked!r}; it can be 0 or 1")
    checked = asked == "1"
    return GpuDevice(chosen, checked=checked)


def adapters(
    api: str | None = None, library: str | os.PathLike[str] | None = None
) -> list[DeviceInfo]:
    """What there is to open, in the order that open(adapter=index) counts; [] for nothing."""
    try:
        return [device_info(found.info) for found in enumerate_adapters(api, library)]
    except (LibraryNotFoundError, DeviceNotFoundError):
        return []


def enumerate_adapters(
    api: str | None = None, library: str | os.PathLike[str] | None = None
) -> list[wgpu.Adapter]:
    """Every adapter of the library that the search finds."""
    loaded = wgpu.load(api, library)
    # A child after fork needs an instance of its own: the parent's driver threads are gone.
    key = (loaded.path, os.getpid())
    if key not in _instances:
        _instances[key] = wgpu.Instance(loaded)
    return _instances[key].adapters()


def choose(
    *,
    adapter: int | str | None = None,
    power: str | None = None,
    api: str | None = None,
    library: str | os.PathLike[str] | None = None,
) -> tuple[wgpu.Adapter, str]:
    """The adapter that open() takes, and why."""
    found = enumerate_adapters(api, library)
    if adapter is None:
        adapter = os.environ.get("TENSAI_ADAPTER") or None
    if isinstance(adapter, str) and adapter.isdigit():
        adapter = int(adapter)
    power = power or os.environ.get("TENSAI_POWER") or None
    if power not in (None, "low", "high"):
        raise ValueError(f'power is "low" or "high", not {power!r}')
    if not found:
        raise DeviceNotFoundError(_nothing_found(wgpu.load(api, library)))
    names = ", ".join(f"{index}: {item.info.name}" for index, item in enumerate(found))
    if isinstance(adapter, int):
        if not 0 <= adapter < len(found):
            raise DeviceNotFoundError(f"there is no adapter {adapter}; these were found: {names}")
        return found[adapter], f"adapter {adapter} was asked for"
    if adapter is not None:
        matching = [item for item in found if adapter.lower() in item.info.name.lower()]
        if not matching:
            raise DeviceNotFoundError(
                f"no adapter's name contains {adapter!r}; these were found: {names}"
            )
        return matching[0], f"its name contains {adapter!r}"
    rank = dict(_RANK)
    if power == "low":
        rank.update(discrete=1, integrated=0)
    best = min(found, key=lambda item: rank[item.info.type])
    if len(found) == 1:
        return best, "it is the only adapter"
    why = f"{best.info.type} adapters come first"
    return best, f"{why} with power={power!r}" if power else why


def _nothing_found(loaded: wgpu.Library) -> str:
    text = (
        f"no adapter was found by wgpu-native {loaded.version} through Vulkan, Metal or D3D12. "
        "Install your GPU's Vulkan driver; in a container, pass the GPU and its driver files in. "
        "On Debian or Ubuntu, `apt install mesa-vulkan-drivers` also gives one in software."
    )
    if loaded.api == "v22":
        text += (
            " This library hides adapters whose drivers are not conformant, such as WSL2's; v29"
            f" finds them: `{fetch_command('v29')}`, then set TENSAI_WGPU_API=v29."
        )
    return text + ' tensai.open("cpu") computes with NumPy.'
