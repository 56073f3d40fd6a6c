"""`tensai tune`: time the kernels of the product on this device, and keep what was found.

From then on products choose among them by their times here instead of those of another card.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import tensai

from . import tuning
from .errors import TensaiError
from .gpu import GpuDevice
from .models.progress import Progress
from .ops.products import TILES
from .ops.tiles import Pace
from .tuning import Sizes

SIZES = (256, 512, 1024, 2048, 4096)  # of square products
SLOWEST = 0.1  # seconds for a product that is still timed


def main(argv: list[str] | None = None) -> int:
    """The command; 1 where there is no GPU or nothing can be kept."""
    parser = argparse.ArgumentParser(
        prog="tensai tune",
        description="Time the kernels of float32 products on this device, show how fast each is at "
        "several sizes and which of them is chosen, and keep the times for other processes.",
    )
    parser.add_argument("--dry-run", action="store_true", help="keep nothing")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(argv)
    try:
        with tensai.open() as device:
            if not isinstance(device, GpuDevice):
                raise ValueError(f"there is nothing to choose among on {device.name}")
            return _run(device, options)
    except (TensaiError, ValueError) as error:
        print(f"tensai tune: {error}", file=sys.stderr)
        return 1


def _run(device: GpuDevice, options: argparse.Namespace) -> int:
    terminal = sys.stderr is not None and sys.stderr.isatty()
    with Progress("kernels timed", len(TILES), terminal) as progress:
        paces = tuning.measure(device, progress.show)
    if not paces:
        raise ValueError(f"no kernel of the product is right on {device.name}")
    sizes = tuning.squares(device, paces, SIZES, SLOWEST)
    path = None if options.dry_run else tuning.save_paces(device, paces)
    if options.json:
        print(json.dumps(report(device, paces, sizes, path), indent=2))
    else:
        show(device, paces, sizes)
        print("\nkept nothing" if path is None else f"\nkept in {path}")
    return 0


def show(device: GpuDevice, paces: dict[str, Pace], sizes: Sizes) -> None:
    """Print what was found for a person."""
    print("tensai tune: float32 products, GFLOP/s of each kernel\n")
    library = device.library
    assert library is not None
    of = f"wgpu-native {library.version}, C API {library.api}"
    print(f"  {device.name}, {device.info.backend}; {of}\n")
    names = [name.removeprefix("matmul_").replace("_", " ") for name in paces]
    print("  size " + "".join(name.rjust(14) + " " for name in names).rstrip())
    for size, times in sizes.items():
        chosen = tuning.choice(paces, size)
        cells = "".join(
            f"{2e-9 * size**3 / times[name]:,.0f}{'*' if name == chosen else ' '}".rjust(15)
            if name in times
            else "-".rjust(14) + " "
            for name in paces
        )
        print(f"  {size:<5}{cells}".rstrip())
    print("\n*: the kernel that products of this size take from now on")


def report(
    device: GpuDevice, paces: dict[str, Pace], sizes: Sizes, path: Path | None
) -> dict[str, Any]:
    """What was found, for a script; times in seconds."""
    library = device.library
    assert library is not None
    return {
        "device": device.name,
        "library": {"version": library.version, "api": library.api},
        "kernels": {name: pace._asdict() for name, pace in paces.items()},
        "squares": [
            {"size": size, "seconds": times, "chosen": tuning.choice(paces, size)}
            for size, times in sizes.items()
        ],
        "kept": None if path is None else str(path),
    }


if __name__ == "__main__":
    from .__main__ import main as command

    sys.exit(command(["tune", *sys.argv[1:]]))
