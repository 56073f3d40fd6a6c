"""`tensai embed MODEL FILE`: sentence embeddings of the lines of a file, as .npy."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np

import tensai
from wgpu_native_py.paths import replacing

from .errors import TensaiError
from .models import SentenceEncoder
from .models.fetch import locate
from .models.files import Array


def main(argv: list[str] | None = None) -> int:
    """The command; 1 when there is no device or no model, or a file can't be read or written."""
    parser = argparse.ArgumentParser(
        prog="tensai embed",
        description="Write the embedding of each line of a UTF-8 text file to a NumPy file: "
        "float32, one row a line (empty lines too), each of length 1.",
    )
    parser.add_argument(
        "model", metavar="MODEL", help='a sentence encoder\'s folder, or "minilm" (fetched once)'
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="text, one sentence a line")
    parser.add_argument(
        "--out",
        metavar="FILE.npy",
        type=Path,
        help="the file to write (default: FILE with .npy as its suffix)",
    )
    parser.add_argument(
        "--batch-size", metavar="N", type=int, default=32, help="sentences at a time (default: 32)"
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    options = parser.parse_args(argv)
    try:
        for path in (options.file, options.out):
            if path is not None and not path.name:  # as of "." and "/"
                raise ValueError(f"{str(path)!r} names no file")
        target = options.out or options.file.with_suffix(".npy")
        lines = read_lines(options.file)
        if target.resolve() == options.file.resolve():
            raise ValueError(f"{target} would be overwritten with its embeddings; choose --out")
        if not target.parent.is_dir():
            raise ValueError(f"{target} can't be written: its folder does not exist")
        with tensai.open() as device:
            encoder = SentenceEncoder(locate(options.model), device)
            start = time.perf_counter()
            embeddings = encoder.encode(lines, batch_size=options.batch_size, progress=True)
            seconds = time.perf_counter() - start
            name = device.name
        save(target, embeddings)
    except (TensaiError, ImportError, ValueError) as error:
        print(f"tensai embed: {error}", file=sys.stderr)
        return 1
    if options.json:
        report = {
            "file": str(options.file),
            "out": str(target),
            "shape": list(embeddings.shape),
            "seconds": seconds,
            "device": name,
        }
        print(json.dumps(report, indent=2))
    else:
        rows, dim = embeddings.shape
        print(f"{target}: {rows:,} embeddings of {dim} numbers, {seconds:.2f} s on {name}")
    return 0


def read_lines(path: Path) -> list[str]:
    """The lines of a text file, without their ends. ValueError, which names it, if it has none."""
    try:
        with path.open(encoding="utf-8-sig") as file:
            return [line.rstrip("\n") for line in file]
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} is not UTF-8 text (byte {error.object[error.start]:#04x}); convert it first"
        ) from error
    except OSError as error:
        raise ValueError(f"{path} can't be read: {error.strerror or error}") from error


def save(path: Path, array: Array) -> None:
    """Write a .npy file, which appears under its name once it is complete."""
    try:
        with replacing(path) as part, part.open("xb") as file:
            np.save(file, array)
    except OSError as error:
        raise ValueError(f"{path} can't be written: {error.strerror or error}") from error


if __name__ == "__main__":
    from .__main__ import main as command

    sys.exit(command(["embed", *sys.argv[1:]]))
