"""Where a device's products of NumPy arrays overtake NumPy's own: measured over a ladder of sizes.

Every product that is timed is compared with NumPy's, and a sample of its rows with float64.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import ops
from .device import Device
from .errors import LimitExceededError, OutOfDeviceMemoryError
from .tensor import Tensor

Array = np.ndarray[Any, Any]

ROUNDS = 15  # in which ways take turns, at most
SPINNING = 0.25  # seconds after which the threads of a BLAS sleep
WARM = 1.0  # seconds of products before any is timed, at most: cards idle at a low clock
SHORTEST = 0.01  # seconds of products in each timing, so that the clock's grain does not count
MOST = 200  # products in each timing, at most
SEVERAL = 4  # resident products in each timing, at least, unless one alone takes LONG
LONG = 0.1  # seconds
SAMPLE = 16  # rows compared with float64


@dataclass(frozen=True)
class Size:
    """`batch` products of (m, k) by (k, n)."""

    name: str
    batch: int
    m: int
    k: int
    n: int

    @property
    def work(self) -> int:
        """Multiply-accumulates."""
        return self.batch * self.m * self.k * self.n

    def __str__(self) -> str:
        return f"{self.batch}x{self.m}x{self.k}@{self.k}x{self.n}"


# By work. The two of mnist are layers of small networks for it, at their usual batches.
LADDER = (
    Size("tiny", 1, 128, 128, 128),
    Size("mnist dense", 1, 100, 784, 128),
    Size("mnist conv2", 1, 19600, 72, 16),
    Size("small", 1, 512, 512, 512),
    Size("medium", 8, 512, 512, 512),
    Size("large", 32, 512, 512, 512),
    Size("huge", 64, 512, 512, 512),
)


@dataclass
class Row:
    """What was found for one size: seconds a product, or why there are none."""

    size: Size
    transfer: float | None = None  # on the device, the arrays' way there and back included
    resident: float | None = None  # on the device, where the arrays are already
    cpu: float | None = None
    wrong: str = ""  # how far off a product was, if one was
    skipped: str = ""  # why nothing was measured

    @property
    def ratio(self) -> float | None:
        """How many times as fast as the CPU the device is, transfers included."""
        return None if self.transfer is None or self.cpu is None else self.cpu / self.transfer


def measure(device: Device, seconds: float, done: Callable[[int], None]) -> list[Row]:
    """A row for each size of the ladder, in about `seconds`; done(how many) is called after each.

    What can't be measured in what is left of the time, or has no room on the device, is skipped.
    """
    end = time.perf_counter() + seconds
    _warm(device, min(WARM, seconds / 10))
    rows: list[Row] = []
    pace = 0.0  # seconds that one multiply-accumulate took, all three ways together
    for number, size in enumerate(LADDER):
        left = end - time.perf_counter()
        row = Row(size)
        rows.append(row)
        # Each size takes a warm-up and a round at least, and the comparisons a little.
        if number and 2 * pace * size.work > left:
            row.skipped = "no time was left"
        else:
            later = 3 * pace * sum(size.work for size in LADDER[number + 1 :])
            # What small products take says too much of large ones: some time is theirs anyway.
            share = max(min(left / (len(LADDER) - number), left - later), left / 20)
            try:
                _measure(device, row, time.perf_counter() + share)
            except (OutOfDeviceMemoryError, LimitExceededError) as error:
                row.skipped = str(error)
            else:
                taken = (row.transfer or 0) + (row.resident or 0) + (row.cpu or 0)
                pace = taken / size.work
        done(number + 1)
    return rows


def find(rows: list[Row]) -> float | None:
    """From how many multiply-accumulates on the device wins at every size that was measured.

    Between the last loss and the win after it, where the ratio's line crosses 1 with both axes
    logarithmic. None where the largest size is lost. A wrong product is a loss.
    """
    found = [
        (row.size.work, 0.0 if row.wrong else row.ratio) for row in rows if row.ratio is not None
    ]
    works, ratios = [work for work, _ in found], [ratio or 0.0 for _, ratio in found]
    first = len(found)
    while first and ratios[first - 1] > 1:
        first -= 1
    if first == len(found):
        return None
    if first == 0 or ratios[first - 1] == 0:
        return float(works[first])
    below, above = math.log(ratios[first - 1]), math.log(ratios[first])
    part = -below / (above - below)
    return works[first - 1] * (works[first] / works[first - 1]) ** part


def _warm(device: Device, seconds: float) -> None:
    a = np.ones((256, 256), np.float32)
    end = time.perf_counter() + seconds
    with device.upload(a) as x:
        while True:
            with ops.matmul(x, x):
                device.synchronize()
            np.matmul(a, a)
            if time.perf_counter() > end:
                return


def _measure(device: Device, row: Row, end: float) -> None:
    size = row.size
    rng = np.random.default_rng(size.work)
    a, b = (
        2 * rng.random((size.batch, *shape), np.float32) - 1
        for shape in ((size.m, size.k), (size.k, size.n))
    )
    if size.batch == 1:
        a, b = a[0], b[0]
    right = _Right(a, b)
    cpu = _Way(lambda: np.matmul(a, b))
    with device.upload(a) as x, device.upload(b) as y:
        transfer = _Way(lambda: device.matmul(a, b))
        resident = _Way(lambda: ops.matmul(x, y), device.synchronize)
        # The CPU comes last: a BLAS leaves its threads spinning for a while after a product, which
        # takes the processors from the copies and makes them up to three times as long.
        time.sleep(SPINNING)
        now = time.perf_counter()
        _take_turns([transfer, resident], row, right, now + (end - now) * 2 / 3)
    _take_turns([cpu], row, right, end)
    row.transfer, row.resident, row.cpu = (
        statistics.median(way.seconds) for way in (transfer, resident, cpu)
    )


def _take_turns(ways: list[_Way], row: Row, right: _Right, end: float) -> None:
    for turn in range(ROUNDS + 1):  # the first is the warm-up
        start = time.perf_counter()
        for way in ways:
            product = way.run(timed=turn > 0)
            row.wrong = row.wrong or right.difference(product)
            del product
        now = time.perf_counter()
        if turn and now + (now - start) > end:
            break


class _Way:
    """One way to a product, and how long it took each time."""

    def __init__(self, multiply: Callable[[], Any], wait: Callable[[], None] | None = None) -> None:
        self.multiply = multiply
        self.wait = wait
        self.count = 1
        self.seconds: list[float] = []

    def run(self, timed: bool) -> Array:
        """The last of the products of one timing; the next has as many as this one suggests."""
        product, seconds = self._products(self.count)
        if timed:
            self.seconds.append(seconds)
        self.count = min(max(1, math.ceil(SHORTEST / seconds)), MOST)
        if self.wait is not None and seconds < LONG:
            self.count = max(self.count, SEVERAL)
        return product.download() if isinstance(product, Tensor) else product

    def _products(self, count: int) -> tuple[Any, float]:
        start = time.perf_counter()
        for _ in range(count):
            product = self.multiply()
        if self.wait is not None:
            self.wait()
        return product, (time.perf_counter() - start) / count


class _Right:
    """What a product must be."""

    def __init__(self, a: Array, b: Array) -> None:
        self._expected = np.matmul(a, b)
        k, n = b.shape[-2:]
        at = np.linspace(0, math.prod(a.shape[:-1]) - 1, SAMPLE).astype(int)
        rows = a.reshape(-1, k)[at].astype(np.float64)
        matrices = b.reshape(-1, k, n)
        self._at = at
        self._exact = np.stack(
            [
                row @ matrices[place // a.shape[-2]].astype(np.float64)
                for place, row in zip(at, rows, strict=True)
            ]
        )
        self._bound = 1e-6 * math.sqrt(k) * float(np.abs(self._exact).max())

    def difference(self, product: Array) -> str:
        """Empty if a product is right, else how far off it is."""
        if product.shape != self._expected.shape:
            return f"of shape {product.shape} instead of {self._expected.shape}"
        sample = product.reshape(-1, product.shape[-1])[self._at]
        # NumPy's float32 may be as far from the exact product on its side.
        for off, bound in (
            (np.abs(sample - self._exact).max(), self._bound),
            (np.abs(product - self._expected).max(), 2 * self._bound),
        ):
            if not off <= bound:  # NaN is wrong
                return f"off by {off:.2g}, where {bound:.2g} is allowed"
        return ""
