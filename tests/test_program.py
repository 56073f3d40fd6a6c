"""Recorded programs: a replay does what the block did, on the same memory, come what may."""

from __future__ import annotations

import gc
import logging
import threading

import numpy as np
import pytest
from compare import numbers, same

import tensai
from tensai.autograd import Parameter
from tensai.errors import GradientError


def test_replay_follows_its_inputs(dev: tensai.Device) -> None:
    values = numbers((7, 33))
    x, w = dev.upload(values), dev.upload(numbers((33, 5), seed=2))
    with dev.record() as program:
        y = (x @ w).softmax()
        total = y.sum(axis=0)
    for step in range(3):
        # float64 NumPy
        scores = values.astype(np.float64) @ w.download().astype(np.float64)
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        same(y, shares.astype(np.float32), 1e-5, what=step)
        same(total, shares.sum(axis=0).astype(np.float32), 1e-5, what=step)
        values = values + np.float32(0.25)
        x.add_(0.25)
        program.replay()


def test_counters_live_on_the_device(dev: tensai.Device) -> None:
    count = dev.upload(np.array([3], np.int32))
    half = dev.upload(np.arange(5), np.float16)
    with dev.record() as program:
        count.add_(1)
        half.add_(0.5)
        doubled = count * 2
    with dev.batch():
        for _ in range(9):
            program.replay()
    assert count.tolist() == [13]
    assert doubled.tolist() == [26]
    same(half, (np.arange(5) + 5.0).astype(np.float16))


def test_memory_of_a_program_is_its_own(dev: tensai.Device) -> None:
    x = dev.upload(numbers(1000))
    with dev.record() as program:
        # Every step frees what the one before made; an operand from the host must survive that.
        y = x
        for _ in range(20):
            y = y * 0.5 + np.ones(1000, np.float32)
    expected = y.download()
    # Whatever the program let go of while it was recorded, nobody else may get.
    others = [dev.upload(numbers(1000, seed=i)) for i in range(50)]
    others += [other * 3 for other in others]
    before = [other.download() for other in others]
    y.scale_(0)
    program.replay()
    same(y, expected)
    for other, array in zip(others, before, strict=True):
        same(other, array)


def test_a_program_keeps_what_it_uses(dev: tensai.Device) -> None:
    x = dev.upload(numbers(500))
    expected = numbers(500) * 2
    with dev.record() as program:
        y = x * 2
        z = y + 1
    x.free()
    y.free()
    del y
    for _ in range(5):
        dev.upload(np.full(500, 9, np.float32)).scale_(2).free()
    program.replay()
    same(z, expected + 1)


def test_dropped_programs_give_their_memory_back(gpu: tensai.Device) -> None:
    x = gpu.upload(numbers(100_000))
    gpu.synchronize()
    gc.collect()
    before = gpu.memory()["in_use"]
    for _ in range(3):
        with gpu.record() as program:
            y = (x + 1).exp().sum()
        program.replay()
        float(y)
        assert gpu.memory()["in_use"] > before
        del program, y
        gc.collect()
        assert gpu.memory()["in_use"] == before
    # A result may outlive its program.
    with gpu.record() as program:
        y = x + 1
    del program
    gc.collect()
    others = [gpu.upload(numbers(100_000, seed=i)) for i in range(4)]
    same(y, numbers(100_000) + 1)
    del y, others
    gc.collect()
    assert gpu.memory()["in_use"] == before


def test_long_programs_and_copies(gpu: tensai.Device) -> None:
    x = gpu.zeros(3)
    h = gpu.zeros(3, np.float16)
    with gpu.record() as program:
        for index in range(700):
            x.add_(1)
            if index % 100 == 0:
                h.add_(1)  # float16 comes back by a copy between dispatches
    program.replay()
    program.replay()
    assert x.tolist() == [2100.0] * 3
    assert h.tolist() == [21.0] * 3


def test_programs_within_programs(dev: tensai.Device) -> None:
    x = dev.zeros(4)
    with dev.record() as inner:
        x.add_(1)
    with dev.record() as outer:
        inner.replay()
        inner.replay()
        x.scale_(2)
    assert x.tolist() == [6.0] * 4  # (1 + 2) * 2
    outer.replay()
    assert x.tolist() == [16.0] * 4


@pytest.mark.parametrize("kind", ["new", "in place", "float16", "assigned", "nested"])
def test_a_replay_changes_what_it_writes(dev: tensai.Device, kind: str) -> None:
    """A tape that saved what a program writes notices its replay; other tensors are as before."""
    w = Parameter(dev.upload(np.float32([1, 2])))
    x, y = dev.upload(np.float32([3, 4])), dev.upload(np.float32([5, 6]))
    if kind == "float16":
        w, y = Parameter(w.astype(np.float16).detach()), y.astype(np.float16)
    with dev.record() as program:
        if kind == "new":
            y = x * 2
        elif kind == "assigned":
            dev.assign(y, x)
        else:
            y.add_(1)
    if kind == "nested":
        inner = program
        with dev.record() as program:
            inner.replay()
    changed, kept = (w * y).sum(), (w * x).sum()
    program.replay()
    with pytest.raises(GradientError, match="changed in place"):
        changed.backward()
    kept.backward()
    assert w.grad is not None
    assert w.grad.tolist() == [3, 4]


