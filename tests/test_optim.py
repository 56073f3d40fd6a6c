"""Optimizers against torch.optim on the CPU, their state, and steps that are recorded."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tensai
from tensai.autograd import Parameter, cross_entropy, no_grad, recorded
from tensai.errors import (
    DeviceMismatchError,
    DTypeError,
    ModelError,
    NaNError,
    ShapeError,
    TensorFreedError,
)
from tensai.optim import SGD, Adam, AdamW, Optimizer, clip_grad_norm_

pytestmark = pytest.mark.usefixtures("still_works")

WAYS: list[tuple[Callable[..., Optimizer], Callable[..., Any], dict[str, Any]]] = [
    (SGD, torch.optim.SGD, {"lr": 0.1}),
    (SGD, torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.05}),
    (SGD, torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    (Adam, torch.optim.Adam, {"lr": 0.01}),
    (Adam, torch.optim.Adam, {"lr": 0.01, "weight_decay": 0.1, "betas": (0.0, 0.99)}),
    (AdamW, torch.optim.AdamW, {"lr": 0.01}),
    (AdamW, torch.optim.AdamW, {"lr": 0.01, "weight_decay": 0.5, "eps": 1e-3}),
]

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
    with pytest.raises(TypeError, match="number"):
        optimizer.lr = None  # type: ignore[assignment]
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


# Saved and gone on from ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        lambda w: AdamW([w], lr=0.01, schedule=lambda step: 1 / (1 + step)),
        lambda w: SGD([w], lr=0.1, momentum=0.9),
    ],
)
def test_stopped_and_resumed_is_the_same(
    dev: tensai.Device, tmp_path: Path, make: Callable[[Parameter], Optimizer]
) -> None:
    w = Parameter(dev.upload(START))
    optimizer = make(w)
    for _ in range(4):
        our_step(w, optimizer)
    path = tmp_path / "state.safetensors"
    tensai.save(path, {"w": w}, optimizer)
    for _ in range(4):
        our_step(w, optimizer)
    again = Parameter(dev.zeros(START.shape))
    resumed = make(again)
    tensai.load(path, {"w": again}, resumed)
    for _ in range(4):
        our_step(again, resumed)
    assert np.array_equal(again.download(), w.download())  # bit for bit


def test_save_and_load_tensors(dev: tensai.Device, tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    given = {
        "a": dev.upload(START),
        "half": dev.upload(START.astype(np.float16)),
        "whole": dev.upload(np.arange(5, dtype=np.int32)),
        "flags": dev.upload(np.array([True, False])),
        "single": dev.upload(np.float32(3)),
        "empty": dev.zeros((0, 4)),
        "host": np.arange(3, dtype=np.uint32),
    }
    tensai.save(path, given)
    arrays = tensai.load(path)
    tensors = tensai.load(path, device=dev)
    for name, value in given.items():
        expected = np.asarray(value)
        assert isinstance(arrays[name], np.ndarray)
        assert isinstance(tensors[name], tensai.Tensor)
        for got in (arrays[name], tensors[name].download()):
            assert got.dtype == expected.dtype and got.shape == expected.shape
            assert np.array_equal(got, expected)
    assert sorted(os.listdir(tmp_path)) == ["t.safetensors"]


def test_what_does_not_fit_changes_nothing(dev: tensai.Device, tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    w = Parameter(dev.upload(START))
    optimizer = AdamW([w])
    our_step(w, optimizer)
    tensai.save(path, {"w": w, "b": dev.ones(3)}, optimizer)
    other = Parameter(dev.zeros(START.shape))
    into_own = {"w": other, "b": Parameter(dev.zeros(3))}
    refused: list[tuple[dict[str, Any], Optimizer | None, str]] = [
        ({"w": other}, None, "nothing asks for b"),
        ({**into_own, "c": dev.ones(3)}, None, "it lacks c"),
        ({**into_own, "b": dev.zeros(4)}, None, r"b is float32 \(3,\)"),
        ({**into_own, "b": dev.zeros(3, np.int32)}, None, "int32"),
        (into_own, SGD([other]), "another optimizer's state"),
        (into_own, AdamW([Parameter(dev.zeros(4))]), "its parameter is"),
    ]
    for into, own, message in refused:
        with pytest.raises(ModelError, match=message):
            tensai.load(path, into, own)
        assert not other.download().any()
    tensai.save(path, {"w": w})
    with pytest.raises(ModelError, match="no optimizer's state"):
        tensai.load(path, {"w": other}, AdamW([other]))
    with pytest.raises(ValueError, match="not one"):
        optimizer.load_state_dict({"0.m": START})
    with pytest.raises(ShapeError):
        optimizer.load_state_dict({"step": 1, "0.step": 1, "0.m": START[:2], "0.v": START})
    with pytest.raises(ValueError, match="incomplete"):
        optimizer.load_state_dict({"step": 1, "0.m": START, "0.v": START})
    for steps in (-1, 2.7, 1 << 40, None, "1"):
        with pytest.raises(ValueError, match="whole number"):
            optimizer.load_state_dict({"step": steps})
    with pytest.raises(ValueError, match="more than the optimizer"):
        optimizer.load_state_dict({"step": 1, "0.step": 2, "0.m": START, "0.v": START})


def test_what_cannot_be_saved(dev: tensai.Device, tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    for name, value in (("__metadata__", 1.0), ("optimizer.m", 1.0), (3, 1.0)):
        with pytest.raises(ValueError, match="name"):
            tensai.save(path, {name: value})  # type: ignore[dict-item]
    for value in (None, "text", 1j, np.datetime64("2020-01-01"), np.zeros(2, "i4,f4")):
        with pytest.raises(DTypeError, match="'odd'"):
            tensai.save(path, {"odd": value})
    with pytest.raises(IsADirectoryError, match="folder"):
        tensai.save(tmp_path, {"w": 1.0})
    with pytest.raises(FileNotFoundError, match="does not exist"):
        tensai.save(tmp_path / "none" / "t", {"w": 1.0})
    assert not os.listdir(tmp_path)
    swapped = np.arange(3, dtype=">f4")
    tensai.save(path, {"w": swapped, "wide": np.arange(3.0)})
    assert tensai.load(path)["w"].tolist() == [0, 1, 2]
    assert tensai.load(path)["wide"].dtype == np.float64
    link = tmp_path / "latest"
    link.symlink_to(path)
    tensai.save(link, {"w": np.float32(5)})
    assert link.is_symlink() and tensai.load(path)["w"] == 5
    with pytest.raises(DTypeError, match="fills tensors"):
        tensai.load(path, {"w": np.zeros(())})  # type: ignore[dict-item]
    named = tmp_path / ("n" * 250)
    tensai.save(named, {"w": 1.0})


def test_damaged_files(dev: tensai.Device, tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    tensai.save(path, {"w": dev.ones((3, 4))})
    whole = path.read_bytes()
    for damaged in (b"", whole[:7], whole[:-5], b"\xff" * 8 + whole[8:], b"nonsense" * 20):
        path.write_bytes(damaged)
        with pytest.raises(ModelError, match="damaged"):
            tensai.load(path)
    with pytest.raises(FileNotFoundError):
        tensai.load(tmp_path / "none")


def test_a_stopped_save_leaves_the_old_file(
    dev: tensai.Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.safetensors"
    tensai.save(path, {"w": dev.ones(3)})

    def full(descriptor: int) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        tensai.save(path, {"w": dev.zeros(3)})
    assert os.listdir(tmp_path) == ["t.safetensors"]
    assert tensai.load(path)["w"].tolist() == [1, 1, 1]


# A step as one program -------------------------------------------------------------------------


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


@pytest.mark.parametrize("schedule", [None, lambda step: 1 / (1 + step)])
def test_a_recorded_step_is_the_step(dev: tensai.Device, schedule: Any) -> None:
    plain, kept = Run(dev, schedule), Run(dev, schedule)
    step = recorded(kept.step)
    losses = []
    for x, labels in batches(dev, 8):
        losses.append((plain.step(x, labels), step(x, labels)))
    assert kept.calls == 2  # as it is, and while recorded
    assert all(float(mine) == float(other) for mine, other in losses)  # each its own
    same(plain, kept)


def test_a_step_in_a_batch(dev: tensai.Device) -> None:
    plain, held = Run(dev), Run(dev)
    for x, labels in batches(dev, 3):
        plain.step(x, labels)
        with dev.batch():
            held.step(x, labels)
    same(plain, held)


def test_other_shapes_and_arrays_are_recorded_apart(dev: tensai.Device) -> None:
    plain, kept = Run(dev), Run(dev)
    step = recorded(kept.step)
    for x, labels in batches(dev, 4):
        for part in (10, 7):
            host = labels.download()[:part]
            plain.step(x[:part], dev.upload(host))
            step(x[:part], host)  # labels from the host each time
    same(plain, kept)


def test_what_cannot_be_recorded_goes_on_as_it_is(dev: tensai.Device) -> None:
    seen: list[float] = []

    def download(run: Run, x: Any, labels: Any) -> Any:
        loss = run.step(x, labels)
        seen.append(float(loss))
        return loss

    def upload(run: Run, x: Any, labels: Any) -> Any:
        noise = np.random.default_rng(run.calls).normal(0, 1, (10, 13))
        return run.step(x + dev.upload(noise), labels)

    def accumulate(run: Run, x: Any, labels: Any) -> Any:
        loss = cross_entropy((x @ run.w[0] + run.w[1]).gelu() @ run.w[2] + run.w[3], labels)
        loss.backward()
        run.calls += 1
        return loss

    for function in (download, upload, accumulate):
        plain, kept = Run(dev), Run(dev)
        step = recorded(lambda x, y, f=function, run=kept: f(run, x, y))
        for x, labels in batches(dev, 5):
            expected, got = function(plain, x, labels), step(x, labels)
            assert float(expected) == float(got)
        assert kept.calls == 5
        for one, two in zip(plain.w, kept.w, strict=True):
            assert (one.grad is None) == (two.grad is None)
            if one.grad is not None and two.grad is not None:
                assert np.array_equal(one.grad.download(), two.grad.download())
        same(plain, kept)


def test_a_step_that_raises_is_recorded_later(dev: tensai.Device) -> None:
    plain, kept = Run(dev), Run(dev)
    broken = [False, True, False, False, False, False]

    def unreliable(x: Any, labels: Any) -> Any:
        if broken[kept.calls]:
            kept.calls += 1
            raise ZeroDivisionError
        return kept.step(x, labels)

    step = recorded(unreliable)
    for number, (x, labels) in enumerate(batches(dev, 6)):
        if broken[number]:
            with pytest.raises(ZeroDivisionError):
                step(x, labels)
        else:
            assert float(step(x, labels)) == float(plain.step(x, labels))
    same(plain, kept)
    assert kept.calls == 3


def test_a_state_loaded_between_replays_counts(dev: tensai.Device) -> None:
    """Back to a checkpoint, with another learning rate: the recorded step goes on from there."""
    plain, kept = Run(dev), Run(dev)
    step = recorded(kept.step)
    data = batches(dev, 8)
    for run, one in ((plain, plain.step), (kept, step)):
        for x, labels in data[:4]:
            one(x, labels)
        state, arrays = run.optimizer.state_dict(), run.arrays()
        for x, labels in data[4:]:
            one(x, labels)
        run.optimizer.load_state_dict(state)
        with no_grad():
            for parameter, array in zip(run.w, arrays, strict=True):
                parameter.scale_(0).add_(array)
        run.optimizer.lr = 0.005
        for x, labels in data[4:]:
            one(x, labels)
    assert kept.calls == 2
    same(plain, kept)


def test_gradients_that_a_recorded_step_leaves(dev: tensai.Device) -> None:
    """Cleared outside, added up over calls, and over two shapes: as when it is not recorded."""

    def gradients(run: Run, x: Any, labels: Any) -> Any:
        w1, b1, w2, b2 = run.w
        loss = cross_entropy((x @ w1 + b1).gelu() @ w2 + b2, labels)
        loss.backward()
        run.calls += 1
        return loss

    for pattern in ("cleared", "added", "shapes"):
        plain, kept = Run(dev), Run(dev)
        step = recorded(lambda x, y, run=kept: gradients(run, x, y))
        for number, (x, labels) in enumerate(batches(dev, 8)):
            for run, one in ((plain, lambda x, y, run=plain: gradients(run, x, y)), (kept, step)):
                if pattern != "added" or number % 3 == 0:
                    run.optimizer.zero_grad()
                one(x, labels)
                if pattern == "shapes":
                    one(x[:4], labels[:4])
                if pattern != "added" or number % 3 == 2:
                    run.optimizer.step()
        same(plain, kept)
        assert kept.calls == (2 if pattern == "cleared" else kept.calls)


def test_parameters_that_moved_or_went(gpu: tensai.Device, cpu: tensai.Device) -> None:
    w = Parameter(gpu.ones(2))
    optimizer = SGD([w], lr=0.1)
    x = gpu.ones(2)

    @recorded
    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = (x * w - 3).square().sum()
        loss.backward()
        optimizer.step()
        return loss

    expected = 1.0
    for number in range(12):
        if number == 5:
            w.to_(cpu)
            with pytest.raises(DeviceMismatchError):
                step(x)
            w.to_(gpu)
        loss = float(step(x))
        assert loss == pytest.approx(2 * (expected - 3) ** 2, rel=1e-5)
        expected -= 0.1 * 2 * (expected - 3)
        assert w.tolist() == pytest.approx([expected] * 2, rel=1e-5)
    with pytest.raises(DeviceMismatchError):
        step(cpu.ones(2))
    w.free()
    with pytest.raises(TensorFreedError):
        step(x)


def test_arguments_that_no_recording_follows(dev: tensai.Device) -> None:
    w = Parameter(dev.upload(np.float32([1, 2])))
    x = dev.ones(2)

    @recorded
    def step(x: Any, scale: Any = 1.0, extra: Any = None) -> Any:
        total = (x * w * scale).sum()
        return {"total": total, "both": [total, x]}

    for number in range(5):
        assert float(step(x, 2.0)["total"]) == 6
        assert float(step(x, scale=3.0)["total"]) == 9
        assert float(step(x, 1.0, [number])["both"][0]) == 3
        assert float(step(w, 1.0)["total"]) == 5
    seen = [step(x * float(number))["both"][0] for number in range(5)]
    assert [float(one) for one in seen] == [0, 3, 6, 9, 12]  # copies, also in lists and dicts


def test_nan_check_looks_into_recorded_steps(dev: tensai.Device) -> None:
    w = Parameter(dev.ones(2))
    step = recorded(lambda x: (x * w).log().sum())
    for _ in range(4):
        step(dev.ones(2))
    with tensai.debug.nan_check(), pytest.raises(NaNError, match="log made NaN"):
        step(dev.full(2, -1.0))


def test_threads_in_one_recorded_step(dev: tensai.Device) -> None:
    w = Parameter(dev.ones(3))
    step = recorded(lambda x: (x * w).sum())
    wrong: list[Any] = []

    def work(number: int) -> None:
        for _ in range(20):
            value = float(step(dev.full(3, float(number))))
            if value != 3 * number:
                wrong.append((number, value))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


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


def test_evaluation_between_replays(dev: tensai.Device) -> None:
    run = Run(dev)
    step = recorded(run.step)

    def evaluate(x: Any, labels: Any) -> float:
        with no_grad():
            w1, b1, w2, b2 = run.w
            return float(cross_entropy((x @ w1 + b1).gelu() @ w2 + b2, labels))

    x, labels = batches(dev, 1)[0]
    losses = []
    for _ in range(12):
        before = evaluate(x, labels)
        losses.append(float(step(x, labels)))
        assert losses[-1] == pytest.approx(before, abs=1e-6)
    assert losses[-1] < losses[0]
