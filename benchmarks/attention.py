"""Causal attention, resident on the device, against PyTorch's in the same run.

    python -m benchmarks.attention [--sizes 512 ...] [--heads 32] [--dim 128] [--api v22|v29]
                                   [--json]

Batch 1, float32, as many queries as rows of k and v. The peer is PyTorch's scaled dot product
attention on CUDA where there is one (TF32 off), else on the CPU. TFLOP/s count the two products of
what each query may see; the peak is a kernel of nothing but multiply-adds. Queries of the first and
the last head are verified against float64 NumPy.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import tensai
from benchmarks.measure import Side, parser, pytorch, race, show, where
from benchmarks.peak import arithmetic

SECONDS = 0.2  # of work in each timed run
BOUND = 1e-5  # of the largest element: exponentials and two sums on the way
Array = np.ndarray[Any, Any]


def verify(who: str, out: Array, q: Array, k: Array, v: Array) -> None:
    """Raise unless a sample of rows is right; all are (heads, size, dim)."""
    size, dim = q.shape[1:]
    for head in (0, len(q) - 1):
        for row in np.linspace(0, size - 1, 9).astype(int):
            keys, values = k[head, : row + 1].astype(np.float64), v[head, : row + 1]
            scores = keys @ q[head, row] / np.sqrt(dim)
            weights = np.exp(scores - scores.max())
            right = weights @ values / weights.sum()
            worst = np.abs(out[head, row] - right).max()
            if not worst <= BOUND * np.abs(right).max():
                raise SystemExit(f"{who}, {size}: row {row} of head {head} is off by {worst}")


def ours(dev: Any, q: Array, k: Array, v: Array) -> Side:
    heads, size, dim = q.shape
    # Heads lie side by side in a row.
    packed = [dev.upload(x.transpose(1, 0, 2).reshape(1, size, heads * dim)) for x in (q, k, v)]

    def run() -> Any:
        return packed[0].attention(*packed[1:], heads=heads, causal=True)

    out = run().download().reshape(size, heads, dim).transpose(1, 0, 2)
    verify("tensai", out, q, k, v)
    return Side(run, dev.synchronize)


def peer(q: Array, k: Array, v: Array) -> Side:
    torch, device, wait = pytorch()
    moved = [torch.from_numpy(x[None]).to(device) for x in (q, k, v)]

    def run() -> Any:
        return torch.nn.functional.scaled_dot_product_attention(*moved, is_causal=True)

    verify("torch", run()[0].cpu().numpy(), q, k, v)
    return Side(run, wait)


def main() -> None:
    arguments = parser(__doc__, "torch")
    arguments.add_argument("--sizes", type=int, nargs="+", default=[256, 512])
    arguments.add_argument("--heads", type=int, default=32)
    arguments.add_argument("--dim", type=int, default=128)
    arguments.add_argument("--warm", type=float, default=1.0, help="seconds before each")
    options = arguments.parse_args()
    dev = tensai.open(api=options.api)
    rng = np.random.default_rng(0)
    peak = arithmetic(dev) / 1e12
    rows = []
    for size in options.sizes:
        q, k, v = rng.standard_normal((3, options.heads, size, options.dim), np.float32)
        sides = {"tensai": ours(dev, q, k, v), "torch": peer(q, k, v)}
        seconds = race(sides, SECONDS, options.warm)
        flop = 2 * options.heads * options.dim * size * (size + 1)
        tera = {name: flop / taken / 1e12 for name, taken in seconds.items()}
        ratio = tera["tensai"] / tera["torch"]
        rows.append((size, tera["tensai"], tera["torch"], ratio, peak))
    title = f"Causal attention on {where(dev)}, {options.heads} heads of {options.dim}, TFLOP/s"
    show(title, ("rows", "tensai", "torch", "ratio", "peak"), rows, options.json)


if __name__ == "__main__":
    main()
