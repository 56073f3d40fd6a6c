"""Drawing tokens: the distribution, the filters, and the same tokens on every device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from compare import numbers

import tensai

DRAWS = 4000


def drawn(dev: tensai.Device, logits: Any, **options: Any) -> np.ndarray[Any, Any]:
    """Many tokens for one row of logits."""
    rows = dev.upload(np.broadcast_to(logits, (DRAWS, len(logits))))
    made: np.ndarray[Any, Any] = tensai.ops.sample(rows, 3, **options).download()
    return made


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({}, 8),
        ({"temperature": 0.5}, 8),
        ({"top_k": 3}, 3),
        ({"top_p": 0.8}, 4),
        ({"top_k": 5, "top_p": 0.9}, 4),
    ],
)
def test_frequencies_are_the_probabilities(dev: tensai.Device, options: Any, kept: int) -> None:
    logits = np.log(np.array([0.3, 0.02, 0.25, 0.03, 0.05, 0.15, 0.12, 0.08], np.float32))
    shares = np.exp(logits.astype(np.float64) / options.get("temperature", 1.0))
    order = np.argsort(-shares)
    shares[order[kept:]] = 0  # by hand, for each way
    shares /= shares.sum()
    counts = np.bincount(drawn(dev, logits, seed=11, **options), minlength=8)
    assert (counts[shares == 0] == 0).all()
    # Five standard deviations.
    assert (np.abs(counts - DRAWS * shares) <= 5 * np.sqrt(DRAWS * shares) + 1e-9).all(), counts


def test_every_device_draws_the_same(gpu: tensai.Device, cpu: tensai.Device) -> None:
    logits = numbers((40, 50_021)) * 3
    for options in ({}, {"top_k": 50}, {"top_p": 0.9}, {"top_k": 1000, "top_p": 0.5}):
        made = [
            tensai.ops.sample(dev.upload(logits), 7, 0.8, seed=-1, **options).tolist()
            for dev in (gpu, cpu)
        ]
        assert made[0] == made[1], options
        assert len(set(made[0])) > 30


def test_seeds_and_counters_draw_anew(dev: tensai.Device) -> None:
    logits = dev.zeros((20, 1000))
    seen = [tensai.ops.sample(logits, 0, seed=seed).tolist() for seed in (1, 2)]
    counter = dev.upload(np.array([0], np.int32))
    with dev.record() as program:
        tokens = tensai.ops.sample(logits, counter, seed=1)
        counter.add_(1)
    assert tokens.tolist() == seen[0]
    for _ in range(3):
        program.replay()
        seen.append(tokens.tolist())
    assert len({tuple(tokens) for tokens in seen}) == 5


def test_edges(dev: tensai.Device) -> None:
    logits = numbers((6, 777))
    best = logits.argmax(axis=1).tolist()
    t = dev.upload(logits)
    assert tensai.ops.sample(t, 0, temperature=0.0).tolist() == best
    assert tensai.ops.sample(t, 0, top_k=1).tolist() == best
    assert tensai.ops.sample(t, 0, top_p=1e-6).tolist() == best
    logits[:, 50:] = -np.inf
    assert max(tensai.ops.sample(dev.upload(logits), 0, temperature=50.0).tolist()) < 50
    logits[2, 44], logits[3, 7] = np.nan, np.inf
    made = tensai.ops.sample(dev.upload(logits), 0).tolist()
    assert made[2] == -1 and made[3] == 7
    ties = dev.upload(np.array([[1, 5, 5, 5, 2]], np.float32))
    seen = {tensai.ops.sample(ties, i, top_k=2).tolist()[0] for i in range(60)}
    assert seen == {1, 2, 3}  # as likely as the second


@pytest.mark.parametrize("tiny", [5e-324, 1e-300, 1e-46, 1e-45, 1e-40, 1e-39, 1e-38, 1e-20])
def test_numbers_too_small_for_float32(dev: tensai.Device, tiny: float) -> None:
    """They leave the most likely token, as their limit does."""
    logits = dev.upload(np.float32([[1, 2, 3, -1], [5, -2, 3, 4]]))
    assert tensai.ops.sample(logits, top_p=tiny).tolist() == [2, 0]
    assert tensai.ops.sample(logits, temperature=tiny).tolist() == [2, 0]


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"temperature": -1.0}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"top_k": -1}, "top_k"),
        ({"top_p": 0.0}, "top_p"),
        ({"top_p": 1.5}, "top_p"),
    ],
)
def test_bad_input(dev: tensai.Device, options: Any, match: str) -> None:
    with pytest.raises(ValueError, match=rf"\[sample\].*{match}"):
        tensai.ops.sample(dev.ones((2, 9)), 0, **options)
    with pytest.raises(tensai.ShapeError):
        tensai.ops.sample(dev.ones(9), 0)
