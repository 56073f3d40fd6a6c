"""Known inputs for reductions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..dtypes import DType, f32, i32, u32
from ..operation import Probe

SPOILED = np.uint32(0x7F800001).view(np.float32)  # a NaN with other bits than usual


def _along(row: Any) -> list[Probe]:
    """Reductions of parts of 70,003 elements along one axis, each way that the axes may lie."""
    # Rows for every team, in single elements and in vectors, whole and in chunks.
    single = ((300, 9), (300, 230), (4, 257), (9, 1801), (4, 17_001))
    vectors = ((300, 12), (70, 600), (9, 2400), (3, 5004), (4, 17_000))
    return [
        Probe((row[:3990].reshape(399, 10),), {"axis": 0}),
        Probe((row[:4088].reshape(2, 2044),), {"axis": 0}),
        Probe((row[:15_360].reshape(3, 20, 256),), {"axis": 1}),
        Probe((row[:14_000].reshape(2, 70, 100),), {"axis": 1}),
        *(
            Probe((row[-rows * length :].reshape(rows, length),), {"axis": 1})
            for rows, length in single + vectors
        ),
    ]


def extreme_probes() -> list[Probe]:
    """Numbers that are all different, so that each row has one extreme, in any place."""
    rng = np.random.default_rng(4)
    made = []
    for dtype in (f32, i32, u32):
        order = rng.permutation(70_003)
        row = (order if dtype == u32 else order - 35_000).astype(dtype)
        low, high = int(np.argmin(row)), int(np.argmax(row))
        low_end, high_end = row[low], row[high]
        row[[low, 70_001]], row[[high, 70_002]] = row[[70_001, low]], row[[70_002, high]]
        made += [Probe((row,)), *_along(row)]
        # What lies before a row's own elements is less, or more, than all of them.
        rising = np.arange(4 * 17_001).astype(dtype).reshape(4, 17_001)
        made += [Probe((rows,), {"axis": 1}) for rows in (rising, rising[::-1])]
        made += [Probe((row[-count:],)) for count in (1, 2, 256, 999)]
        ends = row[:1028].reshape(4, 257).copy()
        ends[0, 256], ends[1, 256] = high_end, low_end
        made.append(Probe((ends,), {"axis": 1}))
        made.append(Probe((row[:12_800].reshape(50, 256),), {"axis": 1}))
    spoiled = rng.normal(0, 3, (64, 300)).astype(np.float32)
    spoiled[np.arange(64), rng.integers(0, 300, 64)] = SPOILED
    return [*made, Probe((spoiled,), {"axis": 1}), Probe((spoiled[:, :64],), {"axis": 0})]


def exact_probes(dtypes: Sequence[DType]) -> Callable[[], list[Probe]]:
    """Small integers, whose sums are exact, over several full workgroups and with odd tails."""

    def make() -> list[Probe]:
        rng = np.random.default_rng(3)
        made = []
        for dtype in dtypes:
            low = 0 if dtype == u32 else -6
            row = rng.integers(low, 7, 70_003).astype(dtype)
            row[69_999] = 40  # past the last whole chunk, so that a skipped tail shows
            made.append(Probe((row,)))
            made.append(Probe((row[:999],)))
            made.extend(_along(row))
        if f32 in dtypes:
            spoiled = rng.integers(-6, 7, 5000).astype(np.float32)
            spoiled[4097] = np.nan
            made.append(Probe((spoiled,)))
        return made

    return make


def argmax_probes() -> list[Probe]:
    """Also rows of what argmax takes for equal, of neighbours, and of nothing but the least."""
    nan, two, more = np.nan, 2.0, np.nextafter(np.float32(2), np.float32(3))
    starts = [(-1, -0.0, 0), (0, -0.0), (-1, 0, -0.0), (two, more, two), (more, two), (-more, -two)]
    starts += [(SPOILED, nan), (1, nan, SPOILED), (np.inf, nan), (nan, np.inf), (-np.inf, -np.inf)]
    rows = np.full((len(starts), 12), -np.inf, np.float32)
    for row, start in zip(rows, starts, strict=True):
        row[: len(start)] = start
    close = [Probe((rows[:, :length].copy(),), {"axis": 1}) for length in (9, 12)]
    least = Probe((np.zeros(70_003, np.uint32),))
    return [*exact_probes((f32, i32, u32))(), *extreme_probes(), *close, least]
