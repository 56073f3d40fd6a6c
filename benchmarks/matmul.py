"""f32 products, resident on the device, against a peer in the same run.

    python -m benchmarks.matmul [--peer numpy|torch] [--sizes 512 1000 ...] [--batched 64x512 ...]
                                [--transposed 1024 ...] [--api v22|v29] [--json]

Cubes of `--sizes`; `--batched 64x512` is 64 of 512; `--transposed` are cubes of which the first
matrix is given transposed, and then the second. With --peer torch the peer is PyTorch on CUDA where
there is one (TF32 off), else on the CPU. The peak is a kernel of nothing but multiply-adds. Every
timed product is verified: a sample of its rows against float64 NumPy.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

import numpy as np

import tensai
from benchmarks.measure import Side, parser, pytorch, race, show, where
from benchmarks.peak import arithmetic

SECONDS = 0.2  # of products in each timed run
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Work:
    """A product of two cubes' sides, `count` of them at a time; a transposed side is swapped."""

    name: str
    size: int
    count: int = 1
    first: bool = False
    second: bool = False

    def arrays(self, rng: np.random.Generator) -> tuple[Array, Array]:
        shape = (self.count, self.size, self.size)[self.count == 1 :]
        return rng.standard_normal(shape, np.float32), rng.standard_normal(shape, np.float32)

    def multiply(self, a: Any, b: Any) -> Any:
        """In NumPy or PyTorch."""
        return (a.swapaxes(-1, -2) if self.first else a) @ (
            b.swapaxes(-1, -2) if self.second else b
        )

    def ours(self, a: Any, b: Any) -> Any:
        if self.first:
            return tensai.ops.matmul_tn(a, b)
        return tensai.ops.matmul_t(a, b) if self.second else a @ b

    def verify(self, who: str, product: Array, a: Array, b: Array) -> None:
        """Raise unless a sample of rows of the last product is within tensai's bound."""
        a, b, product = (array.reshape(-1, self.size, self.size)[-1] for array in (a, b, product))
        a, b = (a.T if self.first else a), (b.T if self.second else b)
        rows = np.linspace(0, self.size - 1, 16).astype(int)
        right = a[rows].astype(np.float64) @ b.astype(np.float64)
        bound = 1e-6 * np.sqrt(self.size) * np.abs(right).max()
        worst = np.abs(product[rows] - right).max()
        if not worst <= bound:
            raise SystemExit(f"{who}, {self.name}: off by {worst}, {bound} is allowed")


def ours(dev: Any, work: Work, a: Array, b: Array) -> Side:
    x, y = dev.upload(a), dev.upload(b)
    work.verify("tensai", work.ours(x, y).download(), a, b)
    return Side(lambda: work.ours(x, y), dev.synchronize)


def peer(name: str, work: Work, a: Array, b: Array) -> Side:
    if name == "numpy":
        return Side(lambda: work.multiply(a, b))
    torch, device, wait = pytorch()
    x, y = (torch.from_numpy(m).to(device) for m in (a, b))
    work.verify("torch", work.multiply(x, y).cpu().numpy(), a, b)
    return Side(lambda: work.multiply(x, y), wait)


def works(options: argparse.Namespace) -> list[Work]:
    made = [Work(str(size), size) for size in options.sizes]
    for text in options.batched:
        count, size = (int(number) for number in text.split("x"))
        made.append(Work(text, size, count))
    for size in options.transposed:
        made.append(Work(f"{size}, first transposed", size, first=True))
        made.append(Work(f"{size}, second transposed", size, second=True))
    return made


def main() -> None:
    arguments = parser(__doc__, "numpy", "torch")
    arguments.add_argument("--sizes", type=int, nargs="*", default=[256, 512, 1024])
    arguments.add_argument("--batched", nargs="*", default=[])
    arguments.add_argument("--transposed", type=int, nargs="*", default=[])
    arguments.add_argument(
        "--warm", type=float, default=1.0, help="seconds before each measurement"
    )
    options = arguments.parse_args()
    dev = tensai.open(api=options.api)
    rng = np.random.default_rng(0)
    peak = arithmetic(dev) / 1e12
    rows = []
    for work in works(options):
        a, b = work.arrays(rng)
        sides = {"tensai": ours(dev, work, a, b), options.peer: peer(options.peer, work, a, b)}
        medians = race(sides, SECONDS, options.warm)
        flop = 2 * work.count * work.size**3
        tera = {name: flop / seconds / 1e12 for name, seconds in medians.items()}
        ratio = tera["tensai"] / tera[options.peer]
        rows.append((work.name, tera["tensai"], tera[options.peer], ratio, peak))
    title = f"f32 matmul on {where(dev)}, TFLOP/s"
    show(title, ("size", "tensai", options.peer, "ratio", "peak"), rows, options.json)


if __name__ == "__main__":
    main()
