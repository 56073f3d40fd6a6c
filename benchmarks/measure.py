"""Timing and tables that the benchmarks share."""

from __future__ import annotations

import gc
import json
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple


class Table(NamedTuple):
    """What a benchmark found."""

    title: str
    head: tuple[str, ...]
    rows: list[tuple[Any, ...]]


shown: list[Table] = []  # by this process, for whoever runs several benchmarks


def alternate(runs: dict[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """The median of each run's figures over rounds in which all take turns.

    A run returns its own figure, so that it can leave its set-up out.
    """
    figures: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            gc.collect()
            gc.disable()
            try:
                figures[name].append(run())
            finally:
                gc.enable()
    return {name: statistics.median(taken) for name, taken in figures.items()}


def per_call(body: Callable[[], Any], count: int) -> float:
    """Microseconds a call, over `count` calls."""
    start = time.perf_counter()
    for _ in range(count):
        body()
    return (time.perf_counter() - start) / count * 1e6


def show(title: str, head: Sequence[str], rows: Sequence[Sequence[Any]], as_json: bool) -> None:
    """Print rows as a table, or as JSON with what they were measured on; and keep them."""
    shown.append(Table(title, tuple(head), [tuple(row) for row in rows]))
    if as_json:
        measured = [dict(zip(head, row, strict=True)) for row in rows]
        print(json.dumps({"benchmark": title, "machine": machine(), "rows": measured}, indent=1))
        return
    cells = [[text(cell) for cell in row] for row in (head, *rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    print(title)
    for number, row in enumerate(cells):
        first, *rest = (
            cell.ljust(w) if i == 0 else cell.rjust(w)
            for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        print("  " + "  ".join((first, *rest)))
        if number == 0:
            print("  " + "  ".join("-" * width for width in widths))


def text(cell: Any) -> str:
    if isinstance(cell, float):
        return f"{cell:.3g}" if abs(cell) < 100 else f"{cell:,.0f}"
    return str(cell)


def machine() -> str:
    """What the host is."""
    return f"{platform.processor() or platform.machine()}, Python {platform.python_version()}"
