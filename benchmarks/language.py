"""Language models: prefill and decode rates beside llama.cpp's, on the same GGUF file.

    python -m benchmarks.language [1.1B:Q4_0 8B:Q8_0 ...] [--peer LLAMA_SERVER] [--folder FOLDER]

A model is SHAPE:KIND; shapes are tiny, 1.1B and 8B, kinds Q4_0 and Q8_0. The peer is a llama-server
binary, which reports its own rates; without one, tensai's are shown alone. Files are made in FOLDER
once. The next token's most likely candidates are compared: they must be the peer's.

Of a replayed decode step it also shows how many dispatches it has, what it costs the host to
record, and how long it takes in all; and how many tokens a second the device could decode if it did
nothing but read the file's bytes.
"""

from __future__ import annotations

import gc
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import tensai
from benchmarks.llamaserver import LlamaServer
from benchmarks.measure import parser, show, where
from benchmarks.peak import bandwidth
from benchmarks.randomgguf import SHAPES, write
from tensai.models import LanguageModel, load

PROMPT, ANSWER, ROUNDS = 512, 128, 4
HEAD = (
    "model",
    "prefill",
    "peer",
    "ratio",
    "decode",
    "peer",
    "ratio",
    "dispatches",
    "host us",
    "us",
    "decode peak",
)
CLOSE = 0.05  # logarithms of probabilities, both sides rounding activations


def rates(model: LanguageModel, prompt: list[int]) -> tuple[float, float]:
    """Tokens a second: prefill and decode, medians of rounds after one to warm up."""
    model.tokenizer.eos = frozenset()
    found = []
    for _ in range(ROUNDS):
        model.forget()
        count = len(list(model.tokens(prompt, ANSWER)))
        assert count == ANSWER
        timings = model.timings
        found.append((PROMPT / timings.prefill, timings.tokens / timings.decode))
    prefill, decode = np.median(found[1:], axis=0)
    return float(prefill), float(decode)


def step(model: LanguageModel) -> tuple[int, float, float]:
    """Dispatches of a decode step, and its microseconds on the host and in all, when replayed."""
    device, program = model.device, model.step
    assert program is not None
    host, whole = [], []
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(16):
            program.replay()
        host.append((time.perf_counter() - start) / 16)
        device.synchronize()
        whole.append((time.perf_counter() - start) / 16)
    return len(program), float(np.median(host)) * 1e6, float(np.median(whole)) * 1e6


def likely(logits: np.ndarray, count: int = 4) -> dict[int, float]:
    """The most likely tokens and the logarithms of their probabilities."""
    wide = logits.astype(np.float64)
    logs = wide - wide.max() - np.log(np.exp(wide - wide.max()).sum())
    return {int(token): float(logs[token]) for token in np.argsort(-logs)[:count]}


def compare(name: str, ours: dict[int, float], peer: dict[int, float]) -> None:
    """Raise unless both sides expect the same."""
    far = [token for token in ours if abs(ours[token] - peer.get(token, np.inf)) > CLOSE]
    if len(far) > 1:  # the last places may differ
        raise SystemExit(f"{name}: tensai expects {ours}, the peer {peer}")


def ask(server: LlamaServer, prompt: list[int]) -> tuple[float, float]:
    """The peer's rates."""
    found = []
    for _ in range(ROUNDS):
        timings = server.complete(prompt, ANSWER)["timings"]
        found.append((timings["prompt_per_second"], timings["predicted_per_second"]))
    prefill, decode = np.median(found[1:], axis=0)
    return float(prefill), float(decode)


def measure(spec: str, device: Any, folder: Path, peer: Path | None) -> tuple[Any, ...]:
    shape, kind = spec.split(":")
    path = folder / f"{shape}-{kind}.gguf"
    if not path.exists():
        write(path, SHAPES[shape], kind)
    prompt = np.random.default_rng(0).integers(300, 32_000, PROMPT).tolist()
    peak = bandwidth(device) / path.stat().st_size
    model = load(path, device, context=PROMPT + ANSWER + 128)
    prefill, decode = rates(model, prompt)
    dispatches, host, whole = step(model)
    ours = likely(model.logits(prompt[:8])[-1])
    del model
    gc.collect()
    device.synchronize()
    theirs: tuple[Any, Any] = ("-", "-")
    ratios: tuple[Any, Any] = ("-", "-")
    if peer is not None:
        with LlamaServer(peer, path, folder / "llama-server.log") as server:
            theirs = ask(server, prompt)
            answer = server.complete(prompt[:8], 1, likely=10)
        ratios = (prefill / theirs[0], decode / theirs[1])
        top = answer["completion_probabilities"][0]["top_logprobs"]
        compare(spec, ours, {entry["id"]: entry["logprob"] for entry in top})
    return (
        spec,
        prefill,
        theirs[0],
        ratios[0],
        decode,
        theirs[1],
        ratios[1],
        dispatches,
        host,
        whole,
        peak,
    )


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("models", nargs="*", default=["tiny:Q4_0"])
    arguments.add_argument("--peer", type=Path)
    arguments.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    options = arguments.parse_args()
    device = tensai.open(api=options.api)
    rows = [measure(spec, device, options.folder, options.peer) for spec in options.models]
    title = f"tokens/s on {where(device)}, prompt {PROMPT}, answer {ANSWER}"
    show(title, HEAD, rows, options.json)


if __name__ == "__main__":
    main()
