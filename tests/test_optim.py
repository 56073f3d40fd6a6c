"""Optimizers against torch.optim on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_runs import INPUTS, LABELS, RNG, START, our_step

import tensai
from tensai.autograd import Parameter
from tensai.errors import DTypeError
from tensai.optim import SGD, Adam, AdamW, Optimizer, clip_grad_norm_

pytestmark = pytest.mark.usefixtures("still_works")

WAYS: list[tuple[Callable[..., Optimizer], Callable[..., Any], dict[str, Any]]] = [
    (SGD, torch.optim.SGD, {"lr": 0.1}),
    (SGD, torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.05}),
    (SGD, torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    (Adam, torch.optim.Adam, {"lr": 0.01}),
    # An eps, since decay and gradient nearly cancel somewhere: float32 leaves 2e-8 of that, which
    # without momentum would be divided by as little.
    (
        Adam,
        torch.optim.Adam,
        {"lr": 0.01, "weight_decay": 0.1, "betas": (0.0, 0.99), "eps": 1e-3},
    ),
    (AdamW, torch.optim.AdamW, {"lr": 0.01}),
    (AdamW, torch.optim.AdamW, {"lr": 0.01, "weight_decay": 0.5, "eps": 1e-3}),
]


def their_step(w: Any, optimizer: Any) -> None:
    optimizer.zero_grad()
    scores = torch.tensor(INPUTS, dtype=w.dtype) @ w
    torch.nn.functional.cross_entropy(scores, torch.tensor(LABELS)).backward()
    optimizer.step()


@pytest.mark.parametrize(("ours", "theirs", "options"), WAYS)
def test_ten_steps_equal_pytorchs(
    dev: tensai.Device, ours: Any, theirs: Any, options: dict[str, Any]
) -> None:
    w = Parameter(dev.upload(START))
    p = torch.tensor(START, dtype=torch.float64, requires_grad=True)
    mine, other = ours([w], **options), theirs([p], **options)
    for _ in range(10):
        our_step(w, mine)
        their_step(p, other)
    np.testing.assert_allclose(w.download(), p.detach().numpy(), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("beta1", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("beta2", [0.0, 1e-3, 0.5, 0.999])
def test_gradients_that_become_small(dev: tensai.Device, beta1: float, beta2: float) -> None:
    # Of moments a million times as large as what comes next, nothing may stay but what betas say.
    w, theirs = Parameter(dev.zeros((6,))), torch.zeros(6, dtype=torch.float64, requires_grad=True)
    optimizer = Adam([w], lr=0.1, betas=(beta1, beta2))
    other = torch.optim.Adam([theirs], lr=0.1, betas=(beta1, beta2))
    for size in (1.0, 1e-4, 1e-4, 3e-5, 1.0, 1e-3):
        grad = size * np.linspace(0.5, 1.5, 6)
        w.grad = dev.upload(grad.astype(np.float32))
        theirs.grad = torch.from_numpy(grad)
        optimizer.step()
        other.step()
        np.testing.assert_allclose(w.download(), theirs.detach().numpy(), rtol=5e-6, atol=1e-6)


def test_a_schedule_is_pytorchs_lambda(dev: tensai.Device) -> None:
    w = Parameter(dev.upload(START))
    p = torch.tensor(START, dtype=torch.float64, requires_grad=True)
    mine = AdamW([w], lr=0.01, schedule=lambda step: 0.8**step)
    other = torch.optim.AdamW([p], lr=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(other, lambda step: 0.8**step)
    for number in range(6):
        if number == 3:  # and lr itself may change
            mine.lr = 0.02
            schedule.base_lrs = [0.02]
            other.param_groups[0]["lr"] = 0.02 * 0.8**3
        our_step(w, mine)
        their_step(p, other)
        schedule.step()
    np.testing.assert_allclose(w.download(), p.detach().numpy(), atol=1e-6)


def test_the_operation_itself(dev: tensai.Device) -> None:
    """adam_step_ as documented, with numbers for lr and step."""
    x, grad = dev.upload(START), dev.upload(START * 3 + 1)
    m, v = dev.zeros(START.shape), dev.zeros(START.shape)
    assert x.adam_step_(grad, m, v, 0.1, 0.9, 0.999, 1e-8, 1, weight_decay=0.01) is x
    p = torch.tensor(START, dtype=torch.float64, requires_grad=True)
    p.grad = torch.tensor(START * 3 + 1, dtype=torch.float64)
    torch.optim.AdamW([p], lr=0.1, weight_decay=0.01).step()
    np.testing.assert_allclose(x.download(), p.detach().numpy(), atol=1e-6)
    np.testing.assert_allclose(m.download(), (START * 3 + 1) * 0.1, rtol=1e-5, atol=1e-7)


def test_infinite_moments(dev: tensai.Device) -> None:
    x, grad, m, v = (
        dev.upload(np.float32(row)) for row in ([1, 1], [2, 2], [np.inf, -np.inf], [1, 1])
    )
    x.adam_step_(grad, m, v, 0.1, 0.9, 0.999, 1e-8, 3)
    assert m.tolist() == [np.inf, -np.inf]  # beta1 m + (1 - beta1) grad
    assert x.tolist() == [-np.inf, np.inf]


def test_clipping_is_pytorchs(dev: tensai.Device) -> None:
    arrays = [RNG.normal(0, 1, shape).astype(np.float32) for shape in ((3, 4), (5,))]
    for limit in (0.5, 100.0):
        mine = [Parameter(dev.upload(array)) for array in arrays]
        other = [torch.tensor(array, requires_grad=True) for array in arrays]
        for w, p in zip(mine, other, strict=True):
            (w * w).sum().backward()
            (p * p).sum().backward()
        norm = clip_grad_norm_(mine, limit)
        expected = torch.nn.utils.clip_grad_norm_(other, limit)
        assert float(norm) == pytest.approx(float(expected), rel=1e-6)
        for w, p in zip(mine, other, strict=True):
            assert w.grad is not None and p.grad is not None
            np.testing.assert_allclose(w.grad.download(), p.grad.numpy(), rtol=1e-5)
    with pytest.raises(ValueError, match="no parameter has a gradient"):
        clip_grad_norm_([Parameter(dev.ones(3))], 1.0)


def test_parameters_without_a_gradient_stay(dev: tensai.Device) -> None:
    used, unused = Parameter(dev.ones(3)), Parameter(dev.ones(3))
    optimizer = AdamW([used, unused], lr=0.1)
    used.sum().backward()
    optimizer.step()
    assert unused.tolist() == [1, 1, 1]
    assert used.tolist() != [1, 1, 1]


def test_bad_arguments(dev: tensai.Device) -> None:
    w = Parameter(dev.ones(3))
    with pytest.raises(ValueError, match="at least one parameter"):
        SGD([])
    with pytest.raises(DTypeError, match="takes Parameters"):
        SGD([dev.ones(3)])  # type: ignore[list-item]
    with pytest.raises(DTypeError, match="float32 parameters"):
        SGD([Parameter(dev.ones(3, np.float16))])
    with pytest.raises(ValueError, match="twice"):
        SGD([w, w])
    for options in ({"lr": -1.0}, {"lr": float("nan")}, {"momentum": -0.1}, {"nesterov": True}):
        with pytest.raises(ValueError):
            SGD([w], **options)  # type: ignore[arg-type]
    wrong: list[Any] = [(0.9, 1.0), (0.9,), 0.9, (0.9, 0.99, 0.5), None]
    for betas in wrong:
        with pytest.raises(ValueError, match="betas"):
            Adam([w], betas=betas)
    with pytest.raises(ValueError, match="twice"):
        SGD([w, Parameter(w)])  # the same memory
    with pytest.raises(TypeError, match="schedule"):
        SGD([w], schedule=3)  # type: ignore[arg-type]
    optimizer = SGD([w], schedule=lambda step: float("nan"))
    w.sum().backward()
    with pytest.raises(ValueError, match="schedule"):
        optimizer.step()
    for lr in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="lr"):
            optimizer.lr = lr
    wrong = [None, True, np.True_, "0.1", b"1", [0.1], 1j, dev.ones(2)]
    for value in wrong:
        for name in ("lr", "momentum", "weight_decay"):
            with pytest.raises(TypeError, match=f"number for {name}"):
                SGD([w], **{name: value})
        for name in ("lr", "eps", "weight_decay"):
            with pytest.raises(TypeError, match=f"number for {name}"):
                Adam([w], **{name: value})
        with pytest.raises(TypeError, match="number for betas"):
            Adam([w], betas=(0.9, value))
        with pytest.raises(TypeError, match="number for lr"):
            optimizer.lr = value
        with pytest.raises(TypeError, match="number for what the schedule gives"):
            SGD([w], schedule=lambda step, value=value: value).step()  # type: ignore[misc]
        with pytest.raises(TypeError, match="number for max_norm"):
            clip_grad_norm_(w, value)
    with pytest.raises(ValueError, match="max_norm"):
        clip_grad_norm_(w, float("nan"))
    for given in (dev.ones(3), [w, dev.ones(3)], [w * 2], [None]):
        with pytest.raises(DTypeError, match="takes Parameters"):
            clip_grad_norm_(given, 1.0)  # type: ignore[arg-type]
    for number in (0.5, np.float32(0.5), np.array(0.5), dev.upload(0.5)):
        assert SGD([w], lr=number).lr == 0.5  # type: ignore[arg-type]
    assert w.tolist() == [1, 1, 1]


def test_moving_in_the_middle_changes_nothing(gpu: tensai.Device, cpu: tensai.Device) -> None:
    w, still = Parameter(gpu.upload(START)), Parameter(cpu.upload(START))
    moving, staying = AdamW([w], lr=0.01), AdamW([still], lr=0.01)
    for device in (gpu, cpu, gpu):
        w.to_(device)
        for _ in range(3):
            our_step(w, moving)
            our_step(still, staying)
    np.testing.assert_allclose(w.download(), still.download(), atol=1e-6)


def test_each_parameter_counts_its_own_steps(dev: tensai.Device, tmp_path: Path) -> None:
    """As in PyTorch: one that had no gradient for a while starts its moments when it has one."""
    arrays = RNG.normal(0, 1, (2, 7)).astype(np.float32)
    grads = RNG.normal(0, 1, (9, 2, 7)).astype(np.float32)
    mine = [Parameter(dev.upload(array)) for array in arrays]
    other = [torch.tensor(array, dtype=torch.float64, requires_grad=True) for array in arrays]
    ours, theirs = (
        Adam(mine, lr=0.1, weight_decay=0.1),
        torch.optim.Adam(other, lr=0.1, weight_decay=0.1),
    )
    for number, pair in enumerate(grads):
        if number == 6:  # also when it is resumed
            tensai.save(tmp_path / "s", {"p": mine[0], "q": mine[1]}, ours)
            mine = [Parameter(dev.zeros(7)) for _ in mine]
            ours = Adam(mine, lr=0.1, weight_decay=0.1)
            tensai.load(tmp_path / "s", {"p": mine[0], "q": mine[1]}, ours)
        for place, (w, p) in enumerate(zip(mine, other, strict=True)):
            present = place == 0 or number in (3, 4, 7, 8)
            w.grad = dev.upload(pair[place]) if present else None
            p.grad = torch.tensor(pair[place], dtype=torch.float64) if present else None
        ours.step()
        theirs.step()
    for w, p in zip(mine, other, strict=True):
        np.testing.assert_allclose(w.download(), p.detach().numpy(), atol=2e-6)
