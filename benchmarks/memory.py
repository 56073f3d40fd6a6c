"""Operations that move memory more than they compute, against a peer in the same run.

    python -m benchmarks.memory [--peer numpy|torch] [--sizes 26 ...] [--api v22|v29] [--json]

A size is the binary logarithm of the elements that an operation reads. With --peer torch it is
PyTorch on CUDA where there is one (TF32 off), else on the CPU. GB/s count what must be read and
written once; the peak is what copying the most elements reached, by whichever of the two was
faster. Every result is verified against float64 NumPy, in full or in a sample of rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import tensai
from benchmarks.measure import Side, parser, pytorch, race, show, where

SECONDS = 0.05  # of work in each timed run
ROW = 1024  # elements of a row
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Work:
    """One operation: its arrays, how each side computes it, and what the right answer is.

    `ours` and `numpy` take tensors and arrays, `torch` PyTorch's module first. `right` answers for
    the rows that it is given, from float64, and `rows` says how many there are.
    """

    name: str
    arrays: tuple[Array, ...]
    ours: Callable[..., Any]
    torch: Callable[..., Any]
    numpy: Callable[..., Any]
    right: Callable[[Array], Array]
    rows: int
    length: int  # of the sums within, 0 for results that are exact
    elements: int  # that must be read and written


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    result: Array = e / e.sum(-1, keepdims=True)
    return result


def layer_norm(x: Array, weight: Array, bias: Array) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    scale = np.sqrt(np.square(centred).mean(-1, keepdims=True) + 1e-5)
    result: Array = centred / scale * weight + bias
    return result


def rms_norm(x: Array, weight: Array) -> Array:
    result: Array = x / np.sqrt(np.square(x).mean(-1, keepdims=True) + 1e-6) * weight
    return result


def works(size: int, rng: np.random.Generator) -> list[Work]:
    """The operations over 2^size elements."""
    count = 1 << size
    width = min(ROW, count)
    rows = count // width
    x = rng.standard_normal((rows, width), np.float32)
    y = x[::-1].copy()
    weight, bias = rng.standard_normal((2, width), np.float32)
    # A matrix three times as tall as wide, and as wide as tall.
    n = (3 << size // 2 - 1) // 4 * 4
    k = count // n // 4 * 4
    w = x.reshape(-1)[: n * k]
    tall, flat = w.reshape(n, k), w.reshape(k, n)
    short, long = rng.standard_normal(k, np.float32), rng.standard_normal((1, k), np.float32)
    by_tall = tall.astype(np.float64) @ short
    by_flat = long @ flat.astype(np.float64)
    total = x.sum(dtype=np.float64)
    sums = x.sum(1, dtype=np.float64)
    moved = 2 * count
    # name, arrays, ours, torch, numpy, right, rows, length of sums, elements moved
    return [
        Work("copy", (x,), lambda x: x.copy(), lambda t, x: x.clone(), lambda x: x.copy(),
             lambda at: x[at], rows, 1, moved),
        Work("add", (x, y), lambda x, y: x + y, lambda t, x, y: x + y, lambda x, y: x + y,
             lambda at: x[at].astype(np.float64) + y[at], rows, 1, 3 * count),
        Work("sum", (x,), lambda x: x.sum(), lambda t, x: x.sum(), lambda x: x.sum(),
             lambda at: total, 0, count, count),
        Work("sum of rows", (x,), lambda x: x.sum(1), lambda t, x: x.sum(1),
             lambda x: x.sum(1), lambda at: sums[at], rows, width, count),
        Work("max", (x,), lambda x: x.max(), lambda t, x: x.max(), lambda x: x.max(),
             lambda at: x.max(), 0, 1, count),
        Work("argmax", (x,), lambda x: x.argmax(), lambda t, x: x.argmax(), lambda x: x.argmax(),
             lambda at: x.argmax(), 0, 0, count),
        Work("argmax of rows", (x,), lambda x: x.argmax(1), lambda t, x: x.argmax(1),
             lambda x: x.argmax(1), lambda at: x[at].argmax(1), rows, 0, count),
        Work("softmax", (x,), lambda x: x.softmax(), lambda t, x: t.softmax(x, -1),
             softmax, lambda at: softmax(x[at].astype(np.float64)), rows, width, moved),
        Work("log_softmax", (x,), lambda x: x.log_softmax(),
             lambda t, x: t.log_softmax(x, -1), lambda x: np.log(softmax(x)),
             lambda at: np.log(softmax(x[at].astype(np.float64))), rows, width, moved),
        Work("layer_norm", (x, weight, bias), lambda x, w, b: x.layer_norm(w, b),
             lambda t, x, w, b: t.nn.functional.layer_norm(x, x.shape[-1:], w, b), layer_norm,
             lambda at: layer_norm(x[at].astype(np.float64), weight, bias), rows, width, moved),
        Work("rms_norm", (x, weight), lambda x, w: x.rms_norm(w),
             lambda t, x, w: t.nn.functional.rms_norm(x, x.shape[-1:], w, 1e-6), rms_norm,
             lambda at: rms_norm(x[at].astype(np.float64), weight), rows, width, moved),
        Work(f"{n}x{k} @ x", (tall, short), lambda w, x: w @ x, lambda t, w, x: w @ x,
             lambda w, x: w @ x, lambda at: by_tall[at], n, k, n * k),
        Work(f"x @ {k}x{n}", (long, flat), lambda x, w: x @ w, lambda t, x, w: x @ w,
             lambda x, w: x @ w, lambda at: by_flat, 0, k, n * k),
    ]  # fmt: skip


def verify(who: str, work: Work, result: Any) -> None:
    """Raise unless what is looked at is within the bound that tensai promises."""
    at = np.linspace(0, max(work.rows - 1, 0), 64).astype(int)
    got = np.asarray(result.download() if hasattr(result, "download") else result)
    got = got[at] if work.rows else got
    expected = work.right(at)
    bound = 1e-6 * np.sqrt(work.length) * max(1.0, np.abs(expected).max())
    worst = np.abs(got - expected).max()
    if got.shape != expected.shape or not worst <= bound:
        raise SystemExit(f"{who}, {work.name}: off by {worst}, {bound} is allowed")


def compare(dev: Any, peer: str, work: Work) -> dict[str, float]:
    """Seconds of tensai and of the peer, after a warm-up of both."""
    tensors = [dev.upload(array) for array in work.arrays]
    verify("tensai", work, work.ours(*tensors))
    sides = {"tensai": Side(lambda: work.ours(*tensors), dev.synchronize)}
    if peer == "torch":
        torch, device, wait = pytorch()
        moved = [torch.from_numpy(array).to(device) for array in work.arrays]
        verify("torch", work, work.torch(torch, *moved).cpu())
        sides["torch"] = Side(lambda: work.torch(torch, *moved), wait)
    else:
        sides["numpy"] = Side(lambda: work.numpy(*work.arrays))
    return race(sides, SECONDS, SECONDS)


def warm(dev: Any) -> None:
    """Cards idle at a low clock: a second of work."""
    x = dev.ones((1 << 20,))
    end = time.perf_counter() + 1
    while time.perf_counter() < end:
        x.copy()
        dev.synchronize()


def main() -> None:
    arguments = parser(__doc__, "numpy", "torch")
    arguments.add_argument("--sizes", type=int, nargs="+", default=[20, 22])
    options = arguments.parse_args()
    dev = tensai.open(api=options.api)
    rng = np.random.default_rng(0)
    warm(dev)
    measured = []
    for size in options.sizes:
        for work in works(size, rng):
            seconds = compare(dev, options.peer, work)
            measured.append((size, work, seconds))
    largest = max(options.sizes)
    peak = max(
        4 * work.elements / min(seconds.values())
        for size, work, seconds in measured
        if work.name == "copy" and size == largest
    )
    rows = []
    for size, work, seconds in measured:
        own, other = seconds["tensai"], seconds[options.peer]
        rate = 4 * work.elements / own
        rows.append((f"2^{size} {work.name}", own * 1e6, rate / 1e9, rate / peak, other / own))
    title = f"Memory-bound operations on {where(dev)}"
    head = ("work", "us", "GB/s", "of the peak", f"ratio to {options.peer}")
    show(f"{title}; peak {peak / 1e9:,.0f} GB/s", head, rows, options.json)


if __name__ == "__main__":
    main()
