"""Small things to train, that tests of training share."""

from __future__ import annotations

from typing import Any

import numpy as np

import tensai
from tensai.autograd import Parameter, cross_entropy
from tensai.optim import AdamW, Optimizer, clip_grad_norm_

RNG = np.random.default_rng(3)
START = RNG.normal(0, 1, (13, 5)).astype(np.float32)
INPUTS = RNG.normal(0, 1, (30, 13)).astype(np.float32)
LABELS = RNG.integers(0, 5, 30)


def our_step(w: Parameter, optimizer: Optimizer) -> float:
    optimizer.zero_grad()
    loss = cross_entropy(w.device.upload(INPUTS) @ w, LABELS)
    loss.backward()
    optimizer.step()
    return float(loss)


class Run:
    """A small network and a step of its training."""

    def __init__(self, dev: tensai.Device, schedule: Any = None) -> None:
        self.dev = dev
        rng = np.random.default_rng(5)
        sizes = ((13, 8), (8,), (8, 5), (5,))
        self.w = [Parameter(dev.upload(rng.normal(0, 0.5, size))) for size in sizes]
        self.optimizer = AdamW(self.w, lr=0.02, schedule=schedule)
        self.calls = 0

    def step(self, x: Any, labels: Any) -> Any:
        self.calls += 1
        w1, b1, w2, b2 = self.w
        self.optimizer.zero_grad()
        loss = cross_entropy((x @ w1 + b1).gelu() @ w2 + b2, labels)
        loss.backward()
        clip_grad_norm_(self.w, 1.0)
        self.optimizer.step()
        return loss

    def arrays(self) -> list[Any]:
        return [parameter.download() for parameter in self.w]


def batches(dev: tensai.Device, count: int) -> list[tuple[Any, Any]]:
    rng = np.random.default_rng(6)
    return [
        (
            dev.upload(rng.normal(0, 1, (10, 13))),
            dev.upload(rng.integers(0, 5, 10).astype(np.int32)),
        )
        for _ in range(count)
    ]


def same(one: Run, two: Run) -> None:
    for mine, other in zip(one.arrays(), two.arrays(), strict=True):
        assert np.array_equal(mine, other)
    assert one.optimizer.steps == two.optimizer.steps
