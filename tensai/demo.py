"""`tensai demo`: sentence embeddings on this machine, start to end.

Embeds the sentences that tensai ships, finds those nearest to a query, and says what computed
them, how long it took, and how far the result is from NumPy's.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

import tensai

from .device import Device
from .errors import TensaiError
from .models import SentenceEncoder
from .models.fetch import locate

QUERIES = (
    "How can I bake a better loaf?",
    "Why did my software stop working?",
    "Which animals travel far?",
)
NEAREST = 3
TIMED_RUNS = 5  # at most,
TIMED_SECONDS = 2.0  # and none is begun after this

Report = dict[str, Any]
Array = np.ndarray[Any, Any]


def main(argv: list[str] | None = None) -> int:
    """The command; 1 when there is no device or no model."""
    parser = argparse.ArgumentParser(
        prog="tensai demo",
        description="Embed a few dozen sentences and find those nearest to a query.",
    )
    parser.add_argument("--query", metavar="TEXT", help="what to look for, instead of examples")
    parser.add_argument(
        "--model",
        metavar="DIR",
        default="minilm",
        help="a folder with a sentence encoder (default: all-MiniLM-L6-v2, fetched once)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(argv)
    queries = QUERIES if options.query is None else (options.query,)
    try:
        with tensai.open() as device:
            report = run(device, locate(options.model), queries)
    except (TensaiError, ImportError, ValueError) as error:
        print(f"tensai demo: {error}", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps(report, indent=2))
    else:
        show(report)
    return 0


def run(device: Device, folder: Path, queries: tuple[str, ...]) -> Report:
    """Embed the sentences and the queries on a device; everything there is to say about it."""
    sentences = shipped_sentences()
    texts = [*sentences, *queries]
    encoder = SentenceEncoder(folder, device)
    _say("first run: kernels are checked and compiled ...")
    first, _ = _timed(encoder, texts)
    _say("timed runs ...")
    runs = [_timed(encoder, texts)]
    while len(runs) < TIMED_RUNS and sum(run[0] for run in runs) < TIMED_SECONDS:
        runs.append(_timed(encoder, texts))
    seconds, embeddings = min(runs, key=lambda run: run[0])
    _say("the same on the NumPy device ...")
    with tensai.open("cpu") as host:
        numpy_encoder = SentenceEncoder(folder, host)
        numpy_seconds, expected = _timed(numpy_encoder, texts)
    scores = embeddings[len(sentences) :] @ embeddings[: len(sentences)].T
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
        "model": {
            "path": str(folder),
            "layers": encoder.config.layers,
            "dim": encoder.dim,
            "max_length": encoder.max_length,
        },
        "sentences": len(sentences),
        "seconds": {
            run: {"all": taken, "per_sentence": taken / len(texts)}
            for run, taken in (("first", first), ("later", seconds), ("numpy", numpy_seconds))
        },
        "largest_difference": float(np.abs(embeddings - expected).max()),
        "queries": [
            {"query": query, "nearest": _nearest(row, sentences)}
            for query, row in zip(queries, scores, strict=True)
        ],
    }


def show(report: Report) -> None:
    """Print a report for a person."""
    device, library, model = report["device"], report["library"], report["model"]
    seconds = report["seconds"]
    print("tensai demo: sentence embeddings on this machine\n")
    print(f"  adapter      {device['name']}, {device['backend']}")
    if library is not None:
        print(f"  library      wgpu-native {library['version']}, C API {library['api']}")
    print(
        f"  model        {Path(model['path']).name}: {model['layers']} layers, "
        f"{model['dim']} numbers to a sentence"
    )
    print(f"  embedded     {report['sentences']} sentences, {len(report['queries'])} to look for")
    print(f"  first run    {_times(seconds['first'])}, with kernels checked and compiled")
    print(f"  later runs   {_times(seconds['later'])}")
    print(f"  with NumPy   {_times(seconds['numpy'])}, on the CPU")
    print(f"  difference   {report['largest_difference']:.1e} at most, from NumPy's embeddings")
    for answer in report["queries"]:
        print(f"\n  {answer['query']}")
        for found in answer["nearest"]:
            print(f"    {found['score']:5.2f}  {found['sentence']}")


def shipped_sentences() -> list[str]:
    """The sentences that tensai ships."""
    file = resources.files("tensai") / "data" / "sentences.txt"
    return file.read_text(encoding="utf-8").splitlines()


def _nearest(scores: Array, sentences: list[str]) -> list[Report]:
    order = np.argsort(-scores, kind="stable")[:NEAREST]
    return [{"sentence": sentences[index], "score": float(scores[index])} for index in order]


def _timed(encoder: SentenceEncoder, texts: list[str]) -> tuple[float, Array]:
    start = time.perf_counter()
    embeddings = encoder.encode(texts)
    return time.perf_counter() - start, embeddings


def _times(seconds: dict[str, float]) -> str:
    milliseconds = seconds["per_sentence"] * 1e3
    return f"{milliseconds:.{1 if milliseconds >= 10 else 3}f} ms a sentence"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    from .__main__ import main as command

    sys.exit(command(["demo", *sys.argv[1:]]))
