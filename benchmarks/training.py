"""Steps of training a block, resident on the device, against PyTorch; and the hook against NumPy.

    python -m benchmarks.training [--sizes 512 ...] [--peer torch|none] [--api v22|v29] [--json]

The block is mse((x @ w1).gelu() @ w2, y), all square, with the gradients of x, w1 and w2: six
products a step. Columns, in steps a second: tensai's tape, the same step recorded and replayed,
PyTorch (CUDA where there is one, TF32 off), and what the products alone would allow. Then the same
block written by hand in NumPy, with np.matmul and with tensai.matmul on the accelerator, its
products going to the device and back.
Gradients of all of them are compared before anything is timed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import tensai
from benchmarks.measure import Side, parser, pytorch, race, show, where
from benchmarks.peak import arithmetic
from tensai.autograd import Parameter, mse_loss, recorded

SECONDS = 0.3  # of steps in each timed run
TOLERANCE = 2e-4  # between two float32 results, of the largest element

Array = np.ndarray[Any, Any]
Run = tuple[Side, Callable[[], list[Array]]]  # steps, and the gradients of the last


def ours(dev: Any, arrays: list[Array], record: bool) -> Run:
    x, w1, w2 = (Parameter(dev.upload(array)) for array in arrays[:3])
    target = dev.upload(arrays[3])

    def step(y: Any) -> Any:
        x.grad = w1.grad = w2.grad = None
        loss = mse_loss((x @ w1).gelu() @ w2, y)
        loss.backward()
        return loss

    run = recorded(step) if record else step
    return (
        Side(lambda: run(target), dev.synchronize),
        lambda: [parameter.grad.download() for parameter in (x, w1, w2)],  # type: ignore[union-attr]
    )


def peer(arrays: list[Array]) -> Run:
    torch, device, wait = pytorch()
    x, w1, w2 = (torch.tensor(array, device=device, requires_grad=True) for array in arrays[:3])
    y = torch.tensor(arrays[3], device=device)

    def step() -> None:
        x.grad = w1.grad = w2.grad = None
        made = torch.nn.functional.gelu(x @ w1) @ w2
        torch.nn.functional.mse_loss(made, y).backward()

    return Side(step, wait), lambda: [p.grad.cpu().numpy() for p in (x, w1, w2)]


def by_hand(arrays: list[Array], matmul: Callable[..., Array]) -> Run:
    """The block in NumPy."""
    from tensai.reference import erf

    x, w1, w2, y = arrays
    kept: list[Array] = []

    def step() -> None:
        before = matmul(x, w1)
        cdf = (0.5 * (1 + erf(before * math.sqrt(0.5)))).astype(np.float32)
        density = np.exp(-0.5 * before * before) * np.float32(1 / math.sqrt(2 * math.pi))
        hidden = before * cdf
        grad = (matmul(hidden, w2) - y) * np.float32(2 / y.size)
        by_w2 = matmul(hidden.T, grad)
        through = matmul(grad, w2.T) * (cdf + before * density)
        kept[:] = matmul(through, w1.T), matmul(x.T, through), by_w2

    return Side(step), lambda: list(kept)


def rates(runs: dict[str, Run]) -> dict[str, float]:
    """Steps a second of each, their gradients compared with the first one's."""
    expected: list[Array] = []
    for name, (side, gradients) in runs.items():
        for _ in range(3):  # a recorded step is replayed from the third on
            side.run()
        side.wait()
        found = gradients()
        for one, two in zip(found, expected, strict=False):
            worst = np.abs(one - two).max() / np.abs(two).max()
            if not worst <= TOLERANCE:
                raise SystemExit(f"{name}: a gradient is off by {worst:.1e} of the largest element")
        expected = expected or found
    medians = race({name: side for name, (side, _) in runs.items()}, SECONDS, warm=1)
    return {name: 1 / seconds for name, seconds in medians.items()}


def main() -> None:
    arguments = parser(__doc__, "torch", "none")
    arguments.add_argument("--sizes", type=int, nargs="+", default=[256, 512])
    options = arguments.parse_args()
    dev = tensai.open(api=options.api)
    rng = np.random.default_rng(0)
    flops = arithmetic(dev)
    resident, hosted = [], []
    for size in options.sizes:
        arrays = list(rng.normal(0, 1, (4, size, size)).astype(np.float32))
        arrays[1] *= np.float32(size**-0.5)
        arrays[2] *= np.float32(size**-0.5)
        runs = {"tape": ours(dev, arrays, record=False), "recorded": ours(dev, arrays, record=True)}
        if options.peer == "torch":
            runs["torch"] = peer(arrays)
        found = rates(runs)
        theirs = found.get("torch", math.nan)
        best = max(found["tape"], found["recorded"])
        peak = flops / (12 * size**3)
        resident.append((size, found["tape"], found["recorded"], theirs, best / theirs, peak))
        with tensai.accelerated(dev, threshold=0):
            found = rates(
                {"numpy": by_hand(arrays, np.matmul), "hook": by_hand(arrays, tensai.matmul)}
            )
        ratio = found["hook"] / found["numpy"]
        hosted.append((size, size**3 / 1e8, found["hook"], found["numpy"], ratio))
    head = ("size", "tape", "recorded", options.peer, "ratio", "peak")
    show(f"Training steps a second, resident, on {where(dev)}", head, resident, options.json)
    head = ("size", "1e8 MAC a product", "hook", "numpy", "ratio")
    show(
        f"The same by hand, products through tensai.matmul, on {where(dev)}",
        head,
        hosted,
        options.json,
    )


if __name__ == "__main__":
    main()
