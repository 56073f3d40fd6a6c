"""Drawing tokens by NumPy, with the random numbers of the kernel."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def mixed(x: Array) -> Array:
    """The finalizer of MurmurHash3, uint32."""
    h = x.astype(np.uint32)
    h = (h ^ (h >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    h = (h ^ (h >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return h ^ (h >> np.uint32(16))


def sample(
    logits: Array, counter: Array, temperature: float, top_k: int, top_p: float, seed: int
) -> Array:
    """A token for each row of logits (see ops.sample)."""
    rows, length = logits.shape
    moment = mixed((counter.reshape(1).astype(np.uint32)) + np.uint32(0x9E3779B9))
    lines = mixed(np.arange(rows, dtype=np.uint32) * np.uint32(2) + np.uint32(1))
    streams = mixed(np.uint32(seed & 0xFFFF_FFFF) ^ moment ^ lines)
    drawn = np.empty(rows, np.int32)
    for row, (line, stream) in enumerate(zip(logits.astype(np.float64), streams, strict=True)):
        if np.isnan(line).any():
            drawn[row] = -1
            continue
        largest = line.max()
        relative = np.where(line == largest, 0.0, (line - largest) / temperature)
        kept = np.ones(length, bool)
        if 0 < top_k < length:
            kept = line >= np.sort(line)[length - top_k]
        if top_p < 1:
            kept &= line >= _nucleus(line, np.where(kept, np.exp(relative), 0.0), top_p)
        places = np.arange(length, dtype=np.uint32) * np.uint32(0x9E3779B1)
        uniform = (mixed(stream + places) >> np.uint32(8)) + 0.5
        noise = -np.log(-np.log(uniform / 2.0**24))
        drawn[row] = np.argmax(np.where(kept, relative + noise, -np.inf))
    return drawn


def likeliest(logits: Array) -> Array:
    """The place of the largest logit of each row, -1 where one is NaN."""
    broken = np.isnan(logits).any(axis=1)
    return np.where(broken, -1, logits.argmax(axis=1))


def _nucleus(line: Array, weights: Array, top_p: float) -> float:
    """The largest logit from which up the weights reach the share `top_p` of all."""
    order = np.argsort(-line, kind="stable")
    reached = np.cumsum(weights[order])
    # Equal logits belong together.
    last = int(np.searchsorted(reached, top_p * reached[-1]))
    return float(line[order[min(last, len(line) - 1)]])
