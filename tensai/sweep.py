"""`tensai sweep`: products on the GPU against NumPy's, over a ladder of sizes.

Where the GPU overtakes, transfers included, is where tensai.matmul should begin to use it.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import platform
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np

import tensai
from wgpu_native_py import processors

from . import crossover, sweep_plot
from .crossover import Row
from .device import Device
from .errors import TensaiError
from .models.progress import Progress
from .thresholds import save_threshold

SECONDS = 20.0
# What limits the threads of the libraries that NumPy multiplies with, the libraries' own first.
THREADS = (
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "OMP_NUM_THREADS",
)

Report = dict[str, Any]


def main(argv: list[str] | None = None) -> int:
    """The command; 1 when there is no device, a product was wrong, or a file can't be written."""
    options = _parser().parse_args(argv)
    try:
        if options.plot is not None:
            sweep_plot.check(options.plot)
        with tensai.open() as device:
            return _run(device, options)
    except (TensaiError, ImportError, ValueError) as error:
        print(f"tensai sweep: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tensai sweep",
        description="Time float32 products of NumPy arrays on the GPU and on the CPU, over a "
        "ladder of sizes, and mark where the GPU overtakes.",
    )
    parser.add_argument(
        "--seconds",
        metavar="N",
        type=_seconds,
        default=SECONDS,
        help=f"about how long to measure (default: {SECONDS:.0f})",
    )
    parser.add_argument("--plot", metavar="FILE.png", type=Path, help="draw the curves")
    parser.add_argument(
        "--save",
        action="store_true",
        help="keep the crossover as this machine's threshold for tensai.use_accelerator",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"a number of seconds above 0 is needed, not {text!r}")
    return seconds


def _run(device: Device, options: argparse.Namespace) -> int:
    terminal = sys.stderr is not None and sys.stderr.isatty()
    with Progress("sizes measured", len(crossover.LADDER), terminal) as progress:
        progress.show(0)
        rows = crossover.measure(device, options.seconds, progress.show)
    found = crossover.find(rows)
    cpu = describe_cpu()
    if not options.json:
        show(device, cpu, rows, found)
    saved, note = _save(device, rows, found) if options.save else (None, "")
    if options.plot is not None:
        title = f"float32 products\ngpu: {device.name}\ncpu: {_cpu_line(cpu)}"
        sweep_plot.draw(options.plot, title, rows, found)
    if options.json:
        print(json.dumps(report(device, cpu, rows, found, saved, options.plot), indent=2))
    elif options.plot is not None:
        print(f"drawn in {options.plot}")
    if note:
        print(
            textwrap.fill(note, 80, break_long_words=False),
            file=sys.stderr if options.json else sys.stdout,
        )
    return int(any(row.wrong for row in rows) or (options.save and saved is None))


def _save(device: Device, rows: list[Row], found: float | None) -> tuple[Path | None, str]:
    """Keep the crossover where it is sure; the file, and what to say of it."""
    if any(row.wrong for row in rows):
        return None, "not saved: a product was wrong"
    if found is None and any(row.skipped for row in rows):
        return None, "not saved: the GPU may win at the sizes that were not measured"
    if found is None:
        path = save_threshold(device, math.inf)
        return path, (
            "saved: no product is worth sending to this device, so tensai.use_accelerator(dev) "
            f"leaves them all on the CPU, unless told a threshold; in {path}"
        )
    path = save_threshold(device, round(found))
    return path, (
        f"saved: tensai.use_accelerator(dev) sends products from {found:,.3g} multiply-accumulates "
        f"on; in {path}"
    )


