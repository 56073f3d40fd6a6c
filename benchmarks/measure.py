"""Timing and tables that the benchmarks share."""

from __future__ import annotations

import argparse
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


class Side(NamedTuple):
    """A contestant: work that may not be done when the call returns, and what waits until it is."""

    run: Callable[[], Any]
    wait: Callable[[], Any] = lambda: None


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


def timed(side: Side, count: int) -> float:
    """Seconds a run, over `count` runs and the wait for the last."""
    start = time.perf_counter()
    for _ in range(count):
        side.run()
    side.wait()
    return (time.perf_counter() - start) / count


def race(sides: dict[str, Side], seconds: float, warm: float) -> dict[str, float]:
    """The median seconds a run of each side, all taking turns of about `seconds`.

    Each has worked for `warm` seconds before: cards idle at a low clock.
    """
    counts = {}
    for name, side in sides.items():
        end = time.perf_counter() + warm
        once = timed(side, 1)
        while time.perf_counter() < end:
            once = min(once, timed(side, 3))
        counts[name] = max(2, int(seconds / once))
    return alternate(
        {name: (lambda s=side, n=counts[name]: timed(s, n)) for name, side in sides.items()}, 5
    )


class Torch(NamedTuple):
    """PyTorch as a peer: its module, where it computes, and what waits for it."""

    module: Any
    device: str
    wait: Callable[[], Any]


def pytorch() -> Torch:
    """PyTorch on CUDA where there is one, TF32 off, else on the CPU."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    if torch.cuda.is_available():
        return Torch(torch, "cuda", torch.cuda.synchronize)
    return Torch(torch, "cpu", lambda: None)


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


def parser(document: str | None, *peers: str, default: str = "") -> argparse.ArgumentParser:
    """What every benchmark of one device can be told: its peer, the generation, and JSON."""
    made = argparse.ArgumentParser(description=(document or "").split("\n")[0])
    if peers:
        made.add_argument("--peer", choices=peers, default=default or peers[0])
    made.add_argument("--api", choices=("v22", "v29"))
    made.add_argument("--json", action="store_true")
    return made


def where(dev: Any) -> str:
    """What the device is, and the generation it is reached through."""
    return f"{dev.name}, {dev.library.api}" if dev.library else str(dev.name)


def machine() -> str:
    """What the host is."""
    return f"{platform.processor() or platform.machine()}, Python {platform.python_version()}"
