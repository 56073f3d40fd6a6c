"""What the examples share: their arguments, a line of progress, and a picture of the loss."""

from __future__ import annotations

import argparse
import sys
from typing import Any

import tensai


def arguments(description: str | None, steps: int) -> argparse.Namespace:
    """--device gpu or cpu, --steps N, --seed N, --plot FILE.png."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu", help="gpu, or NumPy")
    parser.add_argument("--steps", type=int, default=steps)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plot", metavar="FILE.png", help="draw the loss (needs matplotlib)")
    return parser.parse_args()


def device(options: argparse.Namespace) -> tensai.Device:
    """The device that was asked for; the NumPy device where there is no GPU."""
    return tensai.open("cpu") if options.device == "cpu" else tensai.open(fallback="cpu")


class Progress:
    """Collects the losses without waiting for the device at every step."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.losses: list[Any] = []

    def add(self, loss: tensai.Tensor) -> None:
        """One more step is done; its loss is read only where it is shown."""
        self.losses.append(loss)
        done = len(self.losses)
        if sys.stderr.isatty() and (done % 20 == 0 or done == self.steps):
            end = "\n" if done == self.steps else ""
            print(f"\rstep {done}/{self.steps}, loss {float(loss):.4f} ", end=end, file=sys.stderr)

    def curve(self, path: str | None) -> list[float]:
        """Every loss; with a path, drawn as well."""
        losses = [float(loss) for loss in self.losses]
        if path:
            from matplotlib.figure import Figure

            figure = Figure(figsize=(7, 4), dpi=120, layout="constrained")
            axes = figure.add_subplot(xlabel="step", ylabel="loss")
            axes.plot(range(1, len(losses) + 1), losses)
            axes.grid(alpha=0.4)
            figure.savefig(path)
        return losses
