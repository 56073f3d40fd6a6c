"""What a program pays before its first result: import, opening, first product; and the install.

    python -m benchmarks.startup [--json]

Each figure is the median of five fresh processes whose verdicts and shaders are already cached. The
peer is NumPy's own import in a process of the same kind.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import statistics
import subprocess
import sys
from pathlib import Path

import tensai
from benchmarks.measure import show

PROCESSES = 5

IMPORT = """
import time
start = time.perf_counter()
import {name}
print(time.perf_counter() - start)
"""
PRODUCT = """
import time
start = time.perf_counter()
import numpy as np
import tensai
dev = tensai.open()
x = dev.upload(np.ones((64, 64), np.float32))
assert ((x @ x).download() == 64).all()
print(time.perf_counter() - start)
"""


def median(code: str) -> float:
    """Seconds that a fresh process prints, after one that fills the caches."""
    taken = []
    for _ in range(PROCESSES + 1):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        done.check_returncode()
        taken.append(float(done.stdout))
    return statistics.median(taken[1:])


def installed(name: str) -> float:
    """Megabytes of an installed distribution's files."""
    files = importlib.metadata.files(name) or []
    return (
        sum(
            Path(str(file.locate())).stat().st_size
            for file in files
            if Path(str(file.locate())).is_file()
        )
        / 1e6
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    numpy = median(IMPORT.format(name="numpy"))
    ours = median(IMPORT.format(name="tensai"))
    product = median(PRODUCT)
    with tensai.open() as dev:
        assert dev.library is not None
        library = dev.library.path.stat().st_size / 1e6
    core = (
        "tensai",
        "cffi",
        "pycparser",
        "requests",
        "urllib3",
        "certifi",
        "charset-normalizer",
        "idna",
    )
    sizes = {}
    for name in core:
        try:
            sizes[name] = installed(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    rows = [
        ("import tensai, s", ours, ours / numpy),
        ("import numpy (peer), s", numpy, 1.0),
        ("first 64 x 64 product of a process, s", product, product / numpy),
        (f"installed, MB: {' '.join(sizes)}, library", sum(sizes.values()) + library, ""),
    ]
    show("Start-up", ("what", "figure", "ratio"), rows, options.json)


if __name__ == "__main__":
    main()
