"""Drawing tokens from logits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import reference, rules
from ..dtypes import f32, i32
from ..errors import ShapeError
from ..operation import Job, Kernel, Probe, Result, Spec, composition, operation, pack
from ..tensor import Tensor
from .reduction import argmax_rows
from .reduction_probes import argmax_probes

LEAST = 1e-30  # a float32 below is near what GPUs take for 0
PASSES = 16  # over a row to find a threshold, two bits of a key at a time


def _plan(job: Job) -> None:
    logits, counter = job.inputs
    arguments = job.arguments
    rows, length = logits.shape
    top_k = arguments["top_k"] if arguments["top_k"] < length else 0
    params = pack(
        rows,
        length,
        top_k,
        float(arguments["top_p"]),
        1 / float(arguments["temperature"]),
        arguments["seed"],
    )
    thresholds = (top_k > 0) + (arguments["top_p"] < 1)
    each = -(-length // 256)
    loops = each * (2 + thresholds * (PASSES + 1)) + thresholds * PASSES * 25 + 40
    job.step("sample", {}, [logits, counter, job.outputs[0]], params, rows, loops)


def _probes() -> list[Probe]:
    rng = np.random.default_rng(53)
    logits = rng.normal(0, 3, (9, 1511)).astype(np.float32)
    logits[3, 40:] = -np.inf
    logits[5, 77] = np.inf
    counter = np.array([12], np.int32)
    logits[7, [3, 500]] = np.nan
    ways: list[dict[str, Any]] = [{}, {"top_k": 5}, {"top_p": 0.61}]
    ways.append({"top_k": 40, "top_p": 0.9, "temperature": 0.7})
    return [Probe((logits, counter), {"seed": 2**32 - 5, **way}) for way in ways]


@operation(
    kernels=[Kernel("sample", _plan)],
    reference=reference.sample,
    probes=_probes,
    name="draw",
    method=False,
)
def draw(
    logits: Spec,
    counter: Spec,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int = 0,
) -> Result:
    """Tokens drawn at a temperature above 0 (see sample)."""
    return Result((Spec(logits.shape[:1], i32),), (f32, i32))


def _likeliest(job: Job, subgroup: bool) -> None:
    rows, length = job.inputs[0].shape
    argmax_rows(job, (rows, length), subgroup, marking=True)


def _likeliest_probes() -> list[Probe]:
    made = []
    for probe in argmax_probes():
        x = probe.inputs[0]
        if x is None or x.dtype != f32 or probe.arguments.get("axis") == 0:
            continue
        rows = np.where(np.isnan(x), np.float32(0), x).reshape(-1, x.shape[-1])
        spoiled = rows.copy()
        spoiled[::3, -min(2, x.shape[-1])] = np.nan
        made += [Probe((rows,)), Probe((spoiled,))]
    return made


@operation(
    kernels=[
        Kernel(
            "likeliest_subgroup",
            lambda job: _likeliest(job, subgroup=True),
            frozenset({"subgroup"}),
        ),
        Kernel("likeliest_tree", lambda job: _likeliest(job, subgroup=False)),
    ],
    reference=reference.likeliest,
    probes=_likeliest_probes,
    method=False,
)
def likeliest(logits: Spec) -> Result:
    """The place of the largest in each row of logits (rows, vocabulary), -1 where one is NaN."""
    return Result((Spec(logits.shape[:1], i32),), (f32,))


@composition
def sample(
    logits: Tensor,
    counter: Tensor | int = 0,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int = 0,
) -> Tensor:
    """A token for each row of logits (rows, vocabulary): (rows,) int32.

    Probabilities are softmax(logits / temperature). Only the top_k most likely tokens count, and of
    them only the most likely that together reach the share top_p of their probability (Holtzman et
    al., 2019); tokens as likely as the last one count as well. At a temperature of 0, the most
    likely. A row with NaN in it, by which nothing can be drawn, gives -1. The random numbers follow
    from seed (its low 32 bits), `counter` (an integer, or an integer tensor of one element that a
    recorded program moves on) and the row, so that the same come out on every device. Raises
    ShapeError, or ValueError for numbers out of range.
    """
    if logits.ndim != 2 or not logits.shape[1]:
        raise ShapeError(f"[sample] expected logits (rows, vocabulary), but got {logits.shape}")
    rules.floats_only("sample", logits.dtype)
    temperature, kept, share = checked_options(temperature, top_k, top_p)
    if temperature == 0:
        made: Tensor = likeliest(logits)
        return made
    place = counter if isinstance(counter, Tensor) else logits.device.constant(counter, i32)
    if place.size != 1:
        raise ShapeError(f"[sample] expected one number as counter, but got shape {place.shape}")
    made = draw(logits, place, temperature, kept, share, seed & 0xFFFF_FFFF)
    return made


def checked_options(
    temperature: float, top_k: int | None, top_p: float | None
) -> tuple[float, int, float]:
    """How tokens are drawn, as the kernel takes it; ValueError for numbers out of range."""
    if not 0 <= rules.number("sample", "temperature", temperature) < math.inf:
        raise ValueError(f"[sample] expected a temperature from 0 up, but got {temperature}")
    kept = rules.integer("sample", "top_k", top_k or 0)
    if kept < 0:
        raise ValueError(f"[sample] expected top_k from 0 up, but got {top_k}")
    share = 1.0 if top_p is None else rules.number("sample", "top_p", top_p)
    if not 0 < share <= 1:
        raise ValueError(f"[sample] expected top_p above 0 and up to 1, but got {top_p}")
    heat = float(temperature)
    return max(heat, LEAST) if heat else heat, kept, max(share, LEAST)
