"""Checks of what generating text is asked for, before anything is computed."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ..ops.sampling import checked_options


def integer(what: str, value: Any) -> int:
    """A Python int from one, or from NumPy's; TypeError for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"expected an integer for {what}, but got {value!r}")
    return int(value)


def counted(what: str, value: Any) -> int:
    """A Python int from 0 up; ValueError for one below."""
    count = integer(what, value)
    if count < 0:
        raise ValueError(f"expected {what} from 0 up, but got {count}")
    return count


def number(what: str, value: Any) -> float:
    """A Python float from a number; TypeError for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise TypeError(f"expected a number for {what}, but got {value!r}")
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"expected a number of at most 1e308 for {what}, but got more") from None


def drawing(temperature: Any, top_k: Any, top_p: Any, seed: Any) -> tuple[float, int, float, int]:
    """How tokens are drawn: temperature, top_k, top_p and seed as ops.sample takes them.

    Without a temperature (None), what only matters where tokens are drawn asks for one of 1.
    TypeError for what is no number, ValueError for one out of range.
    """
    if temperature is None:
        temperature = 0.0 if (top_k, top_p, seed) == (None, None, None) else 1.0
    temperature = number("temperature", temperature)
    top_k = None if top_k is None else integer("top_k", top_k)
    top_p = None if top_p is None else number("top_p", top_p)
    seed = secrets.randbits(32) if seed is None else integer("seed", seed)
    if temperature == 0:
        seed = 0  # nothing is drawn: any recorded step will do
    return *checked_options(temperature, top_k, top_p), seed


def listed(prompt: Any) -> list[Any]:
    """A prompt that is no text: all token ids, as Python ints, or all messages."""
    expected = 'expected text, a list of token ids, or a list of messages with "role" and "content"'
    if isinstance(prompt, Mapping):
        raise TypeError(f"{expected}, but got one mapping; put a message in a list")
    if isinstance(prompt, (bytes, bytearray, memoryview)) or not isinstance(prompt, Iterable):
        raise TypeError(f"{expected}, but got {type(prompt).__name__}")
    parts = list(prompt)
    if parts and all(isinstance(part, Mapping) for part in parts):
        for part in parts:
            if not isinstance(part.get("role"), str):
                raise TypeError(f"{expected}, but got a message without a role: {part!r}")
        return parts
    for part in parts:
        if isinstance(part, bool) or not isinstance(part, (int, np.integer)):
            raise TypeError(f"{expected}, but got a list with {part!r}")
    return [int(part) for part in parts]
