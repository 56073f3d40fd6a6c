"""Training as a whole: the examples as they are run, and one network on every device."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tensai
from tensai.autograd import Parameter, cross_entropy, recorded
from tensai.optim import AdamW

EXAMPLES = Path(__file__).parent.parent / "examples"


def run_example(name: str, *arguments: str) -> str:
    # The kernels have been checked by other tests, and each process would do so again.
    environment = {**os.environ, "TENSAI_SELF_CHECK": "off"}
    environment.pop("PYTHONSAFEPATH", None)  # the examples import what lies beside them
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def loss(printed: str) -> float:
    found = re.search(r"loss ([\d.]+)", printed)
    assert found, printed
    return float(found[1])


@pytest.mark.parametrize("device", ["gpu", "cpu"])
def test_xor(device: str, tmp_path: Path) -> None:
    picture = tmp_path / "loss.png"
    printed = run_example("xor", "--device", device, "--plot", str(picture))
    assert loss(printed) < 1e-3
    answers = re.search(r"answers \[(.*)\]", printed)
    assert answers
    numbers = [float(number) for number in answers[1].split(",")]
    np.testing.assert_allclose(numbers, [0, 1, 1, 0], atol=0.1)
    assert picture.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


@pytest.mark.parametrize("device", ["gpu", "cpu"])
def test_digits(device: str) -> None:
    accuracy = re.search(r"test accuracy ([\d.]+)%", run_example("digits", "--device", device))
    assert accuracy and float(accuracy[1]) > 97


@pytest.mark.slow
@pytest.mark.parametrize("device", ["gpu", "cpu"])
def test_characters(device: str) -> None:
    # The loss of a guess among the text's 39 letters is 3.66, of their frequencies 2.9.
    assert loss(run_example("characters", "--device", device, "--steps", "40")) < 2.3


def test_examples_are_short() -> None:
    for name in ("xor", "digits", "characters"):
        assert len((EXAMPLES / f"{name}.py").read_text(encoding="utf-8").splitlines()) < 60


class Digits:
    """The network of the example, from one seed, on a device."""

    def __init__(self, dev: tensai.Device) -> None:
        from sklearn.datasets import load_digits

        images, labels = load_digits(return_X_y=True)
        self.images = (images / 16 - 0.3).astype(np.float32)
        self.labels = labels.astype(np.int32)
        rng = np.random.default_rng(11)
        sizes = ((64, 128), (128,), (128, 10), (10,))
        self.start = [rng.normal(0, size[0] ** -0.5, size).astype(np.float32) for size in sizes]
        self.w = [Parameter(dev.upload(array)) for array in self.start]

    def loss(self, x: Any, y: Any) -> Any:
        w1, b1, w2, b2 = self.w
        return cross_entropy((x @ w1 + b1).gelu() @ w2 + b2, y)


def curve(dev: tensai.Device, steps: int) -> list[float]:
    run = Digits(dev)
    optimizer = AdamW(run.w, lr=3e-3)

    @recorded
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = run.loss(x, y)
        loss.backward()
        optimizer.step()
        return loss

    rng = np.random.default_rng(12)
    losses = []
    for _ in range(steps):
        batch = rng.choice(len(run.images), 64, replace=False)
        losses.append(step(dev.upload(run.images[batch]), dev.upload(run.labels[batch])))
    return [float(loss) for loss in losses]


def test_the_loss_curve_is_the_same_on_every_device(gpu: tensai.Device, cpu: tensai.Device) -> None:
    """Each generation's within half of 1e-3 of NumPy's, so within 1e-3 of each other's."""
    ours, theirs = curve(gpu, 200), curve(cpu, 200)
    np.testing.assert_allclose(ours, theirs, atol=5e-4)
    assert np.mean(ours[-10:]) < 0.2


def test_a_steps_gradients_are_pytorchs(dev: tensai.Device) -> None:
    run = Digits(dev)
    x, y = run.images[:100], run.labels[:100]
    run.loss(dev.upload(x), dev.upload(y)).backward()
    w1, b1, w2, b2 = other = [
        torch.tensor(array, dtype=torch.float64, requires_grad=True) for array in run.start
    ]
    hidden = torch.nn.functional.gelu(torch.tensor(x, dtype=torch.float64) @ w1 + b1)
    torch.nn.functional.cross_entropy(hidden @ w2 + b2, torch.tensor(y).long()).backward()
    for mine, its in zip(run.w, other, strict=True):
        assert mine.grad is not None and its.grad is not None
        scale = float(its.grad.abs().max())
        assert np.abs(mine.grad.download() - its.grad.numpy()).max() <= 1e-5 * scale