@pytest.mark.parametrize("recorded", [False, True])
def test_a_kernel_of_ones_own_changes_what_it_writes(gpu: tensai.Device, recorded: bool) -> None:
    kernel = """
    @group(0) @binding(0) var<storage, read_write> y: array<f32>;
    @compute @workgroup_size(2) fn main(@builtin(local_invocation_id) i: vec3u) { y[i.x] += 1.0; }
    """
    w, y = Parameter(gpu.ones(2)), gpu.ones(2)
    with gpu.record() as program:
        gpu.run(kernel, outputs=[y])
    loss = (w * y).sum()
    if recorded:
        program.replay()
    else:
        gpu.run(kernel, outputs=[y])
    with pytest.raises(GradientError, match="changed in place"):
        loss.backward()
    assert y.tolist() == [3, 3]


@pytest.mark.fallback_expected
def test_what_runs_on_the_cpu_is_replayed_there(
    gpu: tensai.Device, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(gpu.checks, "choose", lambda operation, arguments: None)
    monkeypatch.setattr(gpu, "plans", {})
    caplog.set_level(logging.CRITICAL)
    x = gpu.upload(numbers((4, 9)))
    with gpu.record() as program:
        y = x.tanh() + 1
        x.add_(0.5)
    monkeypatch.undo()
    for step in range(3):
        same(y, np.tanh(numbers((4, 9)).astype(np.float64) + step / 2) + 1, 1e-6)
        program.replay()


def test_a_users_kernel_is_replayed(gpu: tensai.Device) -> None:
    kernel = """
    @group(0) @binding(0) var<storage, read_write> x: array<f32>;
    var<params> step: f32;
    @compute @workgroup_size(64)
    fn main(@builtin(global_invocation_id) id: vec3<u32>) {
        if (id.x < arrayLength(&x)) { x[id.x] += step; }
    }
    """
    x = gpu.zeros(100)
    with gpu.record() as program:
        gpu.run(kernel, outputs=[x], workgroups=2, params=0.5)
    program.replay()
    program.replay()
    assert x.tolist() == [1.5] * 100


def test_errors(dev: tensai.Device, still_works: None) -> None:
    with dev.record() as program:
        with pytest.raises(RuntimeError, match="still being recorded"):
            program.replay()
        with pytest.raises(RuntimeError, match="recorded already"), dev.record():
            pass
    program.replay()  # of nothing
    x = dev.ones(3)
    with pytest.raises(ZeroDivisionError), dev.record() as program:
        x.add_(1)
        raise ZeroDivisionError
    x.add_(1)
    assert x.tolist() == [3.0] * 3


def test_a_closed_device_refuses_to_replay() -> None:
    for device in (tensai.open(), tensai.open("cpu")):
        x = device.ones(3)
        with device.record() as program:
            x.add_(1)
        device.close()
        with pytest.raises(tensai.DeviceLostError):
            program.replay()


def test_replays_are_submitted_aside_in_order(gpu: tensai.Device) -> None:
    x = gpu.zeros(8)
    with gpu.record() as program:
        for _ in range(60):  # enough for a submission of its own
            x.add_(1)
        x.scale_(0.5)
    value = 30.0
    for step in range(20):
        program.replay()
        value = (value + 60) / 2
        if step % 3 == 0:  # a host write, and eager work, between submissions
            x.add_(np.full(8, step, np.float32))
            value += step
    np.testing.assert_allclose(x.download(), value, rtol=1e-6)


def test_an_error_of_a_submission_aside_is_raised() -> None:
    with tensai.open() as device:
        x = device.zeros(8)
        with device.record() as program:
            for _ in range(60):
                x.add_(1)
        device.synchronize()
        device.native.errors.append((1, "made up"))
        program.replay()
        with pytest.raises(tensai.errors.ValidationError, match="made up"):
            device.synchronize()
        program.replay()
        assert x.tolist() == [120.0] * 8  # what was refused never ran


def test_other_threads_stay_out_of_a_recording(dev: tensai.Device) -> None:
    mine, other = dev.zeros(1), dev.zeros(1)
    ones = dev.ones(1)
    with dev.record() as program:
        mine.add_(ones)
        thread = threading.Thread(target=lambda: other.add_(ones))
        thread.start()
        thread.join(0.2)  # it waits for the block's end
        mine.add_(ones)
    thread.join()
    program.replay()
    assert other.item() == 1
    assert mine.item() == 4
