"""How fast each kernel of the product is on a device: measured by `tensai tune`, kept, and used to
choose among them.

A kernel that computes tiles is described by two times (see Pace), which predict every shape.
"""

from __future__ import annotations

import logging
import math
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .kept import read_kept, write_kept
from .ops.products import TILES, product
from .ops.tiles import Pace, Tile

if TYPE_CHECKING:
    from .device import Device
    from .gpu import GpuDevice
    from .tensor import Tensor

logger = logging.getLogger("tensai")

Sizes = dict[int, dict[str, float]]  # seconds by size and kernel

KIND = "paces"
WARM = 0.5  # seconds of work before any is timed: cards idle at a low clock
LONG = 0.01  # seconds of work in each timing
ROUNDS = 5
DEPTH = 4096  # k of the products that are timed, at most
LARGEST = 8192  # m and n


def saved_paces(device: Device) -> dict[str, Pace]:
    """What was measured on a device, by the kernels' names; empty where nothing was."""
    found = {}
    for name, times in read_kept(KIND, device).items():
        if name == "device":
            continue
        if not (
            isinstance(times, list)
            and len(times) == 2
            and all(isinstance(t, float) and 0 < t < math.inf for t in times)
        ):
            logger.debug("ignored damaged paces of %s", device.name)
            return {}
        found[name] = Pace(*times)
    return found


def save_paces(device: Device, paces: dict[str, Pace]) -> Path:
    """Keep what was measured; the file. ValueError where it can't be written."""
    return write_kept(KIND, device, {name: list(pace) for name, pace in paces.items()})


def seconds(device: GpuDevice, run: Callable[[], Any], shortest: float = LONG) -> float:
    """The median time of a call whose work is on the device, over runs of at least `shortest`."""
    count = 1
    while True:
        device.synchronize()
        start = time.perf_counter()
        for _ in range(count):
            run()
        device.synchronize()
        taken = time.perf_counter() - start
        if taken >= shortest:
            break
        count = min(count * 4, math.ceil(count * 1.5 * shortest / max(taken, 1e-6)))
    times = [taken / count]
    for _ in range(ROUNDS - 1 if taken < ROUNDS * shortest else 1):
        start = time.perf_counter()
        for _ in range(count):
            run()
        device.synchronize()
        times.append((time.perf_counter() - start) / count)
    return statistics.median(times)


def measure(device: GpuDevice, tell: Callable[[int], None] = lambda done: None) -> dict[str, Pace]:
    """The paces of the product's kernels that are right on this device. Takes a few seconds."""
    found = {}
    for done, (name, tile) in enumerate(TILES.items()):
        alone = _alone(device, name, tile)
        if alone is not None:
            found[name] = Pace(alone, min(_busy(device, name, tile), alone))
        tell(done + 1)
    return found


def squares(
    device: GpuDevice, paces: dict[str, Pace], sizes: Sequence[int], slowest: float
) -> Sizes:
    """Seconds for square products by each kernel, those left out that would take longer than
    `slowest`."""
    found: Sizes = {}
    for size in sizes:
        quick = [n for n in paces if paces[n].predict(*TILES[n].counts(size, size, size)) < slowest]
        if not quick:
            break
        a, b = numbers(device, size, size), numbers(device, size, size)
        runs = {name: runner(device, name, a, b) for name in quick}
        found[size] = {name: seconds(device, run) for name, run in runs.items() if run is not None}
    return found


def choice(paces: dict[str, Pace], size: int) -> str:
    """The kernel that a square product takes."""
    return min(
        paces,
        key=lambda name: paces[name].predict(*TILES[name].counts(size, size, size)),
    )


def runner(device: GpuDevice, name: str, *tensors: Tensor) -> Callable[[], Any] | None:
    """A product of two tensors by one kernel, or None where it does not fit or is not right."""
    kernel = next(kernel for kernel in product.kernels if kernel.name == name)
    a, b = tensors
    arguments = {"a": a.spec, "b": b.spec, "transpose_a": False, "transpose_b": False}
    job = device.checks.only(product, kernel, arguments)
    if job is None:
        return None
    plan = device.compile(job, [a.spec, b.spec], product.job(arguments)[0])
    return lambda: plan.run(tensors)


def numbers(device: GpuDevice, *shape: int) -> Tensor:
    """Random numbers: a card can be faster on zeros."""
    made: Tensor = device.upload(np.random.default_rng(0).normal(size=shape).astype(np.float32))
    return made


def _alone(device: GpuDevice, name: str, tile: Tile) -> float | None:
    """Seconds for a step along k where there is one tile."""
    steps = DEPTH // tile.bk
    run = runner(device, name, numbers(device, tile.bm, DEPTH), numbers(device, DEPTH, tile.bn))
    if run is None:
        return None
    warm_until = time.perf_counter() + WARM
    while time.perf_counter() < warm_until:
        run()
        device.synchronize()
    return seconds(device, run) / steps


def _busy(device: GpuDevice, name: str, tile: Tile) -> float:
    """Seconds for each tile's step where there are as many tiles as keep the device busy."""
    most = min(LARGEST, math.isqrt(device.limits["maxStorageBufferBindingSize"] // 4))
    depth = DEPTH // 8
    across = 2
    while True:
        m, n = tile.bm * across, tile.bn * across
        run = runner(device, name, numbers(device, m, depth), numbers(device, depth, n))
        assert run is not None
        taken = seconds(device, run)
        if taken >= LONG or max(m, n) * 2 > most:
            return taken / (across * across * (depth // tile.bk))
        across *= 2
