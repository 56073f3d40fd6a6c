"""Square f32 products, resident on the device, against a peer in the same run.

    python -m benchmarks.matmul [--peer numpy|torch] [--sizes 512 1024 ...] [--api v22|v29] [--json]

With --peer torch the peer is PyTorch on CUDA where there is one (TF32 off), else on the CPU. Every
timed product is verified: a sample of its rows against float64 NumPy.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import tensai
from benchmarks.measure import alternate, show

SECONDS = 0.2  # of products in each timed run


def timed(multiply: Callable[[], Any], wait: Callable[[], Any], count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        multiply()
    wait()
    return (time.perf_counter() - start) / count


def verify(name: str, product: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
    """Raise unless a sample of rows is within the bound that tensai promises."""
    rows = np.linspace(0, len(a) - 1, 16).astype(int)
    expected = a[rows].astype(np.float64) @ b.astype(np.float64)
    bound = 1e-6 * np.sqrt(a.shape[1]) * np.abs(expected).max()
    worst = np.abs(product[rows] - expected).max()
    if not worst <= bound:
        raise SystemExit(f"{name}: off by {worst}, {bound} is allowed")


def ours(dev: Any, a: np.ndarray, b: np.ndarray) -> tuple[Callable[[], Any], Callable[[], Any]]:
    x, y = dev.upload(a), dev.upload(b)
    verify("tensai", (x @ y).download(), a, b)
    return lambda: x @ y, dev.synchronize


def peer(name: str, a: np.ndarray, b: np.ndarray) -> tuple[Callable[[], Any], Callable[[], Any]]:
    if name == "numpy":
        return lambda: a @ b, lambda: None
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    cuda = torch.cuda.is_available()
    x, y = (torch.from_numpy(m).to("cuda" if cuda else "cpu") for m in (a, b))
    verify("torch", (x @ y).cpu().numpy(), a, b)
    return lambda: x @ y, torch.cuda.synchronize if cuda else lambda: None


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--peer", choices=("numpy", "torch"), default="numpy")
    parser.add_argument("--sizes", type=int, nargs="+", default=[256, 512, 1024])
    parser.add_argument("--api", choices=("v22", "v29"))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    dev = tensai.open(api=options.api)
    rng = np.random.default_rng(0)
    rows = []
    for size in options.sizes:
        a, b = rng.normal(size=(2, size, size)).astype(np.float32)
        runs = {"tensai": ours(dev, a, b), options.peer: peer(options.peer, a, b)}
        counts = {}
        for name, (multiply, wait) in runs.items():
            # Warm up for a second: cards idle at a low clock.
            end = time.perf_counter() + 1
            once = 1.0
            while time.perf_counter() < end:
                once = min(once, timed(multiply, wait, 3))
            counts[name] = max(3, int(SECONDS / once))
        medians = alternate(
            {
                name: (lambda m=multiply, w=wait, n=counts[name]: timed(m, w, n))
                for name, (multiply, wait) in runs.items()
            },
            5,
        )
        tera = {name: 2 * size**3 / seconds / 1e12 for name, seconds in medians.items()}
        rows.append((size, tera["tensai"], tera[options.peer], tera["tensai"] / tera[options.peer]))
    title = f"f32 matmul on {dev.name}, {dev.library.api if dev.library else ''}, TFLOP/s"
    show(title, ("size", "tensai", options.peer, "ratio"), rows, options.json)


if __name__ == "__main__":
    main()
