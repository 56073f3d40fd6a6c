"""Run the benchmarks that have a peer, one after the other.

    python -m benchmarks --peer torch|wgpu|llama.cpp|numpy [--quick] [--json] [--plot FILE]
                         [--write [FILE]] [--only NAME ...] [--llama-server PATH]

Each prints its table: tensai, the peer, their ratio, and, where there is one, the peak that the
device could give. `--write` puts all tables between two marker comments of benchmarks/README.md (or
another FILE), in place of that peer's tables there; `--plot` draws the ratios. `--quick` takes
sizes that a software adapter manages in seconds.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tensai
from benchmarks import measure, peak
from benchmarks.measure import Table

README = Path(__file__).with_name("README.md")


@dataclass(frozen=True)
class Benchmark:
    """A module whose main() takes its arguments from sys.argv and shows tables."""

    name: str
    peers: tuple[str, ...]
    full: str = ""  # arguments
    quick: str = ""
    named: bool = True  # whether it is told its peer


BENCHMARKS = (
    Benchmark("host", ("torch", "numpy"), quick="--count 64"),
    Benchmark("dispatch", ("wgpu",), quick="--count 64", named=False),
    Benchmark("transfer", ("torch", "numpy"), quick="--sizes 8"),
    Benchmark(
        "matmul",
        ("torch", "numpy"),
        "--sizes 512 1024 2048 4096 8192 1000 4097 --batched 64x512 --transposed 1024 4096",
        "--sizes 64 65 --batched 2x32 --transposed 64 --warm 0",
    ),
    Benchmark("memory", ("torch", "numpy"), "--sizes 26", "--sizes 16"),
    Benchmark(
        "attention",
        ("torch",),
        "--sizes 512 1024 2048 4096 8192",
        "--sizes 64 --heads 2 --warm 0",
        named=False,
    ),
    Benchmark(
        "quantized",
        ("torch",),
        "--shapes 4096x4096 4096x14336 14336x4096 --warm 0.3",
        "--shapes 96x128 --rows 1 16 --warm 0",
        named=False,
    ),
    Benchmark("training", ("torch",), "--sizes 512 1024 2048", "--sizes 32"),
    Benchmark("language", ("llama.cpp",), "1.1B:Q4_0 1.1B:Q8_0 8B:Q4_0 8B:Q8_0", "tiny:Q4_0"),
    Benchmark("startup", ("numpy",), named=False),
)


def tables(benchmark: Benchmark, peer: str, quick: bool) -> list[Table]:
    """Run one; its tables."""
    arguments = (benchmark.quick if quick else benchmark.full).split()
    if benchmark.named:
        arguments += ["--peer", peer]
    module = importlib.import_module(f"benchmarks.{benchmark.name}")
    before, first = sys.argv, len(measure.shown)
    sys.argv = [benchmark.name, *arguments]
    try:
        module.main()
    finally:
        sys.argv = before
    return measure.shown[first:]


def markdown(found: Sequence[Table]) -> str:
    """Tables for a README."""
    parts = []
    for table in found:
        lines = [table.title + ":", ""]
        lines.append("| " + " | ".join(table.head) + " |")
        lines.append("|---" * len(table.head) + "|")
        for row in table.rows:
            lines.append("| " + " | ".join(measure.text(cell) for cell in row) + " |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def replaced(document: str, peer: str, found: str) -> str:
    """A document with what stands between a peer's two marker comments replaced.

    Raises SystemExit when the markers are not there.
    """
    start, end = f"<!-- figures: {peer} -->", f"<!-- end of figures: {peer} -->"
    before, opening, rest = document.partition(start)
    _, closing, after = rest.partition(end)
    if not (opening and closing):
        raise SystemExit(f"the file has no place for the figures: {start} and {end}")
    return f"{before}{start}\n{found}\n{end}{after}"


def plot(found: Sequence[Table], path: str, peer: str) -> None:
    """Draw each row's ratio."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    bars = [
        (f"{table.title.split(' on ')[0]}: {row[0]}", row[column])
        for table in found
        for column in [column for column, name in enumerate(table.head) if "ratio" in name][:1]
        for row in table.rows
        if isinstance(row[column], float)
    ]
    figure, axes = pyplot.subplots(figsize=(9, 1 + 0.25 * len(bars)), layout="constrained")
    axes.barh([name for name, _ in bars], [ratio for _, ratio in bars])
    axes.axvline(1, color="black", linewidth=1)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlabel(f"tensai to {peer}: rates higher, times lower are better")
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--peer", required=True, choices=("torch", "wgpu", "llama.cpp", "numpy"))
    parser.add_argument("--only", nargs="+", metavar="NAME", help="of the benchmarks")
    parser.add_argument("--quick", action="store_true", help="sizes for a software adapter")
    parser.add_argument("--llama-server", help="the peer's binary, for --peer llama.cpp")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--plot", metavar="FILE")
    parser.add_argument("--write", nargs="?", const=str(README), metavar="FILE")
    options = parser.parse_args()
    peer = options.peer
    if peer == "llama.cpp":
        peer = options.llama_server or shutil.which("llama-server")
        if peer is None:
            parser.error("llama-server is not on the PATH; give --llama-server")
    chosen = [b for b in BENCHMARKS if options.peer in b.peers]
    if options.only:
        chosen = [b for b in chosen if b.name in options.only]
        if len(chosen) < len(set(options.only)):
            names = [b.name for b in BENCHMARKS if options.peer in b.peers]
            parser.error(f"benchmarks with the peer {options.peer}: {', '.join(names)}")
    with tensai.open() as dev:
        found = [peak.table(dev)]
    with contextlib.redirect_stdout(io.StringIO() if options.json else sys.stdout):
        measure.show(*found[0], as_json=False)
        for benchmark in chosen:
            found += tables(benchmark, peer, options.quick)
    if options.json:
        measured = [
            {
                "benchmark": table.title,
                "rows": [dict(zip(table.head, row, strict=True)) for row in table.rows],
            }
            for table in found
        ]
        print(json.dumps({"machine": measure.machine(), "tables": measured}, indent=1))
    if options.write:
        path = Path(options.write)
        text = path.read_text(encoding="utf-8")
        path.write_text(replaced(text, options.peer, markdown(found)), encoding="utf-8")
    if options.plot:
        plot(found, options.plot, options.peer)


if __name__ == "__main__":
    main()