def show(device: Device, cpu: Report, rows: list[Row], found: float | None) -> None:
    """Print what was found for a person."""
    print("tensai sweep: float32 products of NumPy arrays, median times\n")
    library = device.library
    of = "" if library is None else f"; wgpu-native {library.version}, C API {library.api}"
    print(f"  gpu  {device.name}, {device.info.backend}{of}")
    print(f"  cpu  {_cpu_line(cpu)}\n")
    head = ("MFLOP", "gpu+transfer", "resident", "cpu", "ratio")
    print(_line("product", "", head))
    for row in rows:
        if found is not None and row.size.work >= found:
            mark = f"crossover at {found * 2e-6:,.3g} MFLOP: from here on the gpu wins"
            print(f"  {f' {mark} ':-^76}")
            found = None
        mflop = row.size.work * 2e-6
        work = f"{mflop:,.{0 if mflop >= 100 else 1}f}"
        if row.ratio is None:
            print(_line(row.size.name, str(row.size), (work, "-", "-", "-", "-")))
            print(f"    not measured: {row.skipped}")
        else:
            times = (_time(taken) for taken in (row.transfer, row.resident, row.cpu))
            print(_line(row.size.name, str(row.size), (work, *times, _ratio(row.ratio))))
        if row.wrong:
            print(f"    WRONG: a product was {row.wrong}")
    print("\nratio: cpu / gpu+transfer")
    if any(row.skipped.startswith("no time") for row in rows):
        print("more --seconds measure what was left out")
    if any(row.wrong for row in rows):
        print("\nA product was wrong: `tensai info --check` says which kernels are.")
    elif crossover.find(rows) is None:
        why = ", which computes in software," if device.info.software else ""
        text = f"no crossover: {device.info.device}{why} does not overtake NumPy here. Products of "
        print(textwrap.fill(text + "NumPy arrays are best left on the CPU.", 80))


def report(
    device: Device,
    cpu: Report,
    rows: list[Row],
    found: float | None,
    saved: Path | None,
    plot: Path | None,
) -> Report:
    """What was found, for a script; times in seconds."""
    library = device.library
    return {
        "device": {
            "name": device.info.name,
            "backend": device.info.backend,
            "driver": device.info.driver,
            "software": device.info.software,
        },
        "library": None
        if library is None
        else {"version": library.version, "api": library.api, "path": str(library.path)},
        "cpu": cpu,
        "products": [
            {
                "name": row.size.name,
                "batch": row.size.batch,
                "m": row.size.m,
                "k": row.size.k,
                "n": row.size.n,
                "mflop": row.size.work * 2e-6,
                "gpu_transfer": row.transfer,
                "resident": row.resident,
                "cpu": row.cpu,
                "ratio": row.ratio,
                "wrong": row.wrong or None,
                "skipped": row.skipped or None,
            }
            for row in rows
        ],
        "crossover": None
        if found is None
        else {"multiply_accumulates": found, "mflop": found * 2e-6},
        "saved": None if saved is None else str(saved),
        "plot": None if plot is None else str(plot),
    }


def describe_cpu() -> Report:
    """NumPy's version, the library that it multiplies with, and how many threads that may use."""
    try:
        blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
        name = f"{blas['name']} {blas.get('version', '')}".strip()
    except (TypeError, KeyError):  # NumPy before 1.25, or built in another way
        name = "unknown BLAS"
    return {
        "processor": platform.processor() or platform.machine(),
        "numpy": np.__version__,
        "blas": name,
        "threads": _threads(),
    }


def _threads() -> int:
    try:  # it asks the library itself, but need not be there
        pools = importlib.import_module("threadpoolctl").threadpool_info()
        asked = [pool["num_threads"] for pool in pools if pool.get("user_api") == "blas"]
    except ImportError:
        asked = []
    asked += [int(os.environ[name]) for name in THREADS if os.environ.get(name, "").isdigit()]
    if asked and asked[0] > 0:
        return int(asked[0])
    return processors()


def _cpu_line(cpu: Report) -> str:
    threads = cpu["threads"]
    plural = "s" if threads > 1 else ""
    return f"NumPy {cpu['numpy']}, {cpu['blas']}, up to {threads} thread{plural}"


def _line(name: str, shape: str, cells: tuple[str, ...]) -> str:
    widths = (7, 13, 10, 10, 7)
    right = "".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
    return f"  {name:<11} {shape:<18} {right}".rstrip()


def _time(seconds: float | None) -> str:
    assert seconds is not None
    for unit, factor in (("us", 1e6), ("ms", 1e3)):
        if seconds * factor < 999.5:
            return f"{_digits(seconds * factor)} {unit}"
    return f"{_digits(seconds)} s"


def _ratio(value: float) -> str:
    return _digits(value) if value >= 0.001 else "<0.001"


def _digits(value: float) -> str:
    """Three of them, trailing zeros included."""
    return f"{value:,.0f}" if value >= 999.5 else f"{value:#.3g}".rstrip(".")


if __name__ == "__main__":
    from .__main__ import main as command

    sys.exit(command(["sweep", *sys.argv[1:]]))
