"""Products with quantized weights, resident on the device, against PyTorch in the same run.

    python -m benchmarks.quantized [--shapes 4096x4096 ...] [--kinds q8 q4] [--rows 1 512]
                                   [--api v22|v29] [--json]

A shape is k x n. One row is a matrix-vector product, at the memory's speed: GB/s count the packed
matrix, the peak is a copy's, and the peer multiplies a float16 matrix (float32 on the CPU). More
rows are a prefill: TOP/s, with the peak of float32 multiply-adds, and the peer multiplies float32
(CUDA where there is one, TF32 off). Activations are float32, and rounded to int8 where the device
can multiply those. Results are verified against float64 NumPy with the weights as they were packed:
float32 activations within tensai's bound, int8 ones within 1% of the norm.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import tensai
from benchmarks.measure import Side, parser, pytorch, race, show, where
from benchmarks.peak import arithmetic, bandwidth

SECONDS = 0.05  # of work in each timed run
SAMPLE = 64  # columns of a result that are verified
Array = np.ndarray[Any, Any]


def verify(what: str, found: Array, x: Array, weights: Array, rounded: bool) -> None:
    """Raise unless some columns are right."""
    right = x.astype(np.float64) @ weights.astype(np.float64)
    if rounded:
        off, bound = float(np.linalg.norm(found - right)), 0.01 * float(np.linalg.norm(right))
    else:
        off = float(np.abs(found - right).max())
        bound = 1e-6 * len(weights) ** 0.5 * float(np.abs(right).max())
    if not off <= bound:
        raise SystemExit(f"{what}: off by {off}, {bound} is allowed")


def peer(x: Array, w: Array, columns: Array) -> Side:
    torch, device, wait = pytorch()
    kind = torch.float16 if len(x) == 1 and device == "cuda" else torch.float32
    left, right = (torch.from_numpy(a).to(device, kind) for a in (x, w))
    found = (left @ right).float().cpu().numpy()[:, columns]
    verify("torch", found, x, w[:, columns], rounded=kind == torch.float16)
    return Side(lambda: left @ right, wait)


def main() -> None:
    arguments = parser(__doc__, "torch")
    arguments.add_argument("--shapes", nargs="+", default=["1024x1024"], metavar="KxN")
    arguments.add_argument("--kinds", nargs="+", choices=("q8", "q4"), default=["q8", "q4"])
    arguments.add_argument("--rows", type=int, nargs="+", default=[1, 512])
    arguments.add_argument("--group", type=int, default=32, help="rows that share a scale")
    arguments.add_argument("--warm", type=float, default=1.0, help="seconds before each")
    options = arguments.parse_args()
    dev = tensai.open(api=options.api)
    rng = np.random.default_rng(0)
    copy, multiply = bandwidth(dev), arithmetic(dev)
    moved, computed = [], []
    for shape in options.shapes:
        k, n = (int(side) for side in shape.split("x"))
        w = rng.standard_normal((k, n), np.float32)
        columns = np.linspace(0, n - 1, SAMPLE).astype(int)
        for kind in options.kinds:
            quantize = tensai.quantize_q8 if kind == "q8" else tensai.quantize_q4
            upload = dev.upload_q8 if kind == "q8" else dev.upload_q4
            packed = upload(quantize(w, options.group))
            weights = packed.dequantize().download()[:, columns]
            for rows in options.rows:
                x = rng.standard_normal((rows, k), np.float32)
                on_device = dev.upload(x)
                sides = {"torch": peer(x, w, columns)}
                for activations in ("f32", "int8"):
                    what = f"{rows} x {shape}, {kind}, {activations}"

                    def run(a: Any = on_device, q: Any = packed, how: str = activations) -> Any:
                        return a.matmul(q, activations=how)

                    found = run().download()[:, columns]
                    verify(what, found, x, weights, rounded=activations == "int8")
                    sides[what] = Side(run, dev.synchronize)
                seconds = race(sides, SECONDS, options.warm)
                theirs = seconds.pop("torch")
                for what, taken in seconds.items():
                    if rows == 1:
                        rate = packed.nbytes / taken
                        moved.append((what, packed.nbytes / 1e6, taken * 1e6, rate / 1e9,
                                      rate / copy, theirs / taken))  # fmt: skip
                    else:
                        rate = 2 * rows * k * n / taken
                        computed.append((what, taken * 1e6, rate / 1e12, rate / multiply,
                                         theirs / taken))  # fmt: skip
    if moved:
        head = ("product", "MB", "us", "GB/s", "of a copy's", "ratio to torch")
        show(f"Quantized weights, one row, on {where(dev)}", head, moved, options.json)
    if computed:
        head = ("product", "us", "TOP/s", "of the f32 peak", "ratio to torch")
        show(f"Quantized weights, many rows, on {where(dev)}", head, computed, options.json)


if __name__ == "__main__":
    main()
