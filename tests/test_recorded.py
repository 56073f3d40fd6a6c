"""Recorded steps: replayed or not, they do what the step does when it is not recorded."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_runs import Run, batches, same

import tensai
from tensai.autograd import Parameter, cross_entropy, no_grad, recorded
from tensai.errors import DeviceMismatchError, GradientError, NaNError, TensorFreedError
from tensai.optim import SGD, Adam, AdamW

pytestmark = pytest.mark.usefixtures("still_works")


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


def test_a_replay_between_forward_and_backward_is_refused(dev: tensai.Device) -> None:
    """As an optimizer's step that is not recorded: the parameters that the tape saved are gone."""
    run = Run(dev)
    step = recorded(run.step)
    for x, labels in batches(dev, 5):
        loss = run.w[0].square().sum()
        step(x, labels)
        with pytest.raises(GradientError, match="changed in place"):
            loss.backward()


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


@pytest.mark.parametrize("kind", [SGD, Adam, AdamW])
def test_parameters_that_miss_steps(dev: tensai.Device, tmp_path: Path, kind: Any) -> None:
    """Each counts its own steps, whichever shapes give it a gradient, and after a state is loaded.

    Recorded or not, on and from a file or not, the numbers are the same.
    """
    options = {"momentum": 0.9} if kind is SGD else {}

    def train(wrap: Any, resumed: bool) -> Any:
        w = [Parameter(dev.ones(2)) for _ in range(3)]
        named = {str(place): parameter for place, parameter in enumerate(w)}
        optimizer = kind(w, lr=0.1, **options)

        def step(x: Any) -> Any:
            optimizer.zero_grad()
            loss = (x * w[0]).sum()
            for place in (1, 2):
                if x.shape[0] > place:
                    loss = loss + (w[place] * w[place]).sum()
            loss.backward()
            optimizer.step()
            return loss

        run = wrap(step)
        for number, rows in enumerate((2, 1, 2, 1, 1, 3, 1, 3, 2, 3, 2, 1, 3, 3)):
            run(dev.ones((rows, 2)))
            if number in (4, 7):
                tensai.save(tmp_path / "kept", named, optimizer)
            if number in (7, 11) and resumed:  # from here, and from where others had missed less
                tensai.load(tmp_path / "kept", named, optimizer)
            elif number == 11:
                break
        return [parameter.tolist() for parameter in w], optimizer.state_dict()

    for resumed in (False, True):
        expected, state = train(lambda step: step, resumed)
        got, its_state = train(recorded, resumed)
        assert got == expected
        assert all(np.array_equal(state[name], its_state[name]) for name in state | its_state)


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        (SGD, "momentum", 0.0),
        (SGD, "weight_decay", 0.1),
        (SGD, "nesterov", True),
        (SGD, "lr", 0.5),
        (SGD, "schedule", lambda step: 0.5),
        (Adam, "betas", (0.5, 0.6)),
        (Adam, "eps", 0.1),
        (AdamW, "weight_decay", 0.7),
    ],
)
def test_an_optimizer_that_is_set_to_other_numbers(
    dev: tensai.Device, kind: Any, name: str, value: Any
) -> None:
    plain, kept = Run(dev), Run(dev)
    for run in (plain, kept):
        run.optimizer = kind(run.w, lr=0.02, **({"momentum": 0.9} if kind is SGD else {}))
    step = recorded(kept.step)
    for number, (x, labels) in enumerate(batches(dev, 8)):
        if number == 4:
            setattr(plain.optimizer, name, value)
            setattr(kept.optimizer, name, value)
        plain.step(x, labels)
        step(x, labels)
    same(plain, kept)
    assert kept.calls == (2 if name in ("lr", "schedule") else 4)  # else recorded again
